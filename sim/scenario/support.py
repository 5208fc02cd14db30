"""What the schema can say and the simulator cannot do yet: refused here, in one place, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sim.errors import InputError
from sim.scenario.pools import pools_of
from sim.scenario.presets import family
from sim.scenario.scenario import Scenario

_PIPELINED: Final = ("vllm", "sglang", "tensorrt-llm", "orca")
_WHY_NO_PIPELINE: Final = {
    "tgi": "does not exist: TGI shards over tensor parallel ranks alone",
    "static": "would run the micro-batches of one batch after each other, which is not supported yet",
}
_TOGETHER: Final = ("vllm", "sglang", "tensorrt-llm")
_SPLIT: Final = ("vllm", "sglang", "tensorrt-llm")


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
    engine = family(scenario.engine.preset)
    if scenario.layout.pipeline_parallel_size > 1 and engine not in _PIPELINED:
        raise InputError(
            "layout.pipeline_parallel_size",
            f"a pipeline under the scheduler of '{scenario.engine.preset}' {_WHY_NO_PIPELINE[engine]}",
            f"set it to 1, or engine.preset to {', '.join(_PIPELINED[:-1])} or {_PIPELINED[-1]}",
        )
    for field, value, remedy in _unsupported(scenario):
        raise InputError(field, f"{value} is not supported yet", remedy)


def _unsupported(scenario: Scenario) -> Iterator[tuple[str, object, str]]:
    engine, layout = scenario.engine, scenario.layout
    if scenario.cluster.disaggregation is not None and family(engine.preset) not in _SPLIT:
        what = f"prefill and decode apart under the scheduler of '{engine.preset}'"
        yield "cluster.disaggregation", what, f"set it to null, or engine.preset to {' or '.join(_SPLIT)}"
    if layout.data_parallel_size > 1 and family(engine.preset) not in _TOGETHER:
        what = f"data-parallel ranks under the scheduler of '{engine.preset}'"
        yield "layout.data_parallel_size", what, f"set it to 1, or engine.preset to {' or '.join(_TOGETHER)}"
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
