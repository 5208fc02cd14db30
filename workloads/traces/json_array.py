"""Elements of a JSON array one by one, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any, Final

from sim.errors import InputError

_CHUNK_CHARS: Final = 2**16


def elements(text: IO[str], where: str, limit: int) -> Iterator[tuple[int, Any]]:
    """(number from 1, value) of each element of the array that ``text`` holds.

    Reads in chunks and decodes each element as soon as it is whole; the part read ahead doubles while an element does
    not end, so the work stays proportional to the size. Raises `InputError` for malformed or cut text, and for an
    element of more than ``limit`` characters.
    """
    decoder = json.JSONDecoder()
    buffer = _Buffer(text)
    if buffer.next_char() != "[":
        raise InputError(where, "expected a JSON array")
    buffer.at += 1
    number = 0
    if buffer.next_char() == "]":
        return
    while True:
        number += 1
        buffer.next_char()
        yield number, _decode(decoder, buffer, f"{where}[{number}]", limit)
        closing = buffer.next_char()
        if closing == "]":
            return
        if closing != ",":
            raise InputError(f"{where}[{number}]", f"expected ',' or ']' after the element, got {closing!r}")
        buffer.at += 1


class _Buffer:
    """A window on the text: what is read and not yet used starts at ``at``."""

    def __init__(self, text: IO[str]) -> None:
        self._text = text
        self.content = ""
        self.at = 0
        self.ended = False

    def more(self, chars: int) -> None:
        """Read ``chars`` more, dropping what is used."""
        read = self._text.read(chars)
        self.ended = len(read) < chars
        self.content = self.content[self.at :] + read
        self.at = 0

    def next_char(self) -> str:
        """Skip white space; the character there, '' at the end."""
        while True:
            while self.at < len(self.content) and self.content[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.content) or self.ended:
                return self.content[self.at : self.at + 1]
            self.more(_CHUNK_CHARS)


def _decode(decoder: json.JSONDecoder, buffer: _Buffer, where: str, limit: int) -> Any:
    """The value at the window's start; reads on until it is whole."""
    while True:
        try:
            value, end = decoder.raw_decode(buffer.content, buffer.at)
        except (ValueError, RecursionError) as error:
            unread = len(buffer.content) - buffer.at
            if buffer.ended or unread > limit:
                problem = "is cut off or not valid JSON" if buffer.ended else f"is longer than {limit:,} characters"
                raise InputError(where, f"{problem}: {str(error)[:80]}") from None
            buffer.more(max(unread, _CHUNK_CHARS))
            continue
        if end == len(buffer.content) and not buffer.ended:  # a number may go on in the next chunk
            buffer.more(_CHUNK_CHARS)
            continue
        buffer.at = end
        return value
