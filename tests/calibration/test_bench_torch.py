"""Microbenchmarks for real, where torch is installed: small ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'servecast[calibrate]'")

from calibration.bench import operators  # noqa: E402
from calibration.bench.case import Case  # noqa: E402
from calibration.bench.collectives import FAMILIES, time_collectives  # noqa: E402
from calibration.bench.device import Device, open_device  # noqa: E402
from calibration.bench.run import Plan, plan_cases, run_benchmarks  # noqa: E402
from calibration.bench.table import read_metadata  # noqa: E402
from calibration.fit_points import read_points  # noqa: E402
from sim.errors import InputError  # noqa: E402
from sim.models.loader import load_model  # noqa: E402


@pytest.fixture(scope="module")
def cpu() -> Device:
    return open_device("cpu", 1, cpu_time=True)


def test_a_short_run_writes_a_table_that_the_fit_accepts(cpu: Device, tmp_path: Path) -> None:
    out = tmp_path / "cpu.parquet"
    outcome = run_benchmarks(cpu, Plan(budget_s=2.5, families=("gemm", "elementwise")), out)
    rows = read_points(out)
    assert len(rows) == len(outcome.rows) > 5
    assert set(rows.family) == {"gemm", "elementwise"}
    metadata = read_metadata(out)
    assert metadata["facts"]["torch"] == torch.__version__
    assert metadata["facts"]["clock"] == "CPU time of one thread"
    assert metadata["ended"] == "budget spent"
    assert any(sentence.startswith("budget of 2.5 s spent") for sentence in metadata["warnings"])


def test_an_interrupt_keeps_what_was_measured(cpu: Device, tmp_path: Path) -> None:
    out, seen = tmp_path / "cut.parquet", []

    def stop_after_three(share: float, family: str) -> None:
        seen.append(share)
        if len(seen) == 3:
            raise KeyboardInterrupt

    outcome = run_benchmarks(cpu, Plan(budget_s=30, families=("elementwise",)), out, stop_after_three)
    assert outcome.interrupted
    assert len(read_points(out)) == 3
    assert read_metadata(out)["ended"] == "interrupted"


def test_larger_products_take_longer(cpu: Device) -> None:
    from calibration.bench.gemm import gemm_case
    from calibration.bench.timing import measure

    small, large = (measure(gemm_case("bf16", m, 512, 512).make(cpu, 1), cpu.clock).seconds for m in (1, 512))
    assert large > 3 * small


def test_collectives_of_two_processes(cpu: Device) -> None:
    timings = time_collectives(cpu, 2)
    assert {timing.family for timing in timings} == set(FAMILIES)
    assert all(timing.seconds > 0 and timing.ranks == 2 for timing in timings)


def test_calls_for_a_gpu_run_on_any_device(cpu: Device) -> None:
    """A stand-in: the smallest case of each family and dtype, built as for a GPU, computed here."""
    stand_in = replace(cpu, kind="cuda")
    smallest: dict[tuple[str, str], Case] = {}
    for case in plan_cases(stand_in, Plan(load_model("DeepSeek-V2-Lite"))):
        key = case.family, case.dtype
        if key not in smallest or case.flops + case.cold_bytes < smallest[key].flops + smallest[key].cold_bytes:
            smallest[key] = case
    assert {"gemm", "decode_attention", "prefill_attention", "mla_decode", "mla_prefill", "experts"} <= {
        family for family, _ in smallest
    }
    for (family, dtype), case in smallest.items():
        if dtype != "fp8" and not family.startswith(("host", "device")):
            case.make(stand_in, 1)()


def test_cpu_time_of_several_threads_is_refused() -> None:
    with pytest.raises(InputError, match="CPU time counts all threads"):
        open_device("cpu", 2, cpu_time=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_no_cuda_device_is_told() -> None:
    with pytest.raises(InputError, match="torch sees no CUDA device"):
        open_device("cuda")


def test_grouped_decode_attention_equals_the_plain_formula() -> None:
    query, keys, values = torch.randn(8, 32), torch.randn(2, 50, 32), torch.randn(2, 50, 32)
    found = operators.decode_attention(torch, query, keys, values)
    for head in range(8):
        weights = torch.softmax(query[head] @ keys[head // 4].t() / 32**0.5, dim=-1)
        torch.testing.assert_close(found[head], weights @ values[head // 4], rtol=1e-4, atol=1e-5)


def test_a_chunk_of_prefill_attends_what_was_before_it() -> None:
    query, keys, values = torch.randn(4, 20, 16), torch.randn(2, 20, 16), torch.randn(2, 20, 16)
    whole = operators.prefill_attention(torch, query, keys, values)
    late = operators.prefill_attention(torch, query[:, 12:], keys, values)
    torch.testing.assert_close(late, whole[:, 12:], rtol=1e-4, atol=1e-5)
