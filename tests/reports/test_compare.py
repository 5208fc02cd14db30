"""servecast compare: what is a difference, what is a regression, and how it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_run import toy_run

from reports.compare.cases import read_cases
from reports.compare.judge import Comparison, compare_cases
from reports.compare.tolerance import Tolerance, Tolerances, read_tolerances
from reports.compare.view import as_json, as_markdown, as_text
from sim import InputError

THREE = Tolerances(Tolerance(percent=3.0), {})


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return dict(json.loads(toy_run(count=120).result.summary.to_json()))


Write = Callable[..., Path]


@pytest.fixture
def write(summary: dict[str, Any], tmp_path: Path) -> Write:
    """Writes the summary with some figures multiplied."""

    def one(name: str, **factors: float) -> Path:
        document = json.loads(json.dumps(summary))
        for path, factor in factors.items():
            section, _, key = path.rpartition("__")
            document[section][key] *= factor
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(document))
        return target

    return one


def compared(base: Path, new: Path, tolerances: Tolerances = THREE, **options: bool) -> Comparison:
    return compare_cases(read_cases(base), read_cases(new), tolerances, **options)


def test_identical_runs_are_said_to_be(write: Write) -> None:
    comparison = compared(write("a.json"), write("b.json", simulation__wall_s=3.0))
    assert comparison.identical
    assert not comparison.failed
    assert "No difference" in as_text(comparison, 120)
    assert json.loads(as_json(comparison))["identical"] is True


def test_five_per_cent_of_ttft_against_three_is_a_regression_that_is_named(write: Write) -> None:
    comparison = compared(write("a.json"), write("b.json", ttft_s__p99=1.05))
    assert [each.metric for each in comparison.regressions] == ["ttft_s.p99"]
    assert comparison.regressions[0].change_pct == pytest.approx(5.0)
    for text in (as_text(comparison, 120), as_markdown(comparison), as_json(comparison)):
        assert "ttft_s.p99" in text


def test_a_change_by_a_multiple_is_told_in_plain_digits(write: Write) -> None:
    comparison = compared(write("a.json"), write("b.json", ttft_s__p99=13.0))
    for text in (as_text(comparison, 120), as_markdown(comparison)):
        assert "+1,200.00 %" in text
        assert "+1,200 %," in text


def test_what_has_no_case_in_common_is_said_to_have_none(write: Write) -> None:
    base = read_cases(write("a.json"))
    other = {f"rate={rate}": figures for rate, figures in enumerate([*base.values(), *base.values()])}
    assert as_text(compare_cases(base, other, THREE), 120).splitlines()[-1].startswith("No case is in both")


def test_five_per_cent_against_six_is_none(write: Write) -> None:
    allowed = read_tolerances(None, ["ttft_s.p99=6"])
    assert not compared(write("a.json"), write("b.json", ttft_s__p99=1.05), allowed).failed


def test_worse_is_less_where_more_is_better(write: Write) -> None:
    slower = compared(write("a.json"), write("b.json", throughput__output_tokens_per_s=0.9))
    faster = compared(write("a.json"), write("b.json", throughput__output_tokens_per_s=1.1))
    assert slower.failed
    assert not faster.failed
    assert compared(write("a.json"), write("b.json", ttft_s__p50=0.8), any_change=True).failed


def test_a_promise_no_longer_kept_is_a_regression(write: Write, summary: dict[str, Any], tmp_path: Path) -> None:
    document = json.loads(json.dumps(summary))
    kept, broken = dict(document["slo"]["met"]), dict(document["slo"]["met"])
    kept["ttft_p99_s"], broken["ttft_p99_s"] = True, False
    for name, met in (("kept", kept), ("broken", broken)):
        document["slo"]["met"] = met
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert compared(tmp_path / "kept.json", tmp_path / "broken.json").failed
    assert not compared(tmp_path / "broken.json", tmp_path / "kept.json").failed


def test_what_was_measured_and_is_no_more_is_a_regression(write: Write, summary: dict[str, Any]) -> None:
    base = {"": dict.fromkeys(["ttft_s.p50"], 1.0)}
    assert compare_cases(base, {"": {"ttft_s.p50": None}}, THREE).failed


def test_a_count_that_was_nought_may_rise_by_the_absolute_tolerance_only() -> None:
    base, new = {"": {"requests.rejected": 0.0}}, {"": {"requests.rejected": 2.0}}
    assert compare_cases(base, new, THREE).failed
    named = Tolerances(Tolerance(percent=3.0), {"requests.rejected": Tolerance(absolute=2.0)})
    assert not compare_cases(base, new, named).failed


def test_folders_of_several_summaries_are_matched_by_name(write: Write, tmp_path: Path) -> None:
    write("base/chat.json"), write("base/agents.json"), write("new/chat.json"), write("new/code.json")
    comparison = compared(tmp_path / "base", tmp_path / "new")
    assert comparison.cases == ("chat",)
    assert comparison.missing == ("agents",)
    assert comparison.added == ("code",)
    assert comparison.failed, "a case that is gone is not a pass"


def test_sweep_tables_are_matched_by_what_was_varied(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, ttft in (("base", [0.1, 0.2]), ("new", [0.22, 0.1])):
        rates = [1.0, 2.0] if name == "base" else [2.0, 1.0]
        table = {
            "workload.arrivals.rate_per_s": rates,
            "status": ["done", "done"],
            "ttft_s.p99": ttft,
            "slo.attainment": [
                rate / (4 if name == "new" else 4.01) for rate in rates
            ],  # a figure, not of the scenario
        }
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    (regression,) = compared(tmp_path / "base.parquet", tmp_path / "new.parquet").regressions
    assert regression.case == "workload.arrivals.rate_per_s=2.0"
    assert regression.change_pct == pytest.approx(10.0)


def test_the_longest_name_decides(tmp_path: Path) -> None:
    path = tmp_path / "tolerances.yaml"
    path.write_text("default: 1\nttft_s: 5\nttft_s.p99: {percent: 10, absolute: 0.01}\ntpot_s: null\n")
    allowed = read_tolerances(path, ["ttft_s.p50=7"])
    assert allowed.of("ttft_s.mean") == Tolerance(percent=5)
    assert allowed.of("ttft_s.p50") == Tolerance(percent=7)
    assert allowed.of("ttft_s.p99") == Tolerance(percent=10, absolute=0.01)
    assert allowed.of("tpot_s.mean") is None
    assert allowed.of("e2e_s.mean") == Tolerance(percent=1)
    assert allowed.of("memory.weights_bytes") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ttft_s.p98: 3", "did you mean"),
        ("ttft_s: -1", "-1"),
        ("ttft_s: {pct: 3}", "percent"),
        ("tpot_s: much", "much"),
    ],
)
def test_a_tolerance_that_is_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "tolerances.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_tolerances(path, [])


def test_markdown_escapes_what_a_user_wrote(write: Write, tmp_path: Path) -> None:
    base = {"a|b <img> `x`": {"ttft_s.p99": 1.0}, "b": {}}
    new = {"a|b <img> `x`": {"ttft_s.p99": 2.0}, "b": {}}
    text = as_markdown(compare_cases(base, new, THREE))
    assert "a\\|b &lt;img&gt; \\`x\\`" in text
    assert "<img>" not in text


def test_exit_codes(servecast: Callable[..., tuple[int, str, str]], write: Write, tmp_path: Path) -> None:
    base, worse = write("a.json"), write("b.json", ttft_s__p99=1.05)
    assert servecast("compare", base, base)[0] == 0
    code, out, _ = servecast("compare", base, worse)
    assert code == 1
    assert "ttft_s.p99 +5 %" in out
    code, out, err = servecast("compare", base, tmp_path / "none.json")
    assert (code, out) == (2, "")
    assert "no such file" in err


def test_plots_are_drawn_and_equal_for_equal_input(
    servecast: Callable[..., tuple[int, str, str]], write: Write, tmp_path: Path
) -> None:
    base, worse = write("a.json"), write("b.json", ttft_s__p99=1.05, throughput__requests_per_s=1.2)
    for name in ("one.png", "two.png", "one.svg", "two.svg"):
        servecast("compare", base, worse, "--plot", tmp_path / name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    assert servecast("compare", base, worse, "--plot", tmp_path / "one.gif")[0] == 2


def test_history_keeps_a_file_a_commit_and_draws_them(
    servecast: Callable[..., tuple[int, str, str]], write: Write, tmp_path: Path
) -> None:
    base = write("a.json")
    for index in range(4):
        new = write("b.json", ttft_s__p99=1 + index / 100, tpot_s__p50=1 + index / 200)
        done = servecast("compare", base, new, "--history", tmp_path / "history", "--commit", f"c0ffee{index}")
        assert done[0] == 0
    servecast("compare", base, base, "--history", tmp_path / "history", "--commit", "c0ffee1")
    names = sorted(path.name for path in (tmp_path / "history").iterdir())
    assert names == [*(f"{n + 1:05d}-c0ffee{n}.json" for n in range(4)), "history.png"]
    assert servecast("compare", base, base, "--history", tmp_path / "history", "--commit", "../x")[0] == 2
