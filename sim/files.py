"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sim.errors import InputError

PICTURES: Final = (".png", ".svg", ".pdf")


def check_picture(path: Path, field: str = "--plot") -> None:
    """Raise `InputError` for a name whose ending is not that of a picture: .png, .svg or .pdf."""
    if path.suffix.lower() not in PICTURES:
        raise InputError(field, f"'{path}' is neither .png, .svg nor .pdf", "give one of these endings")


@contextmanager
def whole_file(path: Path, field: str = "") -> Iterator[Path]:
    """A fresh name beside ``path``, which takes the place of ``path`` once the block has ended well.

    A link is followed. Whatever stops the block, what it wrote is removed, and a former file stays as it was; two
    writers at once do not mix.

    Args:
        path: the file to make or replace.
        field: what an error names; the path where empty.

    Raises:
        InputError: ``path`` is there and no plain file (renaming over a device or a pipe would remove it), or the
            system refuses to write there.
    """
    what = f"'{path}' " if field else ""
    partial: Path | None = None
    try:
        if not path.name or (path.exists() and not path.is_file()):
            raise InputError(field or str(path), f"{what}is not a plain file", "name a file")
        target = Path(os.path.realpath(path))
        partial = target.with_name(f".{target.name[:100]}-{secrets.token_hex(4)}{target.suffix[-20:]}")
        yield partial
        os.replace(partial, target)
    except OSError as error:
        problem = f"{what}cannot be written: {error.strerror or error}"
        raise InputError(field or str(path), problem, "choose a writable place") from None
    finally:
        if partial is not None:
            _remove(partial)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # its folder is none, which the error above has told
