"""Memory beside the GPU by hand: swapping, offload tiers and windows; steps take 100 us unless a copy holds them up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from policy_story import play
from story import ask, batches, column

from sim import InputError, Scenario, simulate
from sim.cost.linear import LinearStepTimer
from sim.cost.shape import StepShape
from sim.engine.tiers.choice import crossover_tokens, recompute_ticks
from sim.engine.tiers.copies import CopyQueue
from sim.engine.tiers.plan import SwapPlan, TierPlan
from sim.engine.tiers.store import TierStore

# Two prompts of 4 in 12 tokens: both decode to 6, then the second must give way; it holds 6 tokens in 3 blocks of 2.
CROWDED = (ask(4, 6), ask(4, 6))


def swap(blocks: int = 100, block_us: float = 10, *, overlaps: bool = False, preemption: str = "swap") -> SwapPlan:
    return SwapPlan(preemption, blocks, block_us, overlaps)  # type: ignore[arg-type]


def test_a_preempted_request_is_computed_again_by_default() -> None:
    steps = play("vllm", *CROWDED, tokens=12, block_size=2)
    assert batches(steps) == ["0:4 1:4", "0 1", "0 1", "0", "0", "0", "1:7", "1", "1"]
    assert column(steps, "dt_us") == [100] * 9


def test_a_swapped_one_goes_on_where_it_was_and_steps_wait_for_its_copies() -> None:
    steps = play("vllm", *CROWDED, tokens=12, block_size=2, swap=swap())
    assert batches(steps) == ["0:4 1:4", "0 1", "0 1", "0", "0", "0", "1", "1", "1"]
    assert column(steps, "preempted") == [None, None, None, [1], *(None,) * 5]
    assert column(steps, "dt_us") == [100, 100, 100, 130, 100, 100, 130, 100, 100]  # 3 blocks out, 3 blocks back


def test_where_copies_overlap_the_request_joins_when_its_copy_has_ended() -> None:
    # Its blocks are free at step 6, whose schedule starts the copy: 3 blocks, 30 us; nothing else runs in between.
    steps = play("vllm", *CROWDED, tokens=12, block_size=2, swap=swap(overlaps=True))
    assert batches(steps) == ["0:4 1:4", "0 1", "0 1", "0", "0", "0", "1", "1", "1"]
    times = column(steps, "t_us")
    assert [later - earlier for earlier, later in pairwise(times)] == [100, 100, 100, 130, 100, 130, 100, 100]
    assert column(steps, "dt_us")[6] == 100


def test_a_full_host_lets_the_victim_be_computed_again() -> None:
    steps = play("vllm", *CROWDED, tokens=12, block_size=2, swap=swap(blocks=2))
    assert batches(steps)[6] == "1:7"
    assert set(column(steps, "dt_us")) == {100}


@pytest.mark.parametrize(("block_us", "chosen"), [(10, "swap"), (1000, "recompute")])
def test_auto_takes_the_cheaper_way(block_us: float, chosen: str) -> None:
    # 6 tokens at 100 us beside one decode, against 3 blocks out and back.
    timer = LinearStepTimer(0, 100, 0)
    price = recompute_ticks(timer, StepShape(1, 7, 7, sampled_seqs=1), 6, 512)
    assert price == 600
    plan = swap(block_us=block_us, preemption="auto")
    assert (2 * 3 * plan.block_ticks < price) == (chosen == "swap")


def test_copies_of_one_direction_share_the_link_in_turn() -> None:
    link = CopyQueue(10)
    assert [link.copy(3, 0), link.copy(2, 5), link.copy(1, 100)] == [30, 50, 110]
    assert CopyQueue(0.3, whole_ticks=True).copy(1, 4) == 5
    assert link.blocks == 6


def test_recomputing_costs_what_its_chunks_add_to_decode_steps() -> None:
    timer = LinearStepTimer(50, 2, 7)
    batch = StepShape(10, 1000, 1000, sampled_seqs=10)
    assert recompute_ticks(timer, batch, 1000, 110) == pytest.approx(2 * 1000 + 7 * 10)  # ten chunks of 100
    assert recompute_ticks(timer, StepShape(), 100, 512) == pytest.approx(50 + 2 * 100 + 7)


def test_the_crossover_is_where_swapping_begins_to_win() -> None:
    quadratic = lambda tokens: tokens * tokens / 1000  # noqa: E731
    assert crossover_tokens(quadratic, lambda tokens: 2.0 * tokens) == 2001
    assert crossover_tokens(quadratic, lambda tokens: 1e9 * tokens) is None
    assert crossover_tokens(lambda tokens: 3.0 * tokens, lambda tokens: 2.0 * tokens) == 1


def tiers(*rooms: int, block_us: float = 10) -> tuple[TierPlan, ...]:
    names = ("host", "nvme", "remote")
    return tuple(TierPlan(names[i], blocks, block_us * 10**i) for i, blocks in enumerate(rooms))


# A prefix of 8 tokens in blocks of 2; a request that floods the 16 tokens of the GPU; the prefix again.
RETURNS = (
    ask(9, 1, segments=[["text", 8], ["a", 1]]),
    ask(15, 1, at=1000, segments=[["other", 14], ["b", 1]]),
    ask(9, 1, at=2000, segments=[["text", 8], ["c", 1]]),
)


def test_an_evicted_prefix_is_computed_again_without_a_tier() -> None:
    steps = play("vllm", *RETURNS, tokens=16, block_size=2)
    assert batches(steps) == ["0:9", "1:15", "2:9"]


def test_an_evicted_prefix_comes_back_from_its_tier_after_the_time_of_its_copy() -> None:
    steps = play("vllm", *RETURNS, tokens=16, block_size=2, tiers=tiers(100))
    assert batches(steps) == ["0:9", "1:15", "2"]
    assert steps[2]["admitted"] == [[2, 8, 0]]
    assert steps[2]["t_us"] == 2000 + 4 * 10


def test_what_falls_out_of_one_tier_is_found_in_the_next() -> None:
    steps = play("vllm", *RETURNS, tokens=16, block_size=2, tiers=tiers(2, 100))
    assert batches(steps)[2] == "2"
    assert steps[2]["t_us"] == 2000 + 2 * 100  # two blocks from each, side by side: the slower one decides


def test_a_tier_forgets_the_least_recently_used_tail_first() -> None:
    below = TierStore(TierPlan("nvme", 10, 1), None, whole_ticks=False)
    tier = TierStore(TierPlan("host", 4, 1), below, whole_ticks=False)
    tier.put(1, 0, 2)
    tier.put(2, 0, 2)
    assert tier.load([(1, 0, 2)], 0) == 2  # used just now
    tier.put(3, 0, 1)
    assert [tier.find(node, 0) for node in (1, 2, 3)] == [2, 1, 1]
    assert below.find(2, 1) == 2
    for store in (tier, below):
        store.check()


def test_a_window_frees_what_it_leaves_behind() -> None:
    # A window of 4 in blocks of 2. Position c attends c - 3 and later, so that block i can go when c - 3 >= 2 (i + 1):
    # position 5 frees block 0, 7 block 1, and so on, while 4, 6, 8 ... start a block.
    steps = play("vllm", ask(3, 10), tokens=20, block_size=2, kept_tokens=4)
    assert [10 - free for free in column(steps, "free_blocks")] == [2, 2, 3, 2, 3, 2, 3, 2, 3, 2]


# -- scenarios

PLAIN = {"enable_prefix_caching": False}


def document(**engine: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "a100-sxm-80gb",
            "engine": {"max_model_len": 4096, "num_gpu_blocks_override": 600, **engine},
            "workload": {
                "num_requests": 60,
                "arrivals": {"process": "poisson", "rate_per_s": 10.0},
                "prompt_tokens": {"distribution": "constant", "value": 600},
                "output_tokens": {"distribution": "constant", "value": 300},
            },
        }
    )


def test_the_summary_says_what_was_swapped_and_from_which_context_it_pays() -> None:
    summary = simulate(document(preemption="auto")).summary
    assert summary.tiers is not None
    use = summary.tiers.swap
    assert use is not None
    assert 0 < use.swapped == summary.requests.preemptions
    assert use.recomputed == use.no_room == 0
    assert use.out_bytes >= use.in_bytes > 0
    assert use.capacity_tokens == 4 * 2**30 // 131_072
    assert use.crossover_tokens == 1  # 32 GB/s against the prefill of an A100
    slow = simulate(document(preemption="auto", host_link_gb_per_s=0.2)).summary.tiers
    assert slow is not None
    assert slow.swap is not None
    assert slow.swap.swapped == 0
    assert (slow.swap.crossover_tokens or 10**9) > 100_000


def test_hit_rates_by_tier_add_up_to_what_was_found() -> None:
    base = document(kv_offload={"memory_gib": 4, "bandwidth_gb_per_s": 20})
    scenario = base.with_overrides(["workload.sessions={turns: 4, think_s: 3.0}"])
    summary = simulate(scenario).summary
    assert summary.tiers is not None
    gpu, host = summary.tiers.prefix
    assert (gpu.name, host.name) == ("gpu", "host")
    assert gpu.hit_rate is not None
    assert host.hit_rate is not None
    assert host.hit_rate > gpu.hit_rate / 10 > 0
    assert host.loaded_bytes == host.hit_tokens * 131_072
    without = simulate(scenario.with_overrides(["engine.kv_offload=null"])).summary
    assert (summary.kv.prefix_hit_rate or 0) > (without.kv.prefix_hit_rate or 0)
    assert (summary.ttft_s.mean or 0) < (without.ttft_s.mean or 0)


def test_retention_caps_what_is_held_and_read() -> None:
    full, sinks, heavy = (
        simulate(document(enable_prefix_caching=False, **keys)).summary
        for keys in (
            {},
            {"kv_retention": {"policy": "streaming_llm", "window_tokens": 252}},
            {"kv_retention": {"policy": "h2o", "budget_tokens": 256}},
        )
    )
    for kept in (sinks, heavy):
        assert kept.requests.preemptions == 0 < full.requests.preemptions
        assert (kept.kv.mean_utilization or 1) < (full.kv.mean_utilization or 0)
        assert (kept.throughput.output_tokens_per_s or 0) > (full.throughput.output_tokens_per_s or 0)
        assert 0 <= (kept.kv.waste_fraction or 0) < 0.1


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"kv_offload": {"memory_gib": 4}}, "offload tier without bandwidth"),
        ({"kv_offload": {"memory_gib": 4, "bandwidth_gb_per_s": 9}, "enable_prefix_caching": False}, "caching is off"),
        ({"kv_offload": [{"memory_gib": 1, "bandwidth_gb_per_s": 9}] * 2}, "two tiers are called 'host'"),
        ({"kv_offload": {"memory_gib": 1e-4, "bandwidth_gb_per_s": 9}}, "holds no block"),
        ({"preemption": "swap", "preset": "sglang"}, "under the scheduler of 'sglang'"),
        ({"kv_retention": {"policy": "h2o", "budget_tokens": 64}}, "no prefix is left to share"),
        ({"kv_retention": {"policy": "h2o", "window_tokens": 64}, **PLAIN}, "means nothing|is missing"),
        ({"kv_retention": {"policy": "h2o", "budget_tokens": 64}, "preemption": "swap", **PLAIN}, "with swap"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason(engine: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(document(**engine))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("deepseek-ai/DeepSeek-V2-Lite", "one latent for all heads"),
        ("mistralai/Mistral-7B-v0.1", "sliding windows of its own"),
    ],
)
def test_a_policy_that_cannot_serve_a_model_is_refused(model: str, why: str) -> None:
    retention = {"policy": "streaming_llm", "window_tokens": 1020}
    scenario = document(kv_retention=retention, enable_prefix_caching=False).with_overrides([f"model={model}"])
    with pytest.raises(InputError, match=why):
        simulate(scenario)


def test_the_contracts_form_of_one_tier_reads_back_as_itself() -> None:
    tier = {"memory_gib": 10.0, "bandwidth_gb_per_s": 20.0}
    engine = document(kv_offload=tier).engine
    assert engine.model_dump(mode="json")["kv_offload"] == tier
    two = [{"name": "ram", **tier}, {"name": "disk", **tier}]
    assert document(kv_offload=two).engine.model_dump(mode="json")["kv_offload"] == two


def test_a_serve_command_says_what_it_leaves_out() -> None:
    from reports.plan_serve import serve_command

    for keys, said in (
        ({"kv_offload": {"memory_gib": 64, "bandwidth_gb_per_s": 20}}, "--kv-offloading-size 64"),
        ({"preemption": "auto"}, "it recomputes"),
        ({"kv_retention": {"policy": "h2o", "budget_tokens": 64}, **PLAIN}, "h2o"),
    ):
        command = serve_command(document(**keys), "vllm")
        assert command is not None
        assert any(said in note for note in command.notes)


def test_terminal_and_report_say_what_went_where() -> None:
    from reports.tiers_view import tier_cards, tier_lines

    swapped = simulate(document(preemption="swap")).summary.tiers
    offloaded = simulate(document(kv_offload={"memory_gib": 4, "bandwidth_gb_per_s": 20})).summary.tiers
    assert swapped is not None
    assert offloaded is not None
    assert "copying is cheaper at any length" in dict(tier_lines(swapped))["preempted"]
    assert " in host" in dict(tier_lines(offloaded))["prefix found"]
    assert [title for title, _, _ in (*tier_cards(swapped), *tier_cards(offloaded))] == [
        "Swapped, requests",
        "Prefix in offload tiers",
    ]
