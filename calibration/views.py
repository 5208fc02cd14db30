"""What the commands of `calibration.commands` print in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from calibration.bench.run import Outcome
    from calibration.closed_loop.check import ModelCheck
    from calibration.engine_runs.calibrate import EngineCalibration

_ERRORS: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "output_tokens_per_s": "tokens/s"}


def print_benchmarks(outcome: Outcome, out: Path, console: Console | None = None) -> None:
    """Rows by family, what disturbed the run, and where the table is."""
    console = console or _console()
    if not outcome.rows:
        console.print("nothing was measured, no table written")
        return
    facts = outcome.metadata["facts"]
    table = _table(f"{outcome.metadata['name']}, torch {facts['torch']}", "family", "dtype")
    _add_numbers(table, "rows", "stable", "fastest", "slowest")
    groups: dict[tuple[str, str], list[dict[str, float]]] = {}
    for row in outcome.rows:
        groups.setdefault((row["family"], row["dtype"]), []).append(row)
    for (family, dtype), rows in sorted(groups.items()):
        seconds = [row["seconds"] for row in rows]
        stable = sum(bool(row["stable"]) for row in rows)
        table.add_row(family, dtype, str(len(rows)), str(stable), _time(min(seconds)), _time(max(seconds)))
    console.print(table)
    _print_warnings(console, outcome.warnings)
    console.print(f"{len(outcome.rows)} rows in {out} ({outcome.metadata['ended']})")


def print_engine(found: EngineCalibration, console: Console | None = None) -> None:
    """The fitted terms, and the error of every run that was not fitted on."""
    console = console or _console()
    timer, path, residual = found.fit.timer, found.fit.path, found.fit.residual
    console.print(f"fitted on {', '.join(run.name for run in found.fitted_on)}")
    console.print(
        f"step: {_time(timer.base_s)} + {_slopes(timer.slopes_s)} a token + {_time(timer.seq_s)} a sequence"
        f" + {_time(timer.context_s)} a token of context + {_time(timer.pair_s)} an attended pair of a prompt"
    )
    console.print(
        f"host: {_time(timer.gap_s)} between steps + {_time(timer.gap_seq_s)} a sequence"
        f" + {_time(timer.gap_chunk_s)} a prompt chunk"
    )
    console.print(
        f"client: {_time(path.to_queue_s)} to the queue, {_time(path.first_token_s)} back with the first token,"
        f" {_time(path.last_token_s)} with the last"
    )
    console.print(f"residual by kind of step: median {residual.median:.1%}, p90 {residual.p90:.1%} of {residual.rows}")
    table = _table("Runs that were not fitted on: error in % (step: median size)", "load")
    _add_numbers(table, *_ERRORS.values(), "step", "equal batches")
    for run in found.comparisons:
        errors = [_signed(run.errors.get(name)) for name in _ERRORS]
        batches = f"{run.batches.equal} of {run.batches.steps}"
        table.add_row(run.load, *errors, f"{100 * run.step_time_median:.1f}", batches)
    if found.comparisons:
        console.print(table)
    _print_warnings(console, found.warnings)


def print_end_to_end(found: Sequence[ModelCheck], console: Console | None = None) -> None:
    """Errors by model and load beside the targets."""
    from calibration.closed_loop.check import STEP_TARGET, THROUGHPUT_TARGET

    console = console or _console()
    title = f"Error in %; targets: step time (median) {STEP_TARGET:.0%}, throughput {THROUGHPUT_TARGET:.0%}"
    table = _table(title, "load")
    _add_numbers(table, "step", "p90", *_ERRORS.values(), "met")
    for model in found:
        for load in model.loads:
            step = (f"{100 * load.step_time_median:.1f}", f"{100 * load.step_time_p90:.1f}")
            errors = [_signed(load.errors.get(name)) for name in _ERRORS]
            table.add_row(f"{model.model} {load.load}", *step, *errors, "yes" if load.met else "NO")
    console.print(table)
    for model in found:
        residuals = ", ".join(f"{family} {median:.1%}" for family, median in sorted(model.kernels.items()))
        console.print(
            f"{model.model}: kernel residuals (median, held-out shapes) {residuals};"
            f" host {_time(model.step_host_s)} a step + {_time(model.seq_host_s)} a sequence"
        )
        _print_warnings(console, model.warnings)


def _print_warnings(console: Console, warnings: Sequence[str]) -> None:
    for sentence in warnings:
        console.print(f"! {sentence}")


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _table(title: str, *heads: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, no_wrap=True)
    return table


def _add_numbers(table: Table, *heads: str) -> None:
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)


def _slopes(slopes: Sequence[float]) -> str:
    """The range of the slopes: one number where they agree."""
    low, high = min(slopes), max(slopes)
    return _time(low) if high - low < 0.05 * high else f"{_time(low)} to {_time(high)}"


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f}"


def _time(seconds: float) -> str:
    """Three digits and the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
