"""The shipped presets stand for their traces: the figures noted beside each are met by what it draws."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import InputError
from workloads import WorkloadSpec, build_workload, describe_workload, load_preset, preset_names
from workloads.lengths import mean_length

REQUESTS = 40_000


def drawn(name: str) -> dict[str, Any]:
    return describe_workload(build_workload(WorkloadSpec.parse({"preset": name, "num_requests": REQUESTS}), 5))


def test_the_presets_are_these() -> None:
    assert preset_names() == (
        "arxiv-summarization",
        "azure-2023-code",
        "azure-2023-conversation",
        "mooncake-conversation",
        "sharegpt",
    )


def test_an_unknown_preset_suggests_one() -> None:
    with pytest.raises(InputError, match="did you mean 'sharegpt'"):
        load_preset("share-gpt")


@pytest.mark.parametrize("name", preset_names())
def test_each_says_where_it_comes_from(name: str) -> None:
    preset = load_preset(name)
    assert preset.name == name
    assert preset.title
    assert preset.source
    assert preset.licence


@pytest.mark.parametrize("name", preset_names())
def test_the_mean_lengths_are_the_traces(name: str) -> None:
    preset, spec = load_preset(name), WorkloadSpec.parse({"preset": name})
    assert spec.output_tokens is not None
    assert spec.prompt_tokens is not None
    assert mean_length(spec.output_tokens) == pytest.approx(preset.trace["output_tokens_mean"], rel=0.005)
    if spec.sessions is None:
        assert mean_length(spec.prompt_tokens) == pytest.approx(preset.trace["prompt_tokens_mean"], rel=0.005)


@pytest.mark.parametrize("name", preset_names())
def test_what_is_drawn_has_the_traces_lengths(name: str) -> None:
    trace, figures = load_preset(name).trace, drawn(name)
    for side in ("prompt_tokens", "output_tokens"):
        assert figures[side]["mean"] == pytest.approx(trace[f"{side}_mean"], rel=0.04)
        assert figures[side]["cv"] == pytest.approx(trace[f"{side}_cv"], rel=0.1)
        assert figures[side]["p50"] == pytest.approx(trace[f"{side}_p50"], rel=0.05)


@pytest.mark.parametrize("name", ["azure-2023-conversation", "sharegpt"])
def test_what_is_drawn_has_the_traces_rate_and_variation(name: str) -> None:
    trace, figures = load_preset(name).trace, drawn(name)
    assert figures["rate_per_s"] == pytest.approx(trace["rate_per_s"], rel=0.03)
    assert figures["gap_cv"] == pytest.approx(trace["gap_cv"], rel=0.1)


def test_code_completion_comes_in_bursts() -> None:
    trace = load_preset("azure-2023-code").trace
    assert drawn("azure-2023-code")["gap_cv"] == pytest.approx(trace["gap_cv"], rel=0.4)  # heavy tail: scatters


def test_mooncake_shares_as_much_as_its_trace() -> None:
    trace = load_preset("mooncake-conversation").trace
    assert drawn("mooncake-conversation")["prefix_share"] == pytest.approx(trace["prefix_share"], abs=0.04)


def test_mooncake_requests_come_at_the_traces_rate() -> None:
    spec = WorkloadSpec.parse({"preset": "mooncake-conversation"})
    assert spec.sessions is not None
    rate = spec.arrivals.rate_per_s * mean_length(spec.sessions.turns)  # type: ignore[union-attr]
    assert rate == pytest.approx(load_preset("mooncake-conversation").trace["rate_per_s"], rel=0.01)
