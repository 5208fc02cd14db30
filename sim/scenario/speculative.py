"""The speculative section: who proposes drafts, how many, and how many of them are accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.errors import InputError
from sim.scenario.knobs import Name, Place, Section

Method = Literal["draft_model", "eagle", "eagle3", "medusa", "mtp", "ngram", "lookahead"]

# Keys that only some methods have.
_OWNERS: dict[str, tuple[Method, ...]] = {
    "draft_model": ("draft_model", "eagle", "eagle3"),
    "draft_tensor_parallel_size": ("draft_model", "eagle", "eagle3"),
    "draft_quantization": ("draft_model", "eagle", "eagle3", "medusa"),
    "draft_vocab_size": ("eagle", "eagle3", "medusa"),
    "head_layers": ("eagle", "eagle3", "medusa"),
    "tree_depth": ("eagle", "eagle3", "medusa"),
    "window_size": ("lookahead",),
}


def _drafts(value: Any) -> Any:
    if value == 0 and not isinstance(value, bool):
        raise InputError("", "0 drafts nothing", "give at least 1, or set engine.speculative to null")
    return value


def _rates(value: Any) -> Any:
    """Numbers from 0 to 1, said in one sentence instead of pydantic's one for each type of the union."""
    for rate in value if isinstance(value, list) and value else [value]:
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1):
            raise InputError("", f"must be a number from 0 to 1, or a list of such, got {rate!r}", "0.7 is usual")
    return value


class Speculative(Section):
    """Draft tokens proposed and verified each step.

    Attributes:
        method: ``draft_model`` a smaller model; ``eagle`` (1 and 2) and ``eagle3`` a head on the model's features;
            ``medusa`` heads side by side; ``mtp`` the checkpoint's own multi-token-prediction layers; ``ngram`` prompt
            lookup; ``lookahead`` lookahead decoding (n-grams from Jacobi iterations).
        num_speculative_tokens: drafts that a step verifies for each request: of a chain, or nodes of a tree. Lookahead
            decoding: the tokens of an n-gram beyond its first.
        acceptance_rate: share of the drafts accepted, given that those before were: one number, or one a position.
        acceptance_concentration: every request has a rate of its own, Beta distributed with mean ``acceptance_rate``
            and this a + b.
        accepted_tokens: measured accepted drafts, one entry a verify step, drawn from instead of a rate.
        draft_model: the smaller model, or an EAGLE head's own configuration.
        draft_tensor_parallel_size: GPUs that share the drafter; None = those of the model.
        draft_quantization: its weight format; None = as stored, or as the model's activations.
        head_layers: decoder layers of an EAGLE head, shaped like the model's; residual blocks of a Medusa head.
        draft_vocab_size: tokens that a head chooses from; None = the model's vocabulary, 32,000 for EAGLE-3.
        tree_depth: the drafts form a tree of this depth instead of a chain.
        window_size: positions that lookahead decoding guesses ahead, and n-grams that it verifies; None = 15.
        disable_by_batch_size: no drafts in a step that begins with this many running requests, or more.
    """

    method: Method
    num_speculative_tokens: Annotated[int, BeforeValidator(_drafts), Field(ge=1, le=64)]
    acceptance_rate: Annotated[float | list[float] | None, BeforeValidator(_rates)] = None
    acceptance_concentration: float | None = Field(None, gt=0)
    accepted_tokens: list[Annotated[int, Field(ge=0)]] | None = Field(None, min_length=1, max_length=100_000)
    draft_model: Place | None = None
    draft_tensor_parallel_size: int | None = Field(None, ge=1, le=1024)
    draft_quantization: Name | None = None
    head_layers: int | None = Field(None, ge=1, le=64)
    draft_vocab_size: int | None = Field(None, ge=1, le=10_000_000)
    tree_depth: int | None = Field(None, ge=1, le=64)
    window_size: int | None = Field(None, ge=1, le=256)
    disable_by_batch_size: int | None = Field(None, ge=2, le=1_000_000)

    @property
    def depth(self) -> int:
        """Most drafts that one step can accept."""
        return self.tree_depth or self.num_speculative_tokens

    @property
    def guesses(self) -> int:
        """Positions guessed by lookahead decoding (Fu et al., arXiv 2402.02057, use 15 for 7B models)."""
        return self.window_size or 15

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for field, problem, remedy in (*self._method_problems(), *self._acceptance_problems()):
            raise InputError(field, problem, remedy)
        return self

    def _method_problems(self) -> Iterator[tuple[str, str, str]]:
        for key in _OWNERS:
            if getattr(self, key) is not None and self.method not in _OWNERS[key]:
                yield key, f"method '{self.method}' has no such thing", f"it belongs to {', '.join(_OWNERS[key])}"
        if self.method == "draft_model" and self.draft_model is None:
            yield "draft_model", "required by method 'draft_model', but missing", "name a model of the same vocabulary"
        if self.method in ("eagle", "eagle3") and self.draft_model is None and self.head_layers is None:
            yield (
                "head_layers",
                f"method '{self.method}' needs the size of its head",
                "set head_layers (published EAGLE heads have 1), or draft_model to the head's config.json",
            )
        if self.tree_depth is not None and self.tree_depth > self.num_speculative_tokens:
            nodes = self.num_speculative_tokens
            yield "tree_depth", f"{self.tree_depth} levels do not fit in a tree of {nodes} drafts", "lower it"

    def _acceptance_problems(self) -> Iterator[tuple[str, str, str]]:
        rate, counts = self.acceptance_rate, self.accepted_tokens
        if (rate is None) == (counts is None):
            what = "neither acceptance_rate nor accepted_tokens is given" if rate is None else "given twice"
            yield (
                "acceptance_rate",
                what,
                "give one of them: 0.7 to 0.8 is usual for draft models and EAGLE, 0.5 to 0.6 for Medusa and n-grams",
            )
        if isinstance(rate, list) and len(rate) != self.depth:
            yield "acceptance_rate", f"{len(rate)} rates for {self.depth} positions", "give one rate a position"
        if counts is not None and max(counts) > self.depth:
            yield "accepted_tokens", f"{max(counts)} accepted of {self.depth} drafts", "check num_speculative_tokens"
        if self.acceptance_concentration is None:
            return
        if not isinstance(rate, float | int) or not 0 < rate < 1:
            yield "acceptance_concentration", "needs a single acceptance_rate between 0 and 1", "leave it null"
