"""What a step looks like to the physics: sums over its sequences, never the sequences themselves."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from numpy.typing import NDArray

COUNTS: Final = (
    "decode_seqs",
    "decode_context",
    "decode_context_windowed",
    "prefill_seqs",
    "prefill_tokens",
    "prefill_pairs",
    "prefill_pairs_windowed",
    "prefill_context",
    "prefill_context_windowed",
    "sampled_seqs",
    "draft_tokens",
)


class StepShape:
    """Aggregates of one engine step. All counts are for the whole engine (before sharding over TP ranks).

    A *decode* is a sequence that computes one token whose context is in the cache; a *prefill chunk* computes
    ``new >= 1`` prompt tokens after ``before`` cached ones. ``windowed`` twins are the same sums with each query's
    attended range cut to the model's sliding window; equal to the plain ones where the model has none. Sums of tokens
    are whole, but for a share of a batch (half-batches that overlap).

    Attributes:
        decode_seqs: sequences that decode.
        draft_tokens: draft tokens that they verify beside their own token, all sequences together.
        decode_context: sum over them of tokens attended, the new ones included.
        decode_context_windowed: the same with each term cut to the window.
        prefill_seqs: prefill chunks.
        prefill_tokens: sum of ``new``.
        prefill_pairs: sum of attended (query, key) pairs, causal: new * before + new * (new + 1) / 2.
        prefill_pairs_windowed: the same with each query's range cut to the window.
        prefill_context: sum of ``before + new``: keys that a chunk reads.
        prefill_context_windowed: the same, min(before, window) + new.
        sampled_seqs: sequences that need logits (decodes and last prefill chunks).
    """

    __slots__ = COUNTS

    def __init__(
        self,
        decode_seqs: int = 0,
        decode_context: float = 0,
        decode_context_windowed: float = 0,
        prefill_seqs: int = 0,
        prefill_tokens: int = 0,
        prefill_pairs: float = 0,
        prefill_pairs_windowed: float = 0,
        prefill_context: float = 0,
        prefill_context_windowed: float = 0,
        sampled_seqs: int = 0,
        draft_tokens: int = 0,
    ) -> None:
        self.decode_seqs = decode_seqs
        self.decode_context: float = decode_context
        self.decode_context_windowed: float = decode_context_windowed
        self.prefill_seqs = prefill_seqs
        self.prefill_tokens = prefill_tokens
        self.prefill_pairs: float = prefill_pairs
        self.prefill_pairs_windowed: float = prefill_pairs_windowed
        self.prefill_context: float = prefill_context
        self.prefill_context_windowed: float = prefill_context_windowed
        self.sampled_seqs = sampled_seqs
        self.draft_tokens = draft_tokens

    def but(self, *, sampled_seqs: int | None = None, draft_tokens: int | None = None) -> StepShape:
        """A copy with other counts where they are given."""
        return StepShape(
            self.decode_seqs,
            self.decode_context,
            self.decode_context_windowed,
            self.prefill_seqs,
            self.prefill_tokens,
            self.prefill_pairs,
            self.prefill_pairs_windowed,
            self.prefill_context,
            self.prefill_context_windowed,
            self.sampled_seqs if sampled_seqs is None else sampled_seqs,
            self.draft_tokens if draft_tokens is None else draft_tokens,
        )

    @property
    def tokens(self) -> int:
        """Tokens computed in the step."""
        return self.decode_seqs + self.draft_tokens + self.prefill_tokens

    def add_prefill(self, new: int, before: int, window: int | None) -> None:
        """Add one chunk of ``new`` tokens after ``before`` cached ones."""
        self.prefill_seqs += 1
        self.prefill_tokens += new
        pairs = new * before + new * (new + 1) // 2
        self.prefill_pairs += pairs
        self.prefill_context += before + new
        if window is None:
            self.prefill_pairs_windowed += pairs
            self.prefill_context_windowed += before + new
            return
        growing = max(0, min(new, window - before))  # queries whose range still fits the window
        self.prefill_pairs_windowed += growing * before + growing * (growing + 1) // 2 + (new - growing) * window
        self.prefill_context_windowed += min(before, window) + new


class AffineRun(NamedTuple):
    """Decode-only steps in a row: step i takes ``first + i * increment`` ticks, exactly, for ``steps`` steps."""

    first: float
    increment: float
    steps: float  # math.inf where the line never breaks


class StepTimer(Protocol):
    """How long steps take, in ticks of the engine clock (seconds, or whole microseconds under ``engine.step_time``)."""

    window: int | None  # the model's sliding window in tokens, None where attention is full

    def step(self, shape: StepShape) -> float:
        """Duration of one step. A step without tokens takes 0."""
        ...

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Durations of consecutive decode-only steps that start with ``shape`` (no prefill in it).

        After each step ``decode_context`` grows by ``decode_seqs`` and ``decode_context_windowed`` by
        ``growing_windowed`` (the sequences still shorter than the window). ``first`` equals ``step(shape)``.
        """
        ...

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """(n,) durations of decode-only steps with the counts of ``shape`` that attend ``context`` tokens each.

        Each equals ``step`` of the same shape. Contexts ascend.
        """
        ...

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator family; the values sum to the step's duration in seconds."""
        ...
