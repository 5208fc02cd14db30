"""Measured cases: what a real deployment did, as documents that `servecast validate` holds predictions against.

A case is a mapping with ``name``, ``source``, ``scenario`` (inline or a path), ``measured`` (any subset of the metrics
of the summary) and, optionally, ``notes`` and ``tags``. Instead of ``measured`` it may hold ``windows``: one
simulation, scored on the requests that arrive within each window (a run whose rate changes has a window for each
stage). A file holds one case, or a list of them under ``cases``.
"""

from __future__ import annotations

import glob
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from sim.errors import InputError, nearest
from sim.scenario import Scenario
from sim.scenario.document import load_document
from sim.schema import StrictModel
from sim.summary import Summary

SUFFIXES: Final = (".yaml", ".yml", ".json")
WINDOWED: Final = ("ttft_s", "tpot_s", "e2e_s", "queue_s")
SCALAR: Final = "value"  # the statistic of a metric that is one number
_Model = TypeVar("_Model", bound=StrictModel)


@dataclass(frozen=True, slots=True)
class Window:
    """Requests that arrive in [``start_s``, ``end_s``), and what was measured of them.

    Attributes:
        name: empty where the case has one window that holds every request.
        measured: (metric, statistic, value of at least 0), in the order of the document.
        tags: of the window; they come on top of the case's.
    """

    name: str
    measured: tuple[tuple[str, str, float], ...]
    start_s: float = 0.0
    end_s: float = math.inf
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether every request counts."""
        return self.start_s == 0.0 and math.isinf(self.end_s)


@dataclass(frozen=True, slots=True)
class Case:
    """One measured deployment, and the scenario that says what it was."""

    name: str
    source: str
    scenario: Scenario
    windows: tuple[Window, ...]
    notes: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    file: str = ""


class _Windowed(StrictModel):
    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    arrivals_s: Annotated[list[float], Field(min_length=2, max_length=2)]
    measured: dict[str, Any]
    tags: dict[str, str] = Field(default_factory=dict)


class _Document(StrictModel):
    """The document as written; ``measured`` and ``scenario`` are judged afterwards."""

    model_config = ConfigDict(strict=True)

    name: Annotated[str, Field(min_length=1, max_length=200)]
    source: str = ""
    scenario: dict[str, Any] | str
    measured: dict[str, Any] | None = None
    windows: Annotated[list[Any], Field(min_length=1)] | None = None
    notes: str = ""
    tags: dict[str, str] = Field(default_factory=dict)


def load_cases(paths: Iterable[str | Path]) -> list[Case]:
    """Cases of files, folders (searched through and through) and globs, ordered by path; a file counts once.

    Raises:
        InputError: nothing there, a document that is no case (file and field), two cases of one name.
    """
    files = list(dict.fromkeys(file for path in paths for file in _files(path)))
    cases = [case for file in files for case in _cases_of(file)]
    if not files:
        raise InputError("cases", "no files given", "name a case file, a folder or a glob")
    first: dict[str, str] = {}
    for case in cases:
        if case.name in first:
            raise InputError(f"{case.file}: name", f"'{case.name}' is also in {first[case.name]}", "rename one of them")
        first[case.name] = case.file
    return cases


def select(cases: Sequence[Case], wanted: Mapping[str, str]) -> list[Case]:
    """Cases cut to the windows whose tags hold every wanted value.

    Raises:
        InputError: a tag that no case has, or nothing is left.
    """
    known = {key for case in cases for window in case.windows for key in (*case.tags, *window.tags)}
    for key in wanted:
        if key not in known:
            raise InputError(f"tag '{key}'", "no case has it", nearest(key, known))
    chosen = []
    for case in cases:
        kept = tuple(window for window in case.windows if wanted.items() <= {**case.tags, **window.tags}.items())
        if kept:
            chosen.append(replace(case, windows=kept))
    if not chosen:
        shown = ", ".join(f"{key}={value}" for key, value in wanted.items())
        raise InputError("cases", f"none of {len(cases)} has {shown}", "see the tags in the case files")
    return chosen


def parse_tags(given: Iterable[str]) -> dict[str, str]:
    """``tag=value`` texts as a mapping. Raises `InputError` naming the text."""
    wanted: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise InputError(f"--where {text}", "is not of the form TAG=VALUE", "for example gpu=h100-sxm")
        wanted[key] = value
    return wanted


def _files(path: str | Path) -> Iterator[Path]:
    there = Path(path).expanduser()
    if there.is_dir():
        found = sorted(file for file in there.rglob("*") if file.suffix.lower() in SUFFIXES)
        if not found:
            raise InputError(str(path), f"holds no {', '.join(SUFFIXES)} file", "name the folder of the cases")
        yield from found
    elif there.exists() or not glob.has_magic(str(path)):
        yield there  # a missing file is told by the reader
    else:
        matches = sorted(glob.glob(str(there), recursive=True))
        if not matches:
            raise InputError(str(path), "matches no file", "check the pattern")
        for match in matches:
            yield from _files(Path(match))


def _cases_of(file: Path) -> Iterator[Case]:
    document = load_document(file)
    entries = document.get("cases")
    if entries is None:
        yield _case(document, file, f"{file}: ")
        return
    if len(document) > 1 or not isinstance(entries, list) or not entries:
        raise InputError(f"{file}: cases", "must be a list of cases, and the only key of its file")
    for index, entry in enumerate(entries):
        yield _case(entry, file, f"{file}: cases.{index}.")


def _case(data: Any, file: Path, at: str) -> Case:
    """The case that ``data`` says; ``at`` is what comes before a key in an error."""
    document = _parsed(_Document, data, at)
    return Case(
        name=document.name,
        source=document.source,
        scenario=_scenario(document, file, at),
        windows=_windows(document, at),
        notes=document.notes,
        tags=document.tags,
        file=str(file),
    )


def _parsed(model: type[_Model], data: Any, at: str) -> _Model:
    try:
        return model.parse(data)
    except InputError as error:
        raise InputError(at + error.field, error.problem, error.remedy) from None


def _scenario(document: _Document, file: Path, at: str) -> Scenario:
    given = document.scenario
    if isinstance(given, str):
        return Scenario.from_file(file.parent / Path(given).expanduser())
    try:
        return Scenario.from_dict({"name": document.name, **given}, file.parent)
    except InputError as error:
        raise InputError(f"{at}scenario.{error.field}", error.problem, error.remedy) from None


def _windows(document: _Document, at: str) -> tuple[Window, ...]:
    if (document.windows is None) == (document.measured is None):
        problem = "required, but missing" if document.measured is None else "given together with windows"
        raise InputError(f"{at}measured", problem, "give what was measured, e.g. ttft_s: {mean: 0.1}, or windows")
    if document.windows is None:
        return (Window("", _measured(document.measured or {}, f"{at}measured")),)
    return tuple(_window(item, f"{at}windows.{index}.") for index, item in enumerate(document.windows))


def _window(data: Any, at: str) -> Window:
    given = _parsed(_Windowed, data, at)
    start, end = given.arrivals_s
    if not 0 <= start < end:
        raise InputError(f"{at}arrivals_s", f"[{start:g}, {end:g}] is not a stretch of time", "give [start, end]")
    measured = _measured(given.measured, f"{at}measured")
    for metric, _, _ in measured:
        if metric not in WINDOWED:
            raise InputError(f"{at}measured.{metric}", "is no latency of requests", f"one of {', '.join(WINDOWED)}")
    return Window(given.name, measured, start, end, given.tags)


def _measured(data: Mapping[str, Any], at: str) -> tuple[tuple[str, str, float], ...]:
    known = summary_metrics()
    found: list[tuple[str, str, float]] = []
    for metric, given in data.items():
        where = f"{at}.{metric}"
        if metric not in known:
            raise InputError(where, "is not a metric of the summary", nearest(metric, known))
        statistics = known[metric]
        values = {SCALAR: given} if statistics == (SCALAR,) else given
        if not isinstance(values, dict):
            raise InputError(where, f"must hold statistics, got {given!r:.60}", f"for example {{{statistics[0]}: ...}}")
        for statistic, value in values.items():
            if statistic not in statistics:
                raise InputError(f"{where}.{statistic}", "unknown statistic", nearest(str(statistic), statistics))
            found.append((metric, statistic, _amount(value, f"{where}.{statistic}")))
    if not found:
        raise InputError(at, "holds no number", "give what was measured, e.g. ttft_s: {mean: 0.105}")
    return tuple(found)


def _amount(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(where, f"must be a number, got {value!r:.60}")
    if not (math.isfinite(value) and value >= 0):
        raise InputError(where, f"{value} cannot have been measured", "give a number of at least 0, or leave it out")
    return float(value)


@cache
def summary_metrics() -> dict[str, tuple[str, ...]]:
    """Numeric metrics of `sim.summary.Summary` and their statistics (``("value",)`` for a plain number)."""
    metrics: dict[str, tuple[str, ...]] = {}
    for name, info in Summary.model_fields.items():
        if name in ("schema_version", "seed", "simulation"):
            continue
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            numbers = tuple(key for key, part in kind.model_fields.items() if _is_number(part.annotation))
            if numbers:
                metrics[name] = numbers
        elif _is_number(kind):
            metrics[name] = (SCALAR,)
    return metrics


def _is_number(annotation: Any) -> bool:
    kinds = set(get_args(annotation)) if get_origin(annotation) in (Union, UnionType) else {annotation}
    return bool(kinds & {int, float}) and bool not in kinds
