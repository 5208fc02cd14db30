"""How a model is spread over GPUs."""

from __future__ import annotations

from pydantic import Field

from sim.schema import StrictModel


class Layout(StrictModel):
    """Parallel layout of one engine, and how many engines there are. Names are vLLM's.

    ``pp_layer_partition`` gives the layers of each pipeline stage (vLLM's ``VLLM_PP_LAYER_PARTITION``); None: as evenly
    as the engine does it.
    """

    tensor_parallel_size: int = Field(1, ge=1, le=1024)
    pipeline_parallel_size: int = Field(1, ge=1, le=1024)
    data_parallel_size: int = Field(1, ge=1, le=1024)
    enable_expert_parallel: bool = False
    pp_layer_partition: list[int] | None = Field(None, min_length=1)
    replicas: int = Field(1, ge=1, le=100_000)
    gpus_per_node: int = Field(8, ge=1, le=1024)

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one engine: TP x PP x DP."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    @property
    def engines(self) -> int:
        """Schedulers, each with a KV pool of its own: data-parallel ranks of all replicas."""
        return self.data_parallel_size * self.replicas

    @property
    def gpus(self) -> int:
        """GPUs of all engines."""
        return self.gpus_per_replica * self.replicas
