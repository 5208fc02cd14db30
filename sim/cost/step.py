"""The cost of an engine step: operators, attention, collectives and host time, from the step's aggregates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost.attention import AS_IN_TABLES, AttentionKernel, KernelPace, PrefillAttention, decode_table
from sim.cost.decode import DecodeParts
from sim.cost.kinds import Operator, launches
from sim.cost.operators import Ranks, Sampler, kv_heads_of, layer_operators, outer_operators
from sim.cost.pricing import DRIVERS, NODES, priced
from sim.cost.routing import ExpertRouting
from sim.cost.shape import AffineRun, StepShape
from sim.cost.sparse import Picks, SparseAttention
from sim.cost.table import Table
from sim.layout import Layout
from sim.models.architecture import Architecture, LayerRun
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat
from sim.models.sharding import Stage

_ATTENTION_LAUNCHES: Final = 2  # the kernel and what combines its parts
_PIECEWISE_LAUNCHES: Final = 3  # a layer's captured piece, attention, and what combines its parts


@mypyc_attr(allow_interpreted_subclasses=True)
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
        routing: how tokens spread over experts; None = mildly skewed, as trained routers are.
        sampler: how tokens are drawn from the logits.
        picks: how the engine's kernels treat what an indexer picks, where the model has one.
        pace: how long its attention kernels take against those of the tables.
        stage: of a pipeline: its layers, and the embedding or the LM head where it has them; None: the whole model.
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
        routing: ExpertRouting | None = None,
        sampler: Sampler = "greedy",
        picks: Picks | None = None,
        pace: KernelPace = AS_IN_TABLES,
        stage: Stage | None = None,
    ) -> None:
        self.window = arch.window
        self.hardware = hardware
        self.overheads = overheads
        self._kv = kv
        self._async = async_scheduling
        self._host_s, self._host_seq_s = overheads.step_host_s.value, overheads.seq_host_s.value
        self._gap_s, self._launch_s = overheads.step_gap_s.value, overheads.launch_s.value
        self._capture = overheads.max_cudagraph_tokens
        ranks = Ranks.of(layout)
        layers = arch.layers if stage is None else stage.runs
        operators: list[Operator] = list(outer_operators(arch, weights, ranks.tensor, sampler, stage))
        operators += [operator for run in layers for operator in layer_operators(arch, run, weights, ranks)]
        self._tables = priced(operators, hardware, layout.gpus_per_node, routing)
        self._totals = {driver: _sum(list(named.values())) for driver, named in self._tables.items()}
        self._latent = bool(self._tables["decode_seqs"])
        self._kernels = _attention_kernels(layers, ranks.tensor, pace)
        depth = sum(run.count for run in layers)
        self._eager_launches = sum(launches(operator) for operator in operators) + _ATTENTION_LAUNCHES * depth
        self._piecewise_launches = _PIECEWISE_LAUNCHES * depth
        self._mixed_rows = hardware.kernels.mixed_query_rows.value if hardware.kernels.mixed_query_rows else 0.0
        self._prefill = [
            SparseAttention(kernel, hardware, kv, weights, picks or Picks())
            if kernel.attention.index_topk
            else PrefillAttention(kernel, hardware, kv)
            for kernel in self._kernels
        ]
        self._decode: dict[tuple[int, int], tuple[Table | None, Table | None]] = {}
        self._decode_sizes: dict[tuple[int, int, int], DecodeParts] = {}
        self._by_tokens: dict[int, float] = {}
        self._by_sampled: dict[int, float] = {}

    # -- the StepTimer protocol ---------------------------------------------------------------------------------

    def step(self, shape: StepShape) -> float:
        """Seconds of one step; 0 without tokens."""
        if not (shape.decode_seqs or shape.prefill_tokens):
            return 0.0
        hidden, exposed = self.host_parts_s(shape)
        return max(self._gpu_s(shape), hidden) + exposed + self._gap_s

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Steps of one line: up to the next node of the attention tables, or to where the GPU overtakes the host."""
        parts = self._decode_parts(shape)
        gpu, slope, steps = parts.line(shape, growing_windowed)
        hidden = parts.hidden_s
        first = max(gpu, hidden) + parts.exposed_s + self._gap_s
        if gpu >= hidden or slope <= 0.0:
            return AffineRun(first, slope, steps)
        return AffineRun(first, 0.0, min(steps, math.floor((hidden - gpu) / slope) + 1))

    def decode_line(self, shape: StepShape, growing_windowed: float) -> AffineRun:
        """GPU seconds of decode-only steps up to the next node of the attention tables."""
        return AffineRun(*self._decode_parts(shape).line(shape, growing_windowed))

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """Durations of decode-only steps with the counts of ``shape``, one for each context."""
        gpu = self.gpu_times(shape, context, windowed)
        host, launch = self._host(shape), self._launching(shape)
        if self._async:
            return np.asarray(np.maximum(gpu, host + launch) + self._gap_s)
        return np.asarray(np.maximum(gpu, launch) + host + self._gap_s)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator; ``host`` is what the GPU waits for."""
        if not shape.tokens:
            return {}
        decoded, logits = shape.decode_seqs + shape.draft_tokens, self._logit_rows(shape)
        sizes = (self._padded(shape.tokens), shape.tokens, decoded, shape.prefill_context, logits)
        parts = {
            name: table(size)
            for driver, size in zip(DRIVERS, sizes, strict=True)
            if size
            for name, table in self._tables[driver].items()
        }
        if shape.decode_seqs:
            parts["decode_attention"] = self._decode_attention(shape)
        if shape.prefill_tokens:
            parts["prefill_attention"] = self._prefill_attention(shape)
        parts["host"] = self.step(shape) - self._gpu_s(shape)
        return parts

    # -- for steps of several ranks together --------------------------------------------------------------------

    @property
    def gap_s(self) -> float:
        """Seconds between two steps that no overlap hides."""
        return self._gap_s

    def host_parts_s(self, shape: StepShape) -> tuple[float, float]:
        """Host seconds of a step: those that the GPU may hide, and those that it waits for."""
        host, launch = self._host(shape), self._launching(shape)
        return (host + launch, 0.0) if self._async else (launch, host)

    def gpu_s(self, shape: StepShape) -> float:
        """GPU seconds of a step, all data-parallel ranks taken to have as many tokens."""
        return self._gpu_s(shape)

    def gpu_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """The same for decode-only steps with the counts of ``shape``, one for each context."""
        return np.asarray(self._attention_free_s(shape) + self._decode_attentions(shape, context, windowed))

    def rows(self, shape: StepShape) -> int:
        """Tokens that the model computes in a step."""
        return shape.tokens

    def routed_s(self, tokens: float) -> float:
        """Of these, seconds of the routed experts where each rank has ``tokens`` tokens on average."""
        return self._totals["routed"](tokens)

    def exchange_s(self, tokens: int) -> tuple[float, float]:
        """Of these, seconds of sending ``tokens`` tokens of a rank to their experts, and of the results' way back."""
        padded, named = self._padded(tokens), self._tables["tokens"]
        there, back = (named[phase](padded) if phase in named else 0.0 for phase in ("dispatch", "combine"))
        return there, back

    # -- parts --------------------------------------------------------------------------------------------------

    def _host(self, shape: StepShape) -> float:
        return self._host_s + self._host_seq_s * (shape.decode_seqs + shape.prefill_seqs)

    def _launching(self, shape: StepShape) -> float:
        """Host time of launching kernels one by one: all of them past the captured sizes, attention beside prefill."""
        if shape.decode_seqs + shape.draft_tokens + shape.prefill_tokens > self._capture:
            return self._launch_s * self._eager_launches
        return self._launch_s * self._piecewise_launches if shape.prefill_tokens else 0.0

    def _gpu_s(self, shape: StepShape) -> float:
        total = self._attention_free_s(shape)
        if shape.decode_seqs:
            total += self._decode_attention(shape)
        if shape.prefill_tokens:
            total += self._prefill_attention(shape)
        return total

    def _attention_free_s(self, shape: StepShape) -> float:
        """All that depends on counts alone."""
        tokens = shape.decode_seqs + shape.draft_tokens + shape.prefill_tokens
        total = self._by_tokens.get(tokens)
        if total is None:
            total = self._totals["tokens"](self._padded(tokens)) + self._totals["routed"](tokens)
            self._by_tokens[tokens] = total
        sampled = self._logit_rows(shape)
        head = self._by_sampled.get(sampled)
        if head is None:
            head = self._by_sampled[sampled] = self._totals["sampled"](sampled)
        total += head
        if self._latent:
            total += self._totals["decode_seqs"](shape.decode_seqs + shape.draft_tokens)
            total += self._totals["prefill_context"](shape.prefill_context)
        return total

    def _logit_rows(self, shape: StepShape) -> int:
        """Tokens that need logits: all drafts are judged by the model's own choice at their place."""
        return shape.sampled_seqs + shape.draft_tokens

    def _padded(self, tokens: int) -> int:
        """Tokens after padding to a captured CUDA graph (vLLM: 1, 2, 4, then multiples of 8, of 16 above 256)."""
        if tokens > self._capture or tokens <= 2:
            return tokens
        if tokens <= 4:
            return 4
        grain = 8 if tokens <= 256 else 16
        return min(-(-tokens // grain) * grain, self._capture)

    def _decode_parts(self, shape: StepShape) -> DecodeParts:
        size = shape.decode_seqs, shape.sampled_seqs, shape.draft_tokens
        parts = self._decode_sizes.get(size)
        if parts is None:
            free, tables = self._attention_free_s(shape), self._decode_tables(shape)
            parts = self._decode_sizes[size] = DecodeParts(free, *self.host_parts_s(shape), *tables)
        return parts

    def _decode_tables(self, shape: StepShape) -> tuple[Table | None, Table | None]:
        """Attention of the layers that attend everything, and of those with a window, against the summed contexts.

        With drafts a sequence has several queries; its keys and values are read once for all of them.
        """
        seqs = shape.decode_seqs
        queries = -(-(seqs + shape.draft_tokens) // max(seqs, 1))
        found = self._decode.get((seqs, queries))
        if found is None:
            tables: list[list[Table]] = [[], []]
            for kernel, prefill in zip(self._kernels, self._prefill, strict=True):
                if isinstance(prefill, SparseAttention):
                    for table, part in zip(tables, prefill.decode_tables(seqs, queries), strict=True):
                        table.append(part)
                    continue
                wide = replace(kernel, heads=kernel.heads * queries)
                tables[kernel.windowed].append(decode_table(wide, self.hardware, self._kv, seqs))
            found = (_sum(tables[0]) if tables[0] else None, _sum(tables[1]) if tables[1] else None)
            self._decode[seqs, queries] = found
        return found

    def _decode_attention(self, shape: StepShape) -> float:
        full, windowed = self._decode_tables(shape)
        total = full(shape.decode_context) if full is not None else 0.0
        if windowed is not None:
            total += windowed(shape.decode_context_windowed)
        return max(total, self._tiles(shape)) if self._mixed_rows and shape.prefill_tokens else total

    def _decode_attentions(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """Decode attention of steps without prefill, one for each context."""
        full, cut = self._decode_tables(shape)
        total = full.many(context) if full is not None else np.zeros(len(context))
        return total + cut.many(windowed) if cut is not None else total

    def _tiles(self, shape: StepShape) -> float:
        """Decode attention by a kernel made for prefill: a whole tile of query rows a sequence and head."""
        total = 0.0
        for kernel in self._prefill:
            context = shape.decode_context_windowed if kernel.windowed else shape.decode_context
            total += kernel.tiles(self._mixed_rows, context)
        return total

    def _prefill_attention(self, shape: StepShape) -> float:
        return sum(kernel.of(shape) for kernel in self._prefill)


def _sum(tables: list[Table]) -> Table:
    total = tables[0] if tables else Table(NODES, [0.0] * len(NODES))
    for table in tables[1:]:
        total = total + table
    return total


def _attention_kernels(layers: tuple[LayerRun, ...], tensor: int, pace: KernelPace) -> list[AttentionKernel]:
    return [
        AttentionKernel(one, one.num_heads // tensor, kv_heads_of(one, tensor), run.count, pace)
        for run in layers
        if (one := run.attention) is not None and one.kind != "linear"
    ]
