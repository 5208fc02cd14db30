"""Collectives across nodes and the exchange of tokens, held against published kernel times."""

from __future__ import annotations

import pytest

from hardware_profiles import load_hardware
from sim.cost.collectives import collective, distinct, exchange
from sim.cost.kinds import Collective, Exchange
from sim.layout import All2AllBackend

HIDDEN = 7168
FP8_BYTES = 1 + 4 / 128
# DeepEP's own page (github.com/deepseek-ai/DeepEP, low-latency kernels): microseconds on H800 with one 400 Gb/s port a
# GPU, 128 tokens a rank, hidden 7168, top 8, dispatch in FP8 and combine in BF16.
DEEPEP_LOW_LATENCY_US = {
    8: (77, 114),
    16: (118, 195),
    32: (155, 273),
    64: (173, 314),
    128: (192, 369),
    256: (194, 360),
}

# The same page, normal kernels: GB/s of what is narrowest, 4,096 tokens a rank, on at most four nodes each.
DEEPEP_NORMAL_GB_S = {8: (153, 158), 16: (43, 43), 32: (58, 57), 64: (51, 50)}


def sent(
    phase: str, ranks: int, tokens: float, backend: All2AllBackend, hardware: str = "h800", groups: int = 4
) -> float:
    size = FP8_BYTES if phase == "dispatch" else 2.0
    operator = Exchange(phase, phase, backend, 1, ranks, HIDDEN, 8, size, groups, 1)  # type: ignore[arg-type]
    return exchange(operator, load_hardware(hardware), 8)(tokens)


def all_reduce(ranks: int, tokens: float) -> float:
    operator = Collective("all_reduce", "all_reduce", ranks, 2.0 * HIDDEN, 1)
    return collective(operator, load_hardware("h100-sxm"), 8)(tokens)


@pytest.mark.parametrize("ranks", [16, 32, 64, 128, 256])
def test_low_latency_exchange_across_nodes_takes_what_deepep_reports(ranks: int) -> None:
    dispatch_us, combine_us = DEEPEP_LOW_LATENCY_US[ranks]
    assert sent("dispatch", ranks, 128, "deepep_low_latency") * 1e6 == pytest.approx(dispatch_us, rel=0.15)
    assert sent("combine", ranks, 128, "deepep_low_latency") * 1e6 == pytest.approx(combine_us, rel=0.15)


def test_low_latency_exchange_within_a_node_is_slower_than_deepep_reports_for_combine() -> None:
    dispatch_us, combine_us = DEEPEP_LOW_LATENCY_US[8]
    assert sent("dispatch", 8, 128, "deepep_low_latency") * 1e6 == pytest.approx(dispatch_us, rel=0.05)
    assert 1.25 < sent("combine", 8, 128, "deepep_low_latency") * 1e6 / combine_us < 1.40  # a known deviation


@pytest.mark.parametrize("ranks", DEEPEP_NORMAL_GB_S)
def test_normal_exchange_takes_what_deepep_reports(ranks: int) -> None:
    """Bytes over the links of a node, or to all nodes, the own one included, that hold one of a token's experts."""
    places = distinct(ranks, 8) if ranks == 8 else distinct(min(ranks // 8, 4), 8)
    for phase, element_bytes, rate in zip(
        ("dispatch", "combine"), (FP8_BYTES, 2.0), DEEPEP_NORMAL_GB_S[ranks], strict=True
    ):
        reported_s = 4096 * places * HIDDEN * element_bytes / (rate * 1e9)
        assert sent(phase, ranks, 4096, "deepep_high_throughput") == pytest.approx(reported_s, rel=0.12)


def test_normal_kernels_send_a_token_once_a_node_and_low_latency_once_an_expert() -> None:
    normal, low = (sent("dispatch", 64, 4096, backend) for backend in ("deepep_high_throughput", "deepep_low_latency"))
    assert low > 1.5 * normal
    small_normal, small_low = (
        sent("dispatch", 64, 8, backend) for backend in ("deepep_high_throughput", "deepep_low_latency")
    )
    assert small_low < small_normal


def test_auto_takes_low_latency_kernels_for_small_batches_and_the_others_for_large_ones() -> None:
    for tokens, kind in ((64, "deepep_low_latency"), (4096, "deepep_high_throughput")):
        assert sent("combine", 32, tokens, "deepep_auto") == sent("combine", 32, tokens, kind)  # type: ignore[arg-type]


def test_groups_of_experts_keep_tokens_on_few_nodes() -> None:
    bound, free = (sent("dispatch", 64, 4096, "deepep_high_throughput", groups=groups) for groups in (4, 0))
    assert bound < 0.8 * free


def test_gathering_all_tokens_costs_more_the_more_ranks_there_are() -> None:
    few, many = (sent("dispatch", ranks, 128, "allgather_reducescatter", "h200-sxm") for ranks in (2, 8))
    assert many > 2 * few


def test_a_collective_across_nodes_adds_the_network_to_the_node() -> None:
    assert all_reduce(16, 1) > all_reduce(8, 1) + 20e-6
    # large messages: two passes of half the bytes over the eight ports of a node
    grown = all_reduce(16, 65_536) - all_reduce(16, 32_768)
    network = 2 * 0.5 * 32_768 * 2 * HIDDEN / 8 / (load_hardware("h100-sxm").links.inter_node_bytes_per_s.value * 0.85)
    assert network < grown < 6 * network


def test_more_nodes_cost_more() -> None:
    times = [all_reduce(ranks, 256) for ranks in (8, 16, 32, 64)]
    assert times == sorted(times)


def test_distinct_places_of_even_picks() -> None:
    assert distinct(1, 8) == 1
    assert distinct(8, 1) == pytest.approx(1)
    assert distinct(4, 2) == pytest.approx(1.75)  # 4 of 16 pairs meet
