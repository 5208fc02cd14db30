"""What a run plans to time, in which order, and the table that it writes; no torch is needed for any of it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from calibration.bench.attention import heads_of
from calibration.bench.case import coarse_to_fine
from calibration.bench.device import Device, open_device
from calibration.bench.gemm import model_shapes
from calibration.bench.run import Plan, plan_cases
from calibration.bench.table import check_target, read_metadata, write_table
from calibration.bench.timing import HostClock
from calibration.fit_points import FAMILIES
from sim.errors import InputError
from sim.models.loader import load_model
from sim.models.quantization import resolve_weight_format

GIB = 1 << 30


def device(kind: str = "cpu", cache: int = 32 << 20, memory: int = 8 * GIB) -> Device:
    return Device(None, kind, kind, "test", HostClock(), cache, memory, {"torch": "0"}, fp8=kind == "cuda")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_case_has_the_columns_of_its_family(kind: str) -> None:
    for case in plan_cases(device(kind, memory=64 * GIB), Plan()):
        assert tuple(sorted(case.columns)) == tuple(sorted(FAMILIES[case.family].columns))


def test_no_case_is_planned_twice() -> None:
    keys = [(case.family, case.dtype, *sorted(case.columns.items())) for case in plan_cases(device(), Plan())]
    assert len(keys) == len(set(keys))


def test_a_model_brings_its_exact_shapes_first() -> None:
    arch = load_model("Qwen3-8B")
    cases = [case for case in plan_cases(device(memory=64 * GIB), Plan(arch, 2)) if case.family == "gemm"]
    shapes = model_shapes(arch, resolve_weight_format(arch, "bf16"), 2)
    assert (2 * 12288 // 2, 4096) in shapes  # gate and up of one rank
    assert ((32 + 2 * 8) * 128 // 2, 4096) in shapes  # q, k and v of one rank
    first = {(case.columns["n"], case.columns["k"]) for case in cases[:40]}
    assert first <= set(shapes)


def test_an_mla_model_is_timed_as_mla() -> None:
    arch = load_model("DeepSeek-V2-Lite")
    assert [heads.latent for heads in heads_of(arch, 1)] == [True]
    families = {case.family for case in plan_cases(device(memory=64 * GIB), Plan(arch, grid=False))}
    assert {"mla_decode", "mla_prefill", "experts", "gemm", "elementwise"} == families


def test_wherever_a_budget_cuts_every_family_has_its_part() -> None:
    cases = plan_cases(device(), Plan())
    families = {case.family for case in cases}
    counts = pd.Series([case.family for case in cases[: 12 * len(families)]]).value_counts()
    assert counts.min() == counts.max() == 12


def test_coarse_to_fine_starts_with_the_ends_and_the_middle() -> None:
    assert coarse_to_fine(list(range(8)))[:3] == [0, 4, 2]  # type: ignore[arg-type, comparison-overlap]
    assert sorted(coarse_to_fine(list(range(11)))) == list(range(11))  # type: ignore[arg-type, type-var]


def test_inputs_rotate_through_more_than_the_cache() -> None:
    here = device(cache=32 << 20)
    for case in plan_cases(here, Plan()):
        copies = case.copies(here)
        assert copies == 512 or copies * case.cold_bytes > 2 * here.cache_bytes


def test_what_does_not_fit_in_memory_is_not_planned() -> None:
    small = device(memory=64 << 20)
    assert all(2 * case.cold_bytes <= small.memory_bytes for case in plan_cases(small, Plan()))


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match=r"'gem' is not measured here[\s\S]*did you mean 'gemm'"):
        plan_cases(device(), Plan(families=("gem",)))


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'cuda'"):
        open_device("cudo")


def test_a_table_keeps_its_metadata(tmp_path: Path) -> None:
    row = {"family": "gemm", "dtype": "bf16", "seconds": 1e-3, "source": "here", "m": 1, "n": 2, "k": 3}
    row |= {"fastest_s": 1e-3, "repeats": 7, "spread": 0.1, "stable": True}
    path = tmp_path / "points.parquet"
    write_table(path, [row], {"device": "cpu", "warnings": ["busy"]})
    assert read_metadata(path) == {"device": "cpu", "warnings": ["busy"]}
    assert pd.read_parquet(path).iloc[0]["n"] == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_table_of_someone_else_has_no_conditions(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(InputError, match="holds no measuring conditions"):
        read_metadata(path)
    path.write_text("no parquet")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_metadata(path)


@pytest.mark.parametrize(("name", "problem"), [("x.csv", "does not end in .parquet"), ("no/x.parquet", "no folder")])
def test_a_bad_target_is_refused_before_measuring(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        check_target(tmp_path / name)
