"""Typed reading of a Hugging Face ``config.json`` with errors that name the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sim.errors import InputError

_LARGEST: Final = 10**12


class ConfigReader:
    """A read-only view of one (sub-)configuration.

    Args:
        data: the JSON object.
        where: what errors call it (``model.config`` or a path).
        defaults: values of keys that the file may leave out (the defaults of its transformers configuration class).
    """

    __slots__ = ("_data", "where")

    def __init__(self, data: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None) -> None:
        self._data = {**(defaults or {}), **data}
        self.where = where

    def __contains__(self, key: str) -> bool:
        return self._data.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it stands, None where absent or null."""
        return self._data.get(key)

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """The first present of ``keys`` as a whole number of at least ``minimum``."""
        value = self.optional_integer(*keys, minimum=minimum)
        if value is not None:
            return value
        if default is None:
            raise InputError(f"{self.where}.{keys[0]}", "required, but missing from the model's configuration")
        return default

    def optional_integer(self, *keys: str, minimum: int = 1) -> int | None:
        """The first present of ``keys``, None where all are absent or null."""
        for key in keys:
            value = self._data.get(key)
            if value is None:
                continue
            if not _whole(value) or value < minimum:
                raise InputError(f"{self.where}.{key}", f"must be a whole number of at least {minimum}, got {value!r}")
            if value > _LARGEST:
                raise InputError(f"{self.where}.{key}", f"{value:g} is more than any model has", "check the number")
            return int(value)
        return None

    def number(self, key: str, default: float = 1.0) -> float:
        """A finite number above 0."""
        value = self._data.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
            raise InputError(f"{self.where}.{key}", f"must be a finite number above 0, got {value!r}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        """A true or false value."""
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}.{key}", f"must be true or false, got {value!r}")
        return value

    def text(self, key: str, default: str = "") -> str:
        """A string."""
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InputError(f"{self.where}.{key}", f"must be text, got {value!r}")
        return value

    def items(self, key: str) -> list[Any]:
        """A list, empty where absent."""
        value = self._data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InputError(f"{self.where}.{key}", f"must be a list, got {value!r}")
        return value

    def indices(self, key: str) -> frozenset[int]:
        """A list of whole numbers, empty where absent."""
        wrong = [entry for entry in self.items(key) if not isinstance(entry, int) or isinstance(entry, bool)]
        if wrong:
            raise InputError(f"{self.where}.{key}", f"must be a list of whole numbers, got {wrong[0]!r} in it")
        return frozenset(self.items(key))

    def section(self, key: str) -> dict[str, Any]:
        """A sub-object, empty where absent."""
        value = self._data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise InputError(f"{self.where}.{key}", f"must be an object, got {value!r}")
        return value


def _whole(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return isinstance(value, int) or value.is_integer()
