"""What the figures of sweeps and plans share: the house style, and files that are the same for the same data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE: Final = Path(__file__).with_name("servecast.mplstyle")
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#00785A"
INK, GREY = "#333333", "#777777"
MARKS: Final = "osD^vPX*<>hdp"


@contextmanager
def house_style() -> Iterator[None]:
    """Fonts, colours and lines of all figures of servecast."""
    import matplotlib

    with matplotlib.rc_context(fname=STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, inches; no window system is asked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a PNG without version or date in it."""
    figure.savefig(path, metadata={"Software": None})
