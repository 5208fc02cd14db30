"""SimPy's environment with a clock that is cheap to read."""

from __future__ import annotations

import simpy


class Clock(simpy.Environment):
    """An environment whose ``now`` is a plain attribute: engines read it a dozen times a request.

    SimPy keeps the time in ``_now`` and shows it through a property, a Python call for each reading. Here ``_now`` lies
    in a slot, and ``now`` is another name of that slot.
    """

    __slots__ = ("_now",)


Clock.now = Clock.__dict__["_now"]  # type: ignore[method-assign]
