"""How long prompts and outputs are: the distributions a scenario may name (documents only, no drawing)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sim.errors import InputError
from sim.schema import StrictModel
from workloads.choice import chooser
from workloads.length_cut import CutNormal

#: No request has more tokens than this; longer draws are redrawn, longer values refused.
MAX_TOKENS: Final = 1_000_000_000
#: A range that keeps fewer draws than this is refused: what is left would have little to do with the distribution.
MIN_KEPT: Final = 1e-3

Tokens = Annotated[int, Field(strict=True, ge=1, le=MAX_TOKENS)]
Mean = Annotated[float, Field(strict=True, gt=0, le=MAX_TOKENS)]
Spread = Annotated[float, Field(strict=True, ge=0, le=MAX_TOKENS)]


class ConstantLength(StrictModel):
    """Every length is ``value`` tokens. ``prompt_tokens: 1000`` is short for it."""

    distribution: Literal["constant"] = "constant"
    value: Tokens


class UniformLength(StrictModel):
    """Whole numbers from ``min`` to ``max`` tokens, both included, equally likely."""

    distribution: Literal["uniform"] = "uniform"
    min: Tokens
    max: Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_bounds(self.min, self.max)
        return self


class _Spread(StrictModel):
    """A mean with a spread, drawn again where a draw falls outside [``min``, ``max``] tokens.

    ``mean``, ``std`` and ``cv`` (= std / mean) are those of the distribution before the cut.
    """

    mean: Mean
    cv: Annotated[float, Field(strict=True, ge=0, le=100)] | None = None
    std: Spread | None = None
    min: Tokens = 1
    max: Tokens | None = None
    logs: ClassVar[bool]

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.cv is not None and self.std is not None:
            raise InputError("std", f"given together with cv ({self.cv:g})", "give one of cv and std")
        if self.cv is None and self.std is None:
            raise InputError("cv", "required, but missing", "give cv (standard deviation / mean) or std (tokens)")
        _check_bounds(self.min, self.max)
        if self.max is not None and not self.min <= self.mean <= self.max:
            raise InputError("mean", f"{self.mean:g} lies outside [min, max] = [{self.min}, {self.max}]", "widen them")
        if self.std_tokens > 0 and self.cut.kept < MIN_KEPT:
            raise InputError("min", f"fewer than {MIN_KEPT:.1%} of the draws fall within [min, max]", "widen them")
        return self

    @property
    def cut(self) -> CutNormal:
        """The distribution of what rounds into [min, max]."""
        high = (MAX_TOKENS if self.max is None else self.max) + 0.5
        return CutNormal(self.mean, self.std_tokens, self.min - 0.5, high, self.logs)

    @property
    def std_tokens(self) -> float:
        """Standard deviation before the cut, tokens; 0 where whole tokens cannot show it."""
        std = self.std if self.std is not None else (self.cv or 0.0) * self.mean
        return std if std > 1e-9 else 0.0


class NormalLength(_Spread):
    """Normal distribution, rounded to whole tokens."""

    distribution: Literal["normal"] = "normal"
    logs: ClassVar[bool] = False


class LognormalLength(_Spread):
    """Lognormal distribution, rounded to whole tokens; ``mean`` and ``cv`` are of the lengths, not of their logs."""

    distribution: Literal["lognormal"] = "lognormal"
    logs: ClassVar[bool] = True


class EmpiricalLength(StrictModel):
    """Lengths whose quantile function is linear between given points.

    ``quantiles`` maps probabilities to tokens, as a mapping ``{0: 3, 0.5: 120, 1: 900}`` or a list of pairs
    ``[[0, 3], [0.5, 120], [1, 900]]``; 0 (the smallest) and 1 (the largest) must be among them.
    """

    distribution: Literal["empirical"] = "empirical"
    quantiles: tuple[tuple[float, float], ...]

    @field_validator("quantiles", mode="before")
    @classmethod
    def _as_pairs(cls, value: Any) -> Any:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, list | tuple) or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
            raise InputError(
                "", f"expected [probability, tokens] pairs, got {value!r}", "e.g. [[0, 3], [0.5, 120], [1, 900]]"
            )
        return tuple((_number(p, "a probability"), _number(v, "a token count")) for p, v in pairs)

    @field_validator("quantiles")
    @classmethod
    def _ordered(cls, pairs: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        pairs = tuple(sorted(pairs))
        probabilities = [p for p, _ in pairs]
        if len(pairs) < 2 or probabilities[0] != 0 or probabilities[-1] != 1:
            raise InputError("", f"probabilities are {probabilities}", "include 0 (the smallest) and 1 (the largest)")
        for (p, tokens), (next_p, next_tokens) in pairwise(pairs):
            if next_p == p:
                raise InputError("", f"probability {p:g} is given twice", "give each probability once")
            if next_tokens < tokens:
                raise InputError(
                    "", f"falls from {tokens:g} at {p:g} to {next_tokens:g} at {next_p:g}", "quantiles never fall"
                )
        if not 1 <= pairs[0][1] <= pairs[-1][1] <= MAX_TOKENS:
            raise InputError("", f"span {pairs[0][1]:g} to {pairs[-1][1]:g} tokens", f"keep within 1 and {MAX_TOKENS}")
        return pairs


Length = ConstantLength | UniformLength | NormalLength | LognormalLength | EmpiricalLength

_choose = chooser(
    "distribution",
    {
        "constant": ConstantLength,
        "uniform": UniformLength,
        "normal": NormalLength,
        "lognormal": LognormalLength,
        "empirical": EmpiricalLength,
    },
    "a number of tokens or a distribution",
)


def _length(value: Any) -> Any:
    """A bare number means that constant; anything else is chosen by ``distribution``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not (1 <= value <= MAX_TOKENS and value == int(value)):
            raise InputError("", f"must be a whole number of tokens, at least 1, got {value!r}")
        return ConstantLength(value=int(value))
    return _choose(value)


LengthSpec = Annotated[Length, BeforeValidator(_length)]


def _check_bounds(low: int, high: int | None) -> None:
    if high is not None and low > high:
        raise InputError("min", f"{low} is greater than max {high}", "swap them, or widen the range")


def _number(value: Any, what: str) -> float:
    """``value`` as a float; text is allowed because JSON writes the keys of a mapping as text."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or number != number or number in (float("inf"), float("-inf")):
        raise InputError("", f"expected {what}, got {value!r}")
    return number
