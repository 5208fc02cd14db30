"""The log of one run of a real engine: settings, requests as the client saw them, and every step.

A file is JSON, gzipped where its name ends in ``.gz``::

    meta      model (config.json), engine (settings under vLLM's names), versions and machine
    summary   optional, of the tool that made the run
    requests  id, arrival_s, prompt_len, output_len, ttft_s, e2e_s, engine_arrival_s
    steps     t_s (begin), dt_s (length), ids, ntok (tokens of each), ctx (tokens of each already in the cache)
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from sim.engine.config import EngineConfig
from sim.errors import InputError
from sim.schema import StrictModel

SUFFIXES = (".json.gz", ".json")


class RequestLog(StrictModel):
    """One request. Times are seconds from the start of the run; ``ttft_s`` and ``e2e_s`` count from the arrival."""

    id: int
    arrival_s: float
    prompt_len: int = Field(ge=1)
    output_len: int = Field(ge=1)
    ttft_s: float = Field(ge=0)
    e2e_s: float = Field(ge=0)
    engine_arrival_s: float


class StepLog(StrictModel):
    """One step of the engine; the three lists are aligned."""

    t_s: float
    dt_s: float = Field(gt=0)
    ids: tuple[int, ...] = Field(min_length=1)
    ntok: tuple[int, ...]
    ctx: tuple[int, ...]

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if not len(self.ids) == len(self.ntok) == len(self.ctx):
            raise InputError("ids", f"{len(self.ids)} ids, {len(self.ntok)} ntok and {len(self.ctx)} ctx")
        return self

    @property
    def end_s(self) -> float:
        """When its output was there."""
        return self.t_s + self.dt_s


class EngineSettings(StrictModel):
    """What the scheduler was given. Keys beyond these are kept in the file and ignored here."""

    model_config = ConfigDict(extra="ignore")

    block_size: int = Field(ge=1)
    max_num_seqs: int = Field(ge=1)
    max_num_batched_tokens: int = Field(ge=1)
    max_model_len: int = Field(ge=2)
    enable_prefix_caching: bool
    enable_chunked_prefill: bool = True
    async_scheduling: bool = False
    num_gpu_blocks: int | None = Field(None, ge=2)

    def config(self) -> EngineConfig:
        """For the simulator's scheduler; where blocks were not logged, as many as could ever be used."""
        enough = self.max_num_seqs * -(-self.max_model_len // self.block_size) + 1
        return EngineConfig(
            num_gpu_blocks=self.num_gpu_blocks or enough,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_model_len=self.max_model_len,
            enable_prefix_caching=self.enable_prefix_caching,
            enable_chunked_prefill=self.enable_chunked_prefill,
            async_scheduling=self.async_scheduling,
        )


class _Document(StrictModel):
    meta: dict[str, Any]
    summary: dict[str, Any] = Field(default_factory=dict)
    requests: tuple[RequestLog, ...] = Field(min_length=1)
    steps: tuple[StepLog, ...] = Field(min_length=1)


@dataclass(frozen=True)
class EngineRun:
    """One run.

    Attributes:
        name: of the load.
        meta, summary: as in the file.
        requests: by arrival, ties by id.
        steps: in order.
    """

    name: str
    meta: dict[str, Any]
    summary: dict[str, Any]
    settings: EngineSettings
    requests: tuple[RequestLog, ...]
    steps: tuple[StepLog, ...]

    @cached_property
    def prompt_len(self) -> dict[int, int]:
        """Prompt tokens by request id."""
        return {request.id: request.prompt_len for request in self.requests}

    @classmethod
    def from_dict(cls, name: str, document: dict[str, Any], where: str = "") -> Self:
        """Check ``document`` and wrap it. Raises `InputError` naming the first field that is wrong."""
        parsed = _Document.parse(document, where or name)
        settings = EngineSettings.parse(parsed.meta.get("engine", {}), f"{where or name}.meta.engine")
        requests = tuple(sorted(parsed.requests, key=lambda request: (request.arrival_s, request.id)))
        known = {request.id for request in requests}
        for number, step in enumerate(parsed.steps):
            if unknown := set(step.ids) - known:
                raise InputError(f"{where or name}.steps.{number}.ids", f"no request has the id {min(unknown)}")
        return cls(name, parsed.meta, parsed.summary, settings, requests, parsed.steps)


def read_run(path: Path) -> EngineRun:
    """Read one log. Raises `InputError` for a file that cannot be read or holds something else."""
    try:
        raw = path.read_bytes()
        document = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except (gzip.BadGzipFile, EOFError, ValueError) as error:
        raise InputError(
            str(path), f"is not gzipped or plain JSON ({error})", "see docs/calibration.md for the format"
        ) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or error})", "name an engine-run log") from None
    return EngineRun.from_dict(_stem(path), document, str(path))


def read_runs(folder: Path) -> dict[str, EngineRun]:
    """All logs of a folder by name, sorted. Raises `InputError` where there is none."""
    files = sorted(file for file in folder.glob("*") if file.name.endswith(SUFFIXES))
    if not files:
        raise InputError(str(folder), "holds no engine-run logs", "name a folder with *.json.gz files")
    return {_stem(file): read_run(file) for file in files}


def write_run(path: Path, document: dict[str, Any]) -> None:
    """Write one log, gzipped, under a temporary name until it is whole."""
    text = json.dumps(document, separators=(",", ":"))
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    os.replace(partial, path)


def _stem(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.stem
