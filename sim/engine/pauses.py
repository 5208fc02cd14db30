"""When the members of the decode group got their last token, in engines that let decodes wait while others prefill."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.request import Request, Tick


class TokenTimes:
    """Tells, for a step that moves the decode group, which members waited longer than that step for their token.

    Kept as sums: a step that passes the group over costs the same whether it has two members or two thousand.
    """

    def __init__(self) -> None:
        self._group_end: Tick = 0.0  # end of the last step that moved the group
        self._joined: dict[Tick, int] = {}  # end of a step since then -> members that joined with its token

    def paused(self, members: int, last_end: Tick) -> bool:
        """Whether some of the group's ``members`` got no token in the step that ended at ``last_end``."""
        for end, count in self._joined.items():
            members -= count
            if count and end != last_end:
                return True
        return members > 0 and self._group_end != last_end

    def joined(self, count: int, end: Tick) -> None:
        """``count`` requests became members with a token that came at ``end``."""
        if count:
            self._joined[end] = self._joined.get(end, 0) + count

    def left(self, request: Request) -> Tick:
        """When a member that is taken out got its last token; ``last_token`` holds the one it joined with."""
        joined = request.last_token
        if joined < self._group_end:
            return self._group_end
        if joined in self._joined:
            self._joined[joined] -= 1
        return joined

    def moved(self, members: int, last_end: Tick, end: Tick, gap: Callable[[Tick, int], None]) -> int:
        """All ``members`` get a token at ``end``: report the gaps of those that waited, and return how many did.

        Args:
            members: of the group, before any of them ends.
            last_end: end of the step before.
            end: end of this step.
            gap: called with a gap and the number of tokens it holds for.
        """
        if self._group_end == last_end and not self._joined:
            self._group_end = end
            return 0
        waited = 0
        for joined, count in self._joined.items():
            members -= count
            if count and joined != last_end:
                gap(end - joined, count)
                waited += count
        if members and self._group_end != last_end:
            gap(end - self._group_end, members)
            waited += members
        self.jumped(end)
        return waited

    def jumped(self, end: Tick) -> None:
        """Steps without a pause moved the group, the last of them until ``end``."""
        self._joined.clear()
        self._group_end = end
