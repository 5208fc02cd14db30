"""The promise: bounds on latency statistics, and bounds a single request must meet to count as good."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_serializer

from sim.scenario.engine import Section

Bound = Annotated[float | None, Field(gt=0)]


class SloSpec(Section):
    """Upper bounds in seconds; None = no promise.

    ``METRIC_STATISTIC_s`` bounds a statistic over all completed requests. ``goodput_METRIC_s`` bounds each request:
    those that meet every such bound are goodput.
    """

    ttft_mean_s: Bound = None
    ttft_p50_s: Bound = None
    ttft_p90_s: Bound = None
    ttft_p95_s: Bound = None
    ttft_p99_s: Bound = None
    tpot_mean_s: Bound = None
    tpot_p50_s: Bound = None
    tpot_p90_s: Bound = None
    tpot_p95_s: Bound = None
    tpot_p99_s: Bound = None
    itl_mean_s: Bound = None
    itl_p50_s: Bound = None
    itl_p90_s: Bound = None
    itl_p95_s: Bound = None
    itl_p99_s: Bound = None
    e2e_mean_s: Bound = None
    e2e_p50_s: Bound = None
    e2e_p90_s: Bound = None
    e2e_p95_s: Bound = None
    e2e_p99_s: Bound = None
    goodput_ttft_s: Bound = None
    goodput_tpot_s: Bound = None
    goodput_e2e_s: Bound = None

    def statistics(self) -> dict[str, tuple[str, str, float]]:
        """{key: (metric, statistic, bound_s)} of the bounds on statistics that are set."""
        found = {}
        for key, bound in self._given():
            metric, statistic, _ = key.split("_")
            if metric != "goodput":
                found[key] = (metric, statistic, bound)
        return found

    def per_request(self) -> dict[str, float]:
        """{metric: bound_s} of the bounds on each request that are set."""
        return {key.split("_")[1]: bound for key, bound in self._given() if key.startswith("goodput_")}

    @model_serializer
    def _promises(self) -> dict[str, float]:
        return dict(self._given())

    def _given(self) -> list[tuple[str, float]]:
        return [(key, bound) for key in type(self).model_fields if (bound := getattr(self, key)) is not None]
