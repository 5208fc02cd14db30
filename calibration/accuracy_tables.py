"""Markdown tables of accuracy: by metric, by group of cases, and case by case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from calibration.validate import Accuracy, Report, Score, accuracy

MAIN: Final = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean", "e2e_s.p99", "ttft_s.p99")
_NAMES: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "throughput": "throughput", "kv": "KV"}


def title_of(key: str) -> str:
    """``ttft_s.mean`` as people say it.

    >>> title_of("ttft_s.mean"), title_of("throughput.requests_per_s")
    ('TTFT mean', 'requests per s')
    """
    metric, statistic = key.split(".")
    if metric in ("throughput", "kv"):
        return statistic.replace("num_gpu_", "").replace("_", " ")
    return f"{_NAMES.get(metric, metric)} {statistic}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every column but the first is aligned to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def metric_table(report: Report, keys: Iterable[str], targets: dict[str, float] | None = None) -> str:
    """One row a metric: n, median, mean, bias and the worst case, beside the target where there is one."""
    summary = report.summary()
    rows = []
    for key in keys:
        if key not in summary:
            continue
        found = summary[key]
        cells = [title_of(key), str(found.n), *_numbers(found), f"{found.worst:+.1f}", found.worst_case]
        if targets is not None:
            cells.insert(3, f"{targets[key]:g}" if key in targets else "")
        rows.append(cells)
    heads = ["metric", "n", "median", "mean", "bias", "worst", "worst case"]
    if targets is not None:
        heads.insert(3, "target (median)")
    return table(heads, rows)


def group_table(report: Report, tag: str, keys: Sequence[str] = MAIN) -> str:
    """One row a value of ``tag``: median size of the error and, signed, its mean, for each metric."""
    values = sorted({score.tags[tag] for score in report.scores if tag in score.tags})
    rows = []
    for value in values:
        summary = report.where(**{tag: value}).summary()
        if any(key in summary for key in keys):
            count = max(summary[key].n for key in keys if key in summary)
            rows.append([value, str(count), *(_pair(summary.get(key)) for key in keys)])
    return table([tag, "n", *(title_of(key) for key in keys)], rows)


def case_table(report: Report, keys: Sequence[str] = MAIN, tags: Sequence[str] = ("gpu", "family", "group")) -> str:
    """One row a case (or a window of it): its tags and the signed error of each metric in per cent."""
    rows = [
        [name, *(scores[0].tags.get(tag, "") for tag in tags), *(_error(scores, key) for key in keys)]
        for name, scores in _by_case(report)
        if any(score.key in keys for score in scores)
    ]
    return table(["case", *tags, *(title_of(key) for key in keys)], rows)


def _by_case(report: Report) -> Iterator[tuple[str, list[Score]]]:
    found: dict[str, list[Score]] = {}
    for score in report.scores:
        found.setdefault(score.name, []).append(score)
    yield from found.items()


def _numbers(found: Accuracy) -> tuple[str, str, str]:
    return f"{found.mdape:.1f}", f"{found.mape:.1f}", f"{found.bias:+.1f}"


def _pair(found: Accuracy | None) -> str:
    return "" if found is None else f"{found.mdape:.1f} ({found.bias:+.1f})"


def _error(scores: list[Score], key: str) -> str:
    found = accuracy(score for score in scores if score.key == key)
    return "" if found is None else f"{found.bias:+.1f}"
