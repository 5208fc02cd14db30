"""``report.html``: a run to look at, in one file."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from pathlib import Path

from reports.html.figures import distributions, over_time
from reports.html.groups import groups_section
from reports.html.headline import headline, latencies, memory
from reports.html.markup import Markup, join, tag
from reports.html.operators import operators_section, roofline_section
from sim.result import Result

_HINT = (
    "Point at a figure for values. Drag across one to zoom, double-click to see all; with the keyboard: arrows, + and "
    "-, 0. Time lines zoom together."
)


def write_report(result: Result, path: Path) -> None:
    """Write the report of a run; the same run gives the same bytes."""
    path.write_text(report_page(result), encoding="utf-8")


def report_page(result: Result) -> str:
    """The page. It asks nothing of the network: its policy forbids it, and only its own script may run."""
    summary = result.summary
    sections = (
        ("Latency", latencies(result) if summary.requests.completed else None),
        ("Distributions", distributions(result)),
        ("Over time", over_time(result)),
        ("Memory", memory(result)),
        ("Step time", operators_section(result)),
        ("Roofline", roofline_section(result)),
        ("Groups", groups_section(result)),
        ("Scenario", _scenario(result)),
    )
    shown = [tag("section", tag("h2", title), content) for title, content in sections if content is not None]
    footer = tag(
        "footer",
        f"servecast {summary.servecast_version}; scenario {summary.scenario_hash}; seed {summary.seed}; "
        f"{summary.simulation.engine_steps:,} engine steps.",
    )
    main = tag("main", headline(result), tag("p", _HINT, class_="note hint"), *shown, footer)
    return document(f"{summary.name} - servecast", main)


def document(title: str, main: Markup, *, script: str = "report.js") -> str:
    """A whole page around ``main`` with the style and the script of servecast inside."""
    style, code = (files("reports.html").joinpath(name).read_text(encoding="utf-8") for name in ("report.css", script))
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(code)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width,initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    tip = tag("div", id="tip", role="status")
    body = tag("body", main, tip, tag("script", Markup(code)))
    return "<!doctype html>\n" + tag("html", join([head, body]), lang="en") + "\n"


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _scenario(result: Result) -> Markup:
    text = result.context.scenario.resolved().to_yaml()
    return tag("details", tag("summary", "As resolved, every default filled in"), tag("pre", text))
