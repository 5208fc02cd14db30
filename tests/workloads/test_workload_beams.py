"""Beam search as requests for single tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.errors import InputError
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload

Text = list[tuple[int, int]]


def spec(**keys: Any) -> dict[str, Any]:
    return {
        "num_requests": 12,
        "arrivals": {"process": "poisson", "rate_per_s": 5.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 90},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": 40},
        **keys,
    }


def built(**keys: Any) -> Workload:
    return build_workload(WorkloadSpec.parse(spec(**keys), "workload"), 3)


def common(one: Text, other: Text) -> int:
    """Tokens that two texts share: nodes are chained, so the last node of both says it."""
    ends = dict(other)
    return max((min(end, ends[node]) for node, end in one if node in ends), default=0)


def test_every_token_of_every_beam_is_a_request() -> None:
    one, beams = built(), built(beam_width=3)
    assert beams.session_id is not None
    assert beams.after is not None
    for index, (prompt, length) in enumerate(zip(one.prompt_tokens, one.output_tokens, strict=True)):
        own = np.flatnonzero(beams.session_id == index)
        assert len(own) == 1 + 3 * (length - 1)
        steps = beams.prompt_tokens[own] - prompt
        assert steps.tolist() == [0, *np.repeat(np.arange(1, length), 3)]
        assert beams.after[own[0]] == -1
        assert beams.arrival_s[own[0]] == one.arrival_s[index]
        for request, step in zip(own[1:], steps[1:], strict=True):
            waited = beams.after[request]
            assert waited == own[steps == step - 1][-1]  # the last request of the token before
            assert np.isnan(beams.arrival_s[request])
    assert (beams.output_tokens == 1).all()


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_a_beam_repeats_all_but_one_token_of_a_beam_before(rate: float) -> None:
    beams = built(beam_width=4, beam_fork_rate=rate)
    assert beams.session_id is not None
    assert beams.prefixes is not None
    for index in range(12):
        own = np.flatnonzero(beams.session_id == index)
        texts = [beams.prefixes.of(int(i)) for i in own]
        lengths = beams.prompt_tokens[own]
        for text, length in zip(texts, lengths, strict=True):
            assert text[-1][1] == length
            assert (np.diff([end for _, end in text]) > 0).all()
            before = [common(text, other) for other, size in zip(texts, lengths, strict=True) if size == length - 1]
            assert not before or max(before) == length - 1
        for at in range(1, len(own), 4):  # the beams of one token differ in it
            for i in range(4):
                assert all(common(texts[at + i], texts[at + j]) < lengths[at] for j in range(i))


def test_beams_that_never_fork_share_the_prompt_alone() -> None:
    beams, prompts = built(beam_width=2, beam_fork_rate=0.0), built().prompt_tokens
    assert beams.prefixes is not None
    assert beams.session_id is not None
    for index, prompt in enumerate(prompts):
        own = np.flatnonzero(beams.session_id == index)
        if len(own) > 1:
            assert common(beams.prefixes.of(int(own[-1])), beams.prefixes.of(int(own[-2]))) == prompt


def test_prompts_keep_what_they_share_with_others() -> None:
    beams = built(beam_width=2, prefixes={"groups": 1, "prefix_tokens": 15})
    assert beams.prefixes is not None
    assert all(beams.prefixes.of(i)[0] == (0, 15) for i in range(len(beams)))


def test_more_forks_save_more_memory() -> None:
    saved = []
    for rate in (0.0, 0.05, 0.5):
        load = spec(num_requests=6, beam_width=4, beam_fork_rate=rate)
        load["output_tokens"] = {"distribution": "constant", "value": 120}
        result = simulate(Scenario.from_dict({"model": "Llama-3.1-8B", "hardware": "h100-sxm", "workload": load}))
        assert result.summary.requests.completed == 6 * (1 + 4 * 119)
        saved.append(result.summary.kv.shared_fraction or 0)
    assert saved == sorted(saved)
    assert saved[-1] > 1.5 * saved[0] > 0.1


@pytest.mark.parametrize(
    ("keys", "field", "reason"),
    [
        ({"beam_width": 1}, "beam_width", "equal to 2"),
        ({"beam_width": 2, "n": 2}, "beam_width", "together with n"),
        ({"beam_fork_rate": 0.1}, "beam_fork_rate", "without beam_width"),
        ({"beam_width": 2, "beam_fork_rate": 1.5}, "beam_fork_rate", "equal to 1"),
        ({"beam_width": 2, "arrivals": {"process": "closed_loop", "concurrency": 2}}, "beam_width", "not simulated"),
        ({"beam_width": 64, "num_requests": 1_000_000}, "beam_width", "stay below|make"),
    ],
)
def test_what_beams_cannot_go_with_is_refused(keys: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as problem:
        built(**keys)
    assert problem.value.field == f"workload.{field}"
