"""Synthetic workloads: arrivals, lengths, shared prompts and sessions put together, vectorised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.errors import InputError
from sim.workload import Floats, Ints, PrefixSpans, Workload
from workloads.arrival_spec import Arrivals, ClosedLoopArrivals
from workloads.arrivals import arrival_times, pauses
from workloads.beams import FORK_RATE, with_beams
from workloads.length_spec import Length
from workloads.lengths import cut_note, draw_lengths, mean_length
from workloads.samples import with_samples
from workloads.shared_text import opening_rows, session_spans, spans_from_rows
from workloads.spec import MAX_REQUESTS, PrefixSpec, SessionSpec, WorkloadSpec
from workloads.streams import Aspect, stream


@dataclass(frozen=True, slots=True)
class Chains:
    """When requests arrive and which wait for which: columns as in `Workload`, and the openings' ids."""

    arrival_s: Floats
    after: Ints | None
    think_s: Floats | None
    first: Ints  # (sessions,) id of the first request of each session
    turn: Ints  # (n,) turn within the session, from 0
    in_turn: Ints | None = None


def synthesize(spec: WorkloadSpec, seed: int) -> Workload:
    """The requests of a synthetic ``spec``; the same seed gives the same columns."""
    if spec.arrivals is None or spec.prompt_tokens is None or spec.output_tokens is None:
        raise InputError("workload", "has neither arrivals and lengths nor a trace")
    warmup = spec.warmup_requests or 0
    count = None if spec.num_requests is None else spec.num_requests + warmup
    chains = arrange(spec.arrivals, spec.sessions, seed, count, spec.duration_s, warmup)
    n = len(chains.arrival_s)
    new_tokens, output_tokens, prompt = _lengths(spec.prompt_tokens, spec.output_tokens, spec.prefixes, chains, seed)
    prompt_tokens = new_tokens
    if spec.sessions is not None:
        if spec.sessions.followup_tokens is not None:
            followups = draw_lengths(spec.sessions.followup_tokens, n, stream(seed, Aspect.FOLLOWUP_TOKENS))
            new_tokens = np.where(chains.turn == 0, new_tokens, followups)
        prompt_tokens = _with_history(new_tokens, output_tokens, chains)
    notes = cut_note("prompt_tokens", spec.prompt_tokens) + cut_note("output_tokens", spec.output_tokens)
    if spec.num_requests is not None and n < spec.num_requests:
        notes += (f"The stages end after {n} of the {spec.num_requests} requests asked for.",)
    if spec.sessions is not None:
        turns = mean_length(spec.sessions.turns)
        notes += (f"Arrivals open sessions, of {turns:.4g} turns on average; each prompt repeats its session so far.",)
    if warmup:
        notes += (f"{warmup:,} requests of a warm-up ran before these, and no figure counts them.",)
    workload = Workload(
        arrival_s=chains.arrival_s,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        after=chains.after,
        think_s=chains.think_s,
        session_id=None if spec.sessions is None else np.cumsum(chains.turn == 0) - 1,
        prefixes=_spans(spec, chains, new_tokens, prompt_tokens + output_tokens, prompt),
        in_turn=chains.in_turn,
        warmup=warmup,
        notes=notes + _short_prompt_note(spec.prefixes, new_tokens[chains.first]),
    )
    if spec.beam_width is not None:
        rate = FORK_RATE if spec.beam_fork_rate is None else spec.beam_fork_rate
        return with_beams(workload, spec.beam_width, rate, seed)
    if spec.n in (None, 1):
        return workload
    return with_samples(workload, spec.n, None if spec.sample_lengths == "equal" else spec.output_tokens, seed)


def arrange(
    arrivals: Arrivals,
    sessions: SessionSpec | None,
    seed: int,
    count: int | None,
    duration_s: float | None,
    warmup: int = 0,
) -> Chains:
    """Arrival times and chains of ``count`` requests, or of those whose session opens before ``duration_s``.

    In a closed loop request i (or session i) follows number i - concurrency: each user's requests form one chain,
    unless all take from one queue. The first ``warmup`` of ``count`` are a closed loop of their own.
    """
    opening_s: Floats | None = None
    if not isinstance(arrivals, ClosedLoopArrivals):
        opening_s = arrival_times(arrivals, stream(seed, Aspect.ARRIVALS), count, duration_s)
    openings = count if opening_s is None else len(opening_s)
    assert openings is not None, "a closed loop has a count"
    turns = np.ones(openings, dtype=np.int64)
    if sessions is not None:
        turns = draw_lengths(sessions.turns, openings, stream(seed, Aspect.TURNS))
    first, turn = _enumerate_turns(turns, count)
    arrival_s = np.full(len(turn), np.nan)
    if opening_s is not None:
        arrival_s[first] = opening_s[: len(first)]
        if sessions is None:
            return Chains(arrival_s, None, None, first, turn)
    return _chained(arrivals, sessions, seed, arrival_s, first, turn, warmup)


