"""What a search learns as it goes: how well the best so far keeps the promise, and decode pools that are too small."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sim.planner.bench import CLEAR, Outcome
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.space import Cell

_BY_DECODING: Final = ("tpot", "itl")


@dataclass(frozen=True, slots=True)
class TooFew:
    """Decode engines that broke the bound on a token's time clearly.

    Attributes:
        engines: how many there were, under all of the load.
        sequences: the least and the most ``max_num_seqs`` for which the run is the same.
        blocks: that an engine must have for that.
    """

    engines: int
    sequences: tuple[float, float]
    blocks: int


@dataclass
class Hunt:
    """The state of a search.

    In a split the engines that decode see prompts arrive at the pace of the traffic, whichever engines prefill (as
    long as these keep up). So where a bound on the time a token was broken by more than `CLEAR`, as many or fewer
    decode engines of the kind break it behind any other prefill engines. This is taken from what was seen, not
    proved: a prefill pool smooths or bunches arrivals a little, and the margin is for that.

    Attributes:
        best: the best outcome at the cost that is looked at; None before something keeps the promise.
        tighter: the case under a promise as tight as the best keeps it.
        spared: deployments that were not simulated since their decode engines are known to be too few.
    """

    case: Case
    ground: Ground
    best: Outcome | None = None
    tighter: Case | None = None
    spared: list[tuple[Cell, int]] = field(default_factory=list)
    _small: dict[tuple[Any, ...], list[TooFew]] = field(default_factory=dict)

    def ceiling(self, cell: Cell) -> float:
        """Beyond which a run of ``cell`` is of no more use."""
        if self.best is not None and self.best.verdict.ratio is not None:
            return min(1.0, float(f"{self.best.verdict.ratio:.6g}") * (1 + 1e-5))
        return CLEAR if cell.split is not None else 1.0

    def saw(self, outcome: Outcome) -> None:
        """Learn from a run."""
        if outcome.verdict.kept:
            if self.best is None or rank(self.ground, outcome) < rank(self.ground, self.best):
                self.best = outcome
                ceiling = self.ceiling(outcome.trial.cell)
                self.tighter = self.case.tighter(ceiling) if 0 < ceiling < 1 else None
            return
        cell, evidence = outcome.trial.cell, outcome.record.evidence
        if cell.split is None or evidence is None or not self._clear(outcome):
            return
        reached = evidence.peak_running >= cell.max_num_seqs
        sequences = (float(cell.max_num_seqs),) * 2 if reached else (evidence.peak_running + 1.0, float("inf"))
        longest = -(-evidence.longest_prompt_tokens // self.case.base.engine.block_size) + 1
        needed = min(evidence.peak_blocks + longest, self._blocks(cell))
        self._small.setdefault(_kind(cell), []).append(
            TooFew(cell.split.decode * outcome.trial.replicas, (sequences[0], sequences[1]), needed)
        )

    def too_few(self, cell: Cell, replicas: int) -> bool:
        """Whether the decode engines of ``replicas`` of ``cell`` are known to be too few."""
        if cell.split is None:
            return False
        engines = cell.split.decode * replicas
        found = any(
            engines <= small.engines
            and small.sequences[0] <= cell.max_num_seqs <= small.sequences[1]
            and self._blocks(cell) >= small.blocks
            for small in self._small.get(_kind(cell), ())
        )
        if found:
            self.spared.append((cell, replicas))
        return found

    def _blocks(self, cell: Cell) -> int:
        return self.ground.fit(cell).blocks["decode"] - 1

    def _clear(self, outcome: Outcome) -> bool:
        """Whether a bound on the time a token was broken, and by how much."""
        record = outcome.record
        if record.status == "stopped" and record.refusal is not None:
            return record.refusal.field.startswith(_BY_DECODING) and record.beyond >= CLEAR
        broken, ratio = outcome.verdict.broken, outcome.verdict.ratio
        return bool(broken) and broken[0].startswith(_BY_DECODING) and ratio is not None and ratio >= CLEAR


def _kind(cell: Cell) -> tuple[Any, ...]:
    assert cell.split is not None
    return cell.hardware, cell.quantization, str(cell.kv_cache_dtype), cell.split.decode_layout


def rank(ground: Ground, outcome: Outcome) -> tuple[object, ...]:
    """Sorts deployments that keep the promise: cheaper, further from breaking it, wider knobs, by name."""
    cell, replicas = outcome.trial.cell, outcome.trial.replicas
    ratio = outcome.verdict.ratio
    knobs = (-cell.max_num_seqs, -cell.max_num_batched_tokens)
    return (round(ground.cost(cell, replicas), 9), 1.0 if ratio is None else ratio, *knobs, cell.key, replicas)
