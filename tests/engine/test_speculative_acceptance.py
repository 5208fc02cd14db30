"""Accepted drafts: their means, and that nothing but the request and the seed decides them."""

from __future__ import annotations

import numpy as np
import pytest

from sim.engine.speculative_acceptance import (
    KEPT,
    REQUESTS,
    BetaSurvival,
    DrawnAcceptance,
    RecordedRule,
    Survival,
    SurvivalByPosition,
)


def mean_tokens(survival: Survival, requests: int = 2048, steps: int = 256) -> tuple[float, float]:
    """Mean tokens of a verify step and the standard error of that mean over requests."""
    drawn = DrawnAcceptance(7, survival)
    means = np.array([drawn.stream(request, steps)[steps] / steps for request in range(requests)])
    return float(means.mean()), float(means.std() / np.sqrt(requests))


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("drafts", [1, 3, 8])
def test_the_mean_of_a_constant_rate_is_the_closed_form(rate: float, drafts: int) -> None:
    closed = drafts + 1 if rate == 1 else (1 - rate ** (drafts + 1)) / (1 - rate)
    survival = SurvivalByPosition.constant(rate, drafts)
    assert survival.tokens_per_step == pytest.approx(closed)
    mean, error = mean_tokens(survival)
    assert mean == pytest.approx(closed, abs=max(5 * error, 1e-12))


def test_a_rate_for_each_position_multiplies_up() -> None:
    survival = SurvivalByPosition.by_position([0.9, 0.5, 0.2])
    assert survival.tokens_per_step == pytest.approx(1 + 0.9 + 0.45 + 0.09)
    mean, error = mean_tokens(survival)
    assert mean == pytest.approx(survival.tokens_per_step, abs=5 * error)


def test_a_measured_list_is_drawn_as_often_as_it_was_measured() -> None:
    measured = [0, 0, 1, 3, 3, 2, 0, 3]
    drawn = DrawnAcceptance(1, SurvivalByPosition.measured(measured, 3))
    counts = np.concatenate([np.diff(drawn.stream(request, 200)) - 1 for request in range(512)])
    found = np.bincount(counts, minlength=4) / len(counts)
    expected = np.bincount(measured, minlength=4) / len(measured)
    np.testing.assert_allclose(found, expected, atol=5 * 0.5 / np.sqrt(len(counts)))


def test_rates_of_their_own_have_the_moments_of_a_beta_distribution() -> None:
    survival = BetaSurvival(0.6, 5.0, 4)
    a, b = 3.0, 2.0
    moments = [a / (a + b)]
    for i in range(1, 4):
        moments.append(moments[-1] * (a + i) / (a + b + i))
    assert survival.tokens_per_step == pytest.approx(1 + sum(moments))
    assert survival.tokens_per_step > SurvivalByPosition.constant(0.6, 4).tokens_per_step
    mean, error = mean_tokens(survival)
    assert mean == pytest.approx(survival.tokens_per_step, abs=5 * error)


def test_a_request_with_a_rate_of_its_own_keeps_it() -> None:
    drawn = DrawnAcceptance(3, BetaSurvival(0.5, 1.0, 1))
    streams = [drawn.stream(request, 2000) for request in range(256)]
    halves = np.array([(stream[1000] / 1000 - 1, (stream[2000] - stream[1000]) / 1000 - 1) for stream in streams])
    assert np.corrcoef(halves.T)[0, 1] > 0.95
    assert halves.std() > 0.25


def test_neither_order_nor_appetite_changes_a_stream() -> None:
    survival = SurvivalByPosition.constant(0.7, 3)
    eager, shy = DrawnAcceptance(5, survival), DrawnAcceptance(5, survival)
    long = [eager.stream(request, 1000)[:1001] for request in range(3)]
    for request in (2, 0, 1):
        for steps in (1, 64, 65, 400, 1000):
            stream = shy.stream(request, steps)
            assert len(stream) > steps
            np.testing.assert_array_equal(stream[: steps + 1], long[request][: steps + 1])


def test_a_forgotten_block_is_drawn_again_the_same() -> None:
    drawn = DrawnAcceptance(0, SurvivalByPosition.constant(0.5, 2))
    before = drawn.stream(0, 100)[:101].copy()
    for block in range(1, KEPT + 2):
        drawn.stream(block * REQUESTS, 1)
    np.testing.assert_array_equal(drawn.stream(0, 100)[:101], before)


def test_requests_and_seeds_differ() -> None:
    survival = SurvivalByPosition.constant(0.5, 3)
    drawn, other = DrawnAcceptance(0, survival), DrawnAcceptance(1, survival)
    assert (drawn.stream(0, 64)[:65] != drawn.stream(1, 64)[:65]).any()
    assert (drawn.stream(0, 64)[:65] != other.stream(0, 64)[:65]).any()


def test_the_rule_of_the_recordings() -> None:
    stream = RecordedRule(3).stream(2, 5)
    assert np.diff(stream).tolist() == [1 + (6 + 5 * v) % 4 for v in range(5)]
