"""What ships with servecast, with the provenance of its numbers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.text import gib, number, usd
from sim.errors import InputError, nearest

Row = tuple[str, ...]
_LONG_LIST: Final = 16
_PATH_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class _Catalogue:
    """One kind of thing that ships: a table of all, and the whole document of one."""

    header: Row
    names: Callable[[], list[str]]
    row: Callable[[str], Row]
    entry: Callable[[str], dict[str, Any]]


def print_catalogue(kind: str, name: str | None, as_json: bool, console: Console | None = None) -> None:
    """Print the list of a kind, or one entry of it. Raises `InputError` for an unknown kind or name."""
    kinds = _kinds()
    if kind not in kinds:
        raise InputError("KIND", f"unknown kind '{kind}'", nearest(kind, [*kinds, "layouts"]))
    catalogue = kinds[kind]
    console = console or Console(highlight=False)
    if name is not None:
        entry = catalogue.entry(name)
        print(json.dumps(entry, indent=2)) if as_json else _print_entry(entry, console)
    elif as_json:
        print(
            json.dumps(
                [dict(zip(catalogue.header, catalogue.row(each), strict=True)) for each in catalogue.names()], indent=2
            )
        )
    else:
        _print_columns([catalogue.header, *map(catalogue.row, catalogue.names())], console)


def _print_columns(rows: list[Row], console: Console) -> None:
    """Aligned columns; a line too long for the terminal wraps there, no word is cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        console.print(Text(line, style="bold" if index == 0 else ""), soft_wrap=True)


def _kinds() -> dict[str, _Catalogue]:
    from hardware_profiles import hardware_names
    from sim.models.loader import catalog_names
    from sim.scenario.presets import PRESETS
    from workloads import preset_names

    model_header = ("name", "layers", "heads/KV", "kind", "context", "stored")
    hardware_header = ("name", "memory", "TB/s", "bf16 TFLOP/s", "$/h", "step times")
    return {
        "models": _Catalogue(model_header, lambda: list(catalog_names()), _model_row, _model_entry),
        "hardware": _Catalogue(hardware_header, hardware_names, _hardware_row, _hardware_entry),
        "workloads": _Catalogue(("name", "what"), lambda: list(preset_names()), _workload_row, _workload_entry),
        "presets": _Catalogue(("name", "batch limits"), lambda: sorted(PRESETS), _preset_row, _preset_entry),
    }


def _model_row(name: str) -> Row:
    from sim.models.loader import load_model

    model = load_model(name)
    attentions = [run.attention for run in model.layers if run.attention]
    experts = max((run.mlp.num_experts for run in model.layers if run.mlp), default=0)
    heads = f"{attentions[0].num_heads}/{attentions[0].num_kv_heads}" if attentions else ""
    kinds = "+".join(dict.fromkeys(attention.kind for attention in attentions))
    parts = [f"MoE-{experts}"] if experts else []
    kind = " ".join(parts + ([kinds] if kinds != "full" or not parts else []))
    stored = model.stored_quantization or model.stored_dtype
    return (name, f"{model.num_layers}", heads, kind, f"{model.max_position_embeddings // 1024}K", stored)


def _model_entry(name: str) -> dict[str, Any]:
    from sim.models.loader import catalog_entry, load_model

    document = catalog_entry(name)
    model = dataclasses.asdict(load_model(name))
    model.pop("layer_order", None)
    return {"name": model.pop("name"), "source": document.get("source"), "architecture": _without_absent(model)}


def _without_absent(value: Any) -> Any:
    """Drop what a model does not have: zeros, false and null."""
    if isinstance(value, dict):
        return {key: _without_absent(item) for key, item in value.items() if item not in (0, False, None)}
    return [_without_absent(item) for item in value] if isinstance(value, list | tuple) else value


def _hardware_row(name: str) -> Row:
    from hardware_profiles import load_hardware

    profile = load_hardware(name)
    return (
        name,
        gib(profile.memory.capacity_bytes.value),
        number(profile.memory_bandwidth_bytes_per_s / 1e12),
        number(profile.peak_flops("bf16") / 1e12),
        usd(profile.usd_per_hour),
        "fitted" if profile.calibrated else "assumed",
    )


def _hardware_entry(name: str) -> dict[str, Any]:
    from hardware_profiles import load_hardware

    return load_hardware(name).model_dump(mode="json", exclude_none=True)


def _workload_row(name: str) -> Row:
    from workloads import load_preset

    return name, load_preset(name).title


def _workload_entry(name: str) -> dict[str, Any]:
    from workloads import load_preset

    return load_preset(name).model_dump(mode="json")


def _preset_row(name: str) -> Row:
    from sim.scenario.presets import PRESETS

    preset = PRESETS[name]
    return name, f"max_num_seqs {preset['max_num_seqs']}, max_num_batched_tokens {preset['max_num_batched_tokens']}"


def _preset_entry(name: str) -> dict[str, Any]:
    from sim.scenario.engine import EngineSpec
    from sim.scenario.presets import PRESETS

    if name not in PRESETS:
        raise InputError("NAME", f"unknown engine preset '{name}'", nearest(name, PRESETS))
    return EngineSpec.parse({"preset": name}).model_dump(mode="json")


def _print_entry(entry: dict[str, Any], console: Console) -> None:
    """Every number on a line, its provenance beside it, its source as a numbered note below.

    Lines are not cut and not folded: a terminal wraps them, and a pipe gets them whole.
    """
    notes: dict[str, int] = {}
    leaves = list(_leaves(entry, ""))
    width = min(_PATH_WIDTH, max((len(path) for path, *_ in leaves), default=0))
    for path, value, provenance, source in leaves:
        mark = f"{provenance} [{notes.setdefault(source, len(notes) + 1)}]" if source else provenance
        line = Text.assemble(path.ljust(width), "  ", value, "  " if mark else "", (mark, "dim"))
        console.print(line, soft_wrap=True)
    for source, mark_number in notes.items():
        console.print(Text(f"[{mark_number}] {source}", style="dim"), soft_wrap=True)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str, str, str]]:
    """(path, value, provenance, source) of every value; a number that carries its provenance is one of them."""
    if isinstance(value, dict) and {"value", "provenance"} <= set(value):
        yield path, _shown(value["value"]), value["provenance"], value.get("source", "")
    elif isinstance(value, dict) and {"provenance", "source"} <= set(value):
        rest = {key: item for key, item in value.items() if key not in ("provenance", "source")}
        for leaf, shown, _, _ in _leaves(rest, path):
            yield leaf, shown, value["provenance"], value["source"]
    elif isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    elif value not in (None, "", [], {}, ()):
        yield path, _listed(value) if isinstance(value, list | tuple) else _shown(value), "", ""


def _listed(values: Sequence[Any]) -> str:
    """The values in a row; of a long table its beginning and its size."""
    between = "; " if any(isinstance(value, str) and " " in value for value in values) else ", "
    if len(values) <= _LONG_LIST:
        return between.join(map(_shown, values))
    return f"{between.join(map(_shown, values[:4]))}, ... ({len(values)} values; --json shows all)"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
