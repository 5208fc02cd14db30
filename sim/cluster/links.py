"""Links between replicas, shared by the transfers that use them at one time."""

from __future__ import annotations

import math
from collections.abc import Callable

import simpy

from sim.cluster.arrivals import after
from sim.engine.request import Tick

Port = tuple[str, int]


class Flow:
    """Bytes on their way from one port to another."""

    __slots__ = ("closed", "left", "on_end", "ports", "rate", "since")

    def __init__(self, ports: tuple[Port, Port], size: float, on_end: Callable[[], None], now: Tick) -> None:
        self.ports = ports
        self.left = size
        self.rate = 0.0
        self.since = now
        self.closed = False
        self.on_end = on_end

    @property
    def end(self) -> Tick:
        """When its last byte is through at the present rate."""
        return self.since + self.left / self.rate if self.left else self.since


class Links:
    """Each replica has one way out and one way in, of ``bytes_per_tick`` each; the network between has no limit.

    Transfers share a port equally: each gets the smaller of its two shares. That is max-min fairness but for what a
    transfer leaves unused at the port that does not hold it back.

    Args:
        env: the clock.
        bytes_per_tick: of a port.
        whole_ticks: transfers end on whole ticks (the next one), where the clock counts microseconds.
    """

    def __init__(self, env: simpy.Environment, bytes_per_tick: float, *, whole_ticks: bool = False) -> None:
        self._env = env
        self._speed = bytes_per_tick
        self._whole = whole_ticks
        self._flows: dict[Flow, None] = {}
        self._at: dict[Port, dict[Flow, None]] = {}
        self._alarm: simpy.Event | None = None

    def open(self, source: int, target: int, size: float, on_end: Callable[[], None]) -> Flow:
        """Start to send ``size`` bytes; more may follow until `close`."""
        flow = Flow((("out", source), ("in", target)), size, on_end, self._env.now)
        self._flows[flow] = None
        for port in flow.ports:
            self._at.setdefault(port, {})[flow] = None
        self._share(flow.ports)
        return flow

    def close(self, flow: Flow, more: float = 0.0) -> None:
        """``more`` bytes and no others follow: ``on_end`` is called when all are through."""
        self._advance(flow)
        flow.left += more
        flow.closed = True
        self._set_alarm()

    def drop(self, flow: Flow) -> None:
        """Stop a transfer for good; ``on_end`` is not called."""
        if flow in self._flows:
            self._remove(flow)
            self._share(flow.ports)

    def _remove(self, flow: Flow) -> None:
        del self._flows[flow]
        for port in flow.ports:
            del self._at[port][flow]

    def _advance(self, flow: Flow) -> None:
        now = self._env.now
        flow.left = max(0.0, flow.left - flow.rate * (now - flow.since))
        flow.since = now

    def _share(self, ports: tuple[Port, ...]) -> None:
        """Rates anew for all that use ``ports``."""
        for port in ports:
            for flow in self._at[port]:
                self._advance(flow)
                flow.rate = min(self._speed / len(self._at[end]) for end in flow.ports)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.callbacks = []
            self._alarm = None
        closed = [flow for flow in self._flows if flow.closed]
        if closed:
            end = min(flow.end for flow in closed)
            end = math.ceil(end) if self._whole else end
            self._alarm = after(self._env, max(0, end - self._env.now), lambda: self._finish(end))

    def _finish(self, end: Tick) -> None:
        """End all transfers that are through at ``end``, in the order they began."""
        self._alarm = None
        done = [flow for flow in self._flows if flow.closed and flow.end <= end]
        for flow in done:
            self._remove(flow)
        self._share(tuple(dict.fromkeys(port for flow in done for port in flow.ports)))
        for flow in done:
            flow.on_end()
