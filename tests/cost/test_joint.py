"""Steps of data-parallel ranks together: the slowest rank, the shared experts, two half-batches."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from sim.assemble import assemble
from sim.cost.joint import JointModel
from sim.cost.shape import StepShape
from sim.scenario import Scenario


def joint(
    model: str = "deepseek-ai/DeepSeek-V3",
    hardware: str = "h200-sxm",
    engine: dict[str, Any] | None = None,
    **layout: Any,
) -> JointModel:
    asked = {
        "model": model,
        "hardware": hardware,
        "layout": {"data_parallel_size": 8, "enable_expert_parallel": True, **layout},
        "engine": engine or {"max_model_len": 8192},
        "workload": {
            "num_requests": 1,
            "arrivals": {"process": "constant", "rate_per_s": 1},
            "prompt_tokens": {"distribution": "constant", "value": 1},
            "output_tokens": {"distribution": "constant", "value": 1},
        },
    }
    timer = assemble(Scenario.from_dict(asked)).timer
    assert isinstance(timer, JointModel)
    return timer


def decodes(seqs: int, context: int) -> StepShape:
    return StepShape(seqs, seqs * context, seqs * context, sampled_seqs=seqs)


PREFILL = StepShape(0, 0, 0, 1, 2048, 2_098_176, 2_098_176, 2048, 2048, 1)


def test_ranks_alike_take_what_one_of_them_is_priced_at() -> None:
    model = joint()
    for shape in (decodes(64, 2000), PREFILL):
        assert model.joint([shape] * 8) == pytest.approx(model._model.step(shape), rel=1e-9)


def test_the_slowest_rank_sets_the_step() -> None:
    model = joint()
    even = model.joint([decodes(64, 2000)] * 8)
    one_long = model.joint([decodes(64, 2000)] * 7 + [decodes(64, 8000)])
    all_long = model.joint([decodes(64, 8000)] * 8)
    assert one_long > 1.05 * even
    assert one_long == pytest.approx(all_long, rel=1e-9)


def test_one_rank_that_prefills_holds_up_all() -> None:
    model = joint()
    assert model.joint([decodes(64, 2000)] * 7 + [PREFILL]) > 2 * model.joint([decodes(64, 2000)] * 8)


def test_idle_ranks_take_part_with_a_dummy_token() -> None:
    """Most of the experts' weights are read for one rank's batch as for all: little is gained where others idle."""
    model = joint()
    alone, all_ranks = model.joint([decodes(32, 2000)]), model.joint([decodes(32, 2000)] * 8)
    assert 0.5 * all_ranks < alone < all_ranks


@pytest.mark.parametrize(
    ("backend", "overlap"),
    [("deepep_low_latency", False), ("deepep_low_latency", True), ("deepep_high_throughput", True)],
)
@pytest.mark.parametrize("seed", range(20))
def test_runs_of_decodes_are_the_steps_one_by_one(seed: int, backend: str, overlap: bool) -> None:
    rng = Random(seed)
    model = joint(all2all_backend=backend, enable_dbo=overlap)
    shapes = [decodes(rng.choice([1, 8, 40, 200]), rng.randint(10, 6000)) for _ in range(rng.randint(1, 8))]
    run = model.joint_run(shapes, [0] * len(shapes))
    for step in range(int(min(run.steps, 300))):
        grown = [
            StepShape(s.decode_seqs, s.decode_context + step * s.decode_seqs, 0, sampled_seqs=s.sampled_seqs)
            for s in shapes
        ]
        assert run.first + step * run.increment == pytest.approx(model.joint(grown), rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_verify_steps_of_all_ranks_are_the_steps_one_by_one(seed: int) -> None:
    """Contexts of each rank grow by as many tokens as were accepted; the prediction layer has experts on all ranks."""
    rng = Random(seed)
    spec = {"method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.8}
    model = joint(engine={"max_model_len": 8192, "speculative": spec})
    shapes = [verify(rng.choice([1, 8, 40, 200]), rng.randint(10, 3000), 2) for _ in range(rng.randint(1, 8))]
    sums = [
        np.cumsum([shape.decode_context, *(rng.randint(shape.decode_seqs, 3 * shape.decode_seqs) for _ in range(20))])
        for shape in shapes
    ]
    times = model.joint_times(shapes, [(context, context) for context in sums])
    for step in range(21):
        grown = [
            StepShape(s.decode_seqs, c[step], c[step], sampled_seqs=s.sampled_seqs, draft_tokens=s.draft_tokens)
            for s, c in zip(shapes, sums, strict=True)
        ]
        assert times[step] == pytest.approx(model.joint(grown), rel=1e-9)


def verify(seqs: int, context: int, drafts: int) -> StepShape:
    attended = seqs * (context + drafts)
    return StepShape(seqs, attended, attended, sampled_seqs=seqs, draft_tokens=seqs * drafts)


def test_idle_ranks_draft_as_well() -> None:
    """A dummy has as many tokens as a request that verifies: more experts are read for it."""
    spec = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}
    drafting, plain = joint(engine={"max_model_len": 8192, "speculative": spec}), joint()
    alone = [verify(1, 1000, 3)]
    assert drafting.joint([*alone, *(verify(1, 1, 3) for _ in range(7))]) == pytest.approx(
        drafting.joint(alone), rel=0.01
    )
    assert drafting._mean_rows(alone) == 4
    assert plain._mean_rows([decodes(1, 1000)]) == 1


def test_two_half_batches_hide_the_exchange_where_there_is_one_to_hide() -> None:
    across = {"data_parallel_size": 32, "all2all_backend": "deepep_low_latency"}
    apart, together = joint(**across), joint(**across, enable_dbo=True)
    batch = [decodes(200, 2000)] * 32
    assert together.joint(batch) < 0.95 * apart.joint(batch)
    small = [decodes(16, 2000)] * 32  # too small to be split
    assert together.joint(small) == apart.joint(small)


def test_half_batches_read_all_weights_twice() -> None:
    """Without much to hide the split costs more than it saves."""
    inside = {"all2all_backend": "deepep_low_latency"}
    batch = [decodes(40, 500)] * 8
    assert joint(**inside, enable_dbo=True).joint(batch) > joint(**inside).joint(batch)


def test_both_halves_share_one_network() -> None:
    """Whatever is overlapped, all tokens travel, and all is computed."""
    across = {"data_parallel_size": 32, "all2all_backend": "deepep_low_latency", "enable_dbo": True}
    model = joint(**across)
    for seqs in (64, 256):
        half = model._model.exchange_s(seqs // 2)
        compute = model._model.gpu_s(decodes(seqs // 2, 500)) - sum(half)
        step = model.joint([decodes(seqs, 500)] * 32)
        assert step > 2 * sum(half)
        assert step >= 2 * compute * (1 - 1e-9)
        assert step > compute + sum(half)


def test_normal_kernels_take_a_part_of_the_gpu_from_the_other_half() -> None:
    across = {"data_parallel_size": 32, "all2all_backend": "deepep_high_throughput"}
    apart, together = joint(**across), joint(**across, enable_dbo=True)
    batch = [PREFILL] * 32
    exchange = sum(apart._model.exchange_s(PREFILL.tokens))
    assert together.joint(batch) < apart.joint(batch)
    assert together.joint(batch) > apart.joint(batch) - exchange + 0.1 * exchange


def test_what_is_set_aside_for_the_exchange_is_lost_to_the_whole_step() -> None:
    """Within a node there is little to hide: all is computed on 112 of 132 multiprocessors, exchange or not."""
    model = joint(all2all_backend="deepep_high_throughput", enable_dbo=True)
    half, batch = StepShape(), StepShape()
    for shape, prompts in ((half, 1), (batch, 2)):
        for _ in range(prompts):
            shape.add_prefill(2048, 60_000, None)
    computed = model._model.gpu_s(half) - sum(model._model.exchange_s(2048))
    assert model.joint([batch] * 8) == pytest.approx(2 * computed / (112 / 132), rel=0.02)


def test_ranks_without_expert_parallelism_share_the_width_of_all_experts() -> None:
    spread, sliced = joint(), joint(enable_expert_parallel=False)
    batch = [decodes(64, 2000)] * 8
    assert sliced.joint(batch) == pytest.approx(spread.joint(batch), rel=0.5)
