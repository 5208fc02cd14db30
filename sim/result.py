"""What a run gives back: the summary (JSON), the records, and the context they were taken in.

The engine side fills a `RunContext` and two `sim.records.Columns` (and the gaps that no row of steps counts), then

    summary = summarize(context, request_columns, step_columns, irregular_gaps_s)      # sim.metrics
    result = Result(summary, context, request_columns, step_columns, irregular_gaps_s)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.records import STATUS, Columns
from sim.scenario import Scenario
from sim.summary import Calibration, Memory, Simulation, Summary
from sim.summary_tiers import MemoryTiers

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class StepWork:
    """What steps ask of the hardware, for MFU and MBU.

    Both functions take the step columns that `sim.cost.shape.StepShape` names, as (rows,) float arrays for one step of
    each row, and return (rows,) totals of that step over all GPUs of the engine.

    Attributes:
        flops: floating-point operations that the model needs.
        bytes_moved: bytes read and written in GPU memory.
        peak_flops_per_s: datasheet peak of the engine's GPUs together, at the dtype the weights compute in.
        peak_bytes_per_s: datasheet memory bandwidth of the engine's GPUs together.
    """

    flops: Callable[[Arrays], Floats]
    bytes_moved: Callable[[Arrays], Floats]
    peak_flops_per_s: float
    peak_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What the records alone do not say.

    Attributes:
        scenario: as resolved.
        num_gpu_blocks: KV blocks of one engine, the null block included.
        block_size: tokens a block.
        bytes_per_token: KV bytes of one token over all GPUs of an engine; None without a memory model.
        memory: where each GPU's bytes go; None without a memory model.
        calibration: whether the step times were fitted, and how well.
        simulation: events, steps and wall time of the run.
        usd_per_gpu_hour: None where the profile has no price.
        reject_reasons: what the ``reason`` column indexes.
        notes: sentences a reader of the result should know (from the workload, the profile, the engine).
        work: None where there is no cost model.
        breakdown: seconds by operator of one step, from the counts that `sim.cost.shape.StepShape` names; None where
            step times have no parts.
        places: numbers that replicas take, those that events add included; None: as many as the layout has.
        mean_replicas: replicas that were paid for, on average over the run; None: those of the layout.
        pools: prefill and decode where they are split; the fields above are then those of the decode pool, which holds
            a request for most of its life, but for ``scenario``, which is the whole.
        tiers: what went through memory beside the GPU; None where none was used.
        frees_behind: requests free the blocks that their attention window leaves behind.
    """

    scenario: Scenario
    num_gpu_blocks: int
    block_size: int
    bytes_per_token: int | None = None
    memory: Memory | None = None
    calibration: Calibration
    simulation: Simulation
    usd_per_gpu_hour: float | None = None
    reject_reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    work: StepWork | None = None
    breakdown: Callable[[Mapping[str, int]], dict[str, float]] | None = None
    places: int | None = None
    mean_replicas: float | None = None
    pools: tuple[PoolShare, ...] = ()
    tiers: MemoryTiers | None = None
    frees_behind: bool = False

    @property
    def gpus(self) -> float:
        """GPUs of the whole fleet, on average over the run."""
        if self.pools:
            return sum(pool.context.gpus for pool in self.pools)
        layout = self.scenario.layout
        return layout.gpus if self.mean_replicas is None else self.mean_replicas * layout.gpus_per_replica

    @property
    def engines(self) -> int:
        """Schedulers that there ever were: the values that the ``replica`` columns take."""
        if self.pools:
            return sum(pool.context.engines for pool in self.pools)
        layout = self.scenario.layout
        return (self.places or layout.replicas) * layout.data_parallel_size

    @property
    def mean_engines(self) -> float:
        """Schedulers, on average over the run."""
        if self.pools:
            return sum(pool.context.mean_engines for pool in self.pools)
        layout = self.scenario.layout
        return layout.engines if self.mean_replicas is None else self.mean_replicas * layout.data_parallel_size

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold, over the whole fleet."""
        each = max(self.num_gpu_blocks - 1, 1) * self.engines
        return sum(pool.context.usable_blocks for pool in self.pools) or each


@dataclass(frozen=True, slots=True)
class PoolShare:
    """One pool of a split fleet.

    Attributes:
        name: prefill or decode.
        first: its first number in the ``replica`` columns.
        context: as if it were alone.
    """

    name: str
    first: int
    context: RunContext


class Result:
    """A finished run.

    Attributes:
        summary: the contract's ``summary.json``.
        context: scenario, budget and bookkeeping of the run.
        request_columns: one row a request, `sim.records.REQUEST_COLUMNS`.
        step_columns: one row a run of equal steps, `sim.records.STEP_COLUMNS`.
        irregular_gaps_s: (k,) gaps between tokens of a request that are not the duration of a recorded step.
        gap_tokens: (k,) how many tokens each of them stands for; None: one.
    """

    def __init__(
        self,
        summary: Summary,
        context: RunContext,
        request_columns: Columns,
        step_columns: Columns,
        irregular_gaps_s: Floats,
        gap_tokens: NDArray[np.int64] | None = None,
    ) -> None:
        self.summary = summary
        self.context = context
        self.request_columns = request_columns
        self.step_columns = step_columns
        self.irregular_gaps_s = irregular_gaps_s
        self.gap_tokens = gap_tokens

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request: the records, with NaN for what never happened, and ttft_s, tpot_s, e2e_s, queue_s."""
        import pandas as pd

        from sim.metrics import request_latencies

        arrays = arrays_of(self.request_columns)
        frame = pd.DataFrame({name: _missing_as_nan(name, values) for name, values in arrays.items()})
        for name, words in (("status", STATUS), ("reason", self.context.reject_reasons)):
            codes: NDArray[np.int64] = arrays[name].astype(np.int64)
            frame[name] = pd.Categorical.from_codes(codes, categories=pd.Index(list(words)))
        for name, values in request_latencies(arrays).items():
            frame[name] = values
        return frame

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a run of equal steps, as recorded."""
        import pandas as pd

        return pd.DataFrame({name: values.copy() for name, values in arrays_of(self.step_columns).items()})


def arrays_of(columns: Columns) -> dict[str, NDArray[Any]]:
    """The columns as numpy arrays that share their memory (no row may be appended while one of them lives)."""
    return {name: np.asarray(columns.column(name)) for name in columns.names}


def _missing_as_nan(name: str, values: NDArray[Any]) -> NDArray[Any]:
    return np.where(values < 0, np.nan, values) if name.endswith("_s") else values.copy()
