"""From a scenario to the parts of a run: model, device, memory budget, step timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

from hardware_profiles import HardwareProfile, load_hardware
from hardware_profiles.loader import load_engine_overheads
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import StepTimeError
from sim.cluster.fleet import ClientPath
from sim.cost import CostModel, LinearStepTimer, StepTimer
from sim.cost.collectives import occupied
from sim.cost.experts import routing_of
from sim.cost.joint import JointModel, JointSteps
from sim.cost.joint_pipeline import JointPipeline, joint_pipeline_model
from sim.cost.paced import paced
from sim.cost.pipeline import PipelineTimer, Share, pipeline_model
from sim.cost.pricing import USUAL_SKEW
from sim.cost.speculative import SpeculativeCostModel
from sim.drafting import ASYNCHRONOUS, drafter_of, speculation_of
from sim.engine.config import EngineConfig
from sim.engine.policies.reserving import reservation_rule
from sim.errors import InputError
from sim.layout import Layout
from sim.memory_tiers import swap_plan, tier_plans
from sim.models.architecture import Architecture
from sim.models.draft import Draft
from sim.models.kv_cache import layer_caches
from sim.models.kv_format import KvFormat, resolve_kv_format
from sim.models.loader import load_model
from sim.models.memory import MemoryBudget, check_layout, memory_budget
from sim.models.quantization import WeightFormat, resolve_weight_format
from sim.models.sharding import stages
from sim.release import pace_of, picks_of, release_of, sampler_of
from sim.retention import kept_tokens
from sim.scenario import Scenario
from sim.scenario.drafts import draft_of
from sim.scenario.engine import StepTime
from sim.scenario.presets import family

MICROSECOND_S = 1e-6

#: How much longer steps take than predicted, from the profile's error of step times.
Pace = Callable[[StepTimeError], float]


def as_predicted(error: StepTimeError) -> float:
    """The pace of a plain run."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, on what: everything of a scenario that needs no workload.

    Attributes:
        max_model_len: the scenario's, or the model's own.
        draft: what proposes drafts on the GPU, None where nothing does.
    """

    arch: Architecture
    hardware: HardwareProfile
    weights: WeightFormat
    kv: KvFormat
    overheads: EngineOverheads
    max_model_len: int
    draft: Draft | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a run, or of one of its pools.

    ``budget`` is None where a scheduling test gives both blocks and step time; ``kv_bytes_per_token`` is over all GPUs
    that hold a request.
    """

    served: Served
    budget: MemoryBudget | None
    engine: EngineConfig
    timer: StepTimer
    tick_s: float
    path: ClientPath
    kv_bytes_per_token: int


def served_by(scenario: Scenario) -> Served:
    """Load what the scenario names.

    Raises:
        InputError: an unknown name, a layout that does not divide, a context longer than the model's.
    """
    arch = scenario.engine.retained(load_model(scenario.model))
    hardware = load_hardware(scenario.hardware)
    engine = scenario.engine
    longest = arch.max_position_embeddings
    if engine.max_model_len is not None and engine.max_model_len > longest:
        raise InputError(
            "engine.max_model_len",
            f"{engine.max_model_len} is more than the {longest} positions of {arch.name}",
            f"set it to {longest} or less, or leave it null",
        )
    check_layout(arch, scenario.layout)
    weights = resolve_weight_format(arch, engine.quantization)
    return Served(
        arch=arch,
        hardware=hardware,
        weights=weights,
        kv=resolve_kv_format(arch, engine.kv_cache_dtype.model_dump()),
        overheads=load_engine_overheads(family(engine.preset), hardware),
        max_model_len=engine.max_model_len or longest,
        draft=draft_of(engine.speculative, arch, weights, scenario.layout),
    )


def budget_of(scenario: Scenario, served: Served) -> MemoryBudget:
    """The memory of one GPU, to the block. Raises `InputError` where the model does not fit."""
    engine = scenario.engine
    return memory_budget(
        served.arch,
        served.hardware.memory_visible_bytes,
        scenario.layout,
        weight_format=served.weights,
        kv_format=served.kv,
        block_size=engine.block_size,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
        max_model_len=served.max_model_len,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        engine=release_of(engine),
        links=served.hardware.links.kind,
        draft=served.draft,
    )


