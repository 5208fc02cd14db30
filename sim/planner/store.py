"""Finished points as files: a point that is there is never simulated again."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import sim
from sim.errors import InputError
from sim.planner.record import Record, name_of

_KEPT: Final = ("done", "refused", "stopped")


class Store:
    """Records by the hash of their scenario, one JSON file each; in memory alone where there is no folder.

    Files are written under a temporary name and renamed, so a crash leaves no half of one, and several programs may
    fill the same folder at once. What another version of servecast wrote, and what cannot be read, counts as absent.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._held: dict[str, Record] = {}

    def get(self, key: str, *, whole: bool = False, ceilings: Sequence[float] = (1.0,)) -> Record | None:
        """The record of ``key``; with ``whole``, not one of a run that was stopped early.

        Args:
            ceilings: at which the run may have been stopped; the first is the least that is asked for.
        """
        for name in dict.fromkeys(name_of(key, ceiling) for ceiling in (*ceilings, 1.0)):
            record = self._held.get(name) or self._read(name)
            if record is not None and record.key == key and record.settles(math.inf if whole else ceilings[0]):
                self._held[name] = record
                return record
        return None

    def put(self, record: Record) -> None:
        """Keep ``record``. A failure is not kept: it is tried again. Raises `InputError` where writing fails."""
        if record.status not in _KEPT:
            return
        self._held[record.name] = record
        if self.folder is not None:
            write_whole(self._path(record.name), record.model_dump_json(exclude_none=True))

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.json"

    def _read(self, name: str) -> Record | None:
        if self.folder is None:
            return None
        try:
            record = Record.model_validate_json(self._path(name).read_bytes())
        except (OSError, ValueError):
            return None
        return record if record.name == name and record.servecast_version == sim.__version__ else None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it is there as a whole or not at all. Raises `InputError` where that fails."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            try:
                file.write(data)
                file.close()
                os.chmod(file.name, 0o666 & ~_umask())
                os.replace(file.name, path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InputError(
            str(path), f"cannot be written: {error.strerror or error}", "choose a writable folder"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
