from __future__ import annotations

import doctest
import io

import pytest
from rich.console import Console
from toy_run import toy_run

from reports import text
from reports.show import print_catalogue
from reports.terminal import print_summary
from sim import InputError


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
