"""The published traces themselves, where they lie beside the project: counts, spans, lengths, sharing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sim.workload import Workload
from workloads import describe_workload, load_preset
from workloads.preset_from_trace import conversations, trace_figures, workload_figures
from workloads.spec import TraceSpec
from workloads.traces import read_trace
from workloads.traces.hash_chains import shared_block_ids

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / ".." / "shared" / "traces"
PER_REQUEST = ROOT / ".." / "shared" / "measured" / "per_request"
ORACLE = ROOT / "tests" / "conformance" / "oracle"

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="published traces are not beside the project")


def read(name: str, **options: Any) -> Workload:
    return read_trace(TraceSpec(path=str(TRACES / name), **options))


@needs_traces
@pytest.mark.parametrize(
    ("name", "requests", "span_s", "prompt", "output"),
    [
        ("azure2023_code.csv.gz", 8819, 3436, (2048, 1469), (28, 13)),
        ("azure2023_conv.csv.gz", 19366, 3502, (1155, 1020), (211, 129)),
        ("mooncake_conversation.jsonl.gz", 12031, 3537, (12035, 6909), (343, 350)),
        ("mooncake_synthetic.jsonl.gz", 3993, 1022, (15325, 11587), (149, 69)),
        ("vidur_splitwise_code.csv.gz", 8819, 3436, (2048, 1469), (28, 13)),
        ("vidur_splitwise_conv.csv.gz", 19366, 3502, (1155, 1020), (211, 129)),
        ("sharegpt300_llama31_tok.csv.gz", 300, 29, (857, 732), (653, 632)),
        ("sharegpt300_qwen3_tok.csv.gz", 300, 29, (862, 728), (665, 638)),
    ],
)
def test_counts_and_lengths_are_the_published_ones(
    name: str, requests: int, span_s: float, prompt: tuple[int, int], output: tuple[int, int]
) -> None:
    figures = describe_workload(read(name))
    assert figures["requests"] == requests
    assert round(figures["span_s"]) == span_s
    for side, (mean, median) in (("prompt_tokens", prompt), ("output_tokens", output)):
        assert round(figures[side]["mean"]) == mean
        assert abs(figures[side]["p50"] - median) <= 0.5  # the table rounds halves up


@needs_traces
def test_a_trace_without_times_has_its_lengths() -> None:
    workload = read("vidur_arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz")
    assert len(workload) == 28257
    assert np.isnan(workload.arrival_s).all()
    assert (round(workload.prompt_tokens.mean()), round(workload.output_tokens.mean())) == (2588, 291)
    assert (np.median(workload.prompt_tokens), np.median(workload.output_tokens)) == (2730, 167)


@needs_traces
def test_both_forms_of_the_azure_trace_are_the_same_requests() -> None:
    for name in ("code", "conv"):
        azure, vidur = read(f"azure2023_{name}.csv.gz"), read(f"vidur_splitwise_{name}.csv.gz")
        np.testing.assert_allclose(azure.arrival_s, vidur.arrival_s, atol=1e-6)
        np.testing.assert_array_equal(azure.prompt_tokens, vidur.prompt_tokens)


@needs_traces
@pytest.mark.parametrize(
    ("name", "block", "share", "rows_per_request"),
    [
        ("mooncake_conversation.jsonl.gz", 512, 0.37, 2.2),
        ("mooncake_synthetic.jsonl.gz", 512, 0.64, 0.7),
        ("sharegpt300_llama31_tok.csv.gz", 16, 0.08, 0.3),
        ("sharegpt300_qwen3_tok.csv.gz", 16, 0.08, 0.3),
    ],
)
def test_blocks_repeat_as_published_in_few_rows(name: str, block: int, share: float, rows_per_request: float) -> None:
    workload = read(name)
    assert workload.prefixes is not None
    blocks = -(-workload.prompt_tokens // block) if block == 512 else workload.prompt_tokens // block
    # a last block cut by the prompt's end is no full block: ask for one token more
    full = Workload(
        workload.arrival_s, workload.prompt_tokens, np.full(len(workload), block), prefixes=workload.prefixes
    )
    repeated = _repeated_blocks(full, block)
    assert round(repeated / blocks.sum(), 2) == share
    assert len(workload.prefixes.node) < rows_per_request * len(workload)


def _repeated_blocks(workload: Workload, block: int) -> int:
    """Blocks that an earlier request holds, counted on the ids written from the spans."""
    offsets, ids = shared_block_ids(workload, block)
    seen: set[int] = set()
    repeated = 0
    for request in range(len(workload)):
        row = ids[offsets[request] : offsets[request + 1]].tolist()
        repeated += sum(1 for key in row if key in seen)
        seen.update(row)
    return repeated


@needs_traces
def test_an_endless_cache_would_hit_what_repeats() -> None:
    shares = {name: describe_workload(read(name))["prefix_share"] for name in ("mooncake_conversation.jsonl.gz",)}
    assert shares["mooncake_conversation.jsonl.gz"] == pytest.approx(0.3736, abs=1e-3)


@needs_traces
def test_mooncake_sharing_is_that_of_its_ids() -> None:
    """Against a direct count: walk each request's ids while they are known."""
    import gzip
    import json

    path = TRACES / "mooncake_conversation.jsonl.gz"
    seen: set[int] = set()
    hits = tokens = 0
    with gzip.open(path, "rt") as lines:
        for record in map(json.loads, lines):
            known = 0
            for key in record["hash_ids"]:
                if key not in seen:
                    break
                known += 1
            hits += min(known * 512, record["input_length"])
            tokens += record["input_length"]
            seen.update(record["hash_ids"])
    assert describe_workload(read(path.name))["prefix_share"] == pytest.approx(hits / tokens, rel=1e-12)


