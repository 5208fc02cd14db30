from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from calibration import importer
from calibration.importer import import_points, system_names
from calibration.importer_tables import SYSTEMS, System, Table
from sim.errors import InputError

GEMM = {"gemm_dtype": "bfloat16", "m": 8, "n": 4096, "k": 4096, "latency": 0.015, "framework": "VLLM"}
DECODE = {
    "batch_size": 4,
    "isl": 1,
    "num_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attn_dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "step": 1023,
    "window_size": 0,
    "beam_width": 1,
    "latency": 0.02,
}
REDUCE = {"allreduce_dtype": "bfloat16", "num_gpus": 4, "message_size": 4096, "latency": 0.005, "backend": "x_graph"}


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package of one device with one table of each of three kinds."""
    tables = (
        Table("gemm", "gemm.parquet", {"bfloat16": "bf16"}),
        Table("decode", "decode.parquet", {"bfloat16": "bf16"}),
        Table("all_reduce", "reduce.parquet"),
    )
    monkeypatch.setitem(SYSTEMS, "toy", System("toy", tables))
    folder = tmp_path / "aiconfigurator_core" / "systems" / "data" / "toy"
    folder.mkdir(parents=True)
    (tmp_path / f"aiconfigurator_core-{importer.VERSION}.dist-info").mkdir()
    pd.DataFrame([GEMM, {**GEMM, "gemm_dtype": "fp8"}]).to_parquet(folder / "gemm.parquet")
    pd.DataFrame([DECODE, {**DECODE, "window_size": 128}]).to_parquet(folder / "decode.parquet")
    pd.DataFrame([REDUCE, {**REDUCE, "backend": "x_eager"}]).to_parquet(folder / "reduce.parquet")
    return tmp_path


def test_tables_become_points_in_seconds_and_bytes(unpacked: Path) -> None:
    points = import_points("toy", unpacked).set_index("family")
    assert list(points.index) == ["gemm", "decode_attention", "all_reduce"]
    assert points.loc["gemm", "seconds"] == pytest.approx(15e-6)
    assert points.loc["decode_attention", "context"] == 1024  # the cache and the new token
    assert points.loc["all_reduce", "bytes"] == 8192  # message sizes count 16-bit elements
    assert points.source.str.contains("Apache-2.0").all()


def test_another_version_is_refused(unpacked: Path) -> None:
    (unpacked / f"aiconfigurator_core-{importer.VERSION}.dist-info").rename(
        unpacked / "aiconfigurator_core-0.13.0.dist-info"
    )
    with pytest.raises(InputError, match=r"'0\.13\.0' is not understood"):
        import_points("toy", unpacked)


def test_unknown_and_missing_columns_are_named(unpacked: Path) -> None:
    path = unpacked / "aiconfigurator_core" / "systems" / "data" / "toy" / "gemm.parquet"
    pd.DataFrame([{**GEMM, "colour": "blue"}]).drop(columns=["k"]).to_parquet(path)
    with pytest.raises(InputError, match="unknown columns colour; missing columns k"):
        import_points("toy", unpacked)


def test_a_missing_table_is_named(unpacked: Path) -> None:
    (unpacked / "aiconfigurator_core" / "systems" / "data" / "toy" / "decode.parquet").unlink()
    with pytest.raises(InputError, match=r"decode\.parquet: table is missing"):
        import_points("toy", unpacked)


def test_a_device_without_tables_is_named() -> None:
    with pytest.raises(InputError, match="no published tables for 'h100'"):
        import_points("h100")
    assert "h100-sxm" in system_names()


def test_without_the_package_the_remedy_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "_PACKAGE", "no-such-distribution")
    with pytest.raises(InputError, match="is not installed"):
        import_points("h100-sxm")