def assemble(scenario: Scenario, pace: Pace = as_predicted) -> Parts:
    """All parts of a run but its workload; steps take ``pace`` times what the profile says.

    Raises `InputError` for what cannot be served.
    """
    served = served_by(scenario)
    step_time, blocks = scenario.engine.step_time, scenario.engine.num_gpu_blocks_override
    budget = None if step_time and blocks else budget_of(scenario, served)
    if step_time:
        timer = _given(scenario, served, step_time)
        tick_s, path = MICROSECOND_S, ClientPath()
    else:
        timer = paced(cost_model(scenario, served), pace(served.hardware.step_error))
        tick_s, path = 1.0, client_path(served.overheads)
    num_gpu_blocks = budget.num_gpu_blocks if budget else blocks
    assert num_gpu_blocks is not None
    config = _engine_config(scenario, served, num_gpu_blocks, tick_s)
    return Parts(served, budget, config, timer, tick_s, path, kv_bytes_per_token(served, scenario.layout))


def _given(scenario: Scenario, served: Served, step_time: StepTime) -> StepTimer:
    """Step times as the scenario gives them; stages of a pipeline take equal shares of them."""
    whole = LinearStepTimer(step_time.base_us, step_time.per_token_us, step_time.per_seq_us)
    together, count = steps_together(served.arch, scenario.layout), scenario.layout.pipeline_parallel_size
    if count == 1:
        return JointSteps(whole) if together else whole
    share, hops = Share(whole, count), [lambda tokens: 0] * (count - 1)
    if together:
        return JointPipeline([JointSteps(share)] * count, (0, 0), hops, dummies_block=_ranks_are_engines(scenario))
    return PipelineTimer([share] * count, (0, 0), hops)


def kv_bytes_per_token(served: Served, layout: Layout) -> int:
    """Cache of one token over all GPUs that hold a part of it: those of one data-parallel rank."""
    caches = layer_caches(served.arch, served.arch.layers, served.kv, layout.tensor_parallel_size)
    if served.draft is not None:
        caches += served.draft.caches(served.kv)
    return layout.tensor_parallel_size * ceil(sum(cache.layers * cache.bytes_per_token for cache in caches))


def _largest_share(served: Served, layout: Layout) -> float:
    """Of the layers that cache by token, the share in the pipeline stage that has most of them."""
    caching = [
        sum(run.count for run in stage.runs if run.attention is not None and run.attention.kind != "linear")
        for stage in stages(served.arch, layout)
    ]
    return max(caching) / max(sum(caching), 1)


def cost_model(scenario: Scenario, served: Served) -> StepTimer:
    """The physics of one replica."""
    spec, layout = scenario.engine.speculative, scenario.layout
    model = (served.arch, served.weights, served.kv, served.hardware, layout, served.overheads)
    overlaps = scenario.engine.async_scheduling and not _waits_in_a_pipeline(scenario)
    routing = routing_of(served.arch, layout, USUAL_SKEW)
    how: dict[str, Any] = {"sampler": sampler_of(scenario.engine, served.arch), "picks": picks_of(scenario.engine)}
    how["pace"] = pace_of(scenario.engine, served.overheads, served.hardware)
    drafter = None
    if spec is not None:
        drafter = drafter_of(spec, served.draft, served.kv, served.hardware, layout.gpus_per_node, served.overheads)
        overlaps = overlaps and spec.method in ASYNCHRONOUS
    options: dict[str, Any] = {"async_scheduling": overlaps, "routing": routing, **how}
    dummy = 1 if spec is None else 1 + spec.num_speculative_tokens
    together = steps_together(served.arch, layout)
    if layout.pipeline_parallel_size > 1:
        if not together:
            return pipeline_model(*model, drafter=drafter, **options)
        placed = _ranks_are_engines(scenario)
        return joint_pipeline_model(*model, rank_by_rank=placed, drafter=drafter, dummy=dummy, **options)
    timer = CostModel(*model, **options) if drafter is None else SpeculativeCostModel(drafter, *model, **options)
    if not together:
        return timer
    overlap = occupied(layout.all2all_backend, served.hardware) if layout.enable_dbo else None
    return JointModel(timer, layout.data_parallel_size, overlap=overlap, dummy=dummy)


