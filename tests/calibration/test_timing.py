"""Medians that are waited for, and machines that are told to be busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from calibration.bench import conditions
from calibration.bench.conditions import Conditions, Watch
from calibration.bench.timing import FEWEST, MOST, HostClock, measure


class ScriptedClock:
    """Hands out given durations for a single call, whatever the call does."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self._seconds = seconds

    def seconds(self, call: object, calls: int) -> float:
        return sum(next(self._seconds) for _ in range(calls))


def test_equal_repeats_are_stable_after_the_fewest() -> None:
    timing = measure(lambda: None, ScriptedClock(repeat(0.01)), limit_s=60)
    assert (timing.seconds, timing.fastest_s, timing.repeats, timing.stable) == (0.01, 0.01, FEWEST, True)


def test_one_slow_call_among_many_does_not_move_the_median() -> None:
    timing = measure(lambda: None, ScriptedClock(chain([0.01, 0.01, 5.0], repeat(0.01))), limit_s=60)
    assert timing.seconds == 0.01
    assert timing.stable


def test_two_speeds_never_become_stable() -> None:
    def flip() -> Iterator[float]:
        while True:
            yield 0.01
            yield 0.02

    timing = measure(lambda: None, ScriptedClock(flip()), limit_s=60)
    assert timing.repeats == MOST
    assert not timing.stable
    assert timing.spread > 0.3


def test_the_limit_ends_the_repeats_but_leaves_three() -> None:
    timing = measure(lambda: None, ScriptedClock(repeat(0.01)), limit_s=0)
    assert timing.repeats == 3
    assert not timing.stable


def test_short_calls_are_timed_several_at_once() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    timing = measure(call, HostClock(), limit_s=5)
    assert calls > 20 * timing.repeats
    assert 0 < timing.fastest_s <= timing.seconds < 1e-4


def test_an_idle_machine_has_no_warnings() -> None:
    assert Conditions(others_share=0.01, stolen_share=0.0, drift=0.02, settled_share=1.0).warnings() == []


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (Conditions(others_share=0.4), "busy machine: other processes used 40% of the cores"),
        (Conditions(stolen_share=0.2), "busy host: the hypervisor took 20% of the cores' time"),
        (Conditions(drift=0.5), "busy or throttled device: the same kernel took up to 50% longer during the run"),
        (Conditions(settled_share=0.5), "noisy device: only 50% of the medians became stable"),
        (
            Conditions(gpu={"clocks_event_reasons.sw_thermal_slowdown": "Active", "clocks.sm": "1200"}),
            "throttled device: sw_thermal_slowdown",
        ),
    ],
)
def test_each_disturbance_is_told(seen: Conditions, sentence: str) -> None:
    assert seen.warnings() == [sentence]


def test_a_watch_sees_drift_and_unstable_medians() -> None:
    watch = Watch()
    for seconds in (1.0, 1.3, 1.1):
        watch.reference(seconds)
    for stable in (True, False, False, True):
        watch.timing(stable)
    found = watch.conditions()
    assert found.drift == pytest.approx(0.3)
    assert found.settled_share == 0.5


def test_work_of_a_child_process_is_not_somebody_elses() -> None:
    """A child that keeps one core busy for half a second counts as ours while it lives."""
    before = conditions._cpu_times()
    if before is None:
        pytest.skip("no /proc/stat")
    busy = "import time\nbegin = time.process_time()\nwhile time.process_time() - begin < 0.5: pass\ninput()"
    child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE)
    try:
        while _cpu_seconds(child.pid) < 0.5:
            pass
        after = conditions._cpu_times()
    finally:
        child.communicate(b"\n")
    assert after is not None
    assert after.own - before.own >= 0.45


def _cpu_seconds(process: int) -> float:
    words = open(f"/proc/{process}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
