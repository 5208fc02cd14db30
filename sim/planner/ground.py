"""What is known of a cell without a simulation: whether it fits, what it costs, and what it cannot beat."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hardware_profiles import HardwareProfile, load_hardware
from sim.assemble import assemble, budget_of, served_by
from sim.errors import InputError
from sim.planner.bounds import Bounds, Limits, PoolBounds, Refuted
from sim.planner.case import Case
from sim.planner.physics import Physics, physics_of
from sim.planner.space import Cell, Options
from sim.scenario import Scenario
from sim.scenario.pools import pools_of


@dataclass(frozen=True, slots=True)
class Fit:
    """KV blocks of each pool of a cell, or why it does not fit."""

    blocks: dict[str, int]
    refusal: InputError | None = None


class Ground:
    """Facts of cells, each worked out once.

    Args:
        base: the scenario of the plan; only its model and engine matter.
        options: prices and budgets.
    """

    def __init__(self, base: Scenario, options: Options) -> None:
        self._base = base
        self._options = options
        self._profiles: dict[str, HardwareProfile] = {}
        self._fits: dict[Cell, Fit] = {}
        self._physics: dict[tuple[Any, ...], Physics] = {}
        self._bounds: dict[tuple[Case, Cell, float, float], Bounds | None] = {}
        self._least: dict[tuple[Case, Cell, float, float], int] = {}
        self._shares = base.engine.enable_prefix_caching

    # -- money and power ----------------------------------------------------------------------------------------------

    def hardware(self, cell: Cell) -> HardwareProfile:
        """The profile of a cell."""
        if cell.hardware not in self._profiles:
            self._profiles[cell.hardware] = load_hardware(cell.hardware)
        return self._profiles[cell.hardware]

    def usd_per_gpu_hour(self, cell: Cell) -> float | None:
        """The price given for this plan, or the profile's."""
        own = self._options.usd_per_gpu_hour
        return own.get(cell.hardware, own.get(self.hardware(cell).name, self.hardware(cell).usd_per_hour))

    def usd_per_hour(self, cell: Cell, replicas: int) -> float | None:
        """Of a deployment; None without a price."""
        price = self.usd_per_gpu_hour(cell)
        return None if price is None else price * cell.gpus * replicas

    def cost(self, cell: Cell, replicas: int) -> float:
        """What deployments are ranked by: dollars an hour, or GPUs where there is no price."""
        price = self.usd_per_gpu_hour(cell)
        return cell.gpus * replicas * (1.0 if price is None else price)

    def most_replicas(self, cell: Cell) -> int:
        """As many units as the budgets allow."""
        options = self._options
        most = options.max_gpus // cell.gpus
        price = self.usd_per_gpu_hour(cell)
        if options.max_usd_per_hour is not None and price:
            most = min(most, math.floor(options.max_usd_per_hour / (price * cell.gpus) + 1e-9))
        if options.max_watts is not None:
            most = min(most, math.floor(options.max_watts / (self.hardware(cell).tdp_w * cell.gpus) + 1e-9))
        return most

    # -- memory -------------------------------------------------------------------------------------------------------

    def fit(self, cell: Cell) -> Fit:
        """KV blocks, or the refusal."""
        found = self._fits.get(cell)
        if found is None:
            try:
                found = Fit({name: _blocks(pool) for name, pool in pools_of(cell.scenario(self._base, 1)).items()})
            except InputError as error:
                found = Fit({}, error)
            self._fits[cell] = found
        return found

    # -- bounds -------------------------------------------------------------------------------------------------------

    def refuted(self, case: Case, cell: Cell, replicas: int, factor: float = 1.0) -> Refuted | None:
        """Why ``replicas`` of ``cell`` certainly break the promise of ``case``; None where a simulation must tell."""
        bounds = self._of(case, cell, replicas, factor)
        if bounds is None:
            return None
        simulated, _ = case.part(replicas)
        prefill, decode = (cell.split.prefill, cell.split.decode) if cell.split else (1, 1)
        floor = bounds.floor(case.slo, self._options.min_attainment)
        if floor is not None:
            return floor
        key = (case, cell, factor, case.part(replicas)[1])
        if key not in self._least:
            windows = case.windows(replicas, factor, self._options.min_attainment, prefix_caching=self._shares)
            self._least[key] = bounds.least_replicas(windows, (prefill, decode))
        least = self._least[key]
        if least > simulated:
            return Refuted("capacity", replicas=math.ceil(least * replicas / simulated))
        return bounds.queue(case.slo, simulated * prefill)

    def _of(self, case: Case, cell: Cell, replicas: int, factor: float) -> Bounds | None:
        if not _boundable(self._base, cell):
            return None
        share = case.part(replicas)[1]
        key = (case, cell, factor, share)
        if key not in self._bounds:
            self._bounds[key] = self._make(case, cell, replicas, factor)
        return self._bounds[key]

    def _make(self, case: Case, cell: Cell, replicas: int, factor: float) -> Bounds | None:
        fit = self.fit(cell)
        if fit.refusal is not None:
            return None
        engine = self._base.engine
        demand = case.demand(replicas, factor, prefix_caching=self._shares)
        physics = self._physics_of(cell)
        pools_bounds = {
            name: PoolBounds(
                physics[name],
                Limits(cell.max_num_seqs, cell.max_num_batched_tokens, (blocks - 1) * engine.block_size),
                demand,
            )
            for name, blocks in fit.blocks.items()
        }
        one = next(iter(pools_bounds.values()))
        first_come = (
            self._base.cluster.router == "round_robin"
            and engine.scheduling_policy == "fcfs"
            and engine.long_prefill_token_threshold == 0
        )
        return Bounds(pools_bounds.get("prefill", one), pools_bounds.get("decode", one), first_come)

    def _physics_of(self, cell: Cell) -> dict[str, Physics]:
        """Of each pool; worked out once for all that have its layout, and their knobs aside."""
        split = cell.split
        layouts = {"engine": cell.layout} if split is None else {
            "prefill": split.prefill_layout, "decode": split.decode_layout}  # fmt: skip
        keys = {
            name: (cell.hardware, cell.quantization, str(cell.kv_cache_dtype), layout)
            for name, layout in layouts.items()
        }
        if any(key not in self._physics for key in keys.values()):
            for name, pool in pools_of(cell.scenario(self._base, 1)).items():
                self._physics.setdefault(keys[name], physics_of(assemble(pool), pool.layout))
        return {name: self._physics[key] for name, key in keys.items()}


def _blocks(pool: Scenario) -> int:
    override = pool.engine.num_gpu_blocks_override
    if override is not None and pool.engine.step_time is not None:
        served_by(pool)
        return override
    return budget_of(pool, served_by(pool)).num_gpu_blocks


def _boundable(base: Scenario, cell: Cell) -> bool:
    """Whether the bounds hold: the scheduler whose steps they describe, on engines that step as one."""
    layouts = [cell.layout] if cell.split is None else [cell.split.prefill_layout, cell.split.decode_layout]
    return (
        base.engine.preset == "vllm"
        and base.engine.speculative is None
        and not base.cluster.events
        and all(layout.pipeline_parallel_size == layout.data_parallel_size == 1 for layout in layouts)
    )
