"""Reads a JSON array of objects as lines of JSON, so that both are read alike; and one line.

Receives the text of a file by pieces, gives its elements, each on a line of its own; of a block
of lines, whether Arrow's reader may have it; of one line, the object with every digit of numbers.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any

from relay.errors import ConfigError
from relay.produce.arrow_columns import repeated

_BLANKS = " \t\r\n"
TOO_DEEP = "a value is nested too deep"
_DECODER = json.JSONDecoder()
_FIRST = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r]*\{")
_NEXT = re.compile(rb"\}[ \t\r]*\n[ \t\r]*\{")
_NULL_BEHIND = re.compile(rb"\}[ \t\r]*null")


def is_array(beginning: bytes) -> bool:
    """Return whether a text that begins like this is an array, not one object per line."""
    return beginning.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def are_objects(block: bytes, lines: int) -> bool:
    """Return whether each line begins and ends as an object does, and none is followed by null.

    Arrow's reader takes null for an object without columns, or ends the process where a block
    begins with it. No valid object has a line end between a closing and an opening brace, so that
    as many rows as lines are then one in each. A text with `} null` in it makes that False, too:
    such a block is read more slowly. Only the last of the block's lines may lack its line end.
    """
    return bool(
        _FIRST.match(block)
        and len(_NEXT.findall(block)) == lines - 1
        and not _NULL_BEHIND.search(block)
    )


def parse_object(line: bytes) -> dict[str, object]:
    """Return the object that a line holds.

    Raises:
        ConfigError: the line holds another value, or a name twice.
        ValueError: the line is no JSON.
    """
    row = json.loads(line, object_pairs_hook=_object, parse_float=_number)
    if not isinstance(row, dict):
        raise ConfigError(f"not a JSON object: {line[:80]!r}", "write one object in each line")
    return row


def _number(text: str) -> object:
    """As json.loads makes it, unless that is another number than was written.

    A Decimal column may take all of its digits.
    """
    value = float(text)
    try:
        exact = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:40]!r} has too large an exponent") from error
    return value if Decimal(repr(value)) == exact else exact


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object; json.loads alone would take the last value of a name that occurs twice."""
    if doubled := repeated(name for name, _ in pairs):
        raise ConfigError(f"{', '.join(map(repr, doubled))} occurs twice", "rename or drop one")
    return dict(pairs)


class ArrayLines:
    """A stream of lines in the place of a stream of UTF-8 that holds an array.

    `name` is the file's, for errors.
    """

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name
        self._text, self._at, self._ended = "", 0, False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._lines = self._elements()
        self._row = 0

    def read(self, size: int) -> bytes:
        """Return whole lines of about so many bytes; empty behind the last element.

        Raises:
            ConfigError: the text is no array of objects.
        """
        lines: list[bytes] = []
        while size > 0 and (line := next(self._lines, None)) is not None:
            lines.append(line)
            size -= len(line)
        return b"".join(lines)

    def _elements(self) -> Iterator[bytes]:
        self._next_sign("[")
        sign = self._next_sign("{]")
        while sign == "{":
            self._at -= 1
            self._row += 1
            yield self._object()
            sign = self._next_sign(",]")
            if sign == ",":
                sign = self._next_sign("{")
        if self._skip_blanks():
            raise self._error(f"text follows the array: {self._text[self._at : self._at + 40]!r}")

    def _object(self) -> bytes:
        size = 1 << 16
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._read_more(size):
                    raise self._error(error.msg) from error
                size *= 2  # so that a large object is not tried at each small step
                continue
            except RecursionError as error:
                raise self._error(TOO_DEEP) from error
            # Within texts JSON has no line ends: these stand between values.
            line = self._text[self._at : end].replace("\n", " ").replace("\r", " ")
            self._at = end
            return line.encode() + b"\n"

    def _next_sign(self, wanted: str) -> str:
        sign = self._text[self._at] if self._skip_blanks() else ""
        if not sign or sign not in wanted:
            expected = " or ".join(map(repr, wanted))
            found = repr(self._text[self._at : self._at + 40]) if sign else "the end"
            raise self._error(f"expected {expected}, found {found}")
        self._at += 1
        return sign

    def _skip_blanks(self) -> bool:
        """Whether anything stands behind the blanks."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _BLANKS:
                    return True
                self._at += 1
            if not self._read_more(1 << 16):
                return False

    def _read_more(self, size: int) -> bool:
        """Whether there was more to read."""
        if self._ended:
            return False
        data = self._stream.read(size)
        self._ended = not data
        try:
            added = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise self._error(str(error)) from error
        self._text, self._at = self._text[self._at :] + added, 0
        return not self._ended

    def _error(self, reason: str) -> ConfigError:
        row = f", row {self._row}" if self._row else ""
        return ConfigError(
            f"{self._name}{row}: not an array of JSON objects: {reason}",
            'write [{"column": value, ...}, ...], or one object in each line',
        )
