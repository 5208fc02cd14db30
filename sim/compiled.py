"""Whether the event loop runs as compiled modules, and whether they are those of the sources beside them."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

HOW = "SERVECAST_COMPILE=1 pip install ."
UNPACKING_S = 60.0  # within which an installer writes a module and its source, in either order


def compiled() -> bool:
    """Whether the modules that ``setup.py`` names were compiled when this package was installed."""
    from sim.engine import replica

    return not replica.__file__.endswith(".py")


def outdated() -> list[Path]:
    """Sources changed since they were compiled in place: what runs is not what they say."""
    root = Path(__file__).resolve().parent
    return [
        source
        for source in sorted(root.rglob("*.py"))
        for suffix in EXTENSION_SUFFIXES
        if (built := source.with_suffix(suffix)).exists()
        and built.stat().st_mtime + UNPACKING_S < source.stat().st_mtime
    ]
