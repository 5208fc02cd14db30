"""KV cache beside the GPU's memory, as the scenario says it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from sim.errors import InputError
from sim.models.architecture import Architecture
from sim.models.retention import retained
from sim.scenario.knobs import Name, Section

FIRST = "host"


class KvOffload(Section):
    """A tier for prefix blocks that the GPU has evicted.

    ``memory_gib`` is of the whole engine; ``bandwidth_gb_per_s`` is that of each of its GPUs, by its own link or as its
    share of the device.
    """

    name: Name = FIRST
    memory_gib: float = Field(gt=0, le=1e9)
    bandwidth_gb_per_s: float = Field(ge=1e-6, le=1e9)

    @model_validator(mode="before")
    @classmethod
    def _says_how_fast(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("bandwidth_gb_per_s") is None and "memory_gib" in data:
            raise InputError(
                "bandwidth_gb_per_s",
                "an offload tier without bandwidth gives nothing back",
                "give GB/s of each GPU in one direction: at most 32 for PCIe 4, 64 for PCIe 5, 450 for NVLink-C2C, "
                "the device's share for NVMe or a network",
            )
        return data


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _told_apart(tiers: list[KvOffload]) -> list[KvOffload]:
    names = [tier.name for tier in tiers]
    for name in ("gpu", *names):
        if [*names, "gpu"].count(name) > 1:
            raise InputError("", f"two tiers are called '{name}'", "give each tier a name of its own")
    return tiers


def _short(tiers: list[KvOffload] | None) -> Any:
    if tiers is None:
        return None
    if len(tiers) == 1 and tiers[0].name == FIRST:
        return tiers[0].model_dump(exclude={"name"})
    return [tier.model_dump() for tier in tiers]


OffloadTiers = Annotated[
    Annotated[list[KvOffload], Field(min_length=1, max_length=8), AfterValidator(_told_apart)] | None,
    BeforeValidator(_listed),
    PlainSerializer(_short),
]


class KvRetention(Section):
    """A policy that keeps a part of each request's cache: its effect on memory and speed, not on answers.

    ``streaming_llm`` keeps ``sink_tokens`` first tokens and a window of ``window_tokens``; ``h2o`` keeps
    ``budget_tokens``, once the prompt is computed.
    """

    policy: Literal["streaming_llm", "h2o"]
    sink_tokens: int | None = Field(None, ge=0)
    window_tokens: int | None = Field(None, ge=1)
    budget_tokens: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _says_how_much(self) -> Self:
        own = {"streaming_llm": ("sink_tokens", "window_tokens"), "h2o": ("budget_tokens",)}[self.policy]
        for key in ("sink_tokens", "window_tokens", "budget_tokens"):
            given = getattr(self, key) is not None
            if key in own and not given and key != "sink_tokens":
                raise InputError(key, f"is missing: {self.policy} needs it", "give the tokens to keep")
            if given and key not in own:
                raise InputError(key, f"means nothing to {self.policy}", f"leave it out; {self.policy} has {own[-1]}")
        return self

    @property
    def tokens(self) -> int:
        """Tokens kept of a request."""
        if self.policy == "h2o":
            return self.budget_tokens or 0
        return (4 if self.sink_tokens is None else self.sink_tokens) + (self.window_tokens or 0)


class KvTiers(Section):
    """Where the KV cache goes when the GPU's memory runs out.

    ``swap_space_gib`` is host memory of each GPU for preempted requests, ``host_link_gb_per_s`` the speed of each GPU's
    link to it, one direction; None: the hardware profile's.
    """

    swap_space_gib: float = Field(4.0, gt=0, le=1e9)
    host_link_gb_per_s: float | None = Field(None, ge=1e-6, le=1e9)
    kv_offload: OffloadTiers = None
    kv_retention: KvRetention | None = None

    def retained(self, arch: Architecture) -> Architecture:
        """``arch`` as the engine keeps its cache. Raises `InputError` for a model that the policy cannot serve."""
        kept = self.kv_retention
        return arch if kept is None else retained(arch, kept.policy, kept.tokens)

    @model_validator(mode="after")
    def _fits_the_prefix_cache(self) -> Self:
        if getattr(self, "preset", "vllm") != "vllm":
            return self  # refused for that, and not for what the preset lacks (`sim.scenario.support`)
        if self.kv_offload is not None and not getattr(self, "enable_prefix_caching", True):
            raise InputError(
                "kv_offload",
                "tiers hold evicted prefix blocks, but prefix caching is off",
                "set enable_prefix_caching to true, or kv_offload to null",
            )
        if self.kv_retention is not None and getattr(self, "enable_prefix_caching", False):
            raise InputError(
                "kv_retention",
                f"{self.kv_retention.policy} drops tokens from the middle, so that no prefix is left to share",
                "set enable_prefix_caching to false, or kv_retention to null",
            )
        return self
