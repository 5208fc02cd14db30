"""How a model is spread over GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from sim.schema import StrictModel

All2AllBackend = Literal["allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency", "deepep_auto"]


class ExpertLoad(StrictModel):
    """How a router spreads tokens over the experts of a layer.

    Attributes:
        distribution: ``balanced``; ``power_law``: the i-th most popular gets a share proportional to i ** -exponent;
            ``histogram``: as counted, in the order of the experts.
        exponent: of the power law.
        counts: of the histogram, one an expert.
        drift: standard deviation of an expert's load in one batch and layer, as a share of the load that the
            distribution gives it and that experts are placed by; None: none where balanced, otherwise what SGLang's
            runs of DeepSeek-V3 show (docs/layouts.md).
    """

    model_config = ConfigDict(strict=True)

    distribution: Literal["balanced", "power_law", "histogram"]
    exponent: float = Field(0.7, ge=0, le=10)
    counts: list[Annotated[float, Field(le=1e18)]] | None = Field(None, min_length=1)
    drift: float | None = Field(None, ge=0, le=10)


class Layout(StrictModel):
    """Parallel layout of one engine, and how many engines there are. Names are vLLM's.

    ``pp_layer_partition`` gives the layers of each pipeline stage (vLLM's ``VLLM_PP_LAYER_PARTITION``); None: as evenly
    as the engine does it.

    ``expert_load`` None: mildly skewed, and evenly dealt to the ranks. ``enable_eplb``: experts are placed by load,
    with ``num_redundant_experts`` copies of the most loaded. ``deepep_auto``: the low-latency kernels for small
    batches, the others for large ones. ``enable_dbo``: two half-batches, one computes while the other exchanges tokens.
    ``sequence_parallel``: norms on each TP rank's own tokens, between a reduce-scatter and an all-gather.
    """

    model_config = ConfigDict(strict=True)

    tensor_parallel_size: int = Field(1, ge=1, le=1024)
    pipeline_parallel_size: int = Field(1, ge=1, le=1024)
    data_parallel_size: int = Field(1, ge=1, le=1024)
    enable_expert_parallel: bool = False
    expert_load: ExpertLoad | None = None
    enable_eplb: bool = False
    num_redundant_experts: int = Field(0, ge=0, le=100_000)
    all2all_backend: All2AllBackend = "allgather_reducescatter"
    enable_dbo: bool = False
    sequence_parallel: bool = False
    pp_layer_partition: list[int] | None = Field(None, min_length=1)
    replicas: int = Field(1, ge=1, le=100_000)
    gpus_per_node: int = Field(8, ge=1, le=1024)

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one engine: TP x PP x DP."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def label(self) -> str:
        """TP2 PP2 DP4 EP: TP, and what else is more than one."""
        sizes = {"PP": self.pipeline_parallel_size, "DP": self.data_parallel_size}
        parts = [f"TP{self.tensor_parallel_size}", *(f"{name}{size}" for name, size in sizes.items() if size > 1)]
        return " ".join([*parts, "EP"] if self.enable_expert_parallel else parts)

    @property
    def engines(self) -> int:
        """Schedulers, each with a KV pool of its own: data-parallel ranks of all replicas."""
        return self.data_parallel_size * self.replicas

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        return self.gpus_per_replica * self.replicas
