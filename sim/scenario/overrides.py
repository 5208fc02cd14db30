"""``key.path=value`` edits of a scenario document."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from sim.errors import InputError
from sim.scenario.document import parse_yaml


def apply_overrides(document: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A copy of ``document`` with each ``key.path=value`` set, in order; values are YAML.

    A number in the path is an index into a list. Missing sections are made; the schema judges the keys afterwards.
    Raises `InputError` where an override is not of that form or leads through a plain value.
    """
    edited = copy.deepcopy(document)
    for override in overrides:
        path, separator, text = override.partition("=")
        keys = path.strip().split(".")
        if not separator or not all(keys):
            raise InputError(
                f"override '{override}'", "is not of the form key.path=value", "for example engine.max_num_seqs=128"
            )
        _assign(edited, keys, parse_yaml(text, f"override '{override}'"))
    return edited


def _assign(document: Any, keys: list[str], value: Any) -> None:
    for depth, key in enumerate(keys):
        where = ".".join(keys[:depth])
        last = depth == len(keys) - 1
        if isinstance(document, list):
            if not key.isdecimal() or int(key) >= len(document):
                raise InputError(".".join(keys), f"'{key}' is not an index into the {len(document)} entries of {where}")
            slot: Any = int(key)
        elif isinstance(document, dict):
            slot = key
        else:
            example = f"set {where} as a whole: '{where}={{..., {key}: VALUE}}'"
            raise InputError(".".join(keys), f"{where} is {document!r}, not a section", example)
        if last:
            document[slot] = value
        elif isinstance(document, dict) and document.get(slot) is None:
            document[slot] = {}
        if not last:
            document = document[slot]
