"""The engine section: scheduler, KV cache and numerics of one replica, in vLLM's words."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from sim.errors import InputError
from sim.scenario.allocation import allocation_defaults, check_allocation
from sim.scenario.knobs import Name, PolicyKnobs, Section, engine_document, owned_knobs, scheduler_knobs
from sim.scenario.kv_tiers import KvOffload, KvTiers
from sim.scenario.presets import family
from sim.scenario.speculative import Speculative

__all__ = ["EngineSpec", "KvCacheDtype", "KvOffload", "Name", "Section", "Speculative", "StepTime"]


class KvCacheDtype(Section):
    """Element types of cached keys and values; one name for both is the usual case."""

    key: Name = "auto"
    value: Name = "auto"

    @model_serializer
    def _short(self) -> str | dict[str, str]:
        return self.key if self.key == self.value else {"key": self.key, "value": self.value}


def _both(value: Any) -> Any:
    return {"key": value, "value": value} if isinstance(value, str) else value


class StepTime(Section):
    """A step of n tokens over s sequences takes ``base_us + per_token_us * n + per_seq_us * s`` whole microseconds."""

    base_us: int = Field(ge=0)
    per_token_us: int = Field(0, ge=0)
    per_seq_us: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.base_us + self.per_token_us + self.per_seq_us == 0:
            raise InputError("base_us", "a step would take no time", "give at least one term above 0")
        return self


class EngineSpec(KvTiers, PolicyKnobs):
    """Knobs of one engine. Defaults come from ``preset``; a key given in the document wins over it."""

    preset: Name = "vllm"
    version: Name | None = None  # release, as 0.15.1; None: the one that memory and host rules were checked on
    sampling: Literal["model", "greedy", "truncated"] = "model"  # truncated: top-k or top-p; model: its own default
    max_num_seqs: int = Field(ge=1, le=1_000_000)
    max_num_batched_tokens: int = Field(ge=1, le=100_000_000)
    max_model_len: int | None = Field(None, ge=2)
    block_size: int = Field(ge=1, le=65_536)
    gpu_memory_utilization: float = Field(gt=0, le=1)
    num_gpu_blocks_override: int | None = Field(None, ge=2)
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int = Field(ge=0)
    scheduling_policy: Literal["fcfs", "priority"]
    watermark: float = Field(ge=0, lt=1)
    scheduler_reserve_full_isl: bool
    async_scheduling: bool
    quantization: Name | None = None
    kv_cache_dtype: Annotated[KvCacheDtype, BeforeValidator(_both)] = KvCacheDtype()
    speculative: Speculative | None = None
    kv_allocation: Literal["paged", "contiguous", "token"]
    preemption: Literal["recompute", "swap", "auto"]
    step_time: StepTime | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _from_preset(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        defaults, given = engine_document(data)
        spec = handler({**defaults, **allocation_defaults(defaults, given), **given})
        spec.model_fields_set.intersection_update(given)
        return spec

    @model_serializer(mode="wrap")
    def _without_foreign_knobs(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = handler(self)
        knobs = {key: document.pop(key) for key in PolicyKnobs.model_fields if key in document}
        return document | {key: knobs[key] for key in owned_knobs(self.preset) if key in knobs}

    @property
    def policy_knobs(self) -> dict[str, Any]:
        """The knobs that only the preset's policy has."""
        return {key: getattr(self, key) for key in scheduler_knobs(self.preset)}

    @model_validator(mode="after")
    def _steps_hold_prompts(self) -> Self:
        length, tokens = self.max_model_len, self.max_num_batched_tokens
        if family(self.preset) == "vllm" and not self.enable_chunked_prefill and length is not None and tokens < length:
            raise InputError(
                "max_num_batched_tokens",
                f"{tokens} is less than max_model_len {length}, but chunked prefill is off",
                f"set it to at least {length}, or turn enable_chunked_prefill on",
            )
        if family(self.preset) == "sglang" and tokens % self.block_size:
            raise InputError(
                "max_num_batched_tokens",
                f"{tokens} is not a multiple of the page size {self.block_size}",
                "SGLang cuts chunks at pages: choose a multiple of block_size",
            )
        return self

    @model_validator(mode="after")
    def _memory_is_given_out_in_one_way(self) -> Self:
        check_allocation(self)
        return self

    @model_validator(mode="after")
    def _drafts_stay_whole(self) -> Self:
        drafts = self.speculative.num_speculative_tokens if self.speculative else 0
        if 0 < self.long_prefill_token_threshold <= drafts:
            raise InputError(
                "long_prefill_token_threshold",
                f"{self.long_prefill_token_threshold} would cut the {1 + drafts} tokens of every verify step",
                f"set it to 0 or to at least {1 + drafts}",
            )
        return self