@needs_traces
def test_the_first_requests_of_a_trace_are_a_trace() -> None:
    whole, part = read("mooncake_conversation.jsonl.gz"), read("mooncake_conversation.jsonl.gz", max_requests=500)
    assert len(part) == 500
    np.testing.assert_array_equal(whole.prompt_tokens[:500], part.prompt_tokens)


@needs_traces
@pytest.mark.parametrize(
    ("preset", "trace", "gaps", "rate", "sessions"),
    [
        ("azure-2023-code", "azure2023_code.csv.gz", "weibull", None, False),
        ("azure-2023-conversation", "azure2023_conv.csv.gz", "gamma", None, False),
        ("mooncake-conversation", "mooncake_conversation.jsonl.gz", "gamma", None, True),
        ("sharegpt", "sharegpt300_llama31_tok.csv.gz", "poisson", None, False),
        (
            "arxiv-summarization",
            "vidur_arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
            "gamma",
            1.0,
            False,
        ),
    ],
)
def test_the_shipped_presets_are_what_the_script_makes_of_the_traces(
    preset: str, trace: str, gaps: str, rate: float | None, sessions: bool
) -> None:
    workload = read(trace)
    made = {"trace": trace_figures(workload), "workload": workload_figures(workload, gaps, rate, sessions)}
    shipped = load_preset(preset)
    assert yaml.safe_load(yaml.safe_dump(made)) == {"trace": shipped.trace, "workload": shipped.workload}


@needs_traces
def test_most_mooncake_requests_open_a_conversation_and_begin_with_one_block() -> None:
    talk = conversations(read("mooncake_conversation.jsonl.gz"))
    assert talk.common_tokens == 512
    assert (talk.parent < 0).mean() == pytest.approx(0.71, abs=0.01)


@pytest.mark.skipif(not PER_REQUEST.is_dir(), reason="measured runs are not beside the project")
def test_measured_runs_are_replayable() -> None:
    """Some hold requests that failed or whose output the client counted as nothing."""
    paths = sorted(PER_REQUEST.glob("*.csv.gz"))
    assert paths
    for path in paths:
        assert len(read_trace(TraceSpec(path=str(path), skip_empty=True))) >= 300


@pytest.mark.parametrize("path", sorted(ORACLE.glob("*.input.json")), ids=lambda path: path.name.split(".")[0])
def test_oracle_scenarios_share_exactly_the_blocks_of_their_hash_ids(path: Path) -> None:
    import json

    document = json.loads(path.read_text())
    workload = read_trace(TraceSpec(path=str(path)))
    requests = document["requests"]
    block = document["config"].get("block_size", 16)
    assert [int(tokens) for tokens in workload.prompt_tokens] == [request["prompt_len"] for request in requests]
    arrivals = [np.nan if "after" in request else request["arrival_us"] / 1e6 for request in requests]
    np.testing.assert_array_equal(workload.arrival_s, arrivals)
    offsets, ids = shared_block_ids(workload, block)
    recorded = [request.get("hash_ids", []) for request in requests]
    for one in range(0, len(requests), 3):
        mine = ids[offsets[one] : offsets[one + 1]].tolist()
        for other in range(one):
            theirs = ids[offsets[other] : offsets[other + 1]].tolist()
            assert _common(mine, theirs) == _common(recorded[one], recorded[other])


def _common(one: list[int], other: list[int]) -> int:
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
