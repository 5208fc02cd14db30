"""report.html as text: whole, escaped, small, the same for the same run."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from reports.html.chart import Chart, Series, figure
from reports.html.markup import Markup, table, tag
from reports.html.operators import sample
from reports.html.page import report_page
from reports.html.scale import axis
from sim import Result, Scenario, simulate

HOSTILE = "</title><script>alert(1)</script> & \"'<img src=x onerror=alert(2)>"


def scenario(**changes: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "name": "small",
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "workload": {
                "num_requests": 200,
                "arrivals": {"process": "poisson", "rate_per_s": 8.0},
                "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 1500},
                "output_tokens": {"distribution": "uniform", "min": 1, "max": 200},
                "sessions": {"turns": 3, "think_s": 2.0},
            },
            "slo": {"ttft_p99_s": 1.0, "tpot_p99_s": 0.001},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def run() -> Result:
    return simulate(scenario())


class Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts = 0

    def handle_starttag(self, name: str, attributes: Any) -> None:
        self.scripts += name == "script"
        self.open.append(name)

    def handle_startendtag(self, name: str, attributes: Any) -> None:
        pass

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name


def test_the_page_shows_each_part_of_a_run(run: Result) -> None:
    page = report_page(run)
    titles = re.findall(r"<h2>([^<]+)</h2>", page)
    assert titles == ["Latency", "Distributions", "Over time", "Memory", "Step time", "Roofline", "Groups", "Scenario"]
    assert "Promise missed: 1 of 2 bounds" in page
    assert "By turn of the conversation" in page


def test_the_markup_is_balanced_and_has_one_script(run: Result) -> None:
    parser = Balance()
    parser.feed(report_page(run))
    assert parser.open == []
    assert parser.scripts == 1


def test_nothing_of_a_user_becomes_markup() -> None:
    page = report_page(simulate(scenario(name=HOSTILE)))
    assert "<script>alert" not in page
    assert "<img" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 2
    parser = Balance()
    parser.feed(page)
    assert parser.scripts == 1


def test_no_address_outside_the_page_is_in_it(run: Result) -> None:
    page = report_page(run)
    outside = set(re.findall(r"https?://[^\s\"'<]+", page)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()
    assert not re.search(r"(src|href)=\"(?!data:)", page)


def test_the_same_run_gives_the_same_page(run: Result) -> None:
    assert report_page(run) == report_page(simulate(scenario()))


def test_a_run_without_a_cost_model_leaves_those_parts_out() -> None:
    given = scenario(engine={"step_time": {"base_us": 8000, "per_token_us": 20}})
    page = report_page(simulate(given))
    assert "<h2>Roofline</h2>" not in page
    assert "given by the scenario" in page


def test_a_run_in_which_nothing_could_be_served_has_a_page() -> None:
    page = report_page(simulate(scenario(engine={"max_model_len": 2})))
    assert "200 requests rejected" in page
    assert "<h2>Distributions</h2>" not in page


def test_parts_of_a_step_add_up_to_the_time_of_the_steps(run: Result) -> None:
    from reports.html.operators import _by_kind
    from sim.metrics_steps import row_times_s
    from sim.result import arrays_of

    runs = arrays_of(run.step_columns)
    kinds = _by_kind(run, runs)
    assert sum(kinds["all steps"].values()) == pytest.approx(row_times_s(runs).sum())
    decode, prefill = (sum(kinds[kind].values()) for kind in ("decode only", "with prefill"))
    assert decode + prefill == pytest.approx(row_times_s(runs).sum())


def test_a_sample_stands_for_all_the_time() -> None:
    times = np.random.default_rng(0).exponential(size=10_000)
    rows, weights = sample(times, 500)
    assert len(rows) <= 500
    assert weights.sum() == pytest.approx(times.sum())


def test_a_chart_draws_every_value_and_keeps_them_for_tooltips() -> None:
    values = np.array([0.0, 1.0, 4.0])
    drawn = figure(Chart("Load", axis("s", "s", 2.0), axis("n", "", 4.0), (Series("load", np.arange(3.0), values),)))
    assert re.search(r'd="M0 172L248 129L496 0"', drawn)
    assert "&quot;y&quot;:[0.0,1.0,4.0]" in drawn


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a<b", Markup("<i>c</i>"), title='"') == '<p title="&quot;">a&lt;b<i>c</i></p>'
    assert "&lt;b&gt;" in table(("", "x"), [("<b>", "1")])


def test_the_band_stands_beside_what_it_is_the_band_of() -> None:
    plain = simulate(scenario())
    promised = plain.summary.ttft_s.p99
    page = report_page(simulate(scenario(slo={"ttft_p99_s": promised, "goodput_ttft_s": 0.05}), band=True))
    assert "Range within the error of step times" in page
    assert "steps off by 5.6 %" in page
    assert "Goodput, requests/s</th>" in page
    assert "measured: mean TPOT of" in page
    assert page.count("not surely") == 1
    assert '; <span class="whole">within ' in page
    assert "Range within" not in report_page(plain)
