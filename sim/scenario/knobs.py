"""Engine keys that only some presets have: filled in from the preset, refused with another one."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from sim.errors import InputError, nearest
from sim.scenario.presets import NATIVE_NAMES, OWNERS, PRESETS, defaults_of, family
from sim.schema import StrictModel


def _printable(text: str) -> str:
    if any(unicodedata.category(sign) == "Cc" for sign in text):
        raise InputError("", f"{text!r} holds a control character", "use plain text on one line")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
Place = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_printable)]  # a name, or a path


class Section(StrictModel):
    """A part of the scenario. Numbers are numbers: ``"8"`` and ``true`` are not taken for one."""

    model_config = ConfigDict(strict=True)


class PolicyKnobs(Section):
    """Knobs of single engines, under the engine's own names; None where the preset has no such knob."""

    max_new_tokens: int | None = Field(None, ge=1)
    kv_reservation: Literal["max", "request", "pow2", "oracle"] | None = None
    schedule_policy: Literal["fcfs", "lpm"] | None = None
    attention_backend: Literal["fa3"] | None = None
    max_prefill_tokens: int | None = Field(None, ge=1)
    enable_mixed_chunk: bool | None = None
    schedule_conservativeness: float | None = Field(None, gt=0)
    init_new_token_ratio: float | None = Field(None, gt=0, le=1)
    min_new_token_ratio_factor: float | None = Field(None, ge=0, le=1)
    new_token_ratio_decay_steps: int | None = Field(None, ge=1)
    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"] | None = None
    waiting_served_ratio: float | None = Field(None, ge=0)
    max_waiting_tokens: int | None = Field(None, ge=1)
    max_batch_total_tokens: int | None = Field(None, ge=1)
    max_queue_delay_s: float | None = Field(None, ge=0, le=1e9)


def engine_document(data: dict[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The defaults of the preset that ``data`` names, and ``data`` under the keys' own names.

    Raises:
        InputError: an unknown preset, a knob of another engine, a key given under both of its names.
    """
    preset, release = data.get("preset", "vllm"), data.get("version")
    if isinstance(release, int | float) and not isinstance(release, bool):
        raise InputError(
            "version", f"is the number {release}, which may have lost a zero", "put it in quotes: '0.15.1'"
        )
    if not isinstance(preset, str):
        return PRESETS["vllm"], data  # the field's own check says what is wrong
    if preset not in PRESETS:
        raise InputError("preset", f"unknown engine preset '{preset}'", nearest(preset, [*PRESETS]))
    given = _own_names(preset, data)
    for key, value in given.items():
        if key in OWNERS and family(preset) not in OWNERS[key] and value != PRESETS[preset].get(key):
            raise InputError(
                key,
                f"is a knob of {_listed(OWNERS[key])}, and the preset is {preset}",
                "leave it out, set it to null, or change preset",
            )
    defaults = defaults_of(preset, release)
    unset = {key for key in PolicyKnobs.model_fields if defaults.get(key) is not None and given.get(key, "") is None}
    return defaults, {key: value for key, value in given.items() if key not in unset}


def owned_knobs(preset: str) -> list[str]:
    """The keys of `PolicyKnobs` that ``preset`` has."""
    return [key for key in PolicyKnobs.model_fields if family(preset) in OWNERS[key]]


def scheduler_knobs(preset: str) -> list[str]:
    """Those of them that the scheduler goes by, and neither the workload nor the kernels."""
    return [key for key in owned_knobs(preset) if key not in ("max_new_tokens", "attention_backend")]


def _own_names(preset: str, data: dict[str, Any]) -> dict[str, Any]:
    native = NATIVE_NAMES.get(family(preset), {})
    given: dict[str, Any] = {}
    for key, value in data.items():
        name = native.get(key, key)
        if name in given or (name != key and name in data):
            raise InputError(key, f"is another name of {name}, and both are given", "keep one of them")
        if name not in PRESETS[preset]:
            _refuse_foreign_name(preset, name)
        given[name] = value
    return given


def _refuse_foreign_name(preset: str, key: str) -> None:
    """Say so if ``key`` is what another engine calls one of our keys."""
    for engine, names in NATIVE_NAMES.items():
        if key in names:
            ours = {name: alias for alias, name in NATIVE_NAMES.get(family(preset), {}).items()}
            called = ours.get(names[key], names[key])
            raise InputError(key, f"is {engine}'s name, and the preset is {preset}", f"with {preset} it is {called}")


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
