"""The textbook claims hold in the simulator, and the page shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.textbook.claim import Claim, Measured, claims
from reports.textbook.page import write_page

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT.parent / "shared" / "traces"
PAGE = ROOT / "docs" / "textbook.md"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.name)
def test_a_claim_holds(claim: Claim) -> None:
    if claim.needs_traces and not TRACES.exists():
        pytest.skip(f"no published traces at {TRACES}")
    measured = claim.measure(TRACES if claim.needs_traces else None)
    assert claim.bounds.keys() <= measured.numbers.keys()
    assert not claim.broken(measured)


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.name)
def test_the_page_shows_every_claim(claim: Claim) -> None:
    page = PAGE.read_text("utf-8")
    assert f"## {claim.title}\n" in page
    assert claim.says in page
    assert claim.setting in page
    assert f"![{claim.title}](textbook/{claim.name}.png)" in page
    assert (ROOT / "docs" / "textbook" / f"{claim.name}.png").stat().st_size > 10_000


def test_names_and_titles_are_unique() -> None:
    found = claims()
    assert len({claim.name for claim in found}) == len({claim.title for claim in found}) == len(found)


def _toy(value: float) -> Claim:
    return Claim(
        name="toy",
        order=1,
        title="A toy",
        says="one is one.",
        setting="Nothing.",
        measure=lambda traces: Measured({"one": value}),
        bounds={"one": (0.9, 1.1)},
        table=lambda measured: f"| {measured.numbers['one']} |",
        draw=lambda figure, measured: None,
    )


def test_a_number_outside_its_bounds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.textbook.page.claims", lambda: [_toy(2.0)])
    assert write_page(tmp_path / "page.md") == ["toy: one is 2, not within 0.9 to 1.1"]
    assert "| 2.0 |" in (tmp_path / "page.md").read_text()


def test_what_is_not_measured_again_stays_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reports.textbook.page.claims", lambda: [_toy(1.0)])
    page = tmp_path / "page.md"
    write_page(page)
    before = page.read_text()
    monkeypatch.setattr("reports.textbook.page.claims", lambda: [_toy(1.05)])
    write_page(page, only="another")
    assert page.read_text() == before
    write_page(page)
    assert page.read_text() == before.replace("| 1.0 |", "| 1.05 |")
