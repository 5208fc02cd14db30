"""The workload section of a scenario: a synthetic workload, a preset with changes, or a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.errors import InputError
from sim.schema import StrictModel
from workloads.arrival_spec import ArrivalsSpec, ClosedLoopArrivals, Pause, PauseCv, Rate, Seconds, StagesArrivals
from workloads.length_spec import LengthSpec, Tokens
from workloads.presets import load_preset

#: More requests than this are refused: columns of them would not fit an ordinary machine.
MAX_REQUESTS: Final = 20_000_000

TRACE_FORMATS: Final = (
    "servecast",
    "azure",
    "mooncake",
    "burstgpt",
    "sharegpt",
    "vidur",
    "oracle",
    "inference-perf",
)

TraceFormat = Literal[
    "auto", "servecast", "azure", "mooncake", "burstgpt", "sharegpt", "vidur", "oracle", "inference-perf"
]
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_REQUESTS)]


class PrefixSpec(StrictModel):
    """Shared prompt beginnings: ``groups`` texts of ``prefix_tokens`` each, taken from the prompts' own lengths.

    With ``prompts_per_group``, there are groups x prompts_per_group distinct prompts, sent over and over in one fixed
    order: their lengths and texts are fixed, so a second round is a full cache hit. ``order`` is that order: grouped
    (all of the first group, then the second, ...) or shuffled once. Without ``prompts_per_group``, every prompt goes
    its own way after the shared beginning, and groups take turns.
    """

    groups: Count
    prefix_tokens: Tokens
    prompts_per_group: Count | None = None
    order: Literal["grouped", "shuffled"] = "grouped"

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.groups * (self.prompts_per_group or 1) > MAX_REQUESTS:
            raise InputError("groups", f"{self.groups} groups x {self.prompts_per_group} prompts", "give fewer")
        return self


class SessionSpec(StrictModel):
    """Conversations: each arrival opens one of ``turns`` requests; a turn's prompt is all said before plus new text.

    ``prompt_tokens`` is then the new text of a turn, of the first one only where ``followup_tokens`` gives that of the
    later ones. A turn arrives ``think_s`` after the turn before has finished (``think_cv`` spreads the pauses:
    gamma-distributed, 0 = always ``think_s``, 1 = exponential).
    """

    turns: LengthSpec
    followup_tokens: LengthSpec | None = None
    think_s: Pause = 0.0
    think_cv: PauseCv = 0.0


class TraceSpec(StrictModel):
    """Requests recorded in a file, plain or gzip.

    Attributes:
        path: the file; a relative path is looked up beside the scenario.
        format: one of `TRACE_FORMATS`; auto looks at the content.
        rate_scale: divides the gaps between arrivals (2 = twice the rate).
        max_requests: only the first so many.
        skip_empty: leave out (and count) requests with 0 prompt or output tokens instead of refusing the trace.
        arrivals: replaces the arrival times; required where the trace has lengths only.
        hash_block_size: tokens of a hash block where the file does not say it.
        chars_per_token: how text becomes tokens where a trace holds conversations instead of counts.
    """

    path: Annotated[str, Field(min_length=1)]
    format: TraceFormat = "auto"
    rate_scale: Rate = 1.0
    max_requests: Count | None = None
    skip_empty: Annotated[bool, Field(strict=True)] = False
    arrivals: ArrivalsSpec | None = None
    hash_block_size: Tokens | None = None
    chars_per_token: Annotated[float, Field(strict=True, gt=0, le=100)] = 4.0

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.arrivals is not None and self.rate_scale != 1.0:
            raise InputError(
                "rate_scale", f"{self.rate_scale:g} given together with arrivals", "set the rate in arrivals alone"
            )
        return self


def _trace(value: Any) -> Any:
    """A bare text is the path."""
    return {"path": value} if isinstance(value, str) else value


_SYNTHETIC_KEYS: Final = (
    "num_requests",
    "duration_s",
    "arrivals",
    "prompt_tokens",
    "output_tokens",
    "prefixes",
    "sessions",
    "n",
    "sample_lengths",
    "beam_width",
    "beam_fork_rate",
    "warmup_requests",
)


class WorkloadSpec(StrictModel):
    """What is sent to the servers: either ``trace``, or arrivals and lengths (``preset`` brings all of them).

    Exactly one of ``num_requests`` and ``duration_s`` limits a synthetic workload; arrivals in stages may have neither
    (all stages are run), a closed loop takes ``num_requests``. ``n`` answers are sampled for each prompt, None: 1;
    their lengths are drawn one by one (None, too) or ``equal``. With ``beam_width`` each prompt is a beam search, in
    which a beam forks from another at a token with probability ``beam_fork_rate`` (None: `FORK_RATE`). A closed loop
    may begin with ``warmup_requests`` that come before the others, end before them, and are not measured.
    """

    preset: str | None = None
    num_requests: Count | None = None
    duration_s: Seconds | None = None
    arrivals: ArrivalsSpec | None = None
    prompt_tokens: LengthSpec | None = None
    output_tokens: LengthSpec | None = None
    prefixes: PrefixSpec | None = None
    sessions: SessionSpec | None = None
    n: Annotated[int, Field(strict=True, ge=1, le=1024)] | None = None
    sample_lengths: Literal["drawn", "equal"] | None = None
    beam_width: Annotated[int, Field(strict=True, ge=2, le=64)] | None = None
    beam_fork_rate: Annotated[float, Field(strict=True, ge=0, le=1)] | None = None
    warmup_requests: Count | None = None
    trace: Annotated[TraceSpec, BeforeValidator(_trace)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _over_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("preset") is None:
            return data
        if data.get("trace") is not None:
            raise InputError("preset", f"{data['preset']!r} given together with trace", "give one of preset and trace")
        return merged(load_preset(data["preset"]).workload, data)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.trace is not None:
            extra = [key for key in _SYNTHETIC_KEYS if getattr(self, key) is not None]
            if extra:
                remedy = "a trace brings its own requests: remove this key"
                if extra[0] == "arrivals":
                    remedy += ", or move it to trace.arrivals to replay the trace's lengths at these times"
                raise InputError(extra[0], "given together with trace", remedy)
            return self
        for key in ("arrivals", "prompt_tokens", "output_tokens"):
            if getattr(self, key) is None:
                raise InputError(key, "required, but missing", "or give trace: {path: ...}, or preset: NAME")
        self._check_limit()
        self._check_samples()
        self._check_closed_loop()
        return self

    def _check_closed_loop(self) -> None:
        closed = isinstance(self.arrivals, ClosedLoopArrivals)
        if self.warmup_requests is not None and not closed:
            problem = "given with arrivals that do not wait for answers: when a warm-up would be over is not said"
            raise InputError("warmup_requests", problem, "remove it, or give arrivals: {process: closed_loop}")
        if self.sessions is None:
            return
        remedy = "remove it or sessions"
        if self.warmup_requests is not None:
            raise InputError("warmup_requests", "given together with sessions, which is not simulated", remedy)
        if isinstance(self.arrivals, ClosedLoopArrivals) and self.arrivals.queue == "shared":
            raise InputError("arrivals.queue", "shared, but each user has sessions of its own", "set it to own")

    def _check_samples(self) -> None:
        for key, of in (("sample_lengths", "n"), ("beam_fork_rate", "beam_width")):
            if getattr(self, key) is not None and getattr(self, of) in (None, 1):
                raise InputError(key, f"given without {of} of 2 or more", f"give {of}, or remove {key}")
        several = "n" if self.n not in (None, 1) else "beam_width" if self.beam_width else None
        if several is None:
            return
        if several == "n" and self.beam_width is not None:
            raise InputError("beam_width", f"given together with n ({self.n})", "give one of them")
        count = getattr(self, several)
        if self.sessions is not None:
            problem = f"{count} answers to every turn, and which of them a conversation goes on with is not said"
            raise InputError(several, problem, f"remove {several} or sessions")
        if isinstance(self.arrivals, ClosedLoopArrivals):
            problem = f"{count} answers, and when a client that waits for them asks again is not simulated"
            raise InputError(several, problem, f"remove {several}, or give arrivals a rate")

    def _check_limit(self) -> None:
        both = self.num_requests is not None and self.duration_s is not None
        neither = self.num_requests is None and self.duration_s is None
        if both:
            raise InputError(
                "duration_s", f"given together with num_requests ({self.num_requests})", "give one of them"
            )
        if neither and not isinstance(self.arrivals, StagesArrivals):
            raise InputError("num_requests", "required, but missing", "give num_requests or duration_s")
        if isinstance(self.arrivals, StagesArrivals) and (self.duration_s or 0) > self.arrivals.duration_s:
            raise InputError(
                "duration_s",
                f"{self.duration_s:g} is longer than all stages together ({self.arrivals.duration_s:g})",
                "remove it to run all stages, or lengthen the last stage",
            )
        if isinstance(self.arrivals, ClosedLoopArrivals) and self.num_requests is None:
            raise InputError(
                "duration_s",
                "cannot limit a closed loop, whose pace depends on the servers",
                "give num_requests instead",
            )


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` (a preset's workload) with ``changes`` laid over it.

    A mapping is merged key by key, unless it names its own ``process`` or ``distribution``: then it replaces. Giving
    one of num_requests and duration_s drops the other.
    """
    result = dict(base)
    for this, other in (("num_requests", "duration_s"), ("duration_s", "num_requests")):
        if changes.get(this) is not None:
            result.pop(other, None)
    for key, value in changes.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not {"process", "distribution"} & set(value):
            result[key] = {**below, **value}
        else:
            result[key] = value
    return result
