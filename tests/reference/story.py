"""Tiny scenarios for tests that are worked out by hand, and a short way to write what each step did."""

from __future__ import annotations

from compare import disagreement
from naive_vllm import simulate
from oracle_format import Line
from random_scenarios import add_hash_ids


def ask(prompt: int, output: int = 1, *, at: int | None = None, **more: object) -> Line:
    """A request; it arrives at 0 unless told otherwise."""
    line: Line = {"prompt_len": prompt, "output_len": output, **more}
    if at is not None or not {"after", "arrival_step"} & line.keys():
        line["arrival_us"] = at or 0
    return line


def read(*text: tuple[str, int], output: int = 1, at: int = 0) -> Line:
    """A request whose prompt is made of named texts, for tests of the prefix cache."""
    segments = [list(segment) for segment in text]
    return ask(sum(length for _, length in text), output, at=at, segments=segments)


def play(*requests: Line, constant: bool = False, **config: object) -> tuple[list[Line], list[Line]]:
    """Step and request lines, the same from the judge and from the engine with and without jumps.

    Blocks hold 4 tokens unless told otherwise. A step takes 100 us and, unless ``constant``, 1 us a token.
    """
    config.setdefault("block_size", 4)
    if any("segments" in request for request in requests):
        config["enable_prefix_caching"] = True
        add_hash_ids(list(requests), config["block_size"])
    latency = {"base_us": 100, "per_token_us": 0 if constant else 1, "per_seq_us": 0}
    document = {"name": "story", "config": config, "latency": latency, "requests": list(requests)}
    assert not (message := disagreement(document)), message
    return simulate(document)


def batches(steps: list[Line]) -> list[str]:
    """Who computed how many tokens in each step: ``"0 1:8"`` is one token of request 0 and 8 of request 1."""
    rows = []
    for step in steps:
        ids = step.get("ids", [])
        tokens = step.get("ntok", [1] * len(ids))
        rows.append(" ".join(f"{i}:{n}" if n > 1 else f"{i}" for i, n in zip(ids, tokens, strict=True)))
    return rows


def column(steps: list[Line], name: str) -> list[object]:
    """One field of every step, ``None`` where it is left out."""
    return [step.get(name) for step in steps]
