"""Documents that come in several kinds, chosen by one key, with errors that name the keys of that kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sim.errors import InputError, nearest
from sim.schema import StrictModel


def chooser(key: str, kinds: Mapping[str, type[StrictModel]], what: str) -> Callable[[Any], Any]:
    """A validator that parses a mapping as the kind that its ``key`` names.

    Unlike a plain union, a wrong key is reported against the one kind that was asked for, and the path of the error
    holds no name of a class.
    """

    def choose(value: Any) -> Any:
        if isinstance(value, StrictModel):
            return value
        known = ", ".join(kinds)
        if not isinstance(value, Mapping):
            raise InputError("", f"expected {what}, got {_shown(value)}", f"give a mapping such as {{{key}: ...}}")
        if key not in value:
            raise InputError(key, "required, but missing", f"one of: {known}")
        name = value[key]
        if not isinstance(name, str) or name not in kinds:
            raise InputError(key, f"unknown {key} {_shown(name)}", nearest(str(name), kinds))
        kind = kinds[name]
        try:
            return kind.parse(dict(value))
        except InputError as error:
            field = error.field.removeprefix(kind.__name__).removeprefix(".")
            raise InputError(field, error.problem, error.remedy) from None

    return choose


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
