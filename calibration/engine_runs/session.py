"""From the command's words to a run of the engine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from calibration.engine_runs.calibrate import EngineCalibration, calibrate_engine, check_folder
from calibration.engine_runs.vllm_engine import MODEL, SETTINGS, require_vllm
from hardware_profiles import HardwareProfile, load_hardware
from sim.errors import InputError
from sim.models.loader import catalog_entry, load_model

_NEEDED: Final = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size")


def run_session(
    model: str | None, arguments: Iterable[str], out: Path | None, requests: int, say: Callable[[str], Any]
) -> EngineCalibration:
    """Run the ladder and compare.

    Args:
        model: catalogue name or path of a ``config.json``; None = a Llama small enough for a CPU.
        arguments: ``key=value`` of vLLM's ``AsyncEngineArgs``, values as YAML.
        out: where logs are kept; None = nowhere.
        requests: of each mix.

    Raises:
        InputError: vLLM is missing, a model or an argument that cannot be read.
    """
    require_vllm()
    settings = engine_settings(arguments)
    config = MODEL if model is None else _config_of(model)
    if out is not None:
        check_folder(out)
        return calibrate_engine(config, settings, out, requests, say)
    with tempfile.TemporaryDirectory(prefix="servecast-engine-runs-") as folder:
        return calibrate_engine(config, settings, Path(folder), requests, say)


def own_profile(hardware: str | None, profile: Path | None) -> HardwareProfile | None:
    """The profile to add host terms to; None where none is to be written. Raises `InputError` before anything runs."""
    if (hardware is None) != (profile is None):
        raise InputError("--profile", "needs --hardware, and the other way round", "give both or neither")
    if hardware is None or profile is None:
        return None
    if not profile.parent.is_dir():
        raise InputError("--profile", f"no folder {str(profile.parent)!r}", "make it first")
    return load_hardware(hardware)


def engine_settings(arguments: Iterable[str]) -> dict[str, Any]:
    """The default settings with ``key=value`` over them. Raises `InputError` for what is neither."""
    settings = dict(SETTINGS)
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or not key.isidentifier():
            raise InputError("--engine-arg", f"expected KEY=VALUE, got {argument!r}", "e.g. max_num_seqs=64")
        try:
            settings[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"--engine-arg {key}", f"is not a value: {text!r}", "write it as in YAML") from None
    for key in _NEEDED:
        if not isinstance(settings[key], int) or settings[key] < 1:
            raise InputError(f"--engine-arg {key}", f"must be a whole number of at least 1, got {settings[key]!r}")
    return settings


def _config_of(model: str) -> dict[str, Any]:
    """The ``config.json`` of a path or a catalogue name."""
    path = Path(model).expanduser()
    if not path.exists():
        return dict(catalog_entry(model)["config"])
    load_model(model)  # refuses what is no configuration
    found: dict[str, Any] = json.loads((path / "config.json" if path.is_dir() else path).read_text("utf-8"))
    return found
