"""A comparison as text, as Markdown for a pull request, and as JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from reports.compare.judge import Comparison, Difference
from reports.text import count, number, percent, seconds, usd

MOST_ROWS: Final = 60
_WORDS: Final = {"same": "same", "within": "within", "better": "better", "regression": "REGRESSION", "changed": ""}


def verdict_line(comparison: Comparison) -> str:
    """One sentence that says it all."""
    if comparison.identical:
        figures = count(len(comparison.differences), "figure")
        return f"No difference: {figures} of {count(len(comparison.cases), 'case')} are the same."
    parts = []
    if comparison.regressions:
        named = ", ".join(_sentence(each) for each in comparison.regressions[:3])
        more = f" and {len(comparison.regressions) - 3} more" if len(comparison.regressions) > 3 else ""
        parts.append(f"{count(len(comparison.regressions), 'regression')}: {named}{more}")
    if comparison.missing and not comparison.cases:
        parts.append("No case is in both: these are neither two runs nor two sweeps over the same values")
    elif comparison.missing:
        parts.append(f"{count(len(comparison.missing), 'case')} of the base missing: {comparison.missing[0]}")
    if parts:
        return "; ".join(parts)
    better = sum(each.verdict == "better" for each in comparison.differences)
    return "No regression" + (f"; {count(better, 'figure')} better." if better else ".")


def _sentence(each: Difference) -> str:
    where = f" ({each.case})" if each.case else ""
    size = each.change_pct
    change = "" if size is None else f" {size:+,.0f} %" if abs(size) >= 999.5 else f" {size:+.3g} %"
    return f"{each.metric}{where}{change}, {shown(each.metric, each.base)} to {shown(each.metric, each.new)}"


def shown_rows(comparison: Comparison) -> list[Difference]:
    """What a reader wants to see: judged figures that differ, the worst first, and those that changed unjudged."""
    order = {"regression": 0, "better": 1, "within": 2, "changed": 3}
    differing = [each for each in comparison.differences if each.verdict != "same" and each.tolerance is not None]
    return sorted(differing, key=lambda each: (order[each.verdict], -abs(each.change_pct or 0.0)))


def shown(metric: str, value: float | bool | None) -> str:
    """A figure in its unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if metric.split(".")[0].endswith("_s"):
        return seconds(value)
    if metric.startswith("cost.usd"):
        return usd(value)
    if metric in ("slo.attainment", "kv.prefix_hit_rate"):
        return percent(value)
    return number(value)


def as_text(comparison: Comparison, width: int) -> str:
    """Aligned columns and the verdict; ``width`` bounds the label of a case."""
    lines = []
    rows = shown_rows(comparison)
    if rows:
        room = max(8, width - 78)
        cells = [("figure", "base", "new", "change", "allowed", "")]
        cells += [_cells(each, room) for each in rows[:MOST_ROWS]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            first, *rest = (
                cell.ljust(size) if index in (0, 5) else cell.rjust(size)
                for index, (cell, size) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join([first, *rest]).rstrip())
        if len(rows) > MOST_ROWS:
            lines.append(f"... {len(rows) - MOST_ROWS} more; --json has them all")
        lines.append("")
    lines += [f"missing from the new side: {label}" for label in comparison.missing]
    lines += [f"only on the new side: {label}" for label in comparison.added]
    return "\n".join([*lines, verdict_line(comparison), ""])


def _cells(each: Difference, room: int) -> tuple[str, str, str, str, str, str]:
    case = each.case if len(each.case) <= room else each.case[: room - 3] + "..."
    name = f"{each.metric}  {case}" if case else each.metric
    return (name, shown(each.metric, each.base), shown(each.metric, each.new), _change(each), _allowed(each),
            _WORDS[each.verdict])  # fmt: skip


def _change(each: Difference) -> str:
    return "" if each.change_pct is None else f"{each.change_pct:+,.2f} %"


def _allowed(each: Difference) -> str:
    tolerance = each.tolerance
    if tolerance is None or isinstance(each.base, bool):
        return ""
    return f"{tolerance.percent:g} %" + (f" or {tolerance.absolute:g}" if tolerance.absolute else "")


def as_markdown(comparison: Comparison) -> str:
    """A heading with the verdict and a table of what differs; texts of users are escaped."""
    mark = "❌" if comparison.failed else "✅"
    lines = [f"### {mark} servecast: {_escaped(verdict_line(comparison))}", ""]
    rows = shown_rows(comparison)
    if rows:
        lines += ["| figure | case | base | new | change | allowed | |", "|---|---|--:|--:|--:|--:|---|"]
        for each in rows[:MOST_ROWS]:
            cells = (f"`{each.metric}`", _escaped(each.case), *_cells(each, 60)[1:])
            lines.append("| " + " | ".join(cells).rstrip() + " |")
        lines.append("")
        if len(rows) > MOST_ROWS:
            lines += [f"{len(rows) - MOST_ROWS} more.", ""]
    for title, labels in (("Missing", comparison.missing), ("New", comparison.added)):
        if labels:
            lines += [f"{title}: " + ", ".join(map(_escaped, labels)), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    table = {ord(letter): f"\\{letter}" for letter in "\\`*_[]|"}
    return text.translate(table | {ord("<"): "&lt;", ord(">"): "&gt;", ord("\n"): " "})


def as_json(comparison: Comparison) -> str:
    """``{identical, failed, verdict, cases, missing, added, differences: [...]}``."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "identical": comparison.identical,
        "failed": comparison.failed,
        "verdict": verdict_line(comparison),
        "cases": list(comparison.cases),
        "missing": list(comparison.missing),
        "added": list(comparison.added),
        "regressions": [_entry(each) for each in comparison.regressions],
        "differences": [_entry(each) for each in comparison.differences if each.verdict != "same"],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _entry(each: Difference) -> dict[str, Any]:
    return {
        "case": each.case,
        "metric": each.metric,
        "base": each.base,
        "new": each.new,
        "change_pct": each.change_pct,
        "tolerance": each.tolerance.model_dump() if each.tolerance else None,
        "verdict": each.verdict,
    }
