"""Keeps standard input in a file, so that all of it is checked before the first row is sent.

Receives a stream of bytes, gives a RowFile of a temporary file, which is gone afterwards.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile

NAME = "standard input"
_PARQUET = b"PAR1"
_PEEK_BYTES = 4096


@contextmanager
def spooled(stream: BinaryIO, format_: str | None, options: FileOptions) -> Iterator[RowFile]:
    """Yield what the stream holds, as a file of the format named, or of the one that it begins as.

    Args:
        stream: read to its end.
        format_: parquet, csv or jsonl; None: by the first bytes.
        options: how it is read.
    """
    with tempfile.NamedTemporaryFile(prefix="relay-produce-") as file:
        shutil.copyfileobj(stream, file)
        file.flush()
        file.seek(0)
        found = format_ or looks_like(file.read(_PEEK_BYTES))
        yield RowFile(Path(file.name), found, options, NAME)


def looks_like(beginning: bytes) -> str:
    """Return the format of a file that begins so: a Parquet file and JSON say what they are."""
    if beginning.startswith(_PARQUET):
        return "parquet"
    return "jsonl" if beginning.lstrip()[:1] in {b"{", b"["} else "csv"
