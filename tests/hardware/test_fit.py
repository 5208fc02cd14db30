from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.check import check_profile, draw_roofline
from calibration.fit import fit_kernels
from calibration.fit_points import checked, held_out, read_points
from calibration.fit_predict import predicted_s
from calibration.fit_solver import fit_grid, simplex
from calibration.fit_writer import write_profile
from hardware_profiles import HardwareProfile, load_hardware
from hardware_profiles.kernels import Kernels
from sim.cost import kernels, laws
from sim.errors import InputError

PEAK, BANDWIDTH, FIXED = 600e12, 2.5e12, 4e-6


def bare(name: str = "h100-sxm") -> HardwareProfile:
    return load_hardware(name).model_copy(update={"kernels": Kernels()})


def products(noise: float = 0.0) -> pd.DataFrame:
    """Products that follow a roofline, slower the wider they are, which only a grid can follow."""
    rows = [
        (m, n, k)
        for m in (1, 4, 16, 64, 256, 1024, 4096, 16384)
        for n in (1024, 2048, 4096, 8192, 16384)
        for k in (1024, 2048, 4096, 8192, 16384)
    ]
    frame = pd.DataFrame(rows, columns=["m", "n", "k"]).astype(float)
    flops, moved = laws.gemm_work(frame.m, frame.n, frame.k, 16.0, 2.0)
    seconds = ((flops / PEAK) ** 3 + (moved / BANDWIDTH) ** 3) ** (1 / 3) + FIXED
    spread = np.random.default_rng(0).uniform(1 - noise, 1 + noise, len(frame))
    seconds = seconds * np.interp(np.log2(frame.n), [10, 14], [0.9, 1.1]) * spread
    return frame.assign(family="gemm", dtype="bf16", seconds=seconds, source="a synthetic table")


def exchanges() -> pd.DataFrame:
    size = 2.0 ** np.arange(8, 30)
    seconds = np.where(size < 2**19, 5e-6 + size / 50e9, 12e-6 + size / 200e9)
    return pd.DataFrame(
        {"family": "all_reduce", "dtype": "any", "bytes": size, "ranks": 4, "seconds": seconds, "source": "synthetic"}
    )


def test_a_fit_finds_the_law_and_meets_unseen_shapes() -> None:
    section = fit_kernels(products(noise=0.02), bare()).gemm["bf16"]
    assert section.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH, rel=0.12)
    assert section.peak_flops == pytest.approx(PEAK, rel=0.15)
    assert section.residual is not None
    assert section.residual.held_out
    assert section.residual.median < 0.03


def test_a_fit_leaves_other_sections_as_they_are() -> None:
    base = load_hardware("h100-sxm")
    fitted = fit_kernels(products(), base)
    assert fitted.decode_attention == base.kernels.decode_attention
    assert fitted.gemm["fp8"] == base.kernels.gemm["fp8"]


def test_a_collective_gets_a_segment_on_each_side_of_its_switch() -> None:
    (fit,) = fit_kernels(exchanges(), bare()).collectives["all_reduce"]
    assert len(fit.segments) == 2
    seconds = kernels.collective(fit, 1.0)
    assert seconds(1024) == pytest.approx(5e-6, rel=0.02)
    assert seconds(2.0**28) == pytest.approx(12e-6 + 2.0**28 / 200e9, rel=0.02)


def test_the_simulator_and_the_fit_use_the_same_formula() -> None:
    hardware = bare().model_copy(update={"kernels": fit_kernels(products(), bare())})
    rows = products()
    predicted = predicted_s(rows, hardware.kernels)
    assert predicted is not None
    fit, family = hardware.kernels.gemm["bf16"], laws.GEMM_FAMILIES["bf16"]
    for index in (0, 57, 113, 199):
        row = rows.iloc[index]
        seconds = kernels.gemm(fit, hardware, family, int(row.n), int(row.k), 16.0)(row.m)
        flops, moved = laws.gemm_work(row.m, row.n, row.k, 16.0, 2.0)
        floor = max(flops / 989.4e12, row.n * row.k * 2 / 3.35e12)
        slow = 1 / hardware.sustained_fraction
        assert max(predicted[index], floor) <= seconds * 1.0001
        assert seconds <= max(predicted[index] * slow, floor) * 1.0001
        assert moved > 0


def test_shapes_are_held_out_whole() -> None:
    rows = products()
    held = held_out(rows, "gemm")
    by_shape = held.groupby([rows.n, rows.k]).nunique()
    assert set(by_shape) == {1}
    assert 0.15 < held.mean() < 0.35


def test_too_few_points_are_refused() -> None:
    with pytest.raises(InputError, match="a fit needs 12"):
        fit_kernels(products().head(8), bare())
    with pytest.raises(InputError, match="a fit needs 6"):
        fit_kernels(exchanges().head(5), bare())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"family": "gem"}, "did you mean 'gemm'"),
        ({"seconds": 0.0}, "positive numbers"),
        ({"k": float("nan")}, "positive numbers"),
    ],
)
def test_a_crooked_table_is_refused(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        checked(products().assign(**change), "table")


def test_missing_columns_are_named(tmp_path: Path) -> None:
    path = tmp_path / "points.parquet"
    products().drop(columns=["k", "source"]).to_parquet(path)
    with pytest.raises(InputError, match="source"):
        read_points(path)
    with pytest.raises(InputError, match=r"nowhere\.parquet"):
        read_points(tmp_path / "nowhere.parquet")


def test_rows_out_of_a_cache_do_not_count() -> None:
    rows = products()
    warm = rows.assign(seconds=rows.n * rows.k * 2 / 9e12)
    with pytest.raises(InputError, match="0 usable rows"):
        fit_kernels(warm, bare())


def test_a_written_profile_reads_back(tmp_path: Path) -> None:
    profile = bare().model_copy(update={"kernels": fit_kernels(products(), bare())})
    path = tmp_path / "mine.yaml"
    write_profile(profile, path, "a header\nof two lines")
    again = load_hardware(path)
    assert path.read_text("utf-8").startswith("# a header\n# of two lines\nname: h100-sxm\n")
    assert again.kernels.gemm["bf16"].grids == profile.kernels.gemm["bf16"].grids
    assert again.memory == profile.memory


def test_residuals_are_by_family_and_the_roofline_is_drawn(tmp_path: Path) -> None:
    table = pd.concat([products(noise=0.1), exchanges()], ignore_index=True)
    profile = bare().model_copy(update={"kernels": fit_kernels(table, bare())})
    lines = {line.family: line for line in check_profile(table, profile)}
    assert set(lines) == {"gemm", "all_reduce"}
    assert 0.0 < lines["gemm"].median < lines["gemm"].p90 < lines["gemm"].worst
    assert lines["gemm"].unseen
    draw_roofline(table, profile, tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").stat().st_size > 1000
    with pytest.raises(InputError, match="no family"):
        check_profile(exchanges(), bare())


def test_the_simplex_finds_the_bottom_of_a_bowl() -> None:
    best = simplex(lambda x: float(((x - np.array([3.0, -2.0])) ** 2).sum()), [0.0, 0.0])
    assert best == pytest.approx([3.0, -2.0], abs=1e-3)


def test_a_grid_follows_what_it_can_represent() -> None:
    position = np.linspace(0.0, 2.0, 50)
    nodes = np.array([0.0, 1.0, 2.0])
    target = np.interp(position, nodes, [1.0, -1.0, 4.0])
    assert fit_grid([position], [nodes], target, np.ones(50), 1e-9) == pytest.approx([1.0, -1.0, 4.0], abs=0.02)
