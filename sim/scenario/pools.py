"""A scenario as the pools of replicas that it asks for: one, or one for each phase."""

from __future__ import annotations

from typing import Any

from sim.errors import InputError
from sim.layout import Layout
from sim.scenario.cluster import Pool
from sim.scenario.engine import EngineSpec
from sim.scenario.scenario import Scenario


def pools_of(scenario: Scenario) -> dict[str, Scenario]:
    """{name: a scenario of that pool alone}: ``engine``, or ``prefill`` and ``decode``.

    Raises:
        InputError: keys that the split makes meaningless, or pools that cannot exchange their caches.
    """
    split = scenario.cluster.disaggregation
    if split is None:
        return {"engine": scenario}
    if scenario.layout.replicas != 1 or scenario.layout != _like(scenario.layout):
        raise InputError(
            "layout",
            "is not used where cluster.disaggregation gives each pool its own",
            "leave the section out, and set cluster.disaggregation.prefill.layout and .decode.layout",
        )
    where = "cluster.disaggregation"
    pools = {
        "prefill": _pool(scenario, split.prefill, f"{where}.prefill"),
        "decode": _pool(scenario, split.decode, f"{where}.decode"),
    }
    _exchangeable(pools["prefill"].engine, pools["decode"].engine, f"{where}.decode.engine")
    return pools


def gpus_of(scenario: Scenario) -> int:
    """GPUs of all pools."""
    return sum(pool.layout.gpus for pool in pools_of(scenario).values())


def _like(layout: Layout) -> Layout:
    """The layout that a scenario has which gives none (its nodes aside)."""
    return Layout.parse({"gpus_per_node": layout.gpus_per_node})


def _pool(scenario: Scenario, pool: Pool, where: str) -> Scenario:
    if pool.layout.replicas != 1:
        raise InputError(
            f"{where}.layout.replicas", f"{pool.layout.replicas} beside {where}.replicas", "set only the latter"
        )
    cluster = scenario.cluster.model_copy(
        update={"disaggregation": None, "router": pool.router or scenario.cluster.router}
    )
    return scenario.model_copy(
        update={
            "layout": pool.layout.model_copy(update={"replicas": pool.replicas}),
            "hardware": pool.hardware or scenario.hardware,
            "engine": _engine(scenario.engine, pool.engine, f"{where}.engine"),
            "cluster": cluster,
        }
    )


def _engine(common: EngineSpec, own: dict[str, Any], where: str) -> EngineSpec:
    if "preset" in own:
        raise InputError(f"{where}.preset", "both pools run one engine", "set engine.preset")
    return EngineSpec.parse({**common.model_dump(mode="json"), **own}, where) if own else common


def _exchangeable(prefill: EngineSpec, decode: EngineSpec, where: str) -> None:
    """Caches go from block to block, and one model is served: formats must agree."""
    for key in ("kv_cache_dtype", "quantization", "block_size"):
        there, here = getattr(prefill, key), getattr(decode, key)
        if there != here:
            shown = [getattr(value, "key", value) for value in (here, there)]
            raise InputError(
                f"{where}.{key}",
                f"{shown[0]} differs from {shown[1]} of the prefill pool, and caches cannot be converted on the way",
                "give both pools one format",
            )
    if (prefill.step_time is None) != (decode.step_time is None):
        raise InputError(f"{where}.step_time", "given for one pool only", "give both pools step times, or neither")
