"""Schedulers of vLLM V1 that write every step and every arrival to a file. Only vLLM's engine process imports this.

The file's name is in the environment variable `LOG_VARIABLE`; a line is ``{"arrival": id, "t": seconds}`` or
``{"t": begin, "end": ..., "ids": [...], "ntok": [...], "ctx": [...]}``, on the clock that ``time.monotonic`` reads,
which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Final

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

LOG_VARIABLE: Final = "SERVECAST_STEP_LOG"


class _Logging:
    """Mixed into a scheduler, in front of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Line by line: the client reads along. The file lives as long as the engine.
        self._file = open(os.environ[LOG_VARIABLE], "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._open: dict[int, dict[str, Any]] = {}
        self._last_end = 0.0

    def add_request(self, request: Any) -> None:
        """Note the arrival in the engine's queue."""
        self._write({"arrival": _number(request.request_id), "t": time.monotonic()})
        super().add_request(request)  # type: ignore[misc]

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Note what was scheduled, and when."""
        begin = time.monotonic()
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        if output.total_num_scheduled_tokens:
            cached = output.scheduled_cached_reqs
            computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
            tokens = output.num_scheduled_tokens
            self._open[id(output)] = {
                "t": begin,
                "ids": [_number(name) for name in tokens],
                "ntok": list(tokens.values()),
                "ctx": [computed[name] for name in tokens],
            }
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """Note when the step's output was taken in."""
        found = super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]
        step = self._open.pop(id(scheduler_output), None)
        if step is not None:
            step["t"] = max(step["t"], self._last_end)  # a step that was scheduled while another ran begins after it
            step["end"] = self._last_end = time.monotonic()
            self._write(step)
        return found

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")


def _number(name: str) -> int:
    """The number that the client gave, before whatever the engine appended."""
    return int(name.split("-")[0])


class LoggingScheduler(_Logging, Scheduler):  # type: ignore[misc]
    """Without asynchronous scheduling."""


class LoggingAsyncScheduler(_Logging, AsyncScheduler):  # type: ignore[misc]
    """With asynchronous scheduling."""
