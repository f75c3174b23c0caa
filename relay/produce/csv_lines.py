"""Finds where in a CSV file its rows stand: what blank lines and line ends in quotes shift.

Receives a file's text as a stream of bytes; gives blank lines before the header, and the line of
a row for an error. Only where an error is told is the file read for it once more.
"""

from __future__ import annotations

import csv
import io
import sys
from typing import Any

_BLANK = b"\r\n"
_BOM = b"\xef\xbb\xbf"
_READ_BYTES = 1 << 16


def blank_lines_ahead(stream: Any) -> int:
    """Return how many blank lines come before the first other one."""
    ahead = stream.read(_READ_BYTES).removeprefix(_BOM)
    while ahead and not ahead.lstrip(_BLANK) and (more := stream.read(_READ_BYTES)):
        ahead += more
    blank = ahead[: len(ahead) - len(ahead.lstrip(_BLANK))]
    return len(blank.splitlines())


def line_of(stream: Any, row: int, *, blank_is_row: bool) -> int:
    """Return the line, from 1, on which a row begins.

    Args:
        stream: of the whole text, unpacked.
        row: from 1, without the header.
        blank_is_row: in a file of one column a blank line is a row.
    """
    text = io.TextIOWrapper(stream, "utf-8-sig", errors="replace", newline="")
    limit = csv.field_size_limit(sys.maxsize)
    try:
        lines, begins, number = csv.reader(text), 1, -1
        for fields in lines:
            # Blank lines before the header are none of a file of one column either.
            number += bool(fields) or (blank_is_row and number >= 0)
            if number == row:
                break
            begins = lines.line_num + 1
    finally:
        csv.field_size_limit(limit)
    return begins
