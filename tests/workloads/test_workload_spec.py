"""The workload section: every wrong key or value is one clear error; what is resolved reads back the same."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from sim.errors import InputError
from workloads import WorkloadSpec, preset_names

GOOD: dict[str, Any] = {
    "num_requests": 5,
    "arrivals": {"process": "poisson", "rate_per_s": 4.0},
    "prompt_tokens": {"distribution": "lognormal", "mean": 1000, "cv": 1.2, "min": 1, "max": 8192},
    "output_tokens": {"distribution": "constant", "value": 200},
}


def parsed(**changes: Any) -> WorkloadSpec:
    section = {key: value for key, value in {**GOOD, **changes}.items() if value != "absent"}
    return WorkloadSpec.parse(section, where="workload")


def error_of(**changes: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        parsed(**changes)
    return caught.value


@pytest.mark.parametrize(
    ("arrivals", "field", "words"),
    [
        ({"process": "poison", "rate_per_s": 4}, "process", "did you mean 'poisson'"),
        ({"rate_per_s": 4}, "process", "closed_loop"),
        ({"process": "poisson"}, "rate_per_s", "missing"),
        ({"process": "poisson", "rate": 4, "rate_per_s": 4}, "rate", "rate_per_s"),
        ({"process": "poisson", "rate_per_s": 0}, "rate_per_s", "greater than 0, got 0"),
        ({"process": "poisson", "rate_per_s": -1.5}, "rate_per_s", "got -1.5"),
        ({"process": "poisson", "rate_per_s": float("nan")}, "rate_per_s", "nan"),
        ({"process": "poisson", "rate_per_s": float("inf")}, "rate_per_s", "inf"),
        ({"process": "poisson", "rate_per_s": "4"}, "rate_per_s", "'4'"),
        ({"process": "poisson", "rate_per_s": True}, "rate_per_s", "True"),
        ({"process": "gamma", "rate_per_s": 4}, "cv", "missing"),
        ({"process": "gamma", "rate_per_s": 4, "cv": 0}, "cv", "got 0"),
        ({"process": "weibull", "rate_per_s": 4, "cv": -1}, "cv", "got -1"),
        ({"process": "stages", "stages": []}, "stages", "at least 1"),
        ({"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 0}]}, "stages.0.duration_s", "got 0"),
        ({"process": "stages", "stages": [{"rate_per_s": 1}]}, "stages.0.duration_s", "missing"),
        ({"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 9}], "gaps": "gamma"}, "cv", "missing"),
        ({"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 9}], "cv": 2.0}, "cv", "no meaning"),
        ({"process": "closed_loop", "concurrency": 0}, "concurrency", "got 0"),
        ({"process": "closed_loop", "concurrency": 2, "think_s": -1}, "think_s", "got -1"),
        ({"process": "closed_loop", "concurrency": 2.5}, "concurrency", "2.5"),
        (4, "", "expected an arrival process"),
        ([], "", "expected an arrival process"),
    ],
)
def test_arrivals_that_make_no_sense_are_refused_by_name(arrivals: Any, field: str, words: str) -> None:
    error = error_of(arrivals=arrivals)
    assert error.field == f"workload.arrivals.{field}".rstrip(".")
    assert words in str(error)


@pytest.mark.parametrize(
    ("lengths", "field", "words"),
    [
        (0, "", "at least 1, got 0"),
        (-3, "", "got -3"),
        (1.5, "", "got 1.5"),
        (float("nan"), "", "got nan"),
        (2_000_000_000, "", "2000000000"),
        (True, "", "got True"),
        ("long", "", "got 'long'"),
        ({"value": 3}, "distribution", "missing"),
        ({"distribution": "pareto", "mean": 3}, "distribution", "known: constant"),
        ({"distribution": "normale", "mean": 3, "cv": 1}, "distribution", "did you mean 'normal'"),
        ({"distribution": "constant", "value": 0}, "value", "got 0"),
        ({"distribution": "uniform", "min": 5, "max": 2}, "min", "5 is greater than max 2"),
        ({"distribution": "uniform", "min": 0, "max": 2}, "min", "got 0"),
        ({"distribution": "uniform", "min": 1, "max": 3, "mean": 2}, "mean", "unknown key"),
        ({"distribution": "normal", "mean": 5}, "cv", "missing"),
        ({"distribution": "normal", "mean": 5, "cv": 1, "std": 2}, "std", "together with cv"),
        ({"distribution": "normal", "mean": float("nan"), "cv": 1}, "mean", "nan"),
        ({"distribution": "normal", "mean": -5, "cv": 1}, "mean", "got -5"),
        ({"distribution": "lognormal", "mean": 100, "cv": 1, "max": 50}, "mean", "outside [min, max] = [1, 50]"),
        ({"distribution": "normal", "mean": 1e6, "std": 1e6, "min": 999_999, "max": 1_000_001}, "min", "fewer than"),
        ({"distribution": "lognormal", "mean": 100, "cv": -1}, "cv", "got -1"),
        ({"distribution": "empirical", "quantiles": {0: 1, 0.5: 9}}, "quantiles", "include 0"),
        ({"distribution": "empirical", "quantiles": {0: 1, 0.5: 9, 1: 5}}, "quantiles", "falls from 9"),
        ({"distribution": "empirical", "quantiles": [[0, 1], [0, 2], [1, 5]]}, "quantiles", "twice"),
        ({"distribution": "empirical", "quantiles": [[0, 0], [1, 5]]}, "quantiles", "0 to 5 tokens"),
        ({"distribution": "empirical", "quantiles": [[0, "x"], [1, 5]]}, "quantiles", "'x'"),
        ({"distribution": "empirical", "quantiles": [1, 5]}, "quantiles", "pairs"),
    ],
)
def test_lengths_that_make_no_sense_are_refused_by_name(lengths: Any, field: str, words: str) -> None:
    error = error_of(prompt_tokens=lengths)
    assert error.field == f"workload.prompt_tokens.{field}".rstrip(".")
    assert words in str(error)


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"duration_s": 4.0}, "duration_s", "together with num_requests"),
        ({"num_requests": "absent"}, "num_requests", "missing"),
        ({"num_requests": 0}, "num_requests", "got 0"),
        ({"num_requests": 10**9}, "num_requests", "20000000"),
        ({"num_requests": "absent", "duration_s": -1}, "duration_s", "got -1"),
        ({"arrivals": "absent"}, "arrivals", "missing"),
        ({"prompt_tokens": "absent"}, "prompt_tokens", "missing"),
        ({"output_tokens": None}, "output_tokens", "missing"),
        ({"promt_tokens": 4}, "promt_tokens", "did you mean 'prompt_tokens'"),
        ({"prefixes": {"groups": 0, "prefix_tokens": 4}}, "prefixes.groups", "got 0"),
        ({"prefixes": {"groups": 2}}, "prefixes.prefix_tokens", "missing"),
        ({"prefixes": {"groups": 9**7, "prefix_tokens": 1, "prompts_per_group": 99}}, "prefixes.groups", "fewer"),
        ({"sessions": {"think_s": 4}}, "sessions.turns", "missing"),
        ({"sessions": {"turns": 0}}, "sessions.turns", "got 0"),
        ({"sessions": {"turns": 2, "think_s": float("nan")}}, "sessions.think_s", "nan"),
        ({"trace": {"path": "x.csv"}}, "num_requests", "together with trace"),
        ({"preset": "azure-2023-chat"}, "preset", "did you mean"),
    ],
)
def test_a_section_that_does_not_hang_together_is_refused(changes: dict[str, Any], field: str, words: str) -> None:
    error = error_of(**changes)
    assert error.field == f"workload.{field}"
    assert words in str(error)


@pytest.mark.parametrize(
    ("section", "field", "words"),
    [
        ({"trace": {"path": "x", "formt": "a"}}, "trace.formt", "did you mean 'format'"),
        ({"trace": {"path": "x", "format": "azur"}}, "trace.format", "'azur'"),
        ({"trace": {"path": ""}}, "trace.path", "at least 1"),
        ({"trace": {"format": "azure"}}, "trace.path", "missing"),
        ({"trace": {"path": "x", "rate_scale": 0}}, "trace.rate_scale", "got 0"),
        ({"trace": {"path": "x", "max_requests": 0}}, "trace.max_requests", "got 0"),
        ({"trace": "x", "preset": "sharegpt"}, "preset", "together with trace"),
        ({"trace": "x", "arrivals": GOOD["arrivals"]}, "arrivals", "trace.arrivals"),
        ({"trace": {"path": "x", "rate_scale": 2, "arrivals": GOOD["arrivals"]}}, "trace.rate_scale", "together"),
        ({}, "arrivals", "preset: NAME"),
    ],
)
def test_a_trace_section_that_does_not_hang_together_is_refused(
    section: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        WorkloadSpec.parse(section, where="workload")
    assert caught.value.field == f"workload.{field}"
    assert words in str(caught.value)


def test_a_closed_loop_has_no_duration_of_its_own() -> None:
    loop = {"process": "closed_loop", "concurrency": 4}
    assert "closed loop" in str(error_of(arrivals=loop, num_requests="absent", duration_s=10.0))


def test_a_duration_cannot_outlast_the_stages() -> None:
    stages = {"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 60}]}
    assert "longer than all stages" in str(error_of(arrivals=stages, num_requests="absent", duration_s=61.0))


def test_short_forms_mean_the_long_ones() -> None:
    assert parsed(prompt_tokens=1000) == parsed(prompt_tokens={"distribution": "constant", "value": 1000})
    assert WorkloadSpec.parse({"trace": "a.csv"}) == WorkloadSpec.parse({"trace": {"path": "a.csv"}})


def test_quantiles_may_be_a_mapping_a_list_or_json_text_keys() -> None:
    as_list = parsed(prompt_tokens={"distribution": "empirical", "quantiles": [[0, 3], [0.5, 120], [1, 900]]})
    for quantiles in ({0: 3, 0.5: 120, 1: 900}, {"0": 3, "0.5": 120, "1": 900}):
        assert parsed(prompt_tokens={"distribution": "empirical", "quantiles": quantiles}) == as_list


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prompt_tokens": {"distribution": "empirical", "quantiles": {0: 3, 1: 9}}},
        {"sessions": {"turns": 3, "think_s": 2.5}, "prefixes": {"groups": 2, "prefix_tokens": 9}},
        {"arrivals": {"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 60}]}, "num_requests": "absent"},
    ],
)
def test_the_resolved_section_reads_back_the_same(changes: dict[str, Any]) -> None:
    spec = parsed(**changes)
    written = yaml.safe_dump(spec.model_dump(mode="json"))
    assert WorkloadSpec.parse(yaml.safe_load(written)) == spec


@pytest.mark.parametrize("name", preset_names())
def test_a_resolved_preset_reads_back_the_same(name: str) -> None:
    spec = WorkloadSpec.parse({"preset": name, "num_requests": 7})
    assert spec.num_requests == 7
    assert WorkloadSpec.parse(spec.model_dump(mode="json")) == spec


def test_a_preset_takes_changes_key_by_key() -> None:
    base = WorkloadSpec.parse({"preset": "azure-2023-conversation"})
    faster = WorkloadSpec.parse({"preset": "azure-2023-conversation", "arrivals": {"rate_per_s": 50.0}})
    assert faster.arrivals == base.arrivals.model_copy(update={"rate_per_s": 50.0})  # type: ignore[union-attr]
    assert faster.prompt_tokens == base.prompt_tokens


def test_naming_a_process_replaces_the_presets_whole() -> None:
    arrivals = {"process": "poisson", "rate_per_s": 3.0}
    spec = WorkloadSpec.parse({"preset": "azure-2023-conversation", "arrivals": arrivals})
    assert spec.arrivals is not None
    assert spec.arrivals.model_dump() == arrivals


def test_a_duration_replaces_the_presets_number_of_requests() -> None:
    spec = WorkloadSpec.parse({"preset": "sharegpt", "duration_s": 60.0})
    assert (spec.num_requests, spec.duration_s) == (None, 60.0)


def test_reading_a_section_needs_no_numpy() -> None:
    import subprocess
    import sys

    code = "import sys, workloads; workloads.WorkloadSpec; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
