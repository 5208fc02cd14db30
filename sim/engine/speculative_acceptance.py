"""How many draft tokens each verify step of a request accepts: fixed beforehand, whatever order the engine works in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Stream = NDArray[np.int32] | NDArray[np.int64]
Floats = NDArray[np.float64]

REQUESTS: Final = 256  # whose steps are drawn together
STEPS: Final = 64  # drawn at once
KEPT: Final = 64  # blocks of requests held in memory; a forgotten one is drawn again, the same
_STREAM: Final = 0x616363657074  # spawn key of these random numbers, apart from the workload's and the routers'


class Acceptance(Protocol):
    """What comes out of the verify steps of each request.

    Attributes:
        tokens_per_step: mean tokens of a verify step.
    """

    tokens_per_step: float

    def stream(self, request: int, steps: int) -> Stream:
        """(n + 1,) tokens given out by the first v verify steps of ``request``, v = 0 to n; n is at least ``steps``.

        A verify step gives out the accepted drafts and one token more.
        """
        ...


class Survival(Protocol):
    """Probabilities that at least j drafts of a verify step are accepted."""

    depth: int

    def of(self, rng: np.random.Generator, requests: int) -> Floats:
        """(requests or 1, depth) non-increasing rows; ``rng`` draws what differs from request to request."""
        ...

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens of a verify step: 1 and the sum of the probabilities."""
        ...


class SurvivalByPosition:
    """The same probabilities for every request.

    Args:
        survival: P(at least j accepted) for j = 1 to depth.
    """

    def __init__(self, survival: Sequence[float]) -> None:
        self.depth = len(survival)
        self._survival = np.asarray(survival, np.float64)

    @classmethod
    def constant(cls, rate: float, depth: int) -> SurvivalByPosition:
        """Each draft is accepted with ``rate`` if those before it were (Leviathan et al., arXiv 2211.17192)."""
        return cls([rate**j for j in range(1, depth + 1)])

    @classmethod
    def by_position(cls, rates: Sequence[float]) -> SurvivalByPosition:
        """The j-th draft is accepted with the j-th rate if those before it were."""
        return cls(np.cumprod(np.asarray(rates, np.float64)).tolist())

    @classmethod
    def measured(cls, accepted: Sequence[int], depth: int) -> SurvivalByPosition:
        """As often as in a list of accepted drafts, one entry a verify step."""
        counts = np.asarray(accepted)
        return cls([float((counts >= j).mean()) for j in range(1, depth + 1)])

    def of(self, rng: np.random.Generator, requests: int) -> Floats:
        """One row for all."""
        return self._survival[None, :]

    @property
    def tokens_per_step(self) -> float:
        """1 + sum of the probabilities; (1 - p^(k+1)) / (1 - p) for a constant rate p and k drafts."""
        return 1.0 + float(self._survival.sum())


class BetaSurvival:
    """Every request has a rate of its own, drawn once: Beta with a mean and a concentration a + b.

    Easy texts stay easy: at equal mean, tokens a step are more than with one rate for all (Jensen).
    """

    def __init__(self, mean: float, concentration: float, depth: int) -> None:
        self.depth = depth
        self._a, self._b = mean * concentration, (1.0 - mean) * concentration

    def of(self, rng: np.random.Generator, requests: int) -> Floats:
        """Powers of each request's rate."""
        rates = rng.beta(self._a, self._b, requests)
        return np.asarray(rates[:, None] ** np.arange(1, self.depth + 1))

    @property
    def tokens_per_step(self) -> float:
        """1 + sum of the moments of the Beta distribution: E[p^j] = prod (a + i) / (a + b + i) for i < j."""
        i = np.arange(self.depth)
        return 1.0 + float(np.cumprod((self._a + i) / (self._a + self._b + i)).sum())


class DrawnAcceptance:
    """Draws from a `Survival`, seeded by the run and the request alone.

    The steps of `REQUESTS` requests are drawn together, `STEPS` at a time, which costs a request next to nothing; which
    request asks first changes nothing.
    """

    def __init__(self, seed: int, survival: Survival) -> None:
        self._seed = seed
        self._survival = survival
        self.tokens_per_step = survival.tokens_per_step
        self._blocks: OrderedDict[int, Stream] = OrderedDict()

    def stream(self, request: int, steps: int) -> Stream:
        """The request's row of its block."""
        index, row = divmod(request, REQUESTS)
        block = self._blocks.get(index)
        if block is None or block.shape[1] <= steps:
            block = self._draw(index, steps, block)
            self._blocks[index] = block
            if len(self._blocks) > KEPT:
                self._blocks.popitem(last=False)
        own: Stream = block[row]
        return own

    def _draw(self, index: int, steps: int, known: Stream | None) -> Stream:
        """The block with at least ``steps`` steps, and some more than were known."""
        begin = 0 if known is None else known.shape[1] - 1
        survival = self._survival.of(self._generator(index, 0), REQUESTS).astype(np.float32)
        parts = []
        for chunk in range(begin // STEPS, max(-(-steps // STEPS), begin * 5 // (4 * STEPS))):
            draws = self._generator(index, 1 + chunk).random((REQUESTS, STEPS), np.float32)
            tokens = np.ones((REQUESTS, STEPS), np.int8)
            for position in range(self._survival.depth):
                tokens += draws < survival[:, position, None]
            parts.append(tokens)
        block = np.zeros((REQUESTS, 1 + begin + STEPS * len(parts)), np.int32)
        if known is not None:
            block[:, : begin + 1] = known
        np.cumsum(np.concatenate(parts, axis=1), axis=1, dtype=np.int32, out=block[:, begin + 1 :])
        block[:, begin + 1 :] += block[:, begin, None]
        return block

    def _generator(self, index: int, part: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self._seed, spawn_key=(_STREAM, index, part)))


class RecordedRule:
    """What the recordings of the real scheduler used: step v of request i accepts (3 i + 5 v) mod (k + 1) drafts."""

    def __init__(self, num_speculative_tokens: int) -> None:
        self._modulus = num_speculative_tokens + 1
        self.tokens_per_step = 1 + num_speculative_tokens / 2

    def stream(self, request: int, steps: int) -> Stream:
        """The sums of the rule."""
        tokens = 1 + (3 * request + 5 * np.arange(steps, dtype=np.int64)) % self._modulus
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(tokens)])
