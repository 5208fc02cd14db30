"""Values that may be a path: made absolute against the document's folder, hashed by what the file holds."""

from __future__ import annotations

import hashlib
from os.path import isfile, realpath  # no errors of their own for a name too long or a loop of links
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError

# key path -> may also be a name from a catalogue
PATH_KEYS: Final = {
    ("model",): True,
    ("hardware",): True,
    ("engine", "speculative", "draft_model"): True,
    ("cluster", "disaggregation", "prefill", "hardware"): True,
    ("cluster", "disaggregation", "decode", "hardware"): True,
    ("workload", "trace"): False,  # short for trace.path
    ("workload", "trace", "path"): False,
}
_FILE_SUFFIXES: Final = (".json", ".yaml", ".yml")


def is_path(value: str) -> bool:
    """Whether a model or hardware value is spelled as a path: ``./x``, ``/x``, ``~/x`` or ending in .json or .yaml."""
    return value.startswith((".", "/", "~")) or value.lower().endswith(_FILE_SUFFIXES)


def anchor_paths(document: dict[str, Any], base_dir: Path) -> dict[str, Any]:
    """A copy of ``document`` in which relative paths start at ``base_dir``.

    A model name is taken for a folder only if one with a ``config.json`` lies there, as Hugging Face tools do.
    """
    anchored = document
    for keys, may_be_name in PATH_KEYS.items():
        value = _get(document, keys)
        if not isinstance(value, str) or not value or "\0" in value:
            continue
        there = base_dir / Path(value).expanduser()
        if not may_be_name or is_path(value) or (keys[-1] != "hardware" and isfile(there / "config.json")):
            anchored = _replaced(anchored, keys, realpath(there))
    return anchored


def digest_paths(document: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``document`` with each path replaced by a digest of what lies there: a moved file hashes the same.

    Raises `InputError` where a file cannot be read.
    """
    digested = document
    for keys in PATH_KEYS:
        value = _get(document, keys)
        if isinstance(value, str) and Path(value).is_absolute():
            path = Path(value)
            file = path / "config.json" if path.is_dir() else path
            digested = _replaced(digested, keys, _digest(file, ".".join(keys)))
    return digested


def _digest(path: Path, field: str) -> str:
    try:
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(field, f"cannot read {path}: {error.strerror}") from None


def _get(document: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _replaced(document: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    head, *rest = keys
    return {**document, head: _replaced(document[head], tuple(rest), value) if rest else value}
