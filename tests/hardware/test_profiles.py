from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hardware_profiles import engine_names, hardware_names, load_engine_overheads, load_hardware
from hardware_profiles.kernels import MemoryBoundFit, RooflineFit
from sim.cost.laws import GEMM_FAMILIES
from sim.errors import InputError

FITTED = ("a100-sxm-80gb", "b200", "b300", "gb200", "gb300", "h100-sxm", "h200-sxm", "l40s", "rtx-pro-6000")
NOT_MEASURED = ("a10g", "a40", "gaudi3", "h100-pcie", "h20", "h800", "l4", "mi300x", "mi325x", "mi355x", "rtx-4090")


@pytest.mark.parametrize("name", hardware_names())
def test_every_profile_loads_and_reports_less_memory_than_its_nameplate(name: str) -> None:
    profile = load_hardware(name)
    assert profile.name == name
    assert 0.9 * profile.memory.capacity_bytes.value < profile.memory_visible_bytes
    assert profile.memory_visible_bytes <= profile.memory.capacity_bytes.value


def test_an_alias_names_one_profile_and_no_profile_is_an_alias() -> None:
    aliases = [alias for name in hardware_names() for alias in load_hardware(name).aliases]
    assert len(aliases) == len(set(aliases))
    assert not set(aliases) & set(hardware_names())
    assert load_hardware("H100_SXM").name == load_hardware("h100").name == "h100-sxm"


def test_the_driver_shows_79_gib_of_an_h100() -> None:
    assert load_hardware("h100-sxm").memory_visible_bytes == pytest.approx(79.11 * 2**30, rel=1e-4)


@pytest.mark.parametrize("name", FITTED)
def test_fitted_profiles_say_how_well_they_meet_unseen_shapes(name: str) -> None:
    profile = load_hardware(name)
    assert profile.calibrated
    for section in (profile.kernels.gemm, profile.kernels.decode_attention, profile.kernels.prefill_attention):
        for fit in section.values():
            assert fit.residual is not None
            assert fit.residual.held_out
            assert "aiconfigurator-core 0.12.0" in fit.source


@pytest.mark.parametrize("name", FITTED)
def test_no_fitted_figure_beats_the_datasheet(name: str) -> None:
    profile = load_hardware(name)
    for family, fit in profile.kernels.gemm.items():
        assert fit.peak_flops <= profile.peak_flops(GEMM_FAMILIES[family].dtype) * 1.0001
    for group in profile.kernels:
        fits = group[1].values() if isinstance(group[1], dict) else [group[1]]
        for fit in fits:
            if isinstance(fit, RooflineFit | MemoryBoundFit):
                assert fit.bandwidth_bytes_per_s <= profile.memory_bandwidth_bytes_per_s * 1.0001


@pytest.mark.parametrize("name", FITTED)
def test_kernel_targets_hold_on_unseen_shapes(name: str) -> None:
    kernels = load_hardware(name).kernels
    limits = {"bf16": (0.06, 0.18), "fp8": (0.12, 0.35), "fp8_block": (0.12, 0.35)}
    for family, (median, p90) in limits.items():
        if family in kernels.gemm:
            residual = kernels.gemm[family].residual
            assert residual is not None
            assert residual.median <= median
            assert residual.p90 <= p90
    for fit, median, p90 in (
        (kernels.decode_attention["bf16"], 0.05, 0.155),
        (kernels.prefill_attention["bf16"], 0.06, 0.25),
    ):
        assert fit.residual is not None
        assert fit.residual.median <= median
        assert fit.residual.p90 <= p90


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_what_was_not_measured_is_marked_so(name: str) -> None:
    profile = load_hardware(name)
    assert not profile.calibrated
    assert all(fit.provenance == "assumed" for fit in profile.kernels.gemm.values())


def test_a_sibling_s_kernels_scale_with_the_datasheets() -> None:
    own, sibling = load_hardware("l4"), load_hardware("l40s")
    ratio = own.memory_bandwidth_bytes_per_s / sibling.memory_bandwidth_bytes_per_s
    scaled = own.kernels.decode_attention["bf16"].bandwidth_bytes_per_s
    assert scaled == pytest.approx(sibling.kernels.decode_attention["bf16"].bandwidth_bytes_per_s * ratio)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'h100-sxm'"):
        load_hardware("h100-sxn")


def test_a_path_is_read_and_its_mistakes_are_named(tmp_path: Path) -> None:
    source = Path(__file__).resolve().parents[2] / "hardware_profiles" / "rtx-4090.yaml"
    document = yaml.safe_load(source.read_text("utf-8"))
    document["power"]["tdp_watt"] = document["power"].pop("tdp_w")
    wrong = tmp_path / "mine.yaml"
    wrong.write_text(yaml.safe_dump(document), "utf-8")
    with pytest.raises(InputError, match=r"power\.tdp_w"):
        load_hardware(wrong)
    document["power"]["tdp_w"] = {"value": float("nan"), "provenance": "measured", "source": "a meter"}
    del document["power"]["tdp_watt"]
    wrong.write_text(yaml.safe_dump(document), "utf-8")
    with pytest.raises(InputError, match="finite"):
        load_hardware(wrong)


@pytest.mark.parametrize("text", ["a: [", "just words"])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    wrong = tmp_path / "mine.yaml"
    wrong.write_text(text, "utf-8")
    with pytest.raises(InputError):
        load_hardware(wrong)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml"):
        load_hardware("nowhere.yaml")


def test_a_dtype_without_units_runs_as_the_next_wider() -> None:
    a100 = load_hardware("a100-sxm-80gb")
    assert a100.peak_flops("fp8") == a100.peak_flops("bf16")
    with pytest.raises(InputError, match="fp64"):
        a100.peak_flops("fp64")


@pytest.mark.parametrize("engine", engine_names())
def test_every_engine_has_host_constants(engine: str) -> None:
    overheads = load_engine_overheads(engine)
    assert overheads.engine == engine
    assert overheads.step_host_s.value >= 0.0


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(InputError, match="vllm"):
        load_engine_overheads("vlm")
