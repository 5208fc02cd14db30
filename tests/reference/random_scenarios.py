"""Random oracle inputs that stress every rule, from a seed or drawn by hypothesis (which then shrinks them)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

Line = dict[str, Any]
Segment = tuple[str, int]

MAX_TOKENS_PER_BUDGET = 600  # keeps every scenario short: a few hundred steps, more only where requests are preempted


def from_seed(seed: int, *, speculative: bool = False) -> Line:
    """The scenario of ``seed``."""
    return build(Random(seed), f"seed-{seed}", speculative=speculative)


def scripted(document: Line) -> Line:
    """The same scenario with requests that arrive before a step number, not at a time nor after another request."""
    tick = sum(document["latency"].values())
    latest = 0
    for request in document["requests"]:
        request.pop("after", None)
        request.pop("think_us", None)
        latest = request.pop("arrival_us", latest)
        request["arrival_step"] = latest // tick
    return document


def scenarios(*, speculative: bool = False) -> st.SearchStrategy[Line]:
    """Scenarios drawn by hypothesis."""
    return st.randoms(use_true_random=False).map(lambda rng: build(rng, "drawn", speculative=speculative))


def build(rng: Random, name: str, *, speculative: bool = False) -> Line:
    """One scenario out of the choices of ``rng``."""
    block_size = rng.choice([1, 2, 4, 8, 16, 32, 64])
    squeeze = rng.random() < 0.35  # long outputs, a burst and few blocks: many preemptions
    requests = _requests(rng, block_size, outputs=60 if squeeze else rng.choice([1, 2, 8, 30, 80, 600]))
    room = rng.choice([0, 1, 2, 5]) if squeeze else rng.choice([0, 1, rng.randint(0, 10), 50, 300])
    config = _config(rng, block_size, requests, room)
    if speculative:
        _speculate(rng, config, max(request["prompt_len"] + request["output_len"] for request in requests))
    latency = _latency(rng)
    _arrive(rng, requests, latency, spread=rng.choice([0, 1, 3] if squeeze else [0, 1, 3, 20, 200]))
    texts = [request.pop("text") for request in requests]
    if config["enable_prefix_caching"] and rng.random() < 0.85:
        for request, text in zip(requests, texts, strict=True):
            request["segments"] = [list(segment) for segment in text]
        add_hash_ids(requests, block_size)
    return {"name": name, "config": config, "latency": latency, "requests": requests}


# -- what is asked


def _requests(rng: Random, block_size: int, outputs: int) -> list[Line]:
    """Requests whose prompts are named texts: unique, with shared beginnings, repeated whole, or turns of a session."""
    count = rng.randint(1, rng.choice([4, 12, 25]) if outputs < 100 else 6)
    longest = rng.choice([block_size, 3 * block_size, 8 * block_size, 150])
    shared = [[(f"sys:{i}", _length(rng, longest, block_size))] for i in range(rng.choice([1, 2, 4]))]
    style = rng.choice(["unique", "shared", "cycled", "turns", "mixed"])
    priorities = rng.choice([[0], [0, 1], [0, 1, 2, 3, -1]])
    requests: list[Line] = []
    for index in range(count):
        kind = rng.choice(["unique", "shared", "cycled", "turns"]) if style == "mixed" else style
        text: list[Segment] = []
        request: Line = {"output_len": rng.randint(1, outputs)}
        if kind == "turns" and index and rng.random() < 0.75:
            before = rng.randrange(max(0, index - 4), index)
            request |= {"after": before, "think_us": rng.choice([0, 0, 1, rng.randint(0, 3000)])}
            if rng.random() < 0.8:
                text += [*requests[before]["text"], (f"out:{before}", requests[before]["output_len"])]
        elif kind in ("shared", "cycled"):
            text += rng.choice(shared)
        if kind != "cycled" or not text:
            text.append((f"u:{index}", _length(rng, longest, block_size)))
        if rng.random() < 0.1:  # a quotation that ends in the middle of a block, or one token short
            text[-1] = (text[-1][0], max(1, text[-1][1] - 1))
        request |= {"prompt_len": sum(length for _, length in text), "text": text}
        if priorities != [0]:
            request["priority"] = rng.choice(priorities)
        requests.append(request)
    return requests


def _length(rng: Random, longest: int, block_size: int) -> int:
    """A text length: any, whole blocks, or one off."""
    length = rng.randint(1, max(1, longest))
    if rng.random() < 0.4:
        length = max(block_size, length // block_size * block_size) + rng.choice([-1, 0, 0, 0, 1])
    return max(1, length)


def add_hash_ids(requests: list[Line], block_size: int) -> None:
    """One id for each full block of prompt + output, equal exactly when all tokens up to its end are equal."""
    ids: dict[tuple[int, tuple[Segment, ...]], int] = {}
    for index, request in enumerate(requests):
        tokens = [(name, k) for name, length in request["segments"] for k in range(length)]
        tokens += [(f"out:{index}", k) for k in range(request["output_len"])]
        parent = -1
        request["hash_ids"] = []
        for start in range(0, len(tokens) - block_size + 1, block_size):
            parent = ids.setdefault((parent, tuple(tokens[start : start + block_size])), len(ids))
            request["hash_ids"].append(parent)


# -- the engine that serves


def _config(rng: Random, block_size: int, requests: list[Line], room: int) -> Line:
    totals = sorted(request["prompt_len"] + request["output_len"] for request in requests)
    # now and then the longest requests can never fit
    wanted = totals[-1] if rng.random() < 0.9 else rng.choice(totals)
    max_model_len = wanted + rng.choice([0, 1, 7, 4000]) if rng.random() < 0.3 else 4 * totals[-1] + 100
    blocks = -(-(wanted - 1) // block_size)
    max_num_seqs = rng.choice([1, 2, 3, 4, 8, 16, 40])
    least = max(1, sum(totals) // MAX_TOKENS_PER_BUDGET)
    budget = least + rng.choice([0, rng.randint(0, 8), max_num_seqs, rng.randint(0, 64), 256, 2048])
    config: Line = {
        "num_gpu_blocks": 1 + max(1, blocks) + room,
        "block_size": block_size,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "enable_prefix_caching": rng.random() < 0.6,
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "async_scheduling": rng.random() < 0.4,
        "scheduler_reserve_full_isl": rng.random() < 0.7,
        "watermark": rng.choice([0.0, 0.0, 0.0, 0.01, 0.1, 0.3, 0.6]),
    }
    if rng.random() < 0.3:
        config["long_prefill_token_threshold"] = min(max_model_len, least + rng.choice([0, 1, 8, 40, 128]))
    if rng.random() < 0.2:
        config["enable_chunked_prefill"] = False
        config["max_num_batched_tokens"] = max_model_len + rng.choice([0, 1, 50])
    return config


def _speculate(rng: Random, config: Line, longest: int) -> None:
    """Draft tokens, and room for those of the longest request, lookahead included."""
    drafts = rng.randint(1, 5)
    config |= {"spec_method": rng.choice(["ngram", "eagle"]), "num_speculative_tokens": drafts}
    config["async_scheduling"] = False
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"], 1 + drafts)
    blocks = -(-(longest - 1 + 2 * drafts) // config["block_size"])
    config["num_gpu_blocks"] = max(config["num_gpu_blocks"], 1 + blocks)
    config["max_model_len"] = max(config["max_model_len"], longest + 2 * drafts)
    if "long_prefill_token_threshold" in config:
        config["long_prefill_token_threshold"] = min(config["max_model_len"], max(drafts + 1, longest // 8))
    if not config.get("enable_chunked_prefill", True):
        config["max_num_batched_tokens"] = config["max_model_len"]


def _latency(rng: Random) -> Line:
    """Step times; constant ones make it easy to arrive exactly at a step's end."""
    if rng.random() < 0.4:
        return {"base_us": rng.choice([1, 10, 1000]), "per_token_us": 0, "per_seq_us": 0}
    return {
        "base_us": rng.choice([0, 100, 5000]),
        "per_token_us": rng.choice([1, 10, 40]),
        "per_seq_us": rng.choice([0, 10]),
    }


def _arrive(rng: Random, requests: list[Line], latency: Line, spread: int) -> None:
    """Arrival times: bursts, idle gaps, simultaneous ones, and ones at or next to the end of a step."""
    tick = latency["base_us"] + latency["per_token_us"] + latency["per_seq_us"]
    gap = tick * spread
    now = rng.choice([0, 0, 7])
    for request in requests:
        if "after" in request:
            continue
        shape = rng.random()
        if shape < 0.35:
            now += rng.randint(0, gap)
        elif shape < 0.6:
            now += tick * rng.randint(0, 5) + rng.choice([-1, 0, 0, 0, 1])
        elif shape < 0.63:
            now += rng.randint(0, 100 * gap)
        now = max(now, 0)
        request["arrival_us"] = now
    times = sorted(request["arrival_us"] for request in requests if "after" not in request)
    for request in requests:
        if "after" not in request:
            request["arrival_us"] = times.pop(0)
