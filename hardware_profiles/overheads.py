"""Host side of a serving engine: what a step and a request cost outside the GPU kernels."""

from __future__ import annotations

from pydantic import Field

from hardware_profiles.figures import Figure
from sim.schema import StrictModel


class TokenPages(StrictModel):
    """Attention over a cache in pages of one token: times as long as over the pages of the kernel tables."""

    decode: Figure
    prefill: Figure


class EngineOverheads(StrictModel):
    """Constants of one engine generation. Seconds, each with provenance.

    Attributes:
        step_host_s: host work of a step (schedule, prepare inputs, sample bookkeeping) that hides behind the GPU under
            asynchronous scheduling and adds to it otherwise.
        seq_host_s: the same, for each sequence of the step.
        step_gap_s: GPU idle time between two steps that no overlap hides.
        launch_s: host time to launch one kernel outside a CUDA graph.
        api_request_s: client's send to the engine's queue, whatever the prompt's length.
        completion_s: last token out of the engine to the client's end of stream.
        stream_token_s: token out of the engine to the client.
        max_cudagraph_tokens: largest batch of tokens that replays a CUDA graph.
        token_pages: of FlashAttention 3 on Hopper, where the engine's pages may hold one token.
    """

    engine: str
    generation: str
    step_host_s: Figure
    seq_host_s: Figure
    step_gap_s: Figure
    launch_s: Figure
    api_request_s: Figure
    completion_s: Figure
    stream_token_s: Figure
    max_cudagraph_tokens: int = Field(ge=0)
    token_pages: TokenPages | None = None
