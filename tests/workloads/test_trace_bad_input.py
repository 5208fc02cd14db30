"""Every bad trace is one clear error that names the file, the line and the remedy; never a traceback."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from workloads import WorkloadSpec, build_workload
from workloads.spec import TraceSpec
from workloads.traces import read_trace

HEADER = "arrival_s,prompt_tokens,output_tokens"


def error_of(path: Path, content: str | bytes, **options: Any) -> InputError:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_trace(TraceSpec(path=str(path), **options))
    return caught.value


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("0,100,10\n1,abc,10\n", 3, "prompt_tokens is not a whole number: 'abc'"),
        ("0,100,10\n1,1.5,10\n", 3, "'1.5'"),
        ("0,100,10\nx,100,10\n", 3, "arrival is not a number: 'x'"),
        ("nan,100,10\n", 2, "arrival is not a number: 'nan'"),
        ("0,100,10\ninf,100,10\n", 3, "'inf'"),
        ("0,0,10\n", 2, "prompt tokens 0 must lie in"),
        ("0,100,10\n1,100,-4\n", 3, "output tokens -4 must lie in"),
        ("0,100,0\n", 2, "output tokens 0"),
        ("0,9999999999,1\n", 2, "prompt tokens 9999999999"),
        ("0,99999999999999999999999,1\n", 2, "is not a whole number"),
        ("-1,100,10\n", 2, "arrival -1.0"),
        ("0,100,10\n5,100,10\n\n4.5,100,10\n", 5, "sort the file by arrival"),
        ("0,100\n", 2, "has 2 fields where the header has 3"),
        ("0,100,10,7\n", 2, "has 4 fields"),
        ('0,"100,10\n', 2, "malformed CSV"),
        ("0,100,10\n,100,10\n", 3, "some have none"),
        ("0,100,\n", 2, "output_tokens is not a whole number: ''"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, rows: str, line: int, words: str) -> None:
    error = error_of(tmp_path / "a.csv", f"{HEADER}\n{rows}")
    assert error.field == f"{tmp_path / 'a.csv'}:{line}"
    assert words in str(error)


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        ("after", "1", "an earlier one"),
        ("after", "-3", "an earlier one"),
        ("after", "x", "after is not a whole number"),
        ("after,think_s", "0,-1", "an earlier one"),
        ("think_s", "-1", "think_s -1.0"),
        ("think_s", "nan", "think_s is not a number"),
        ("priority", "high", "priority is not a whole number"),
        ("hash_ids", "1 2", "no hash_block_size"),
        ("hash_ids,hash_block_size", "1 2,0", "must be at least 1"),
        ("hash_ids,hash_block_size", "1 2 3 4 5 6 7 8 9,16", "9 hash ids of 16 tokens for 110 tokens"),
        ("hash_ids,hash_block_size", "[1,16", "has"),
        ("hash_ids,hash_block_size", '"[1, x",16', "not a list"),
        ("hash_ids,hash_block_size", "5 5,16", "must be chained"),
    ],
)
def test_a_bad_optional_column_is_named(tmp_path: Path, columns: str, row: str, words: str) -> None:
    error = error_of(tmp_path / "a.csv", f"{HEADER},{columns}\n0,100,10,{row}\n")
    assert error.field.endswith(":2")
    assert words in str(error)


def test_the_size_of_hash_blocks_must_not_change(tmp_path: Path) -> None:
    text = f"{HEADER},hash_ids,hash_block_size\n0,100,10,1,16\n1,100,10,1,32\n"
    assert "hash_block_size changes to 32" in str(error_of(tmp_path / "a.csv", text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,c\n1,2,3\n", "no known trace format has the columns 'a, b, c'"),
        ("arrival_s,prompt_tokens\n0,3\n", "no known trace format"),
        ("0.5,100,10\n", "no known trace format"),
        (HEADER.replace(",", ";") + "\n0;1;2\n", "separated by semicolons"),
        (HEADER.replace(",", "\t") + "\n0\t1\t2\n", "separated by tabs"),
        ("{}\n", "begins like this"),
        ('{"a": 1}\n', "begins like this"),
        ("[]", "begins like this"),
        ("[1, 2]", "expected a JSON object"),
        ("[{", "cut off or not valid JSON"),
        ("", "the trace is empty"),
        (" \n\n", "the trace is empty"),
        (f"{HEADER}\n", "holds no request"),
        ("\x00\x01\x02", "no known trace format"),
        (b"\xff\xfe\x00a", "not UTF-8"),
        (b"PK\x03\x04zipped", "zip-compressed"),
        (b"BZh91AY", "bzip2-compressed"),
        (b"\xfd7zXZ\x00", "xz-compressed"),
        (b"\x28\xb5\x2f\xfd..", "zstandard-compressed"),
        (b"PAR1 but no parquet", "not a readable Parquet file"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str | bytes, words: str) -> None:
    assert words in str(error_of(tmp_path / "a", text))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("azure", f"{HEADER}\n0,1,2\n", "column ContextTokens is missing"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "arrival is not a time: 'yesterday'"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,0,2\n", "prompt tokens 0"),
        ("mooncake", '{"timestamp": 0, "input_length": 9}\n', "column output_length is missing"),
        ("mooncake", '{"timestamp": 0, "input_length": 9, "output_length": 1}\nnot json\n', ":2: not valid JSON"),
        (
            "mooncake",
            '{"timestamp": NaN, "input_length": 9, "output_length": 1}\n',
            "arrival is not a number: nan",
        ),
        ("mooncake", '{"timestamp": 0, "input_length": true, "output_length": 1}\n', "not a whole number: True"),
        ("mooncake", '{"timestamp": 0, "input_length": 9, "output_length": 1}\n[3]\n', ":2: expected a JSON object"),
        ("mooncake", '{"timestamp": 0, "input_length": 9, "output_length": 1}\n{"timestamp": 1}\n', "is missing"),
        (
            "mooncake",
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": 4}\n',
            "hash_ids is not a list: 4",
        ),
        ("oracle", "{}", "no list of requests"),
        ("oracle", '{"requests": [{}]}', "prompt_len is missing"),
        ("oracle", '{"requests": []}', "holds no request"),
        ("oracle", '{"requests": [{"prompt_len": 1, "output_len": 1}]}', "arrival_us is missing"),
        ("oracle", '{"requests": [{"prompt_len": 1, "output_len": 1, "arrival_step": 3}]}', "at a step"),
        ("oracle", '{"config": {"block_size": 0}, "requests": []}', "must be at least 1"),
        ("oracle", "[" * 100_000, "not valid JSON|deeply nested"),
        ("inference-perf", '[{"start_time": 1}]', "info is missing"),
        ("inference-perf", '[{"start_time": "x", "info": {}}]', "start_time is not a number"),
        ("inference-perf", '[{"start_time": 1, "info": {"input_tokens": 4}}]', "output_tokens is not a whole number"),
        ("inference-perf", '[{"start_time": 1, "info": {"response_metrics": 4}}]', "expected a JSON object"),
        ("inference-perf", '{"timestamp": 1}', "shared_prefix_length is missing"),
        ("sharegpt", '[{"conversations": 4}]', "holds no request"),
        ("servecast", "[" * 100_000, "not valid JSON|cut off"),
    ],
)
def test_a_bad_file_of_a_named_format_is_refused(tmp_path: Path, name: Any, text: str, words: str) -> None:
    import re

    assert re.search(words, str(error_of(tmp_path / "a", text, format=name)))


def test_lengths_alone_ask_for_arrivals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("num_prefill_tokens,num_decode_tokens\n5,6\n")
    with pytest.raises(InputError, match="no arrival times") as caught:
        build_workload(WorkloadSpec.parse({"trace": "a.csv"}), 0, tmp_path)
    assert "trace.arrivals" in caught.value.remedy


def test_new_arrivals_do_not_fit_a_closed_loop_trace(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{HEADER},after\n0,5,6,\n,5,6,0\n")
    spec = {"trace": {"path": "a.csv", "arrivals": {"process": "poisson", "rate_per_s": 1.0}}}
    with pytest.raises(InputError, match="follow other requests"):
        build_workload(WorkloadSpec.parse(spec), 0, tmp_path)


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "trace.csv.gz").write_text("x")
    with pytest.raises(InputError, match=r"no such file\n  remedy: did you mean 'trace\.csv\.gz'") as caught:
        read_trace(TraceSpec(path="trace.csv"), tmp_path)
    assert caught.value.field == str(tmp_path / "trace.csv")


@pytest.mark.parametrize("path", ["", "nowhere/at/all.csv", "x" * 5000, "a\0b"])
def test_odd_paths_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError):
        read_trace(TraceSpec(path=path or str(tmp_path)), tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(HEADER)
    (tmp_path / "a.csv").chmod(0)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(TraceSpec(path="a.csv"), tmp_path)


def rows(n: int = 5000) -> bytes:
    noise = random.Random(0)
    lines = [f"{k + noise.random():.6f},{noise.randint(1, 5000)},{noise.randint(1, 500)}" for k in range(n)]
    return "\n".join([HEADER, *lines]).encode()


def test_a_truncated_gzip_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = gzip.compress(rows())
    for length in (3, 12, 1000, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        assert "corrupt or truncated gzip" in str(error_of(tmp_path / "a.csv.gz", whole[:length]))


def test_a_corrupt_gzip_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(rows()))
    for position in (len(whole) - 6, len(whole) - 2):  # checksum and length: the text itself is sound
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        assert "corrupt or truncated gzip" in str(error_of(tmp_path / "a.csv.gz", bytes(damaged)))


def test_a_name_that_promises_gzip_must_be_gzip(tmp_path: Path) -> None:
    assert "is named .gz but is not gzip" in str(error_of(tmp_path / "a.csv.gz", rows()))


def test_a_bomb_is_refused_before_it_expands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces.source._ALWAYS_ALLOWED_BYTES", 2**20)
    bomb = gzip.compress(f"{HEADER}\n".encode() + b"\n" * 40 * 2**20)
    assert len(bomb) < 50_000
    assert "expands without bound" in str(error_of(tmp_path / "a.csv.gz", bomb))


def test_more_than_the_allowed_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces.source.MAX_EXPANDED_BYTES", 300_000)
    assert "expands without bound" in str(error_of(tmp_path / "a.csv.gz", gzip.compress(rows(20_000))))


def test_a_huge_line_is_refused_without_reading_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces.source.MAX_RECORD_CHARS", 10_000)
    error = error_of(tmp_path / "a.csv", f"{HEADER}\n0,1,2\n" + "9" * 50_000)
    assert error.field.endswith("a.csv:3")
    assert "longer than 10,000 characters" in str(error)
    array = json.dumps([{"start_time": 0, "end_time": 1, "info": {}, "request": "x" * 300_000}])
    assert "longer than 10,000 characters" in str(error_of(tmp_path / "a.json", array))


def test_more_requests_than_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.traces.table.MAX_REQUESTS", 10)
    error = error_of(tmp_path / "a.csv", rows(20))
    assert "more than 10 requests" in str(error)
    assert "max_requests" in error.remedy


SEEDS = {
    "csv": b"arrival_s,prompt_tokens,output_tokens,after,think_s,session_id,hash_ids,hash_block_size\n"
    b"0,40,10,,,a,0 1,16\n,60,10,0,1.5,a,0 1 3,16\n",
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n",
    "mooncake": b'{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}\n',
    "oracle": b'{"config": {"block_size": 16}, "requests": [{"arrival_us": 0, "prompt_len": 20, "output_len": 12}]}',
    "report": b'[{"start_time": 1, "end_time": 2, "info": {"input_tokens": 4, "output_tokens": 5}, "error": null}]',
    "talk": b'[{"conversations": [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]}]',
    "prefix": b'{"timestamp":0,"shared_prefix_length":9,"tail_input_length":5,"output_length":1,"shared_prefix_id":1}',
}


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(sorted(SEEDS)))
def test_whatever_is_in_the_file_the_answer_is_requests_or_one_error(
    tmp_path: Path, data: st.DataObject, kind: str
) -> None:
    content = bytearray(SEEDS[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        until = min(len(content), at + data.draw(st.integers(0, 6)))
        content[at:until] = data.draw(
            st.one_of(
                st.binary(max_size=6), st.sampled_from([b"null", b"-1", b"1e400", b"[", b"{}", b"NaN", b'"', b","])
            )
        )
    if data.draw(st.booleans()):
        packed = bytearray(gzip.compress(bytes(content)))
        packed[data.draw(st.integers(2, len(packed) - 1))] ^= data.draw(st.integers(0, 255))
        content = packed
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    workload = None
    with contextlib.suppress(InputError):
        workload = read_trace(TraceSpec(path=str(path)))
    assert workload is None or workload.prompt_tokens.min() >= 1


def test_zlib_is_what_gzip_holds() -> None:
    """The damage above reaches the compressed text, not only the header."""
    assert zlib.decompress(gzip.compress(rows()), wbits=31) == rows()


def test_a_column_given_twice_is_refused(tmp_path: Path) -> None:
    error = error_of(tmp_path / "t.csv", f"{HEADER},prompt_tokens\n0,1,2,3\n")
    assert "'prompt_tokens' is given twice" in error.problem


def test_times_too_late_to_tell_tokens_apart_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{HEADER}\n1700000000,1,2\n")
    build_workload(WorkloadSpec.parse({"trace": "t.csv"}), 0, tmp_path)  # seconds since 1970
    (tmp_path / "t.csv").write_text(f"{HEADER}\n1700000000000,1,2\n")
    with pytest.raises(InputError, match="seconds from the first request"):
        build_workload(WorkloadSpec.parse({"trace": "t.csv"}), 0, tmp_path)
