"""Independent random streams, one an aspect: changing one aspect of a workload does not reshuffle the others."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from sim.errors import InputError


class Aspect(IntEnum):
    """What a stream is drawn for. The numbers are part of the results: never renumber, only add."""

    ARRIVALS = 0
    PROMPT_TOKENS = 1
    OUTPUT_TOKENS = 2
    FIXED_PROMPT_TOKENS = 3
    FIXED_OUTPUT_TOKENS = 4
    PROMPT_ORDER = 5
    TURNS = 6
    THINK = 7
    SESSION_THINK = 8
    FOLLOWUP_TOKENS = 9
    SAMPLE_TOKENS = 10
    BEAMS = 11


def stream(seed: int, aspect: Aspect) -> np.random.Generator:
    """The generator of ``aspect`` under ``seed`` (a whole number, at least 0)."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError("seed", f"must be a whole number, at least 0, got {seed!r}")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(int(aspect),))))
