"""The least time that an engine's steps can take, read off its step timer and the datasheet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sim.assemble import Parts
from sim.cost.shape import COUNTS, StepShape, StepTimer
from sim.cost.table import count_nodes
from sim.cost.work import ModelWork
from sim.layout import Layout
from sim.workload import Floats

_LARGEST: Final = 1 << 18
_BATCHES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
_CONTEXTS: Final = tuple(1 << power for power in range(4, 18))
_BETWEEN: Final = 0.98
_NOT_BY_TOKENS: Final = ("decode_attention", "prefill_attention", "host")


@dataclass(frozen=True, slots=True)
class Line:
    """A step of m tokens takes at least ``fixed_s + token_s * m``."""

    fixed_s: float
    token_s: float


@dataclass(frozen=True, slots=True)
class Physics:
    """Lower bounds of the time of a step, each valid for every step whatever else is in it.

    Attributes:
        lines: below the time of everything that depends on tokens alone, attention aside; ``fixed_s >= 0``.
        token_s: the same without the fixed part: seconds a token in the best of all steps.
        least_step_s: of any step.
        decode_s: of a step that decodes, attention aside.
        key_s, windowed_key_s: for each token that a decode attends, in the layers that attend everything and in those
            with a window: its bytes at the bandwidth of the datasheet, or, without a window, what the timer takes at
            its fastest if that is more.
        pair_s, windowed_pair_s: the same for each pair of a prompt's attention, with operations at the peak.
        window: of attention, tokens.
        to_queue_s, first_token_s: between client and engine.
    """

    lines: tuple[Line, ...]
    token_s: float
    least_step_s: float
    decode_s: float
    key_s: float = 0.0
    windowed_key_s: float = 0.0
    pair_s: float = 0.0
    windowed_pair_s: float = 0.0
    window: int | None = None
    to_queue_s: float = 0.0
    first_token_s: float = 0.0


def physics_of(parts: Parts, layout: Layout) -> Physics:
    """The physics of one engine of ``layout`` (no pipeline, no data-parallel ranks, no speculation)."""
    timer = parts.timer
    lines, token_s = _below(timer)
    one = StepShape(1, 1, 1, sampled_seqs=1)
    attention = {} if parts.budget is None and parts.tick_s != 1.0 else _attention(parts, layout)
    if attention and timer.window is None:
        attention["key_s"] = max(attention["key_s"], _fastest_key_s(timer))
        attention["pair_s"] = max(attention["pair_s"], _fastest_pair_s(timer))
    return Physics(
        lines=lines,
        token_s=token_s,
        least_step_s=timer.step(one) * parts.tick_s,
        decode_s=_without_attention(timer, one),
        window=timer.window,
        to_queue_s=parts.path.to_queue_s,
        first_token_s=parts.path.first_token_s,
        **attention,
    )


def _below(timer: StepTimer) -> tuple[tuple[Line, ...], float]:
    """Lines below the time that depends on tokens, and the least seconds a token.

    The timer's tables are straight between these nodes and never fall, so the lower hull of the values at the nodes
    lies below every step.
    """
    nodes = count_nodes(_LARGEST)
    values = [_without_attention(timer, StepShape(prefill_seqs=1, prefill_tokens=node)) for node in nodes]
    hull: list[tuple[float, float]] = []
    for point in zip(map(float, nodes), values, strict=True):
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    lines = []
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        if y0 - slope * x0 >= 0:
            lines.append(Line(y0 - slope * x0, slope))
    lines.append(Line(values[0], 0.0))
    return tuple(lines), min(value / node for node, value in zip(nodes, values, strict=True))


def _turns_down(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether ``b`` lies on or above the line from ``a`` to ``c``."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


def _without_attention(timer: StepTimer, shape: StepShape) -> float:
    parts = timer.breakdown(shape)
    return sum(seconds for name, seconds in parts.items() if name not in _NOT_BY_TOKENS)


def _attention(parts: Parts, layout: Layout) -> dict[str, float]:
    served = parts.served
    work = ModelWork(served.arch, served.weights, served.kv, layout)
    bandwidth = served.hardware.memory_bandwidth_bytes_per_s * layout.gpus_per_replica
    peak = served.hardware.peak_flops("bf16") * layout.gpus_per_replica
    shape: dict[str, Any] = {name: np.zeros(1) for name in COUNTS}

    def rise(count: Any, name: str) -> float:
        return float((count({**shape, name: np.ones(1)}) - count(shape))[0])

    return {
        "key_s": rise(work.bytes_moved, "decode_context") / bandwidth,
        "windowed_key_s": rise(work.bytes_moved, "decode_context_windowed") / bandwidth,
        "pair_s": rise(work.flops, "prefill_pairs") / peak,
        "windowed_pair_s": rise(work.flops, "prefill_pairs_windowed") / peak,
    }


def _fastest_key_s(timer: StepTimer) -> float:
    """Decode attention a key, less `_BETWEEN` for what lies between the batches and contexts that are asked."""
    shapes = [
        StepShape(decode_seqs=seqs, decode_context=seqs * context, decode_context_windowed=seqs * context)
        for seqs in _BATCHES
        for context in _CONTEXTS
    ]
    return _BETWEEN * min(timer.breakdown(s)["decode_attention"] / s.decode_context for s in shapes)


def _fastest_pair_s(timer: StepTimer) -> float:
    """Prompt attention a pair, less `_BETWEEN` for what lies between the chunks that are asked."""
    times = []
    for chunks in (1, 2, 8, 64):
        for new in (1, 64, 512, 2048, 8192, 32768):
            for before in (0, 2048, 16384, 131072):
                shape = StepShape()
                for _ in range(chunks):
                    shape.add_prefill(new, before, None)
                times.append(timer.breakdown(shape)["prefill_attention"] / shape.prefill_pairs)
    return _BETWEEN * min(times)


def windowed_keys(first: Floats, count: Floats, window: int | None) -> Floats:
    """Sum of min(context, window) over ``count`` contexts that begin at ``first`` and grow by one."""
    whole = count * first + count * (count - 1) / 2
    if window is None:
        return whole
    growing = np.clip(window - first, 0, count)
    return growing * first + growing * (growing - 1) / 2 + (count - growing) * window


def windowed_pairs(new: Floats, before: Floats, window: int | None) -> Floats:
    """Attended pairs of ``new`` prompt tokens after ``before`` cached ones, each query's range cut to the window."""
    return windowed_keys(before + 1, new, window)
