"""Reading a trace file safely: plain or gzip, line by line, bounded in line length and in expansion."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, cast

from sim.errors import InputError, nearest

#: The longest line (or JSON element) that is read, in characters: 4 million hash ids fit.
MAX_RECORD_CHARS: Final = 64 * 2**20
#: How much a gzip file may hold. Real traces expand 5 to 20 times.
MAX_EXPANDED_BYTES: Final = 8 * 2**30
MAX_EXPANSION: Final = 250
_ALWAYS_ALLOWED_BYTES: Final = 16 * 2**20
HEAD_CHARS: Final = 2**16

_FOREIGN_MAGIC: Final = {
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "7z",
}


class _BoundedGzip(io.RawIOBase):
    """The expanded bytes of a gzip file; refuses to expand without bound."""

    def __init__(self, compressed: IO[bytes], where: str) -> None:
        self._compressed = compressed
        self._expanded = cast(IO[bytes], gzip.GzipFile(fileobj=compressed, mode="rb"))
        self._where = where
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._expanded.read(len(buffer))
        buffer[: len(data)] = data
        self._bytes += len(data)
        suspicious = self._bytes > MAX_EXPANSION * max(self._compressed.tell(), 1)
        if self._bytes > MAX_EXPANDED_BYTES or (suspicious and self._bytes > _ALWAYS_ALLOWED_BYTES):
            raise InputError(
                self._where,
                f"expands without bound: {self._bytes:,} bytes so far from {self._compressed.tell():,}",
                "if it really is a trace, decompress it and give the plain file",
            )
        return len(data)


class TraceFile:
    """A trace file, opened anew for each pass.

    Attributes:
        path: as found.
        parquet: whether it is a Parquet file.
        head: the first `HEAD_CHARS` of its text ('' for Parquet).
    """

    def __init__(self, path: Path, base_dir: Path | None = None) -> None:
        self.path = path if path.is_absolute() or base_dir is None else base_dir / path
        self._gzip = False
        magic = self._magic()
        self._gzip = magic.startswith(b"\x1f\x8b")
        self.parquet = magic.startswith(b"PAR1")
        for foreign, name in _FOREIGN_MAGIC.items():
            if magic.startswith(foreign):
                raise InputError(str(self.path), f"is {name}-compressed", "decompress it, or use gzip")
        if not magic:
            raise InputError(str(self.path), "the trace is empty", "give a file with at least one request")
        if self.path.suffix == ".gz" and not self._gzip:
            raise InputError(str(self.path), "is named .gz but is not gzip", "rename it, or download it again")
        self.head = "" if self.parquet else self._read_head()
        if not self.parquet and not self.head.strip():
            raise InputError(str(self.path), "the trace is empty", "give a file with at least one request")

    def at(self, line: int) -> str:
        """How an error names line ``line`` (from 1)."""
        return f"{self.path}:{line}"

    @contextmanager
    def text(self) -> Iterator[io.TextIOWrapper]:
        """The file's text. What goes wrong below (gzip, encoding, disk) comes out as `InputError`."""
        try:
            with self.path.open("rb") as file:
                raw = io.BufferedReader(_BoundedGzip(file, str(self.path)), 2**18) if self._gzip else file
                yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors="strict")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            remedy = "download or compress it again (gzip -t checks it)"
            raise InputError(str(self.path), f"corrupt or truncated gzip: {error}", remedy) from None
        except UnicodeDecodeError as error:
            raise InputError(str(self.path), f"is not UTF-8 text: {error.reason}", "convert it to UTF-8") from None
        except OSError as error:
            raise InputError(str(self.path), f"cannot be read: {error.strerror or error}") from None

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, text) of each line that is not blank."""
        with self.text() as text:
            number = 0
            while line := text.readline(MAX_RECORD_CHARS):
                number += 1
                if len(line) >= MAX_RECORD_CHARS:
                    raise InputError(self.at(number), f"the line is longer than {MAX_RECORD_CHARS:,} characters")
                if line := line.strip():
                    yield number, line

    def json_lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(line number, object) of each line of a JSONL file."""
        for number, line in self.lines():
            yield number, as_object(load_json(line, self.at(number)), self.at(number))

    def json_array(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(element number from 1, object) of each element of one big JSON array, without holding all of it."""
        from workloads.traces.json_array import elements

        with self.text() as text:
            for number, element in elements(text, str(self.path), MAX_RECORD_CHARS):
                yield number, as_object(element, f"{self.path}[{number}]")

    def json_objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(number from 1, object) of a JSONL file or of one JSON array."""
        return self.json_array() if self.head.lstrip().startswith("[") else self.json_lines()

    def json_document(self) -> Any:
        """The whole file as one JSON document (of at most `MAX_RECORD_CHARS`)."""
        with self.text() as text:
            content = text.read(MAX_RECORD_CHARS)
            if len(content) >= MAX_RECORD_CHARS:
                raise InputError(str(self.path), f"the document is longer than {MAX_RECORD_CHARS:,} characters")
        return load_json(content, str(self.path))

    def _magic(self) -> bytes:
        try:
            if not self.path.exists():
                siblings = [entry.name for entry in self.path.parent.iterdir()] if self.path.parent.is_dir() else []
                remedy = nearest(self.path.name, siblings, listed=6) if siblings else "check the path"
                raise InputError(str(self.path), "no such file", remedy)
            if not self.path.is_file():
                raise InputError(str(self.path), "is not a regular file", "give the path of a trace file")
            with self.path.open("rb") as file:
                return file.read(8)
        except OSError as error:
            raise InputError(str(self.path), f"cannot be read: {error.strerror or error}") from None

    def _read_head(self) -> str:
        with self.text() as text:
            return text.read(HEAD_CHARS)


def load_json(text: str, where: str) -> Any:
    """``text`` as JSON; refuses what cannot be parsed, however it is nested."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = str(error) if isinstance(error, json.JSONDecodeError) else "too deeply nested or too long a number"
        raise InputError(where, f"not valid JSON: {problem}") from None


def as_object(value: Any, where: str) -> dict[str, Any]:
    """``value`` if it is a JSON object."""
    if not isinstance(value, dict):
        raise InputError(where, f"expected a JSON object, got {str(value)[:60]!r}")
    return value
