"""Request lengths of a workload as a few equally likely values, without drawing."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log
from statistics import NormalDist
from typing import Final

from workloads import WorkloadSpec
from workloads.length_spec import ConstantLength, EmpiricalLength, Length, UniformLength

_POINTS: Final = 48


def request_lengths(workload: WorkloadSpec) -> list[tuple[int, int, float]]:
    """(prompt, output, weight) over the quantiles of both lengths, drawn independently; empty for a trace."""
    if workload.prompt_tokens is None or workload.output_tokens is None:
        return []
    prompts, outputs = quantiles(workload.prompt_tokens), quantiles(workload.output_tokens)
    return [(prompt, output, 1.0) for prompt in prompts for output in outputs]


def quantiles(spec: Length) -> list[int]:
    """Token counts at the middle of equally likely ranges of ``spec``."""
    if isinstance(spec, ConstantLength):
        return [spec.value]
    return [max(1, round(_at(spec, (index + 0.5) / _POINTS))) for index in range(_POINTS)]


def _at(spec: Length, probability: float) -> float:
    """The quantile function."""
    if isinstance(spec, ConstantLength):
        return spec.value
    if isinstance(spec, UniformLength):
        return spec.min - 0.5 + probability * (spec.max - spec.min + 1)
    if isinstance(spec, EmpiricalLength):
        for (low, tokens), (high, next_tokens) in pairwise(spec.quantiles):
            if probability <= high:
                return tokens + (probability - low) / (high - low) * (next_tokens - tokens)
        return spec.quantiles[-1][1]
    if spec.std_tokens == 0:
        return spec.mean
    cut = spec.cut
    normal = NormalDist(cut.mu, cut.sigma)
    low, high = (log(bound) if cut.log else bound for bound in (cut.low, cut.high))
    begin, end = normal.cdf(low), normal.cdf(high)
    drawn = normal.inv_cdf(begin + probability * (end - begin))
    return exp(drawn) if cut.log else drawn
