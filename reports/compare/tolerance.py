"""How much worse a figure may get, and which way worse is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from sim.errors import InputError, nearest
from sim.scenario.document import load_document
from sim.schema import StrictModel
from sim.summary import STATISTICS

LATENCIES: Final = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")
THROUGHPUTS: Final = (
    "requests_per_s",
    "input_tokens_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "output_tokens_per_s_per_gpu",
)
#: Figures of which less is better (-1) and more is better (+1), whole or as the part before the last dot.
_DIRECTIONS: Final[dict[str, int]] = {
    **dict.fromkeys(LATENCIES, -1),
    "throughput": 1,
    "requests.completed": 1,
    "requests.rejected": -1,
    "requests.unfinished": -1,
    "requests.preemptions": -1,
    "slo.goodput_requests_per_s": 1,
    "slo.attainment": 1,
    "slo.met": 1,
    "kv.prefix_hit_rate": 1,
    "cost.usd_per_million_output_tokens": -1,
    "cost.usd_per_million_total_tokens": -1,
    "load.overloaded": -1,
}
_JUDGED_STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
_UNJUDGED: Final = {"requests.preemptions", "kv.prefix_hit_rate", "queue_s"}

Amount = Annotated[float, Field(ge=0, le=1e9)]


class Tolerance(StrictModel):
    """A figure may get worse by the larger of both.

    Attributes:
        percent: of the figure of the base.
        absolute: in the figure's own unit.
    """

    percent: Amount = 0.0
    absolute: Amount = 0.0

    def allows(self, base: float, worse_by: float) -> bool:
        """Whether ``worse_by`` (in the figure's unit, above 0) is within it, up to rounding."""
        room = max(abs(base) * self.percent / 100, self.absolute)
        return worse_by <= room * (1 + 1e-9) + abs(base) * 1e-12


@dataclass(frozen=True, slots=True)
class Tolerances:
    """What was asked of which figure; the longest name that a figure begins with counts.

    Attributes:
        default: of every figure that is judged unless it is named.
        named: by figure or by group of figures; None: not judged.
    """

    default: Tolerance
    named: Mapping[str, Tolerance | None]

    def of(self, metric: str) -> Tolerance | None:
        """The tolerance of a figure; None where it is not judged."""
        name = metric
        while name:
            if name in self.named:
                return self.named[name]
            name = name.rpartition(".")[0]
        return self.default if _judged(metric) else None


def direction(metric: str) -> int:
    """+1 where more is better, -1 where less is, 0 where neither."""
    group = metric.rpartition(".")[0]
    return _DIRECTIONS.get(metric, _DIRECTIONS.get(group, 0))


def _judged(metric: str) -> bool:
    group, _, statistic = metric.rpartition(".")
    if metric in _UNJUDGED or group in _UNJUDGED or direction(metric) == 0:
        return False
    return group not in LATENCIES or statistic in _JUDGED_STATISTICS


def read_tolerances(path: Path | None, flags: Sequence[str]) -> Tolerances:
    """Tolerances of a file (YAML or JSON: figure to per cent, or to ``{percent, absolute}``) and of flags, which win.

    Raises `InputError` for an unknown figure or an amount that is none.
    """
    document = dict(load_document(path)) if path is not None else {}
    for flag in flags:
        name, found, text = flag.partition("=")
        if not found:
            raise InputError("--tolerance", f"'{flag}' is not METRIC=PERCENT", "as in ttft_s.p99=5")
        try:
            document[name.strip()] = float(text.rstrip(" %"))
        except ValueError:
            raise InputError("--tolerance", f"'{text}' is not a number", "as in ttft_s.p99=5") from None
    where = str(path) if path is not None else "--tolerance"
    named = {str(name): _amount(value, f"{where}.{name}") for name, value in document.items()}
    default = named.pop("default", Tolerance(percent=3.0))
    for name in named:
        _known(name, where)
    return Tolerances(default or Tolerance(percent=1e9), named)


def _amount(value: object, where: str) -> Tolerance | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Tolerance.parse({"percent": value} if number else value, where)


def _known(name: str, where: str) -> None:
    groups = [*LATENCIES, *_DIRECTIONS, "requests", "slo", "cost", "load", "utilization", "kv", "memory", "duration_s"]
    figures = [f"{group}.{statistic}" for group in LATENCIES for statistic in STATISTICS]
    known = {*groups, *figures, *(f"throughput.{figure}" for figure in THROUGHPUTS)}
    open_groups = ("slo.met.", "utilization.", "kv.", "memory.", "cost.", "load.", "requests.")
    if name not in known and not name.startswith(open_groups):
        raise InputError(f"{where}.{name}", "is no figure of a summary", nearest(name, known))
