"""Reading a YAML or JSON document: safe, bounded, no duplicate keys, plain errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

from sim.errors import InputError, nearest

MAX_BYTES: Final = 4 * 2**20
MAX_NODES: Final = 200_000
MAX_DEPTH: Final = 64
DOCUMENTS: Final = (".yaml", ".yml", ".json")


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2 (``1e3`` is a number, ``no`` and ``2024-01-01`` are text)."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (PyYAML's own protocol)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; a key given twice is an error, not the last one wins."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"key '{key.value}' is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes text that the loader above, or one of YAML 1.1, would read as something else; no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values out in full."""
        return True


for _tag, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))


def parse_yaml(text: str, where: str) -> Any:
    """The value that ``text`` says. Raises `InputError` at ``where:line`` for anything that is not plain YAML."""
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(f"{where}{line}", f"not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(where, f"not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise InputError(where, f"nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise InputError(where, f"not valid YAML: {error}") from None
    _bounded(value, where)
    return value


def load_document(path: Path) -> dict[str, Any]:
    """Read one YAML or JSON mapping from ``path`` (JSON by its suffix, else YAML). Raises `InputError`."""
    text = _read_text(path)
    if path.suffix.lower() == ".json":
        value = _parse_json(text, str(path))
        _bounded(value, str(path))
    else:
        value = parse_yaml(text, str(path))
    if value is None:
        raise InputError(str(path), "the document is empty")
    if not isinstance(value, dict):
        trace = "a trace is named in a scenario, as workload.trace" if isinstance(value, str) else ""
        raise InputError(str(path), f"must hold keys and values, got a {type(value).__name__}", trace)
    return value


def dump_yaml(data: Any) -> str:
    """``data`` as YAML in its own key order; `parse_yaml` reads it back equal (control characters aside)."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _named(folder: Path, pattern: str) -> str:
    """A remedy: the files in ``folder`` that may have been meant."""
    held = sorted(str(path) for path in folder.glob(pattern))
    return f"name a file: {', '.join(held[:4])}" + (", ..." if len(held) > 4 else "") if held else ""


def _read_text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(str(path), "is a folder, not a file", _named(path, "*.yaml"))
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # a device has no size, and no end
        if len(data) > MAX_BYTES:
            raise InputError(str(path), f"has more than {MAX_BYTES} bytes", "put requests into a trace file")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        folder = path.parent
        beside = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        alike = [name for name in beside if Path(name).suffix in DOCUMENTS] or beside
        raise InputError(str(path), "no such file", nearest(path.name, alike) if alike else "") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(path), f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _parse_json(text: str, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InputError(where, f"key '{key}' is given twice")
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}", f"not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(where, f"nested deeper than {MAX_DEPTH} levels") from None


def _bounded(value: Any, where: str) -> None:
    """Refuse documents whose anchors unfold into something huge or endless."""
    nodes = 0
    stack = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise InputError(where, f"nested deeper than {MAX_DEPTH} levels")
        if nodes > MAX_NODES:
            raise InputError(where, f"holds more than {MAX_NODES} values", "put requests into a trace file")
        if isinstance(item, dict):
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            stack.extend((child, depth + 1) for child in item)
