"""Each trace format, small and by hand: what the file says is what the workload holds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.workload import Workload
from workloads import WorkloadSpec, build_workload
from workloads.spec import TRACE_FORMATS, TraceFormat, TraceSpec
from workloads.traces import read_trace


def read(path: Path, text: str | bytes = "", **options: Any) -> Workload:
    if text:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(TraceSpec(path=str(path), **options))


def lengths(workload: Workload) -> list[tuple[int, int]]:
    return list(zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True))


SERVECAST = "arrival_s,prompt_tokens,output_tokens\n0.5,100,10\n0.75,200,20\n2,300,30\n"
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8"""
MOONCAKE = """\
{"timestamp": 1000, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 4000, "input_length": 1030, "output_length": 6, "hash_ids": [0, 1, 3]}
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
SHAREGPT = "input_toks,output_toks,arrival_time_ns,block16_ids\n40,5,46926808,0 1\n33,9,347938951,0 2\n"


def test_servecast_csv_keeps_its_times(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", SERVECAST)
    assert workload.arrival_s.tolist() == [0.5, 0.75, 2.0]
    assert lengths(workload) == [(100, 10), (200, 20), (300, 30)]
    assert (workload.after, workload.priority, workload.session_id, workload.prefixes) == (None,) * 4


def test_servecast_reads_every_optional_column(tmp_path: Path) -> None:
    text = (
        "arrival_s,prompt_tokens,output_tokens,priority,session_id,hash_ids,hash_block_size,after,think_s\n"
        "0.0,40,10,2,red,0 1,16,,\n"
        "0.5,40,10,1,blue,0 2,16,,\n"
        ",60,10,1,red,0 1 3,16,0,1.5\n"
    )
    workload = read(tmp_path / "a.csv", text)
    assert np.isnan(workload.arrival_s[2])
    assert [None if c is None else c.tolist() for c in (workload.priority, workload.session_id)] == [
        [2, 1, 1],
        [0, 1, 0],
    ]
    assert [None if c is None else c.tolist() for c in (workload.after, workload.think_s)] == [[-1, -1, 0], [0, 0, 1.5]]
    assert workload.prefixes is not None
    assert [workload.prefixes.of(request) for request in range(3)] == [
        [(0, 16), (1, 32)],
        [(0, 16)],
        [(0, 16), (1, 32)],
    ]


def test_servecast_jsonl_may_leave_out_what_is_not_known(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"arrival_s": 0, "prompt_tokens": 40, "output_tokens": 1},
        {"arrival_s": 1, "prompt_tokens": 40, "output_tokens": 1, "hash_ids": ["x", "y"], "hash_block_size": 16},
        {"arrival_s": 2, "prompt_tokens": 40, "output_tokens": 1, "hash_ids": ["x"], "hash_block_size": 16},
    ]
    workload = read(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    assert workload.prefixes is not None
    assert [workload.prefixes.of(request) for request in range(3)] == [[], [(0, 16)], [(0, 16)]]


def test_servecast_may_be_one_json_array(tmp_path: Path) -> None:
    rows = [{"arrival_s": k, "prompt_tokens": 5 + k, "output_tokens": 1} for k in range(3)]
    for indent in (None, 2):
        assert lengths(read(tmp_path / "a.json", json.dumps(rows, indent=indent))) == [(5, 1), (6, 1), (7, 1)]


def test_servecast_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"arrival_s": [0.0, 1.5], "prompt_tokens": [40, 50], "output_tokens": [4, 5], "hash_ids": [[1, 2], [1]]}
    pq.write_table(pa.table({**columns, "hash_block_size": [16, 16]}), tmp_path / "a.parquet")
    workload = read(tmp_path / "a.parquet")
    assert lengths(workload) == [(40, 4), (50, 5)]
    assert workload.prefixes is not None
    assert workload.prefixes.of(1) == [(0, 16)]


def test_the_scenario_may_say_the_size_of_hash_blocks(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,hash_ids\n0,40,10,4 5\n1,40,10,4 5\n"
    workload = read(tmp_path / "a.csv", text, hash_block_size=10)
    assert workload.prefixes is not None
    assert workload.prefixes.of(0) == [(0, 20)]


def test_hash_ids_go_on_into_the_output(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,hash_ids,hash_block_size\n0,16,16,4 5,16\n1,40,10,4 5,16\n"
    workload = read(tmp_path / "a.csv", text)
    assert workload.prefixes is not None
    assert workload.prefixes.of(0) == [(0, 32)]


def test_a_measured_run_is_read_as_servecast(tmp_path: Path) -> None:
    workload = read(
        tmp_path / "a.csv", "request_index,arrival_s,input_tokens,output_tokens,ttft_ms\n0,0.0,591,140,130.2\n"
    )
    assert lengths(workload) == [(591, 140)]
    assert workload.notes == ("Columns not used: request_index, ttft_ms.",)


def test_azure_counts_time_from_its_first_request(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", AZURE)
    np.testing.assert_allclose(workload.arrival_s, [0.0, 0.052], atol=1e-9)
    assert lengths(workload) == [(4808, 10), (3180, 8)]


@pytest.mark.parametrize("second", ["2024-05-10 00:00:01+00:00", "2024-05-10 00:00:01", "2024-05-10T00:00:01.000Z"])
def test_azure_times_come_with_and_without_decimals_and_offset(tmp_path: Path, second: str) -> None:
    first = second.replace(":01", ":00")
    text = f"TIMESTAMP,ContextTokens,GeneratedTokens\n{first},1,2\n{second},3,4\n"
    assert read(tmp_path / "a.csv", text).arrival_s.tolist() == [0.0, 1.0]


def test_mooncake_counts_milliseconds_and_blocks_of_512(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.jsonl", MOONCAKE)
    assert workload.arrival_s.tolist() == [0.0, 3.0]
    assert workload.prefixes is not None
    assert workload.prefixes.of(1) == [(0, 1024)]


def test_burstgpt_leaves_out_failed_requests_and_says_so(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", BURSTGPT)
    assert workload.arrival_s.tolist() == [0.0, 113.0]
    assert lengths(workload) == [(472, 18), (417, 276)]
    assert "1 requests without tokens (failed, or miscounted by the client) were left out." in workload.notes


def test_requests_without_tokens_may_be_left_out(tmp_path: Path) -> None:
    text = SERVECAST + "3,0,10\n4,10,0\n5,7,8\n"
    workload = read(tmp_path / "a.csv", text, skip_empty=True)
    assert lengths(workload)[2:] == [(300, 30), (7, 8)]
    assert workload.notes == ("2 requests without tokens (failed, or miscounted by the client) were left out.",)


def test_vidur_with_times(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", VIDUR)
    assert workload.arrival_s.tolist() == [0.0, 4.314579]
    assert lengths(workload) == [(374, 44), (396, 109)]


def test_sharegpt_csv_counts_nanoseconds_and_blocks_of_16(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", SHAREGPT)
    np.testing.assert_allclose(workload.arrival_s, [0.0, 0.301012143], atol=1e-9)
    assert workload.prefixes is not None
    assert workload.prefixes.of(0) == [(0, 16)]


def test_sharegpt_conversations_are_estimated_and_say_so(tmp_path: Path) -> None:
    talks = [
        {"id": "a", "conversations": [{"from": "human", "value": "x" * 400}, {"from": "gpt", "value": "y" * 40}]},
        {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
        {"id": "c", "conversations": []},
    ]
    arrivals = {"process": "constant", "rate_per_s": 2.0}
    (tmp_path / "a.json").write_text(json.dumps(talks))
    for extra, tokens in (({}, (100, 10)), ({"chars_per_token": 5}, (80, 8))):
        spec = {"trace": {"path": "a.json", "arrivals": arrivals, **extra}}
        workload = build_workload(WorkloadSpec.parse(spec), 0, tmp_path)
        assert lengths(workload) == [tokens]
        assert "estimated" in workload.notes[0]
        assert workload.notes[1] == "2 conversations without a question and an answer were left out."


def test_oracle_keeps_microseconds_chains_and_outputs(tmp_path: Path) -> None:
    requests = [
        {"arrival_us": 0, "prompt_len": 20, "output_len": 12, "priority": 3, "hash_ids": [0, 1]},
        {"after": 0, "think_us": 2500, "prompt_len": 40, "output_len": 4, "hash_ids": [0, 1]},
    ]
    document = {"name": "x", "config": {"block_size": 16}, "latency": {}, "requests": requests}
    for indent in (None, 1):
        workload = read(tmp_path / "a.input.json", json.dumps(document, indent=indent))
        assert workload.arrival_s[0] == 0
        assert np.isnan(workload.arrival_s[1])
        assert workload.after is not None
        assert workload.think_s is not None
        assert workload.priority is not None
        assert (workload.after.tolist(), workload.think_s.tolist()) == ([-1, 0], [0, 0.0025])
        assert workload.priority.tolist() == [3, 0]
        assert workload.prefixes is not None
        assert workload.prefixes.of(0) == [(0, 32)]


def report(start: float, tokens: int, **entry: Any) -> dict[str, Any]:
    info = {"input_tokens": 591, "output_tokens": tokens, "output_token_times": []}
    return {"start_time": start, "end_time": start + 2, "request": "{}", "info": info, "error": None, **entry}


def test_inference_perf_report_is_put_in_order_of_start(tmp_path: Path) -> None:
    body = json.dumps({"max_tokens": 247, "ignore_eos": True})
    usage = {"output_tokens": 3, "server_usage": {"completion_tokens": 99, "prompt_tokens": 600}}
    rows = [
        report(12.5, 140),
        report(10.0, 48, request=body),
        report(11.0, 5, info={"input_tokens": 591, "response_metrics": usage}),
        report(10.5, 7, error={"error_type": "x", "error_msg": "y"}),
    ]
    workload = read(tmp_path / "a.json", json.dumps(rows))
    assert workload.arrival_s.tolist() == [0.0, 1.0, 2.5]
    assert lengths(workload) == [(591, 247), (600, 99), (591, 140)]
    assert workload.notes == (
        "1 failed requests were left out.",
        "Output lengths of 1 requests are the client's count, which may be low.",
    )


def test_inference_perf_shared_prefix_lines(tmp_path: Path) -> None:
    def row(time: float, shared: int, prefix: int | None) -> str:
        record: dict[str, Any] = {"timestamp": time, "shared_prefix_length": shared, "tail_input_length": 50}
        record |= {"output_length": 150} | ({} if prefix is None else {"shared_prefix_id": prefix})
        return json.dumps(record)

    rows = [row(3.0, 200, 1), row(3.5, 200, 1), row(4.0, 400, 2), row(4.5, 0, None)]
    workload = read(tmp_path / "a.jsonl", "\n".join(rows))
    assert lengths(workload) == [(250, 150), (250, 150), (450, 150), (50, 150)]
    assert workload.prefixes is not None
    assert [workload.prefixes.of(request) for request in range(4)] == [[(0, 200)], [(0, 200)], [(1, 400)], []]
    assert workload.arrival_s.tolist() == [0.0, 0.5, 1.0, 1.5]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SERVECAST, "servecast"),
        (AZURE, "azure"),
        (MOONCAKE, "mooncake"),
        (BURSTGPT, "burstgpt"),
        (VIDUR, "vidur"),
        (SHAREGPT, "sharegpt"),
    ],
)
def test_a_named_format_reads_as_the_detected_one_plain_and_gzip(tmp_path: Path, text: str, name: TraceFormat) -> None:
    plain = read(tmp_path / "a", text)
    assert name in TRACE_FORMATS
    for other in (read(tmp_path / "a", format=name), read(tmp_path / "a.gz", gzip.compress(text.encode()))):
        np.testing.assert_array_equal(plain.arrival_s, other.arrival_s)
        assert lengths(plain) == lengths(other)


def test_a_byte_order_mark_quotes_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    text = '\ufeff"arrival_s", "prompt_tokens",output_tokens,note\r\n\r\n0,"100",10,"a, b"\r\n\r\n'
    assert lengths(read(tmp_path / "a.csv", text)) == [(100, 10)]


def test_whole_numbers_may_be_written_with_a_point(tmp_path: Path) -> None:
    assert lengths(read(tmp_path / "a.csv", "arrival_s,prompt_tokens,output_tokens\n1e0,100.0,1e1\n")) == [(100, 10)]


def test_rate_scale_divides_the_gaps(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", SERVECAST, rate_scale=2.0)
    assert workload.arrival_s.tolist() == [0.25, 0.375, 1.0]
    assert workload.notes == ("Gaps between the trace's arrivals are divided by 2.",)


def test_max_requests_reads_no_further(tmp_path: Path) -> None:
    workload = read(tmp_path / "a.csv", SERVECAST + "this line is never read", max_requests=2)
    assert lengths(workload) == [(100, 10), (200, 20)]
    assert workload.notes == ("Only the first 2 requests of the trace.",)


def test_new_arrivals_keep_lengths_and_sharing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(MOONCAKE)
    stages = {"process": "stages", "stages": [{"rate_per_s": 1.0, "duration_s": 1.0}], "gaps": "constant"}
    for arrivals, times in (
        ({"process": "constant", "rate_per_s": 4.0}, [0.0, 0.25]),
        ({"process": "closed_loop", "concurrency": 2}, [0.0, 0.0]),
        (stages, [0.0]),
    ):
        spec = WorkloadSpec.parse({"trace": {"path": "a.jsonl", "arrivals": arrivals}})
        workload = build_workload(spec, 0, tmp_path)
        assert workload.arrival_s.tolist() == times
        assert lengths(workload) == [(1030, 5), (1030, 6)][: len(times)]
        assert workload.prefixes is not None
        assert workload.prefixes.of(0) == [(0, 1024)]
    assert workload.notes == ("The stages end after 1 of the trace's 2 requests.",)


def test_a_relative_path_is_looked_up_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(SERVECAST)
    assert len(build_workload(WorkloadSpec.parse({"trace": "a.csv"}), 0, tmp_path)) == 3
