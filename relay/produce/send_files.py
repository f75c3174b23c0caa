"""Sends files into the source topic, for `relay produce`.

Receives files, a table and an app's settings; gives messages of rows to the source topic.
Every file is read and checked whole before the first row is sent, because a half-sent file
cannot be sent again without writing rows twice. So standard input is kept in a temporary file.
"""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import tempfile
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from relay.errors import ConfigError, RelayError
from relay.produce.codecs import codec_unproposed
from relay.produce.file_rows import RowFile
from relay.produce.gathering import random_ends
from relay.produce.row_encoder import RowEncoder
from relay.produce.row_producer import RowProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    import numpy as np
    import pyarrow as pa

    from relay.config.settings import Settings
    from relay.produce.file_options import FileOptions

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")
STANDARD_INPUT = "standard input"
_PARQUET = b"PAR1"
_PEEK_BYTES = 4096
_NO_ROOM = frozenset({errno.EDQUOT, errno.EFBIG, errno.ENOSPC})


@dataclass(frozen=True, slots=True)
class Cut:
    """How many rows a message gets: each number from `least` to `most` is equally likely."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> Cut:
        """Parse `200`, or `1..200`.

        Raises:
            ConfigError: neither.
        """
        match = _RANGE.fullmatch(text)
        least = int(match[1]) if match else 0
        most = int(match[2] or least) if match else 0
        if not 1 <= least <= most <= 1_000_000:
            raise ConfigError(f"rows per message: {text!r}", "write a number or a range as 1..200")
        return cls(least, most)


@dataclass(frozen=True, slots=True)
class SentFiles:
    """What went into the topic."""

    rows: int
    messages: int


def produce(
    settings: Settings,
    table: str,
    sources: Sequence[RowFile],
    cut: Cut,
    random: np.random.Generator,
    progress: Callable[[str, int], None],
    *,
    dry_run: bool = False,
) -> SentFiles:
    """Check all files, then send all rows of all files, in order.

    `progress` is called with "check" or "send" and the bytes of the files done so far. A dry run
    only checks the files, and makes neither topics nor field numbers.

    Returns:
        What was sent; with `dry_run` the rows that would be.

    Raises:
        ConfigError: a file is wrong; nothing was sent.
        Unavailable, Refused: a server; the message says how many rows were delivered. Of any other
            error, as of an interruption, a note does.
    """
    if dry_run:  # no producer: what it asks for a codec fixes the table's field numbers
        encoder = RowEncoder(codec_unproposed(settings, table))
        return SentFiles(sum(map(len, _rows(sources, encoder, "check", progress))), 0)
    producer = RowProducer.from_settings(settings)
    checked: int | None = None
    sent = messages = 0
    try:
        with producer:
            encoder = RowEncoder(producer.codec(table))
            checked = sum(map(len, _rows(sources, encoder, "check", progress)))
            for rows in _rows(sources, encoder, "send", progress):
                ends = random_ends(len(rows), cut.least, cut.most, random)
                messages += producer.write_rows(table, rows, ends)
                sent += len(rows)
            producer.flush()
    except BaseException as error:
        if checked is not None:  # only now: the producer's end flushes what was handed over
            delivered = producer.delivered().get(table, 0)
            text = f"{delivered} of {checked} rows of {table} were delivered"
            if isinstance(error, RelayError):
                error.message += f" ({text})"
            else:
                error.add_note(text)
        raise
    return SentFiles(sent, messages)


def _rows(
    sources: Sequence[RowFile],
    encoder: RowEncoder,
    stage: str,
    progress: Callable[[str, int], None],
) -> Iterator[pa.BinaryArray]:
    """Yield the rows of all files; report progress when the caller is done with some."""
    sizes = [source.path.stat().st_size for source in sources]
    for source, bytes_before in zip(sources, accumulate(sizes, initial=0), strict=False):
        for piece in source.rows(encoder):
            yield piece.rows
            progress(stage, bytes_before + piece.done)


def total_bytes(sources: Sequence[RowFile]) -> int:
    """Return the size of the files together."""
    return sum(source.path.stat().st_size for source in sources)


@contextlib.contextmanager
def spooled(stream: BinaryIO, format_: str | None, options: FileOptions) -> Iterator[RowFile]:
    """Yield what the stream holds as a file; without a format, of that which it begins as.

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
            raise _spooling_error(error) from error
        file.seek(0)
        format_ = format_ or looks_like(file.read(_PEEK_BYTES))
        yield RowFile(Path(file.name), format_, options, STANDARD_INPUT)


def _spooling_error(error: OSError) -> ConfigError:
    """Say what went wrong: of a stream's error nobody else knows the file."""
    if error.errno not in _NO_ROOM:
        return ConfigError(
            f"cannot read {STANDARD_INPUT}: {error.strerror or error}",
            "give the rows as a file instead of -",
        )
    return ConfigError(
        f"cannot keep {STANDARD_INPUT} in {tempfile.gettempdir()}: {error.strerror}",
        "make room there, name a directory with more of it in TMPDIR, or give the rows as a file",
    )


def looks_like(beginning: bytes) -> str:
    """Return the format of a file that begins so: a Parquet file and JSON say what they are."""
    if beginning.startswith(_PARQUET):
        return "parquet"
    return "jsonl" if beginning.lstrip()[:1] in {b"{", b"["} else "csv"
