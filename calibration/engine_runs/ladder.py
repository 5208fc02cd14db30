"""The loads that an engine is run under: single prompts and batches to fit on, Poisson mixes to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from sim.workload import Floats, Ints

FITTED: Final = ("single", "batch")  # what the names of loads to fit on begin with
_PROMPTS: Final = (16, 25, 64, 107, 256, 333, 512, 1500)  # some of no round length: kernels that work in tiles show it
PAUSE_S: Final = 0.25  # between the finish of a single prompt and the next one
_SINGLE_OUTPUTS: Final = 9
_BATCH_PROMPT: Final = 32
_MIXES: Final = {"light": 0.3, "medium": 0.8, "saturated": 5.0}  # arrivals, as parts of the sustained rate


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one run.

    Attributes:
        arrival_s: (n,) seconds from the start; NaN = as soon as the request before has finished.
        prompt_tokens, output_tokens: (n,).
    """

    name: str
    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints


def fitting_loads(max_model_len: int, max_num_seqs: int, repeats: int = 3) -> list[Load]:
    """Single prompts of growing length, one at a time, and batches of equal prompts at once."""
    lengths = [length for length in _PROMPTS if length + _SINGLE_OUTPUTS <= max_model_len]
    sizes = [size for size in (2, 4, 8, 16, 32, 64, 128, 256) if size <= max_num_seqs]
    outputs = min(48, max_model_len - _BATCH_PROMPT)
    singles = [
        Load(f"single{length}", np.full(repeats, np.nan), np.full(repeats, length), np.full(repeats, _SINGLE_OUTPUTS))
        for length in lengths
    ]
    batches = [
        Load(f"batch{size}", np.zeros(size), np.full(size, _BATCH_PROMPT), np.full(size, outputs)) for size in sizes
    ]
    return singles + batches


def mixes(rate_per_s: float, requests: int, max_model_len: int, seed: int = 7) -> list[Load]:
    """Poisson arrivals of mixed lengths below, near and above ``rate_per_s``, the rate that the engine sustains."""
    found = []
    for index, (name, part) in enumerate(_MIXES.items()):
        draw = np.random.default_rng([seed, index])
        prompts, outputs = mixed_lengths(draw, requests, max_model_len)
        arrivals = np.cumsum(draw.exponential(1.0 / (part * rate_per_s), requests))
        found.append(Load(name, arrivals - arrivals[0], prompts, outputs))
    return found


def mixed_lengths(draw: np.random.Generator, requests: int, max_model_len: int) -> tuple[Ints, Ints]:
    """Prompts and outputs with exponential tails, of 240 and 30 tokens on average where the context allows."""
    longest = max_model_len // 2 - 1
    prompts = np.clip(draw.exponential(min(240, longest / 4), requests), 8, longest)
    outputs = np.clip(draw.exponential(min(30, longest / 8), requests), 2, longest)
    return prompts.astype(np.int64), outputs.astype(np.int64)
