"""The one error that bad input raises: it names the field, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that servecast refuses.

    Args:
        field: dotted path of the field or the file at fault (``engine.block_size``, ``trace.csv.gz:17``).
        problem: what is wrong, with the offending value.
        remedy: what to do instead; empty when the problem says it all.

    The command line prints ``str(error)`` on stderr and exits with code 2.
    """

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        self.field = field
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{field}: {problem}" + (f"\n  remedy: {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        return type(self), (self.field, self.problem, self.remedy)


def nearest(name: str, known: Iterable[str], *, listed: int = 12) -> str:
    """A remedy sentence: the nearest known name, or the list of them.

    >>> nearest("h100", ["h100-sxm", "l40s"])
    "did you mean 'h100-sxm'?"
    """
    names = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    if close:
        return f"did you mean '{lowered[close[0]]}'?"
    shown = ", ".join(names[:listed])
    return f"known: {shown}" + (f", ... ({len(names)} in all)" if len(names) > listed else "")
