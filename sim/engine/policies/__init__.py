"""The scheduling policies of serving engines, and which preset is played by which class."""

from __future__ import annotations

from typing import Any

from sim.engine.config import EngineConfig
from sim.engine.policies.contiguous import ContiguousScheduler
from sim.engine.policies.orca import OrcaScheduler
from sim.engine.policies.reserving import ReservingScheduler
from sim.engine.policies.sglang import SglangScheduler
from sim.engine.policies.sglang_stages import StagedSglangScheduler
from sim.engine.policies.static import StaticScheduler
from sim.engine.policies.tensorrt_llm import TensorRtLlmScheduler
from sim.engine.policies.tgi import TgiScheduler
from sim.engine.scheduler import Scheduler
from sim.engine.speculative import SpeculativeScheduler
from sim.engine.tiers.scheduler import TieredScheduler
from sim.engine.vllm import VllmScheduler
from sim.engine.windowed import WindowedScheduler
from sim.errors import InputError, nearest

POLICIES: dict[str, type[Scheduler]] = {
    "vllm": VllmScheduler,
    "sglang": SglangScheduler,
    "tensorrt-llm": TensorRtLlmScheduler,
    "tgi": TgiScheduler,
    "orca": OrcaScheduler,
    "static": StaticScheduler,
}


def scheduler_for(config: EngineConfig, window: int | None, tick_s: float = 1.0) -> Scheduler:
    """The scheduler of ``config.preset``. Raises `InputError` for a preset that nobody plays."""
    if config.speculation is not None:
        return SpeculativeScheduler(config, window, tick_s)  # vLLM's rules; the scenario refuses other presets
    policy = POLICIES.get(config.preset)
    if policy is None:
        raise InputError("engine.preset", f"no policy plays '{config.preset}'", nearest(config.preset, [*POLICIES]))
    if config.kv_allocation == "contiguous":
        return _over_reservations(policy, config.preset)(config, window, tick_s)
    if config.kept_tokens is not None and policy is VllmScheduler:
        return WindowedScheduler(config, config.kept_tokens, tick_s)
    if (config.swap is not None or config.tiers) and policy is VllmScheduler:
        return TieredScheduler(config, window, tick_s)  # vLLM's rules; the scenario refuses other presets
    if config.pipeline_stages > 1 and issubclass(policy, SglangScheduler):
        return _of_micro_batches(policy, config.preset)(config, window, tick_s)
    return policy(config, window, tick_s)


def _of_micro_batches(policy: type[SglangScheduler], preset: str) -> type[SglangScheduler]:
    """The policy of SGLang that keeps the batches of a pipeline apart."""
    if policy is SglangScheduler or issubclass(policy, StagedSglangScheduler):
        return StagedSglangScheduler if policy is SglangScheduler else policy
    raise InputError(
        "layout.pipeline_parallel_size",
        f"the policy of '{preset}' has one batch",
        "set it to 1, or derive the policy from StagedSglangScheduler",
    )


def _over_reservations(policy: type[Scheduler], preset: str) -> type[Scheduler]:
    """The policy that gives each request one piece of memory."""
    if policy is VllmScheduler:
        return ContiguousScheduler
    if not issubclass(policy, ReservingScheduler):
        raise InputError("engine.kv_allocation", f"the policy of '{preset}' reserves nothing", "set it to paged")
    return policy


def add_policy(name: str, policy: type[Scheduler], *, like: str = "vllm", **defaults: Any) -> None:
    """Make ``name`` an engine preset, scheduled by ``policy``; a second call replaces the first.

    It has the keys, the host overheads and the memory rules of ``like``, and its defaults but for ``defaults``.
    The page docs/engines.md has an example.
    """
    from sim.scenario.presets import add_preset

    POLICIES[name] = policy
    add_preset(name, like, defaults)
