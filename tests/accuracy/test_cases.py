"""Measured cases as documents: what is read, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from calibration.cases import load_cases, parse_tags, select
from sim.errors import InputError

SCENARIO: dict[str, Any] = {
    "model": "meta-llama/Llama-3.1-8B",
    "hardware": "h100-sxm",
    "workload": {
        "num_requests": 4,
        "arrivals": {"process": "constant", "rate_per_s": 1.0},
        "prompt_tokens": {"distribution": "constant", "value": 10},
        "output_tokens": {"distribution": "constant", "value": 5},
    },
}


def case(**changes: Any) -> dict[str, Any]:
    return {"name": "one", "scenario": SCENARIO, "measured": {"ttft_s": {"mean": 0.1}}, **changes}


def write(folder: Path, name: str, document: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document) if path.suffix == ".json" else yaml.safe_dump(document, sort_keys=False))
    return path


def test_a_case_keeps_its_numbers_in_the_order_of_the_document(tmp_path: Path) -> None:
    measured = {"e2e_s": {"p99": 2.0, "mean": 1.0}, "duration_s": 9.5, "kv": {"num_gpu_blocks": 100}}
    [found] = load_cases([write(tmp_path, "one.yaml", case(measured=measured, source="a page"))])
    assert found.source == "a page"
    assert found.windows[0].measured == (
        ("e2e_s", "p99", 2.0),
        ("e2e_s", "mean", 1.0),
        ("duration_s", "value", 9.5),
        ("kv", "num_gpu_blocks", 100.0),
    )


def test_a_folder_a_glob_and_a_file_name_each_case_once(tmp_path: Path) -> None:
    one = write(tmp_path, "deep/one.yaml", case())
    write(tmp_path, "deep/two.json", case(name="two"))
    names = [found.name for found in load_cases([tmp_path, one, str(tmp_path / "deep" / "*.json")])]
    assert names == ["one", "two"]


def test_a_scenario_may_be_a_path_beside_the_case(tmp_path: Path) -> None:
    write(tmp_path, "base.scenario", SCENARIO)
    [found] = load_cases([write(tmp_path, "one.yaml", case(scenario="base.scenario"))])
    assert found.scenario.hardware == "h100-sxm"


def test_a_file_may_hold_many_cases(tmp_path: Path) -> None:
    path = write(tmp_path, "many.yaml", {"cases": [case(), case(name="two")]})
    assert [found.name for found in load_cases([path])] == ["one", "two"]


def test_windows_have_tags_of_their_own(tmp_path: Path) -> None:
    windows = [
        {"name": "s0", "arrivals_s": [0.0, 2.0], "measured": {"ttft_s": {"mean": 0.1}}, "tags": {"load": "light"}},
        {"name": "s1", "arrivals_s": [2, 4], "measured": {"ttft_s": {"mean": 0.2}}, "tags": {"load": "heavy"}},
    ]
    document = case(windows=windows, tags={"gpu": "x"})
    del document["measured"]
    cases = load_cases([write(tmp_path, "one.yaml", document)])
    [heavy] = select(cases, {"load": "heavy", "gpu": "x"})
    assert [window.name for window in heavy.windows] == ["s1"]
    assert select(cases, {}) == cases


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (case(measured={"tftt_s": {"mean": 1}}), "measured.tftt_s", "did you mean 'ttft_s'?"),
        (case(measured={"ttft_s": {"p75": 1}}), "measured.ttft_s.p75", "unknown statistic"),
        (case(measured={"ttft_s": 0.1}), "measured.ttft_s", "must hold statistics"),
        (case(measured={"ttft_s": {"mean": "fast"}}), "measured.ttft_s.mean", "must be a number"),
        (case(measured={"ttft_s": {"mean": -1}}), "measured.ttft_s.mean", "cannot have been measured"),
        (case(measured={"kv": {"num_gpu_blocks": True}}), "measured.kv.num_gpu_blocks", "must be a number"),
        (case(measured={}), "measured", "holds no number"),
        (case(measured=None), "measured", "required, but missing"),
        (case(mesured={}), "mesured", "did you mean 'measured'?"),
        (case(scenario={**SCENARIO, "modell": 1}), "scenario.modell", "did you mean 'model'?"),
        (
            case(windows=[{"name": "a", "arrivals_s": [0, 1], "measured": {"ttft_s": {"mean": 1}}}]),
            "measured",
            "windows",
        ),
        (
            case(measured=None, windows=[{"name": "a", "arrivals_s": [2, 1], "measured": {}}]),
            "windows.0.arrivals_s",
            "",
        ),
        (
            case(measured=None, windows=[{"name": "a", "arrivals_s": [0, 1], "measured": {"kv": {"block_size": 1}}}]),
            "windows.0.measured.kv",
            "no latency of requests",
        ),
        ({"cases": []}, "cases", "must be a list of cases"),
        ({"cases": [case(), 3]}, "cases.1", ""),
    ],
)
def test_a_bad_case_names_its_file_and_field(tmp_path: Path, document: Any, field: str, words: str) -> None:
    path = write(tmp_path, "bad.yaml", document)
    with pytest.raises(InputError) as caught:
        load_cases([path])
    assert caught.value.field.startswith(f"{path}: {field}")
    assert words in str(caught.value)


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", case())
    write(tmp_path, "b.yaml", case())
    with pytest.raises(InputError, match=r"b\.yaml: name.*a\.yaml"):
        load_cases([tmp_path])


def test_nothing_found_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "*.yaml"):
        with pytest.raises(InputError):
            load_cases([path])


def test_an_unknown_tag_suggests_the_nearest(tmp_path: Path) -> None:
    cases = load_cases([write(tmp_path, "one.yaml", case(tags={"gpu": "h100-sxm"}))])
    with pytest.raises(InputError, match="did you mean 'gpu'"):
        select(cases, {"gpus": "h100-sxm"})
    with pytest.raises(InputError, match="none of 1 has gpu=l40s"):
        select(cases, {"gpu": "l40s"})
    assert parse_tags(["gpu=a=b"]) == {"gpu": "a=b"}
    with pytest.raises(InputError, match="TAG=VALUE"):
        parse_tags(["gpu"])