def _chained(
    arrivals: Arrivals, sessions: SessionSpec | None, seed: int, arrival_s: Floats, first: Ints, turn: Ints, warmup: int
) -> Chains:
    """Fill in what follows what: turns of a session, and the users of a closed loop."""
    n = len(turn)
    after = np.full(n, -1, dtype=np.int64)
    think_s = np.zeros(n)
    if sessions is not None:
        later = np.flatnonzero(turn)
        after[later] = later - 1
        think_s[later] = pauses(sessions.think_s, sessions.think_cv, n, stream(seed, Aspect.SESSION_THINK))[later]
    in_turn = None
    if isinstance(arrivals, ClosedLoopArrivals):
        last = np.append(first[1:], n) - 1
        users = arrivals.concurrency
        arrival_s[first[: min(users, warmup) if warmup else users]] = 0.0
        place = np.arange(len(first))
        follows = np.where(place < warmup, place, place - warmup) >= users
        if arrivals.queue == "shared":
            in_turn = first[follows]
        else:
            after[first[follows]] = last[place[follows] - users]
        rest = pauses(arrivals.think_s, arrivals.think_cv, len(first), stream(seed, Aspect.THINK))
        think_s[first[follows]] = rest[follows]
    return Chains(arrival_s, after, think_s, first, turn, in_turn)


def _enumerate_turns(turns: Ints, count: int | None) -> tuple[Ints, Ints]:
    """First ids and turn numbers of sessions with ``turns`` turns, cut after ``count`` requests."""
    total = int(turns.sum()) if count is None else count
    if total > MAX_REQUESTS:
        raise InputError("sessions.turns", f"make {total:,} requests", f"stay below {MAX_REQUESTS:,}")
    starts = np.concatenate(([0], np.cumsum(turns)[:-1]))
    first = starts[starts < total]
    total = min(total, int(first[-1] + turns[len(first) - 1]))
    turn = np.arange(total) - np.repeat(first, np.diff(np.append(first, total)))
    return first, turn


def _lengths(
    prompt: Length, output: Length, prefixes: PrefixSpec | None, chains: Chains, seed: int
) -> tuple[Ints, Ints, Ints | None]:
    """New prompt tokens and output tokens of each request, and which fixed prompt opens each session."""
    n, sessions = len(chains.turn), len(chains.first)
    if prefixes is None or prefixes.prompts_per_group is None:
        new_tokens = draw_lengths(prompt, n, stream(seed, Aspect.PROMPT_TOKENS))
        return new_tokens, draw_lengths(output, n, stream(seed, Aspect.OUTPUT_TOKENS)), None
    distinct = prefixes.groups * prefixes.prompts_per_group
    order = np.arange(distinct)
    if prefixes.order == "shuffled":
        order = stream(seed, Aspect.PROMPT_ORDER).permutation(distinct)
    which = np.resize(order, sessions)
    fixed_prompt = draw_lengths(prompt, distinct, stream(seed, Aspect.FIXED_PROMPT_TOKENS))[which]
    fixed_output = draw_lengths(output, distinct, stream(seed, Aspect.FIXED_OUTPUT_TOKENS))[which]
    if n == sessions:
        return fixed_prompt, fixed_output, which
    new_tokens = draw_lengths(prompt, n, stream(seed, Aspect.PROMPT_TOKENS))
    output_tokens = draw_lengths(output, n, stream(seed, Aspect.OUTPUT_TOKENS))
    new_tokens[chains.first], output_tokens[chains.first] = fixed_prompt, fixed_output
    return new_tokens, output_tokens, which


def _with_history(new_tokens: Ints, output_tokens: Ints, chains: Chains) -> Ints:
    """Prompt lengths when a turn repeats all that its session said before."""
    said = np.concatenate(([0], np.cumsum(new_tokens + output_tokens)))
    before: Ints = said[:-1] - np.repeat(said[chains.first], np.diff(np.append(chains.first, len(new_tokens))))
    return before + new_tokens


def _spans(
    spec: WorkloadSpec, chains: Chains, new_tokens: Ints, total_tokens: Ints, prompt: Ints | None
) -> PrefixSpans | None:
    opening = None
    if spec.prefixes is not None:
        sessions = len(chains.first)
        group = np.arange(sessions) % spec.prefixes.groups
        if prompt is not None and spec.prefixes.prompts_per_group is not None:
            group = prompt // spec.prefixes.prompts_per_group
        lengths = new_tokens[chains.first]
        opening = opening_rows(lengths, group, spec.prefixes.groups, spec.prefixes.prefix_tokens, prompt)
    if spec.sessions is not None and (opening is not None or chains.turn.any()):
        return session_spans(chains.first, chains.turn, total_tokens, opening)
    return None if opening is None else spans_from_rows(*opening)


def _short_prompt_note(prefixes: PrefixSpec | None, opening_tokens: Ints) -> tuple[str, ...]:
    """Prompts that the shared beginning leaves nothing of: told, and refused when all are."""
    if prefixes is None:
        return ()
    short = int((opening_tokens <= prefixes.prefix_tokens).sum())
    if short == len(opening_tokens):
        raise InputError(
            "prefixes.prefix_tokens",
            f"{prefixes.prefix_tokens} tokens are not fewer than any prompt's",
            "prompt_tokens counts the shared beginning: raise it, or shorten the prefix",
        )
    if not short:
        return ()
    return (f"{short} of {len(opening_tokens)} prompts are no longer than the shared beginning and hold nothing else.",)