def steps_together(arch: Architecture, layout: Layout) -> bool:
    """Whether data-parallel ranks step together: they share experts. Ranks of a dense model are engines of their own.

    So vLLM since 0.12 (vllm/v1/engine/core.py: DPEngineCoreProc only for models with experts).
    """
    shared = any(run.mlp is not None and run.mlp.num_experts for run in arch.layers)
    return shared and layout.data_parallel_size > 1


def _ranks_are_engines(scenario: Scenario) -> bool:
    """Whether data-parallel ranks are engines of their own that meet in their layers (vLLM), or parts of a TP group."""
    return family(scenario.engine.preset) == "vllm"


def _waits_in_a_pipeline(scenario: Scenario) -> bool:
    """TensorRT-LLM's executor for pipelines has no overlap of host and GPU (py_executor.py, _executor_loop_pp)."""
    return scenario.layout.pipeline_parallel_size > 1 and family(scenario.engine.preset) == "tensorrt-llm"


def client_path(overheads: EngineOverheads) -> ClientPath:
    """Time between client and engine."""
    return ClientPath(
        to_queue_s=overheads.api_request_s.value,
        first_token_s=overheads.stream_token_s.value,
        last_token_s=overheads.stream_token_s.value + overheads.completion_s.value,
    )


def _check_longest_fits(scenario: Scenario, served: Served, num_gpu_blocks: int) -> None:
    """Raise `InputError` if every request reserves more than there is."""
    engine = scenario.engine
    slots = (num_gpu_blocks - 1) * engine.block_size
    rule = reservation_rule(engine.kv_allocation, engine.kv_reservation)
    if rule == "max" and served.max_model_len > slots:
        raise InputError(
            "engine.max_model_len",
            f"{served.max_model_len} tokens are reserved for every request, and the KV cache holds {slots}",
            "lower max_model_len, or set kv_reservation to request, pow2 or oracle",
        )


def _engine_config(scenario: Scenario, served: Served, num_gpu_blocks: int, tick_s: float) -> EngineConfig:
    engine, layout = scenario.engine, scenario.layout
    token_bytes = kv_bytes_per_token(served, layout) / layout.tensor_parallel_size
    block_bytes = engine.block_size * token_bytes
    whole = not engine.enable_chunked_prefill and family(engine.preset) == "vllm"
    if whole and engine.max_num_batched_tokens < served.max_model_len:
        raise InputError(
            "engine.max_num_batched_tokens",
            f"{engine.max_num_batched_tokens} is less than max_model_len {served.max_model_len}, "
            "but chunked prefill is off",
            "lower max_model_len, raise the budget, or turn enable_chunked_prefill on",
        )
    _check_longest_fits(scenario, served, num_gpu_blocks)
    return EngineConfig(
        num_gpu_blocks=num_gpu_blocks,
        block_size=engine.block_size,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=served.max_model_len,
        enable_chunked_prefill=engine.enable_chunked_prefill,
        enable_prefix_caching=engine.enable_prefix_caching,
        long_prefill_token_threshold=engine.long_prefill_token_threshold,
        scheduling_policy=engine.scheduling_policy,
        watermark=engine.watermark,
        scheduler_reserve_full_isl=engine.scheduler_reserve_full_isl,
        async_scheduling=engine.async_scheduling
        and engine.speculative is None
        and scenario.layout.pipeline_parallel_size == 1,
        pipeline_stages=scenario.layout.pipeline_parallel_size,
        preset=engine.preset,
        kv_allocation=engine.kv_allocation,
        max_new_tokens=engine.max_new_tokens,
        knobs=engine.policy_knobs,
        speculation=speculation_of(engine.speculative, scenario.seed),
        swap=swap_plan(engine, served.hardware, block_bytes, tick_s),
        kept_tokens=kept_tokens(scenario, served.arch),
        keeps_prompts=engine.kv_retention is not None and engine.kv_retention.policy == "h2o",
        tiers=tier_plans(
            engine, block_bytes * layout.tensor_parallel_size, block_bytes * _largest_share(served, layout), tick_s
        ),
    )
