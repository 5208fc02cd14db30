from __future__ import annotations

import doctest
import io

import pytest
from rich.console import Console
from toy_run import toy_run

from reports import text
from reports.show import print_catalogue
from reports.terminal import print_summary
from sim import InputError, Scenario, simulate


def printed(width: int = 80, **changes: object) -> str:
    result = toy_run(**changes).result  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_summary(result.summary, result.context.scenario, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_numbers_read_as_documented() -> None:
    assert doctest.testmod(text).failed == 0


def test_the_summary_says_what_a_planner_asks() -> None:
    shown = printed()
    for words in ("TTFT", "TPOT", "promise", "met", "requests/s", "KV cache", "a million tokens", "NOT calibrated"):
        assert words in shown
    assert "2 requests rejected: longer than max_model_len" in shown
    assert "Overloaded" not in shown


@pytest.mark.parametrize(
    ("layout", "whose"),
    [
        ({}, "tokens (54"),
        ({"replicas": 3}, "tokens on each replica ("),
        ({"data_parallel_size": 2}, "on each of 2 ranks ("),
    ],
)
def test_the_line_of_the_cache_says_whose_it_is(layout: dict[str, int], whose: str) -> None:
    workload = {"num_requests": 6, "arrivals": {"process": "constant", "rate_per_s": 9}, "prompt_tokens": 9}
    document = {"model": "Qwen/Qwen3-8B", "hardware": "h100-sxm", "layout": layout, "workload": workload}
    scenario = Scenario.parse(document | {"workload": workload | {"output_tokens": 9}})
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_summary(simulate(scenario).summary, scenario, console=console)
    assert whose in console.file.getvalue()  # type: ignore[attr-defined]


def test_an_overloaded_run_says_so_first() -> None:
    shown = printed(rate_per_s=60.0)
    assert "MISSED" in shown
    assert shown.index("Overloaded") < shown.index("rejected")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, printed(width).splitlines())) <= width


def test_a_run_that_served_nothing_shows_no_empty_figures() -> None:
    shown = printed(count=2)
    assert "2 requests rejected" in shown
    assert " - " not in shown
    assert "TTFT  " not in shown


def test_markup_in_a_name_is_text() -> None:
    assert "[red]a[/]" in printed(name="[red]a[/]")


def test_an_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'hardware'"):
        print_catalogue("hardwares", None, False)


@pytest.mark.parametrize("kind", ["models", "hardware", "presets"])
def test_a_list_shows_every_entry_whole(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_catalogue(kind, None, False)
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if not line.startswith(" ")]
    print_catalogue(kind, names[0], True)
    assert names[0] in capsys.readouterr().out


def test_a_number_is_shown_with_its_provenance_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    print_catalogue("hardware", "l40s", False)
    shown = capsys.readouterr().out
    assert "datasheet [1]" in shown
    assert "[1] NVIDIA L40S datasheet" in shown


BANDED = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B",
    "hardware": "mi300x",
    "engine": {"max_model_len": 8192},
    "workload": {
        "num_requests": 60,
        "arrivals": {"process": "poisson", "rate_per_s": 4.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 1500},
        "output_tokens": {"distribution": "uniform", "min": 2, "max": 200},
    },
}


@pytest.mark.parametrize("width", [60, 100])
def test_the_band_is_shown_and_a_verdict_that_it_spans_is_doubted(width: int) -> None:
    promised = simulate(Scenario.from_dict(BANDED)).summary.ttft_s.p99
    asked = Scenario.from_dict(
        {**BANDED, "slo": {"ttft_p99_s": promised, "tpot_p99_s": 9.0, "goodput_ttft_s": promised}}
    )
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_summary(simulate(asked, band=True).summary, asked, console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, shown.splitlines())) <= width
    words = " ".join(shown.split())
    assert "if steps are off by" in words or "if steps" in words
    assert "50 %" in words
    assert words.count("not surely") == 1
    assert "NOT calibrated for mi300x: read the numbers as estimates, off by 20 % (p50) or 50 % (p90)" in words
