"""Parallel sampling: every prompt is sent several times at once, and the copies share its text."""

from __future__ import annotations

import numpy as np

from sim.errors import InputError
from sim.workload import Ints, PrefixSpans, Workload
from workloads.length_spec import Length
from workloads.lengths import draw_lengths
from workloads.shared_text import MAX_ROWS, spans_from_rows
from workloads.spec import MAX_REQUESTS
from workloads.streams import Aspect, stream


def with_samples(workload: Workload, n: int, output: Length | None, seed: int) -> Workload:
    """Each request ``n`` times: same arrival, same prompt, outputs drawn from ``output``, or equally long where None.

    Request i becomes requests ``i * n`` to ``i * n + n - 1``, the first with the output length that i has. So vLLM V1
    serves ``n`` > 1 (vllm/v1/engine/parallel_sampling.py): as requests of their own that find the prompt's full blocks
    in the prefix cache. Needs requests that wait for nobody.
    """
    count = len(workload)
    if count * n > MAX_REQUESTS:
        raise InputError("n", f"{n} samples of {count:,} prompts", f"stay below {MAX_REQUESTS:,} in all")
    outputs = np.tile(workload.output_tokens[:, None], n)
    if output is not None:
        outputs[:, 1:] = draw_lengths(output, count * n, stream(seed, Aspect.SAMPLE_TOKENS)).reshape(count, n)[:, 1:]
    told = f"Each of the {count:,} prompts is sampled {n} times; every sample counts as a request."
    return Workload(
        arrival_s=np.repeat(workload.arrival_s, n),
        prompt_tokens=np.repeat(workload.prompt_tokens, n),
        output_tokens=outputs.ravel(),
        prefixes=_spans(workload.prefixes, workload.prompt_tokens, n),
        notes=(*workload.notes, told),
    )


def _spans(prefixes: PrefixSpans | None, prompt_tokens: Ints, n: int) -> PrefixSpans:
    """The whole prompt is one text that its samples share, behind what it shares with other prompts."""
    rows, node, end = closed_rows(prefixes, prompt_tokens)
    if rows.sum() * n > MAX_ROWS:
        raise InputError("n", f"{n} samples need {rows.sum() * n:.3g} rows of shared text", "fewer samples or requests")
    offsets = np.concatenate(([0], np.cumsum(rows)))
    copied = np.repeat(rows, n)
    place = np.arange(copied.sum()) - np.repeat(np.cumsum(copied) - copied, copied)
    at = np.repeat(np.repeat(offsets[:-1], n), copied) + place
    return spans_from_rows(copied, node[at], end[at])


def closed_rows(prefixes: PrefixSpans | None, prompt_tokens: Ints) -> tuple[Ints, Ints, Ints]:
    """Rows that reach to the end of each prompt: its own text, numbered behind the others, fills what is open.

    As `opening_rows` gives them: (rows a prompt, node, end).
    """
    count = len(prompt_tokens)
    if prefixes is None:
        return np.ones(count, np.int64), np.arange(count), prompt_tokens
    rows = np.diff(prefixes.offsets)
    last = prefixes.end[prefixes.offsets[1:] - 1]
    open_ = last < prompt_tokens
    own = int(prefixes.node.max()) + 1 + np.flatnonzero(open_)
    after = prefixes.offsets[1:][open_]
    return (
        rows + open_,
        np.insert(prefixes.node, after, own),
        np.insert(prefixes.end, after, prompt_tokens[open_]),
    )
