"""The cost of an engine step: operators, roofline, collectives and host time, from the step's aggregates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hardware_profiles.assume import (
    all_reduce_fit,
    decode_attention_fit,
    elementwise_fit,
    gemm_fit,
    prefill_attention_fit,
)
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost import roofline
from sim.cost.operators import (
    AttentionKernel,
    Collective,
    Elementwise,
    Experts,
    Gemm,
    Operator,
    Ranks,
    kv_heads_of,
    layer_operators,
    outer_operators,
)
from sim.cost.shape import AffineRun, StepShape
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat

_DRIVERS: Final = ("tokens", "decode_seqs", "prefill_context", "sampled")


class CostModel:
    """Seconds of engine steps (a `StepTimer`) of one replica; pure apart from its memo tables.

    Args:
        arch: the model.
        weights: format of its weights.
        kv: format of its cache.
        hardware: the device.
        layout: how the model is spread.
        overheads: host constants of the engine.
        async_scheduling: the host prepares the next step while the GPU runs this one, so that a step takes the larger
            of the two instead of their sum.
    """

    def __init__(
        self,
        arch: Architecture,
        weights: WeightFormat,
        kv: KvFormat,
        hardware: HardwareProfile,
        layout: Layout,
        overheads: EngineOverheads,
        *,
        async_scheduling: bool = True,
    ) -> None:
        self.window = arch.window
        self.hardware = hardware
        self.overheads = overheads
        self._async = async_scheduling
        self._host_s = overheads.step_host_s.value
        self._host_seq_s = overheads.seq_host_s.value
        self._gap_s = overheads.step_gap_s.value
        self._capture = overheads.max_cudagraph_tokens
        self._kv = kv
        ranks = Ranks(layout.tensor_parallel_size, layout.data_parallel_size, layout.enable_expert_parallel)
        self._priced: dict[str, list[tuple[str, int, Callable[[int], float]]]] = {name: [] for name in _DRIVERS}
        for run in arch.layers:
            for operator in layer_operators(arch, run, weights, ranks):
                self._price(operator)
        for operator in outer_operators(arch, weights, ranks.tensor):
            self._price(operator)
        self._kernels = [
            AttentionKernel(
                run.attention,
                run.attention.num_heads // ranks.tensor,
                kv_heads_of(run.attention, ranks.tensor),
                run.count,
            )
            for run in arch.layers
            if run.attention is not None and run.attention.kind != "linear"
        ]
        self._decode_fixed, self._decode_full, self._decode_windowed = self._decode_coefficients()
        self._prefill = [self._prefill_coefficients(kernel) for kernel in self._kernels]
        self._memo: dict[str, dict[int, float]] = {name: {} for name in _DRIVERS}

    # -- the StepTimer protocol ---------------------------------------------------------------------------------

    def step(self, shape: StepShape) -> float:
        """Seconds of one step; 0 without tokens."""
        if not shape.decode_seqs and not shape.prefill_tokens:
            return 0.0
        gpu, host = self._gpu_s(shape), self._host(shape)
        return (max(gpu, host) if self._async else gpu + host) + self._gap_s

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Steps of one line: constant while the host is the longer of the two, affine in the contexts afterwards."""
        first = self.step(shape)
        slope = self._decode_full * shape.decode_seqs + self._decode_windowed * growing_windowed
        if not self._async:
            return AffineRun(first, slope, math.inf)
        hidden = self._host(shape) - self._gpu_s(shape)
        if hidden <= 0.0:
            return AffineRun(first, slope, math.inf)
        return AffineRun(first, 0.0, math.floor(hidden / slope) + 1 if slope > 0 else math.inf)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator; ``host`` is what the GPU waits for."""
        if not shape.tokens:
            return {}
        parts: dict[str, float] = {}
        for driver, size in zip(_DRIVERS, self._sizes(shape), strict=True):
            for name, count, seconds in self._priced[driver]:
                if size:
                    parts[name] = parts.get(name, 0.0) + count * seconds(size)
        if shape.decode_seqs:
            parts["decode_attention"] = self._decode_attention(shape)
        if shape.prefill_tokens:
            parts["prefill_attention"] = self._prefill_attention(shape)
        parts["host"] = self.step(shape) - self._gpu_s(shape)
        return parts

    # -- parts --------------------------------------------------------------------------------------------------

    def _host(self, shape: StepShape) -> float:
        return self._host_s + self._host_seq_s * (shape.decode_seqs + shape.prefill_seqs)

    def _gpu_s(self, shape: StepShape) -> float:
        total = 0.0
        for driver, size in zip(_DRIVERS, self._sizes(shape), strict=True):
            if size:
                memo = self._memo[driver]
                seconds = memo.get(size)
                if seconds is None:
                    seconds = sum(count * price(size) for _, count, price in self._priced[driver])
                    memo[size] = seconds
                total += seconds
        if shape.decode_seqs:
            total += self._decode_attention(shape)
        if shape.prefill_tokens:
            total += self._prefill_attention(shape)
        return total

    def _sizes(self, shape: StepShape) -> tuple[int, int, int, int]:
        tokens = shape.decode_seqs + shape.prefill_tokens
        return self._padded(tokens), shape.decode_seqs, shape.prefill_context, shape.sampled_seqs

    def _padded(self, tokens: int) -> int:
        """Tokens after padding to a captured CUDA graph (vLLM: 1, 2, 4, then multiples of 8, of 16 above 256)."""
        if tokens > self._capture or tokens <= 2:
            return tokens
        if tokens <= 4:
            return 4
        grain = 8 if tokens <= 256 else 16
        return min(-(-tokens // grain) * grain, self._capture)

    def _decode_attention(self, shape: StepShape) -> float:
        return (
            self._decode_fixed
            + self._decode_full * shape.decode_context
            + self._decode_windowed * shape.decode_context_windowed
        )

    def _prefill_attention(self, shape: StepShape) -> float:
        total = 0.0
        for windowed, count, fixed, per_pair, per_query, per_key in self._prefill:
            pairs = shape.prefill_pairs_windowed if windowed else shape.prefill_pairs
            keys = shape.prefill_context_windowed if windowed else shape.prefill_context
            total += count * (fixed + per_pair * pairs + per_query * shape.prefill_tokens + per_key * keys)
        return total

    # -- pricing ------------------------------------------------------------------------------------------------

    def _price(self, operator: Operator) -> None:
        driver = operator.driver if not isinstance(operator, Experts) else "tokens"
        self._priced[driver].append((operator.name, operator.count, self._seconds_of(operator)))

    def _seconds_of(self, operator: Operator) -> Callable[[int], float]:
        hardware = self.hardware
        if isinstance(operator, Gemm):
            fit = gemm_fit(hardware, operator.family, operator.dtype)
            n, k, dtype = operator.n * operator.batch, operator.k, operator.dtype
            weight_bytes = n * k * operator.bits / 8
            return lambda m: roofline.gemm_s(fit, hardware, dtype, m, n, k, weight_bytes)
        if isinstance(operator, Elementwise):
            light, moved, kernels = elementwise_fit(hardware), operator.bytes_per_token, operator.kernels
            return lambda m: roofline.elementwise_s(light, moved * m, kernels)
        if isinstance(operator, Collective):
            link, size = all_reduce_fit(hardware, operator.ranks), operator.bytes_per_token
            return lambda m: roofline.collective_s(link, size * m)
        return self._experts(operator)

    def _experts(self, op: Experts) -> Callable[[int], float]:
        """Expected active experts under balanced routing: E * (1 - (1 - k/E)^m)."""
        fit = gemm_fit(self.hardware, op.family, op.dtype)
        matrix = op.hidden * op.intermediate * op.bits / 8
        share, missed = op.experts / op.total_experts, 1.0 - op.top_k / op.total_experts

        def seconds(m: int) -> float:
            tokens = m * op.token_share
            active = op.experts * (1.0 - missed**tokens)
            rows = max(1, round(tokens * op.top_k * share))
            width, hidden, up = op.intermediate, op.hidden, op.up_width
            first = roofline.gemm_s(fit, self.hardware, op.dtype, rows, up * width, hidden, active * up * matrix)
            return first + roofline.gemm_s(fit, self.hardware, op.dtype, rows, hidden, width, active * matrix)

        return seconds

    def _decode_coefficients(self) -> tuple[float, float, float]:
        fixed = full = windowed = 0.0
        fit = decode_attention_fit(self.hardware, self._kv.kernel_dtype)
        for kernel in self._kernels:
            a = kernel.attention
            if a.kind == "mla":
                size = (a.kv_lora_rank + a.qk_rope_head_dim) * self._kv.key_bits / 8
            else:
                size = kernel.kv_heads * (a.head_dim * self._kv.key_bits + a.v_head_dim * self._kv.value_bits) / 8
            base, slope = roofline.decode_attention_line(fit, self.hardware, size)
            fixed += kernel.count * base
            if a.window:
                windowed += kernel.count * slope
            else:
                full += kernel.count * slope
        return fixed, full, windowed

    def _prefill_coefficients(self, kernel: AttentionKernel) -> tuple[bool, int, float, float, float, float]:
        a = kernel.attention
        fit = prefill_attention_fit(self.hardware, "bf16")
        flops = 2.0 * kernel.heads * (a.head_dim + a.v_head_dim)
        query = 2.0 * kernel.heads * (a.head_dim + a.v_head_dim)
        kv_heads = kernel.heads if a.kind == "mla" else kernel.kv_heads
        key = 2.0 * kv_heads * (a.head_dim + a.v_head_dim)
        return (
            a.window is not None,
            kernel.count,
            *roofline.prefill_attention_coefficients(fit, self.hardware, flops, query, key),
        )
