"""What a step costs with speculative decoding: the verify step of the model, and the drafter's work after it."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost.kinds import Gemm, Operator
from sim.cost.pricing import price
from sim.cost.shape import StepShape
from sim.cost.step import CostModel
from sim.cost.table import Table
from sim.models.draft import Draft
from sim.models.kv_format import KvFormat

Floats = NDArray[Any]

# Idle GPU around one pass of a drafter: its kernels lie outside the model's CUDA graph, metadata is built between the
# passes. Assumed. With it a draft of EAGLE on Llama-3.1-8B and H100 costs 0.79 ms, where 0.73 ms were measured
# (vllm#20780, the slope over two to seven drafts).
PASS_GAP_S: Final = 0.2e-3
# Host work of prompt lookup for one sequence (matching on the CPU, before the next step). Assumed.
NGRAM_SEQUENCE_S: Final = 10e-6


class Drafter(Protocol):
    """Time that proposing drafts adds to a step; the shape is the model's."""

    rows_per_draft: int  # tokens that the model computes for each draft that can be accepted

    def gpu_s(self, shape: StepShape) -> float:
        """Seconds on the GPU after the model's own."""
        ...

    def gpu_times(self, shape: StepShape, context: Floats, windowed: Floats) -> Floats:
        """The same for decode-only steps, one for each context."""
        ...

    def host_s(self, shape: StepShape) -> float:
        """Seconds of host work."""
        ...


