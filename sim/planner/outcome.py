"""What a plan answers: ``plan.json``. Seconds, tokens, dollars, watts; None where nothing was measured."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from sim.schema import StrictModel

SCHEMA_VERSION: Final = 1


class Deployment(StrictModel):
    """What to deploy.

    Attributes:
        label: the layout in a few letters, as TP4 or 1 x TP2 + 2 x TP4 (prefill and decode apart).
        replicas: engines, or units of a prefill/decode split.
        gpus: of all of them.
        layout: of one engine.
        split: prefill and decode engines of one unit and their layouts, where they are apart.
    """

    hardware: str
    label: str
    replicas: int
    gpus: int
    layout: dict[str, Any]
    split: dict[str, Any] | None = None
    quantization: str | None = None
    kv_cache_dtype: Any = "auto"
    max_num_seqs: int
    max_num_batched_tokens: int


class Measured(StrictModel):
    """A promised statistic: what the simulation says, with its 95 % confidence interval."""

    value_s: float
    bound_s: float
    low_s: float | None = None
    high_s: float | None = None


class Range(StrictModel):
    """Replicas and cost if every step takes less or more time than the profile says, by the error band. Beside the
    winner only the cheapest that could tie with it is known."""

    replicas_if_faster: int | None = None
    replicas_if_slower: int | None = None
    cost_if_faster: float | None = None
    cost_if_slower: float | None = None


class Row(StrictModel):
    """A kind of deployment: hardware, layout and formats, in its fewest replicas; the winner's at the best of all
    knobs, the others' at the best of those that were tried.

    Attributes:
        keeps: whether it keeps the promise within the budgets; if not, ``why`` says why not.
        cost: dollars an hour, or GPUs where there is no price; rows are sorted by it.
        promise: what was promised, as measured.
        ratio: the largest measured value over its bound.
        most_load: the highest load that it sustains, in the plan's unit.
        headroom: that over the load asked for, less one.
        headroom_usd_per_hour: dollars that the unused part costs.
        limit: what breaks the promise beyond that.
        concurrency: requests of mean length that the KV cache of one engine holds.
        tie: not told apart from the winner: within the error band it may cost no more.
    """

    deployment: Deployment
    keeps: bool
    why: str = ""
    cost: float
    usd_per_hour: float | None = None
    promise: dict[str, Measured] = Field(default_factory=dict)
    attainment: float | None = None
    ratio: float | None = None
    most_load: float | None = None
    headroom: float | None = None
    headroom_usd_per_hour: float | None = None
    limit: str = ""
    concurrency: int | None = None
    output_tokens_per_s_per_gpu: float | None = None
    output_tokens_per_s_per_user: float | None = None
    watts: float | None = None
    kwh_per_million_output_tokens: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_total_tokens: float | None = None
    band: Range = Range()
    tie: bool = False
    calibrated: bool
    scenario_hash: str = ""


class FrontPoint(StrictModel):
    """A simulated deployment under a load."""

    label: str
    hardware: str
    quantization: str | None = None
    replicas: int
    load: float
    keeps: bool
    output_tokens_per_s_per_gpu: float
    output_tokens_per_s_per_user: float | None = None
    cost: float
    e2e_mean_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    on_front: bool = False


class WhatIf(StrictModel):
    """Another question, and its answer among the best few kinds of deployment.

    Attributes:
        same: whether the answer is the winner's layout, hardware and number.
        answer: the deployment; None where none of those tried keeps the promise within the budgets.
    """

    question: str
    same: bool
    answer: Deployment | None = None
    cost: float | None = None


class Relaxation(StrictModel):
    """What would have to give way where nothing keeps the promise.

    Attributes:
        what: budget, traffic, promise or formats.
        text: in words, with the numbers.
        times: how far: the factor on the budget, the traffic (its inverse) or the bounds.
    """

    what: Literal["budget", "traffic", "promise", "formats"]
    text: str
    times: float
    deployment: Deployment | None = None


class HourPlan(StrictModel):
    """A stretch of the day."""

    start_h: float
    length_h: float
    load: float
    replicas: int | None


class DayPlan(StrictModel):
    """Replicas by the hour, against as many as the busiest hour needs all day."""

    hours: tuple[HourPlan, ...]
    static_replicas: int | None = None
    gpu_hours: float | None = None
    static_gpu_hours: float | None = None
    usd: float | None = None
    static_usd: float | None = None
    saved: float | None = None


class Counts(StrictModel):
    """How the search went.

    Attributes:
        considered: deployments: layouts x replicas x formats x knobs within the budgets.
        kinds: layouts x formats x hardware.
        without_memory: of ``considered``, those in which the model does not fit.
        refuted: dropped by a bound.
        inferred: known from the run of other knobs that is the same step by step, or from a run in which as many
            decode engines of the kind were too few.
        searched: simulations that found the winner.
        simulated: simulations in all: winner, alternatives, limits, fronts, what-ifs.
    """

    considered: int
    kinds: int
    without_memory: int
    refuted: int
    inferred: int
    searched: int
    simulated: int


class Question(StrictModel):
    """What was asked: the traffic in its unit, the promise, the budgets.

    ``error_band`` is the relative error of step times within which deployments tie, the largest of all devices.
    """

    model: str
    load: float
    unit: str
    requests_per_run: int | None
    promise: dict[str, float]
    min_attainment: float
    hardware: tuple[str, ...]
    max_gpus: int
    max_usd_per_hour: float | None = None
    max_watts: float | None = None
    ranked_by: Literal["usd_per_hour", "gpus"]
    error_band: float
    seed: int


class Plan(StrictModel):
    """The answer.

    Attributes:
        winner: the cheapest deployment that keeps the promise; None where none does.
        rows: every kind of deployment looked at, the winner first, then by cost; those that do not keep it last.
        throughput_front: output a GPU against speed a user; cost_front: cost against mean end-to-end latency.
        holds_between: loads between which the winner stays the answer, in the unit of the question.
        prices: {hardware: price of a GPU hour at which its best row would cost what the winner costs}.
    """

    schema_version: int = SCHEMA_VERSION
    servecast_version: str
    name: str
    question: Question
    counts: Counts
    winner: Row | None = None
    rows: tuple[Row, ...] = ()
    throughput_front: tuple[FrontPoint, ...] = ()
    cost_front: tuple[FrontPoint, ...] = ()
    what_ifs: tuple[WhatIf, ...] = ()
    holds_between: tuple[float, float] | None = None
    prices: dict[str, float] = Field(default_factory=dict)
    relaxations: tuple[Relaxation, ...] = ()
    day: DayPlan | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan as indented JSON with a newline at its end."""
        return self.model_dump_json(indent=2) + "\n"
