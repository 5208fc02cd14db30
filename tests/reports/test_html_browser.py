"""report.html in a real browser: it loads at once, asks for nothing, and its figures answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from browser import Browser, open_browser

from reports.html.page import report_page
from sim import Scenario, simulate


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from open_browser()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of 20,000 requests, with preemptions and more than the cache holds."""
    scenario = Scenario.from_dict(
        {
            "name": "twenty thousand <b>",
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": {"replicas": 2},
            "engine": {"num_gpu_blocks_override": 12_000},
            "workload": {
                "num_requests": 20_000,
                "arrivals": {"process": "gamma", "rate_per_s": 12.0, "cv": 2.0},
                "prompt_tokens": {"distribution": "lognormal", "mean": 1500, "cv": 1.2, "max": 16384},
                "output_tokens": {"distribution": "lognormal", "mean": 300, "cv": 0.9, "max": 2048},
            },
            "slo": {"ttft_p99_s": 0.5},
        }
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(simulate(scenario)), encoding="utf-8")
    return path


def test_a_large_run_is_a_small_file(page: Path) -> None:
    assert page.stat().st_size < 3_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_within_a_second_and_asks_for_nothing(browser: Browser, page: Path, scheme: str) -> None:
    browser.load(page.as_uri(), scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requested() if not url.startswith("data:")] == [page.as_uri()]
    assert browser.load_ms() < 1000
    assert int(browser.ask("document.documentElement.dataset.ready")) >= 10
    dark = browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"
    assert dark == (scheme == "dark")


def test_figures_have_a_size_and_the_page_does_not_scroll_sideways(browser: Browser, page: Path) -> None:
    browser.load(page.as_uri())
    sizes = browser.ask("[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)")
    assert all(height > 100 for height in sizes)
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")


def test_a_pointer_shows_values_and_a_drag_zooms_all_time_lines(browser: Browser, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.load(page.as_uri())
    chart = browser.ask("document.querySelector('svg[data-group=time]')")
    browser.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser.driver).move_to_element(chart).perform()
    assert "running" in browser.ask("document.getElementById('tip').textContent")
    actions = ActionChains(browser.driver).move_to_element_with_offset(chart, -100, 0).click_and_hold()
    actions.move_by_offset(120, 0).release().perform()
    boxes = browser.ask(
        "[...document.querySelectorAll('svg[data-group=time] .plot')].map(p => p.getAttribute('viewBox'))"
    )
    assert len(boxes) >= 4
    assert len(set(boxes)) == 1
    assert float(boxes[0].split()[2]) < 250
    ActionChains(browser.driver).double_click(chart).perform()
    assert browser.ask("document.querySelector('svg[data-group=time] .plot').viewBox.baseVal.width") == 496


def test_the_keyboard_zooms_and_reads_values(browser: Browser, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.load(page.as_uri())
    chart = browser.ask("document.querySelector('svg[data-group=time]')")
    browser.driver.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.ARROW_RIGHT)
    assert "waiting" in browser.ask("document.getElementById('tip').textContent")
    chart.send_keys("+")
    assert browser.ask("document.querySelector('svg[data-group=time] .plot').viewBox.baseVal.width") < 300


def test_print_is_on_white(browser: Browser, page: Path) -> None:
    browser.load(page.as_uri(), "dark")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.querySelector('.hint')).display") == "none"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
