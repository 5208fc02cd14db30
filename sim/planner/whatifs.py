"""Questions beside the question: what the answer would be if traffic or formats were different."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hardware_profiles import load_hardware
from sim.errors import InputError
from sim.models.loader import load_model
from sim.models.quantization import resolve_weight_format
from sim.planner.case import Case
from sim.planner.load import mean_tokens
from sim.planner.space import Cell, Options
from sim.scenario import Scenario
from workloads import build_workload
from workloads.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Variation:
    """Another question.

    Attributes:
        name: what is different, in a few words.
        case: the traffic.
        times: about how much more work it is; a guess to start from.
        formats: {cell field: value} that replaces the formats of every cell.
    """

    name: str
    case: Case
    times: float
    formats: dict[str, Any]

    def cell(self, cell: Cell) -> Cell:
        """The cell under other formats."""
        return replace(cell, **self.formats)


def variations(case: Case, options: Options, cells: list[Cell]) -> Iterator[Variation]:
    """The variations that make sense for a case: load, lengths, shared prompts, formats not asked for."""
    base = case.base
    for name, factor in (("half the traffic", 0.5), ("twice the traffic", 2.0)):
        load = case.load.scaled(factor)
        yield Variation(name, Case(load.base, load), factor, {})
    spec = base.workload
    if spec.trace is None and mean_tokens(spec) is not None:
        document = spec.model_dump(mode="json", exclude_none=True)
        document.pop("preset", None)
        for key, name in (("prompt_tokens", "prompts"), ("output_tokens", "answers")):
            for factor, words in ((2.0, "twice as long"), (0.5, "half as long")):
                changed = {**document, key: _stretched(document[key], factor)}
                yield from _case(f"{name} {words}", base, changed, factor)
        if base.engine.enable_prefix_caching and spec.prefixes is None and spec.sessions is None:
            yield from _shared_half(base, document)
    yield from _formats(case, options, cells)


def _case(name: str, base: Scenario, workload: dict[str, Any], times: float) -> Iterator[Variation]:
    try:
        yield Variation(name, Case.of(_with(base, workload)), times, {})
    except InputError:
        return  # the model's context is too short, or a distribution cannot be stretched that far


def _shared_half(base: Scenario, document: dict[str, Any]) -> Iterator[Variation]:
    tokens = mean_tokens(base.workload)
    assert tokens is not None
    shared = int(tokens[0] / 2)
    if shared >= base.engine.block_size:
        prefixes = {"groups": 1, "prefix_tokens": shared}
        yield from _case("half of every prompt shared", base, {**document, "prefixes": prefixes}, 0.7)


def _formats(case: Case, options: Options, cells: list[Cell]) -> Iterator[Variation]:
    """Eight-bit weights or cache where neither was among the formats asked for and the hardware computes in them."""
    arch = load_model(case.base.model)
    bits = [resolve_weight_format(arch, cell.quantization).bits_per_weight for cell in cells]
    fast = all("fp8" in load_hardware(cell.hardware).compute.peak_flops for cell in cells)
    if options.quantization is None and fast and min(bits) >= 16:
        yield Variation("weights in fp8", case, 0.6, {"quantization": "fp8"})
    if options.kv_cache_dtype is None and all(str(cell.kv_cache_dtype) in ("auto", "bf16", "fp16") for cell in cells):
        yield Variation("KV cache in fp8", case, 0.9, {"kv_cache_dtype": "fp8"})


def _with(base: Scenario, workload: dict[str, Any]) -> Scenario:
    """``base`` with another workload and a context long enough. Raises `InputError` where the model's is not."""
    document = base.model_dump(mode="json")
    spec = WorkloadSpec.parse(workload, "workload")
    built = build_workload(spec, base.seed)
    longest = int((built.prompt_tokens + built.output_tokens).max())
    most = load_model(base.model).max_position_embeddings
    if longest > most:
        raise InputError("workload", f"{longest} tokens are more than the {most} positions of {base.model}")
    if base.engine.max_model_len is not None:
        document["engine"]["max_model_len"] = max(base.engine.max_model_len, longest)
    return Scenario.from_dict({**document, "workload": workload})


def _stretched(length: dict[str, Any], factor: float) -> dict[str, Any]:
    """A length distribution with every token count multiplied."""
    scaled = dict(length)
    for key in ("value", "min", "max"):
        if key in scaled:
            scaled[key] = max(1, round(scaled[key] * factor))
    for key in ("mean", "std"):
        if key in scaled:
            scaled[key] = scaled[key] * factor
    if "quantiles" in scaled:
        scaled["quantiles"] = [[p, max(1.0, tokens * factor)] for p, tokens in scaled["quantiles"]]
    return scaled
