"""Keeps standard input in a file, so that all of it is checked before the first row is sent.

Receives a stream of bytes, gives a RowFile of a temporary file, which is gone afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from relay.errors import ConfigError
from relay.produce.file_options import FileOptions
from relay.produce.file_rows import RowFile

NAME = "standard input"
_PARQUET = b"PAR1"
_PEEK_BYTES = 4096
_NO_ROOM = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC})


@contextlib.contextmanager
def spooled(stream: BinaryIO, format_: str | None, options: FileOptions) -> Iterator[RowFile]:
    """Yield what the stream holds, as a file of the format named, or of the one that it begins as.

    Args:
        stream: read to its end.
        format_: parquet, csv or jsonl; None: by the first bytes.
        options: how it is read.

    Raises:
        ConfigError: there is no room for it, or it cannot be read.
    """
    with tempfile.NamedTemporaryFile(prefix="relay-produce-") as file:
        try:
            shutil.copyfileobj(stream, file)
            file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # what the file still holds has no room either
                file.close()
            raise _unkept(error) from error
        file.seek(0)
        found = format_ or looks_like(file.read(_PEEK_BYTES))
        yield RowFile(Path(file.name), found, options, NAME)


def _unkept(error: OSError) -> ConfigError:
    """Say what went wrong: of a stream's error nobody else knows the file."""
    if error.errno not in _NO_ROOM:
        return ConfigError(
            f"cannot read {NAME}: {error.strerror or error}", "give the rows as a file instead of -"
        )
    return ConfigError(
        f"cannot keep {NAME} in {tempfile.gettempdir()}: {error.strerror}",
        "make room there, name a directory with more of it in TMPDIR, or give the rows as a file",
    )


def looks_like(beginning: bytes) -> str:
    """Return the format of a file that begins so: a Parquet file and JSON say what they are."""
    if beginning.startswith(_PARQUET):
        return "parquet"
    return "jsonl" if beginning.lstrip()[:1] in {b"{", b"["} else "csv"