class DraftPass(CostModel):
    """Passes of a drafter that is a decoder, small or only a layer. Logits are made for the tokens sampled alone."""

    def __init__(
        self, draft: Draft, kv: KvFormat, hardware: HardwareProfile, gpus_per_node: int, overheads: EngineOverheads
    ) -> None:
        layout = draft.layout.model_copy(update={"gpus_per_node": gpus_per_node})
        super().__init__(draft.arch, draft.weights, kv, hardware, layout, overheads)
        if draft.fused:
            hidden = draft.arch.hidden_size
            wide = Gemm("fusion", hidden // draft.tensor_parallel_size, draft.fused * hidden, "bf16", 16.0, 1)
            self.add(price(wide, hardware, gpus_per_node, None))

    def add(self, table: Table) -> None:
        """Add work of every token."""
        self._totals["tokens"] = self._totals["tokens"] + table

    def _logit_rows(self, shape: StepShape) -> int:
        return shape.sampled_seqs

    def gpu_s(self, shape: StepShape) -> float:
        """Seconds of one pass."""
        return self._gpu_s(shape)


class RecurrentDrafter:
    """A drafter that runs once for each level of drafts: a smaller model, an EAGLE head, an MTP layer.

    The first pass takes all tokens of the step (vLLM does not wait to know which were rejected) and so fills the
    drafter's cache, prompts included; each further pass takes the newest draft of every sequence, or the newest level
    of its tree. Contexts of the further passes are those of the middle one.

    Args:
        model: a pass of it.
        drafts: verified in a step.
        depth: levels of them; equal to ``drafts`` for a chain.
    """

    rows_per_draft = 1

    def __init__(self, model: DraftPass, drafts: int, depth: int) -> None:
        self._model = model
        self._depth = depth
        self._width = -(-drafts // depth)

    def gpu_s(self, shape: StepShape) -> float:
        """All passes, and the gaps between them."""
        seqs = shape.decode_seqs + shape.prefill_seqs
        first = self._model.gpu_s(shape if shape.sampled_seqs == seqs else shape.but(sampled_seqs=seqs))
        more = self._further(shape)
        return first + self._depth * PASS_GAP_S + (self._model.gpu_s(more) * (self._depth - 1) if more else 0.0)

    def gpu_times(self, shape: StepShape, context: Floats, windowed: Floats) -> Floats:
        """All passes of decode-only steps."""
        total = self._model.gpu_times(shape, context, windowed) + self._depth * PASS_GAP_S
        more = self._further(shape)
        if more is None:
            return np.asarray(total)
        moved = more.decode_context - shape.decode_context
        cut = more.decode_context_windowed - shape.decode_context_windowed
        return np.asarray(total + (self._depth - 1) * self._model.gpu_times(more, context + moved, windowed + cut))

    def host_s(self, shape: StepShape) -> float:
        """Launching is part of the gaps."""
        return 0.0

    def _further(self, shape: StepShape) -> StepShape | None:
        """One of the passes after the first."""
        if self._depth == 1:
            return None
        seqs = shape.decode_seqs + shape.prefill_seqs
        ahead = seqs * self._width * self._depth // 2 - shape.draft_tokens
        windowed = shape.decode_context_windowed + shape.prefill_context_windowed - shape.draft_tokens
        return StepShape(
            decode_seqs=seqs,
            decode_context=shape.decode_context + shape.prefill_context + ahead,
            decode_context_windowed=windowed,
            sampled_seqs=seqs * self._width,
            draft_tokens=seqs * (self._width - 1),
        )


class MedusaDrafter:
    """Heads side by side on the last hidden states: one pass for all drafts."""

    rows_per_draft = 1

    def __init__(self, draft: Draft, hardware: HardwareProfile, gpus_per_node: int) -> None:
        hidden, tensor = draft.arch.hidden_size, draft.tensor_parallel_size
        vocab, heads = -(-draft.arch.vocab_size // tensor), draft.medusa_heads
        operators: list[Operator] = [
            Gemm("medusa_block", hidden // tensor, hidden, "bf16", 16.0, heads * draft.medusa_layers),
            Gemm("medusa_head", vocab, hidden, "bf16", 16.0, heads),
        ]
        tables = [price(operator, hardware, gpus_per_node, None) for operator in operators]
        self._seconds = tables[0] + tables[1]

    def gpu_s(self, shape: StepShape) -> float:
        """One pass over the newest token of every sequence."""
        return self._seconds(shape.decode_seqs + shape.prefill_seqs) + PASS_GAP_S

    def gpu_times(self, shape: StepShape, context: Floats, windowed: Floats) -> Floats:
        """The same for every context."""
        return np.full(len(context), self.gpu_s(shape))

    def host_s(self, shape: StepShape) -> float:
        """Nothing."""
        return 0.0


class LookupDrafter:
    """Drafts without a network: n-grams of the prompt (host work), or of the model's own guesses (rows of the step).

    Args:
        sequence_s: host seconds for each sequence.
        rows_per_draft: tokens that the model computes for each draft that can be accepted. Lookahead decoding guesses W
            positions and verifies W n-grams of n tokens: 2 W (n - 1) rows for n - 1 drafts (arXiv 2402.02057).
    """

    def __init__(self, sequence_s: float, rows_per_draft: int = 1) -> None:
        self._sequence_s = sequence_s
        self.rows_per_draft = rows_per_draft

    def gpu_s(self, shape: StepShape) -> float:
        """Nothing."""
        return 0.0

    def gpu_times(self, shape: StepShape, context: Floats, windowed: Floats) -> Floats:
        """Nothing."""
        return np.zeros(len(context))

    def host_s(self, shape: StepShape) -> float:
        """Each sequence that was computed."""
        return self._sequence_s * (shape.decode_seqs + shape.prefill_seqs)


class SpeculativeCostModel(CostModel):
    """Seconds of engine steps with a drafter. A step that decodes without drafts (they are switched off) drafts none.

    Args:
        drafter: what proposes drafts after the model's own work.
        others: as of `CostModel`.
    """

    def __init__(self, drafter: Drafter, *others: Any, **more: Any) -> None:
        super().__init__(*others, **more)
        self._drafter = drafter

    def _drafts(self, shape: StepShape) -> bool:
        return shape.draft_tokens > 0 or not shape.decode_seqs

    def _widened(self, shape: StepShape) -> StepShape:
        rows = self._drafter.rows_per_draft
        return shape if rows == 1 or not shape.draft_tokens else shape.but(draft_tokens=rows * shape.draft_tokens)

    def _host(self, shape: StepShape) -> float:
        return super()._host(shape) + (self._drafter.host_s(shape) if self._drafts(shape) else 0.0)

    def _gpu_s(self, shape: StepShape) -> float:
        own = super()._gpu_s(self._widened(shape))
        return own + self._drafter.gpu_s(shape) if self._drafts(shape) else own

    def rows(self, shape: StepShape) -> int:
        """Tokens that the model computes in a step."""
        return self._widened(shape).tokens

    def gpu_times(self, shape: StepShape, context: Floats, windowed: Floats) -> Floats:
        """GPU seconds of decode-only steps with the counts of ``shape``, one for each context."""
        gpu = super().gpu_times(self._widened(shape), context, windowed)
        return gpu + self._drafter.gpu_times(shape, context, windowed) if self._drafts(shape) else gpu

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator; ``drafting`` is the drafter's work on the GPU."""
        parts = super().breakdown(self._widened(shape))
        if parts:
            drafting = self._drafter.gpu_s(shape) if self._drafts(shape) else 0.0
            parts["drafting"] = drafting
            parts["host"] = self.step(shape) - self._gpu_s(shape)
        return parts
