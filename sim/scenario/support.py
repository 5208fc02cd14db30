"""What the schema can say and an engine or the simulator does not have: refused here, in one place, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sim.errors import InputError
from sim.scenario.pools import pools_of
from sim.scenario.presets import family
from sim.scenario.scenario import Scenario

_PIPELINED: Final = ("vllm", "sglang", "tensorrt-llm", "orca")
_WHY_NO_PIPELINE: Final = {
    "tgi": "which shards over tensor parallel ranks alone",
    "static": "which would run the micro-batches of one batch after each other, and that is not supported yet",
}
_SERVED_APART: Final = ("vllm", "sglang", "tensorrt-llm")  # have data-parallel ranks, and prefill and decode engines


def require_supported(scenario: Scenario) -> None:
    """Raise `InputError` if ``scenario``, or one of its pools, asks for something that `simulate` would ignore."""
    _require(scenario)
    if scenario.cluster.disaggregation is None:
        return
    for name, pool in pools_of(scenario).items():
        try:
            _require(pool)
        except InputError as error:
            where = f"cluster.disaggregation.{name}.{error.field}"
            raise InputError(where, error.problem, error.remedy) from None


def _require(scenario: Scenario) -> None:
    for field, what, why, remedy in _absent(scenario):
        raise InputError(field, f"{what} under the scheduler of '{scenario.engine.preset}', {why}", remedy)
    for field, value, remedy in _unsupported(scenario):
        raise InputError(field, f"{value} is not supported yet", remedy)


def _absent(scenario: Scenario) -> Iterator[tuple[str, str, str, str]]:
    """What the engine itself does not have."""
    engine, layout = family(scenario.engine.preset), scenario.layout
    if layout.pipeline_parallel_size > 1 and engine not in _PIPELINED:
        field, why = "layout.pipeline_parallel_size", _WHY_NO_PIPELINE[engine]
        yield field, "a pipeline", why, f"set it to 1, or {_one_of(_PIPELINED)}"
    if scenario.cluster.disaggregation is not None and engine not in _SERVED_APART:
        field, what = "cluster.disaggregation", "prefill and decode apart"
        yield field, what, "which passes no caches on", f"set it to null, or {_one_of(_SERVED_APART)}"
    if layout.data_parallel_size > 1 and engine not in _SERVED_APART:
        field, what = "layout.data_parallel_size", "data-parallel ranks"
        yield field, what, "which has none", f"set layout.replicas instead, or {_one_of(_SERVED_APART)}"


def _one_of(presets: tuple[str, ...]) -> str:
    return f"engine.preset to {', '.join(presets[:-1])} or {presets[-1]}"


def _unsupported(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    engine, split = scenario.engine, scenario.cluster.disaggregation
    if split is not None and split.receive_us_per_token and split.decode.layout.pipeline_parallel_size > 1:
        what = f"{split.receive_us_per_token:g} over pipeline stages"
        yield "cluster.disaggregation.receive_us_per_token", what, "set it to 0, or the decode pool's stages to 1"
    if engine.speculative is not None:
        yield from _unsupported_with_drafts(scenario)
    yield from _unsupported_tiers(scenario)
    if engine.kv_allocation == "contiguous":
        yield from _unsupported_in_one_piece(scenario)


def _unsupported_tiers(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    """Memory beside the GPU is for vLLM's scheduler, one token and one batch at a time."""
    engine = scenario.engine
    if engine.kv_retention is not None:
        yield from _unsupported_retention(scenario)
    if engine.kv_offload is not None:
        field, what, remedy = "engine.kv_offload", "offloading", "set it to null"
    elif engine.preemption != "recompute":
        field, what, remedy = "engine.preemption", f"'{engine.preemption}'", "set it to recompute"
    else:
        return
    if engine.preset != "vllm":
        yield field, f"{what} under the scheduler of '{engine.preset}'", f"{remedy}, or engine.preset to vllm"
    if engine.preemption != "recompute" and scenario.layout.pipeline_parallel_size > 1:
        yield "engine.preemption", f"'{engine.preemption}' over pipeline stages", "set it to recompute"
    if engine.speculative is not None:
        yield field, f"{what} with speculative decoding", f"{remedy}, or engine.speculative to null"
    if engine.kv_allocation == "contiguous":
        yield field, f"{what} with contiguous allocation", f"{remedy}, or engine.kv_allocation to paged"


def _unsupported_retention(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    engine, remedy = scenario.engine, "set engine.kv_retention to null"
    mixes = {
        f"under the scheduler of '{engine.preset}'": engine.preset != "vllm",
        "with speculative decoding": engine.speculative is not None,
        "with swap or offload": engine.kv_offload is not None or engine.preemption != "recompute",
        "with contiguous allocation": engine.kv_allocation == "contiguous",
        "with prefill and decode apart": scenario.cluster.disaggregation is not None,
    }
    for mix in (words for words, given in mixes.items() if given):
        yield "engine.kv_retention", f"keeping a part of the cache {mix}", remedy


def _unsupported_in_one_piece(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    remedy = "set engine.kv_allocation to paged"
    if scenario.engine.speculative is not None:
        yield "engine.kv_allocation", "'contiguous' with speculative decoding", remedy
    if scenario.cluster.disaggregation is not None:
        yield "engine.kv_allocation", "'contiguous' with prefill and decode apart", remedy


def _unsupported_with_drafts(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    engine, layout = scenario.engine, scenario.layout
    remedy = "set engine.speculative to null"
    if layout.enable_dbo:
        yield "layout.enable_dbo", "half-batches with speculation", f"leave it out, or {remedy}"
    if family(engine.preset) != "vllm":
        yield "engine.speculative", f"speculation with the scheduler of '{engine.preset}'", "set engine.preset to vllm"
