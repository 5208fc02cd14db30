"""What differs between two sets of cases, and what of it is a regression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from reports.compare.cases import Figures
from reports.compare.tolerance import Tolerance, Tolerances, direction

Verdict = Literal["same", "within", "better", "regression", "changed"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one case.

    Attributes:
        case: '' where there is one only.
        base, new: None where nothing was measured.
        verdict: ``within`` its tolerance; ``better`` or ``regression`` beyond it; ``changed``: not judged.
        tolerance: None where the figure is not judged.
    """

    case: str
    metric: str
    base: float | bool | None
    new: float | bool | None
    verdict: Verdict
    tolerance: Tolerance | None

    @property
    def change_pct(self) -> float | None:
        """Change in per cent of the base; None where there is no such number."""
        if self.base is None or self.new is None or isinstance(self.base, bool) or self.base == 0:
            return None
        return 100.0 * (self.new - self.base) / abs(self.base)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome.

    Attributes:
        differences: every figure of every case that both have, in order.
        missing: cases of the base that the new side lacks: a regression.
        added: cases that only the new side has.
    """

    differences: tuple[Difference, ...]
    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    cases: tuple[str, ...] = field(default=())

    @property
    def identical(self) -> bool:
        """Whether nothing differs."""
        return not (self.missing or self.added) and all(each.verdict == "same" for each in self.differences)

    @property
    def regressions(self) -> list[Difference]:
        """Figures that got worse by more than their tolerance, the worst first."""
        worse = [each for each in self.differences if each.verdict == "regression"]
        return sorted(worse, key=lambda each: (-abs(each.change_pct or float("inf")), each.case, each.metric))

    @property
    def failed(self) -> bool:
        """Whether a check should fail."""
        return bool(self.missing) or bool(self.regressions)


def compare_cases(
    base: Mapping[str, Figures], new: Mapping[str, Figures], tolerances: Tolerances, *, any_change: bool = False
) -> Comparison:
    """Hold every case of ``base`` against the one of the same label; two single cases against each other.

    With ``any_change`` a change for the better beyond the tolerance fails as well: for a baseline that must be kept
    up to date.
    """
    if len(base) == len(new) == 1:
        (label,) = base
        new = {label: next(iter(new.values()))}
    shared = [label for label in base if label in new]
    differences = [
        difference for label in shared for difference in _case(label, base[label], new[label], tolerances, any_change)
    ]
    missing = tuple(label for label in base if label not in new)
    added = tuple(label for label in new if label not in base)
    return Comparison(tuple(differences), missing, added, tuple(shared))


def _case(label: str, base: Figures, new: Figures, tolerances: Tolerances, any_change: bool) -> Iterator[Difference]:
    for metric in dict.fromkeys([*base, *new]):
        old, now, tolerance = base.get(metric), new.get(metric), tolerances.of(metric)
        verdict = _verdict(metric, old, now, tolerance)
        if any_change and verdict == "better":
            verdict = "regression"
        yield Difference(label, metric, old, now, verdict, tolerance)


def _verdict(metric: str, base: float | bool | None, new: float | bool | None, tolerance: Tolerance | None) -> Verdict:
    if base == new and (base is None) == (new is None):
        return "same"
    if tolerance is None:
        return "changed"
    if new is None:
        return "regression"  # what was measured is measured no more
    if base is None:
        return "changed"
    way = direction(metric) or -1 if new > base else direction(metric) or 1
    better = (new - base) * way > 0
    if tolerance.allows(float(base), abs(float(new) - float(base))):
        return "within"
    return "better" if better and direction(metric) else "regression"
