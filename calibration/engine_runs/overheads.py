"""Host terms of an engine beside a profile's kernels: what a profile of one's own needs to speak for a deployment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from calibration.engine_runs.log import EngineRun
from calibration.engine_runs.timer import step_spans
from calibration.least_squares import nonnegative_least_squares
from hardware_profiles import HardwareProfile, load_engine_overheads
from hardware_profiles.overheads import EngineOverheads
from sim.cluster.fleet import ClientPath
from sim.cost import CostModel
from sim.cost.shape import StepTimer
from sim.errors import InputError
from sim.layout import Layout
from sim.models.huggingface import architecture_from_config
from sim.models.kv_format import resolve_kv_format
from sim.models.quantization import resolve_weight_format

_ENGINE = "vllm"


def profile_with_engine(hardware: HardwareProfile, runs: Iterable[EngineRun], path: ClientPath) -> HardwareProfile:
    """``hardware`` with the host terms of the engine that made ``runs``; a scenario can name the file it is written to.

    A step's time beyond the profile's kernels is host work. An engine that plans a step while another runs
    (``async_scheduling``) shows only what no overlap hides, so there it becomes the gap between steps.

    Args:
        hardware: with fitted kernels.
        runs: single prompts and batches.
        path: fitted to the same runs.

    Raises:
        InputError: runs of different engines, or without the model's configuration.
    """
    logs = list(runs)
    first = logs[0]
    if any(run.meta.get("model") != first.meta.get("model") or run.settings != first.settings for run in logs):
        raise InputError("engine runs", "are of different models or settings", "fit one engine at a time")
    kernels = _kernels(hardware, first)
    step_s, seq_s = fit_host_terms(kernels, logs)
    shipped = load_engine_overheads(_ENGINE)
    source = (
        f"{sum(len(run.steps) for run in logs)} steps of {_ENGINE} {first.meta.get('vllm', '')} beside {hardware.name}"
    )
    hidden = first.settings.async_scheduling
    fitted = {
        "step_gap_s" if hidden else "step_host_s": _fitted(step_s, source),
        "step_host_s" if hidden else "step_gap_s": _fitted(0.0, source),
        "seq_host_s": _fitted(0.0 if hidden else seq_s, source),
        "api_request_s": _fitted(path.to_queue_s, source),
        "stream_token_s": _fitted(path.first_token_s, source),
        "completion_s": _fitted(max(0.0, path.last_token_s - path.first_token_s), source),
    }
    eager = bool(first.meta.get("engine", {}).get("enforce_eager"))
    document = {**shipped.model_dump(), **fitted, "generation": f"{first.meta.get('vllm', 'unknown')}, measured"}
    if eager:
        document["max_cudagraph_tokens"] = 0
    overheads = EngineOverheads.parse(document, "engine")
    return hardware.model_copy(update={"engines": {**hardware.engines, _ENGINE: overheads}})


def _kernels(hardware: HardwareProfile, run: EngineRun) -> CostModel:
    config = run.meta.get("model")
    if not isinstance(config, dict):
        raise InputError(f"{run.name}.meta.model", "holds no configuration", "log the model's config.json")
    arch = architecture_from_config(config, str(config.get("_name_or_path") or "logged model"))
    settings = run.meta.get("engine", {})
    return CostModel(
        arch,
        resolve_weight_format(arch, settings.get("quantization")),
        resolve_kv_format(arch, settings.get("kv_cache_dtype", "auto")),
        hardware,
        Layout.parse({"tensor_parallel_size": settings.get("tensor_parallel_size", 1)}),
        no_overheads(),
        async_scheduling=False,
    )


def _fitted(value: float, source: str) -> dict[str, Any]:
    return {"value": float(f"{value:.4g}"), "provenance": "fitted", "source": source}


def no_overheads(padded_tokens: int = 0) -> EngineOverheads:
    """An engine whose host costs nothing: what is left of a step then is kernels alone."""
    return host_overheads(0.0, 0.0, "none", padded_tokens)


def host_overheads(step_s: float, seq_s: float, source: str, padded_tokens: int = 0) -> EngineOverheads:
    """Host terms of a loop in this very process, which has no API path.

    Args:
        step_s, seq_s: of a step, and of a sequence in it.
        source: for the provenance.
        padded_tokens: largest batch that is padded to few sizes, as captured graphs are.
    """
    fields = ("step_gap_s", "launch_s", "api_request_s", "completion_s", "stream_token_s")
    none = {"value": 0.0, "provenance": "measured", "source": "absent in a loop of one process"}
    return EngineOverheads.parse(
        {
            "engine": "closed-loop",
            "generation": "one process",
            "step_host_s": {"value": step_s, "provenance": "fitted", "source": source},
            "seq_host_s": {"value": seq_s, "provenance": "fitted", "source": source},
            **dict.fromkeys(fields, none),
            "max_cudagraph_tokens": padded_tokens,
        },
        "closed loop",
    )


def fit_host(kernels: StepTimer, runs: Iterable[EngineRun], padded_tokens: int = 0) -> EngineOverheads:
    """Host terms of a loop in this process, from short runs that are not to be predicted."""
    logs = list(runs)
    step_s, seq_s = fit_host_terms(kernels, logs)
    source = f"{sum(len(run.steps) for run in logs)} steps of single prompts and batches"
    return host_overheads(step_s, seq_s, source, padded_tokens)


def fit_host_terms(kernels: StepTimer, runs: Iterable[EngineRun]) -> tuple[float, float]:
    """(seconds a step, seconds a sequence) that steps take beyond their kernels, by least squares of relative errors.

    Args:
        kernels: step time without host terms.
        runs: single prompts and batches.
    """
    spans = [span for run in runs for span in step_spans(run)]
    seconds = np.array([span for _, span in spans])
    left = seconds - [kernels.step(shape) for shape, _ in spans]
    rows = np.array([[1.0, float(shape.decode_seqs + shape.prefill_seqs)] for shape, _ in spans])
    step_s, seq_s = nonnegative_least_squares(rows / seconds[:, None], left / seconds)
    return float(step_s), float(seq_s)
