"""A progress bar for long runs: on stderr, and only where someone watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

QUIET_S: Final = 1.0  # a run that is over sooner needs no bar


@contextmanager
def progress_bar(name: str) -> Iterator[Callable[[float], None] | None]:
    """Yield a function that takes the share done (0 to 1), or None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(name.replace("[", r"\["), total=1.0)
    begin = time.monotonic()

    def report(share: float) -> None:
        if not bar.live.is_started and time.monotonic() - begin > QUIET_S:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield report
    finally:
        bar.stop()
