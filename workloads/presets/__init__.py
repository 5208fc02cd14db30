"""Workloads that ship: statistics of published traces, each with its source and licence."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from sim.errors import InputError, nearest
from sim.schema import StrictModel


class Preset(StrictModel):
    """A shipped workload.

    Attributes:
        name: as written in ``preset:``.
        title: one line for a list.
        source: where the trace is published.
        licence: of the trace the figures were taken from.
        trace: figures of the trace itself, to hold the preset against.
        caveats: what the statistics leave out.
        workload: the workload section of a scenario.
    """

    name: str
    title: str
    source: str
    licence: str
    trace: dict[str, float]
    caveats: tuple[str, ...] = ()
    workload: dict[str, Any]


@cache
def preset_names() -> tuple[str, ...]:
    """Names of the shipped presets, sorted."""
    entries = files("workloads.presets").iterdir()
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml")))


@cache
def load_preset(name: str) -> Preset:
    """The preset called ``name``; raises `InputError` with the nearest name when there is none."""
    if not isinstance(name, str) or name not in preset_names():
        raise InputError("preset", f"unknown preset {name!r}", nearest(str(name), preset_names()))
    import yaml

    text = (files("workloads.presets") / f"{name}.yaml").read_text(encoding="utf-8")
    return Preset.parse(yaml.safe_load(text), where=f"presets/{name}.yaml")
