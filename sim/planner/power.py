"""Watts of a deployment by how much it does, and energy and money for its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from hardware_profiles import HardwareProfile
from sim.summary import Summary


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a deployment costs to run under a load. None where no price or no utilisation is known.

    Attributes:
        watts: mean power of all GPUs.
        kwh_per_million_output_tokens: of the GPUs alone.
        usd_per_million_output_tokens, usd_per_million_total_tokens: at the load served.
    """

    watts: float | None
    kwh_per_million_output_tokens: float | None
    usd_per_million_output_tokens: float | None
    usd_per_million_total_tokens: float | None


def watts_of_gpu(hardware: HardwareProfile, activity: float) -> float:
    """Mean board power at ``activity``, 0 to 1: a line from idle to the power limit.

    An assumption. Activity is the share of time in which steps run, times the share of the datasheet's compute and
    bandwidth that they use together (MFU + MBU, at most 1): prompts come near the power limit, decodes stay below it.
    """
    return hardware.idle_w + (hardware.tdp_w - hardware.idle_w) * min(1.0, max(0.0, activity))


def activity_of(summary: Summary) -> float | None:
    """The activity of a run; None where utilisation was not measured."""
    use = summary.utilization
    if use.busy_fraction is None or use.mfu is None or use.mbu is None:
        return None
    return use.busy_fraction * min(1.0, use.mfu + use.mbu)


def upkeep_of(summary: Summary, hardware: HardwareProfile, gpus: int, usd_per_hour: float | None) -> Upkeep:
    """Power and money of a run on ``gpus`` GPUs at ``usd_per_hour`` for all of them."""
    activity, flow = activity_of(summary), summary.throughput
    watts = None if activity is None else gpus * watts_of_gpu(hardware, activity)

    def per_million(amount_per_s: float | None, tokens_per_s: float | None) -> float | None:
        return None if amount_per_s is None or not tokens_per_s else amount_per_s / tokens_per_s * 1e6

    usd_per_s = None if usd_per_hour is None else usd_per_hour / 3600
    kwh_per_s = None if watts is None else watts / 3.6e6
    return Upkeep(
        watts,
        per_million(kwh_per_s, flow.output_tokens_per_s),
        per_million(usd_per_s, flow.output_tokens_per_s),
        per_million(usd_per_s, flow.total_tokens_per_s),
    )
