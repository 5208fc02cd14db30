"""Write a hardware profile as YAML that a person can read: one figure a line, grids as short strings of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hardware_profiles import HardwareProfile
from hardware_profiles.grid import Anchors, Grid


def write_profile(profile: HardwareProfile, path: str | Path, header: str = "") -> None:
    """Write ``profile`` to ``path``; ``header`` becomes a comment on top (licence and attribution)."""
    document = _plain(profile)
    lines = [f"# {line}".rstrip() for line in header.splitlines()]
    aliases = ", ".join(f'"{alias}"' for alias in profile.aliases)
    lines += [f"name: {profile.name}", f"aliases: [{aliases}]"]
    body = yaml.dump(
        {key: value for key, value in document.items() if key not in ("name", "aliases")},
        Dumper=_Dumper,
        sort_keys=False,
        width=118,
        allow_unicode=True,
    )
    Path(path).write_text("\n".join(lines) + "\n" + body, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Leaves (a figure, a residual, a segment, a list of numbers) stay on one line."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        values = list(mapping.values())
        leaf = bool(values) and all(isinstance(value, (str, int, float, bool)) for value in values)
        short = leaf and len(values) <= 5 and "\n" not in "".join(str(value) for value in values)
        return super().represent_mapping(tag, mapping, flow_style=short and _is_inline(mapping))


def _is_inline(mapping: dict[str, Any]) -> bool:
    return {"value", "provenance"} <= set(mapping) or "alpha_s" in mapping or "median" in mapping


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.ScalarNode:
    if value.is_integer() and abs(value) < 1e15:
        whole = int(value)
        text = str(whole) if abs(whole) < 10**6 or whole % 2**20 == 0 else _short(value)
        return dumper.represent_scalar("tag:yaml.org,2002:float" if "e" in text else "tag:yaml.org,2002:int", text)
    return dumper.represent_scalar("tag:yaml.org,2002:float", _short(value))


def _short(value: float) -> str:
    text = f"{value:.6g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{int(exponent):+d}"
    return text if "." in text else text + ".0"


_Dumper.add_representer(float, _number)


def _plain(value: Any) -> Any:
    """Models as dictionaries without empty or missing parts; grids with their numbers joined."""
    if isinstance(value, Grid):
        return {"axes": {name: _joined(nodes) for name, nodes in value.axes.items()}, "factor": _joined(value.factor)}
    if isinstance(value, Anchors):
        points = [_joined(point) for point in value.points]
        return {"shape": list(value.shape), "along": value.along, "nodes": _joined(value.nodes), "points": points}
    if hasattr(value, "model_fields_set"):
        pairs = ((name, getattr(value, name)) for name in type(value).model_fields)
        return {name: _plain(item) for name, item in pairs if item is not None and item != () and item != {}}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _joined(numbers: tuple[float, ...]) -> str:
    return " ".join(f"{number:g}" for number in numbers)
