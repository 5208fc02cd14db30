"""Values as vLLM's flags take them."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from sim.errors import InputError

_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)")
_SCALES: Final = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}


def tokens(text: str) -> int:
    """vLLM's readable numbers: 32k is 32,000 and 32K is 32,768."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(float(match[1]) * _SCALES[match[2]])


def section(name: str, text: str, example: str) -> dict[str, Any]:
    """The JSON object that a flag takes; raises `InputError` for anything else."""
    try:
        given = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        raise InputError(name, "is not JSON", f"as in {example}") from None
    if not isinstance(given, dict):
        raise InputError(name, "must hold keys and values", f"as in {example}")
    return given
