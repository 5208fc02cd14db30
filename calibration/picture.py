"""Figures in the project's look, from a room that knows nothing of the reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.files import check_picture, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final = Path(__file__).resolve().parent.parent / "reports" / "servecast.mplstyle"


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """An empty figure, inches, written to a .png, .svg or .pdf file at the end: the same drawing, the same bytes.

    Raises:
        InputError: another suffix, or a file that cannot be written.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    check_picture(path)
    stamp = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}[path.suffix.lower()]
    with matplotlib.rc_context({"svg.hashsalt": "servecast"}, fname=STYLE if STYLE.exists() else None):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure
        with whole_file(path, "--plot") as partial:
            figure.savefig(partial, metadata={stamp: None})
