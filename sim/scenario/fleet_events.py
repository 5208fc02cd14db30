"""What happens to replicas, checked: each event must find its replica in a state that it can change."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import InputError
from sim.scenario.cluster import ClusterSpec, FleetEvent


@dataclass(frozen=True, slots=True)
class TimedEvent:
    """An event with its pool by number and its load time filled in."""

    event: FleetEvent
    pool: int
    load_time_s: float


def timed_events(spec: ClusterSpec, replicas: list[int]) -> list[TimedEvent]:
    """The events of a cluster by time.

    Args:
        spec: the cluster.
        replicas: of each pool at the start.

    Raises:
        InputError: an event that its replica cannot undergo.
    """
    pools = {"engine": 0} if len(replicas) == 1 else {"prefill": 0, "decode": 1}
    ready: dict[tuple[int, int], float] = {}  # replicas that are there, and since when they serve
    failed: set[tuple[int, int]] = set()
    ready.update({(pool, place): 0.0 for pool, count in enumerate(replicas) for place in range(count)})
    found = []
    for number, event in sorted(enumerate(spec.events), key=lambda pair: pair[1].at_s):
        pool = _pool(event, pools, f"cluster.events.{number}")
        key, field = (pool, event.replica), f"cluster.events.{number}.action"
        name = f"replica {event.replica} at {event.at_s:g} s"
        load_s = spec.load_time_s if event.load_time_s is None else event.load_time_s
        if event.action in ("stop", "fail"):
            if key not in ready:
                raise InputError(field, f"'{event.action}' of {name}, which is not there", "start it before")
            if ready[key] > event.at_s:
                raise InputError(
                    field, f"'{event.action}' of {name}, which loads until {ready[key]:g} s", "choose a later time"
                )
            del ready[key]
            (failed.add if event.action == "fail" else failed.discard)(key)
        else:
            _check_start(event, key in ready, key in failed, field, name)
            ready[key] = event.at_s + load_s
            failed.discard(key)
        found.append(TimedEvent(event, pool, load_s))
    return found


def _pool(event: FleetEvent, pools: dict[str, int], where: str) -> int:
    if event.pool is None:
        if len(pools) > 1:
            raise InputError(f"{where}.pool", "required where prefill and decode are split", "give prefill or decode")
        return 0
    if event.pool not in pools:
        raise InputError(f"{where}.pool", f"'{event.pool}', but the fleet is not split", "leave it out")
    return pools[event.pool]


def _check_start(event: FleetEvent, there: bool, failed: bool, field: str, name: str) -> None:
    if there:
        raise InputError(field, f"'{event.action}' of {name}, which is there already", "choose another replica")
    if failed != (event.action == "recover"):
        what = "which failed" if failed else "which has not failed"
        raise InputError(field, f"'{event.action}' of {name}, {what}", f"use {'recover' if failed else 'start'}")
