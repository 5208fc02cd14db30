"""The engine section: scheduler, KV cache and numerics of one replica, in vLLM's words."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, model_serializer, model_validator

from sim.errors import InputError, nearest
from sim.scenario.presets import PLANNED, PRESETS
from sim.schema import StrictModel

Name = Annotated[str, Field(min_length=1, max_length=200)]


class Section(StrictModel):
    """A part of the scenario. Numbers are numbers: ``"8"`` and ``true`` are not taken for one."""

    model_config = ConfigDict(strict=True)


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


class Speculative(Section):
    """Draft tokens proposed and verified each step."""

    method: Literal["draft_model", "eagle", "medusa", "ngram", "mtp"]
    num_speculative_tokens: int = Field(ge=1, le=64)
    acceptance_rate: float | None = Field(None, ge=0, le=1)
    draft_model: Name | None = None


class KvOffload(Section):
    """A second tier for evicted blocks in host memory."""

    memory_gib: float = Field(gt=0)
    bandwidth_gb_per_s: float = Field(gt=0)


class EngineSpec(Section):
    """Knobs of one engine. Defaults come from ``preset``; a key given in the document wins over it."""

    preset: Name = "vllm"
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
    kv_offload: KvOffload | None = None
    step_time: StepTime | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _from_preset(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, dict):
            return handler(data)
        spec = handler({**_defaults(data.get("preset", "vllm")), **data})
        spec.model_fields_set.intersection_update(data)
        return spec

    @model_validator(mode="after")
    def _whole_prompt_fits_a_step(self) -> Self:
        length = self.max_model_len
        if not self.enable_chunked_prefill and length is not None and self.max_num_batched_tokens < length:
            raise InputError(
                "max_num_batched_tokens",
                f"{self.max_num_batched_tokens} is less than max_model_len {length}, but chunked prefill is off",
                f"set it to at least {length}, or turn enable_chunked_prefill on",
            )
        return self


def _defaults(preset: Any) -> dict[str, Any]:
    if not isinstance(preset, str):
        return dict(PRESETS["vllm"])  # the field's own check says what is wrong
    if preset in PRESETS:
        return dict(PRESETS[preset])
    if preset in PLANNED:
        raise InputError("preset", f"'{preset}' is not supported yet", f"supported: {', '.join(sorted(PRESETS))}")
    raise InputError("preset", f"unknown engine preset '{preset}'", nearest(preset, [*PRESETS]))
