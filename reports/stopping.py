"""Being told to stop: SIGTERM and SIGHUP clean up as Ctrl-C does, and end with exit codes of their own."""

from __future__ import annotations

import signal
from typing import Any, Final

_NAMES: Final = ("SIGTERM", "SIGHUP")  # not every system has both
EXIT_INTERRUPTED: Final = 130


class _Told(KeyboardInterrupt):
    """Its one argument is the signal; made anew from it where a simulation passes it on."""

    def __str__(self) -> str:
        return ""


def listen() -> None:
    """Raise a `KeyboardInterrupt` at SIGTERM and SIGHUP, unless the caller has them ignored."""
    for name in _NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _raise)


def last_words(stop: KeyboardInterrupt) -> tuple[str, int]:
    """What to say at the end of a run that was stopped, and its exit code."""
    told: BaseException | None = stop
    while told is not None and not isinstance(told, _Told):
        told = told.__context__
    word, code = ("interrupted", EXIT_INTERRUPTED) if told is None else ("terminated", 128 + told.args[0])
    return f"{word}: {stop}" if str(stop) else word, code


def _raise(number: int, _frame: Any) -> None:
    raise _Told(number)
