"""Spark's checkpoint, as far as the loader reads it: where a query would go on from it.

Receives a directory, on this machine or on a file system that Spark knows, gives the journal
offsets in it. Moves what is in it aside where the ledger says otherwise; never deletes.

One loader for each checkpoint: a second one ends before it touches anything. A lock in the
directory is held for as long as a loader runs. The system lets go of it with the process, however
that ends. Where the checkpoint is elsewhere there is no lock: then Spark finds that two write to
it, and loader.spark.one_app says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.config.settings import ELSEWHERE
from relay.errors import ConfigError, Fenced, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

LOCK = ".loader.lock"
"""The file's name; Spark reads no such file."""
_ASIDE = "aside-"
_OFFSETS, _COMMITS, _METADATA = "offsets", "commits", "metadata"


@dataclass(frozen=True, slots=True)
class CheckpointPositions:
    """The positions in a checkpoint.

    Attributes:
        journal: topic id; empty where its newest file names none, or a file is cut off.
        offsets: by partition, where the query would go on, or repeat its last batch from.
        planned: by partition, where its last batch ends, which it may have been in the midst of.
        cut_off: the file in it, of those that Spark reads at a start, that is empty or cut off;
            empty: none is. Spark does not wait until the disk has them, so a power failure leaves
            such files, and no query starts with one.
    """

    journal: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    planned: Mapping[int, int] = field(default_factory=dict)
    cut_off: str = ""


class Here:
    """Files on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self, within: str) -> list[str]:
        """List the names in a subdirectory; none if it does not exist."""
        where = self._directory / within
        return [file.name for file in where.iterdir()] if where.is_dir() else []

    def text(self, within: str, name: str) -> str:
        """Read a file of a subdirectory."""
        return (self._directory / within / name).read_text(encoding="utf-8")

    def move(self, name: str, into: str) -> None:
        """Move a file or directory into a subdirectory."""
        (self._directory / into).mkdir(exist_ok=True)
        (self._directory / name).rename(self._directory / into / name)


@contextlib.contextmanager
def _as_here() -> Iterator[None]:
    """Raise as OSError what a file system throws in the JVM; the JVM's own end stays what it is."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # noqa: PLC0415 - Spark
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        # PySpark has classes of its own for some; behind the first line comes a stack trace.
        thrown = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        raise OSError(thrown.partition("\n")[0]) from error


class Elsewhere:
    """Files on a file system that Spark knows, through its JVM.

    Raises (every method): OSError.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no other way to Hadoop's files
        self._url = url
        self._configuration = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    @functools.cached_property
    def _files(self) -> Any:
        return self._path().getFileSystem(self._configuration)

    @_as_here()
    def names(self, within: str) -> list[str]:
        """List the names, as Here does."""
        where = self._path(within)
        if not self._files.exists(where):
            return []
        return [str(file.getPath().getName()) for file in self._files.listStatus(where)]

    @_as_here()
    def text(self, within: str, name: str) -> str:
        """Read the text, as Here does."""
        with contextlib.closing(self._files.open(self._path(within, name))) as stream:
            return bytes(stream.readAllBytes()).decode()

    @_as_here()
    def move(self, name: str, into: str) -> None:
        """Move the file, as Here does."""
        self._files.mkdirs(self._path(into))
        if not self._files.rename(self._path(name), self._path(into, name)):
            raise OSError(f"cannot rename {self._path(name).toString()}")

    def _path(self, *parts: str) -> Any:
        whole = "/".join(filter(None, [self._url.rstrip("/"), *parts]))
        return self._jvm.org.apache.hadoop.fs.Path(whole)


class Checkpoint:
    """The checkpoint of one query.

    `where`: directory, or URL; `engine`: gives Spark's session, for a URL.
    """

    def __init__(self, where: str, engine: Callable[[], SparkSession] | None = None) -> None:
        self.where = where
        self._files: Here | Elsewhere = Here(Path(where))
        if engine is not None and ELSEWHERE.match(where):
            self._files = Elsewhere(engine(), where)

    def found(self) -> CheckpointPositions | None:
        """Return the positions in it; None if there is no checkpoint."""
        planned, done = (_batches(self._files.names(log)) for log in (_OFFSETS, _COMMITS))
        if cut_off := self._cut_off(planned, done):
            return CheckpointPositions("", cut_off=cut_off)
        if not planned:
            return None
        # Spark goes on behind a batch that it calls committed, and repeats one that it only
        # planned, from where the batch before it ended.
        ended = planned if planned[-1] in done else planned[:-1]
        last = _parsed(self._files.text(_OFFSETS, str(planned[-1])))
        if not ended:
            return CheckpointPositions(last.journal, planned=last.offsets)
        before = _parsed(self._files.text(_OFFSETS, str(ended[-1])))
        return CheckpointPositions(before.journal, before.offsets, last.offsets)

    def set_aside(self) -> str:
        """Move everything in it into a new subdirectory; return the name of that.

        The offsets go last: until then a repetition finds what this call found.

        Raises:
            Refused: it cannot be moved.
        """
        into = f"{_ASIDE}{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
        stays = (_ASIDE, LOCK)
        try:
            inside = [name for name in self._files.names("") if not name.startswith(stays)]
            for name in sorted(inside, key=lambda name: (name == _OFFSETS, name)):
                self._files.move(name, into)
        except OSError as error:
            raise Refused(
                f"cannot move the checkpoint {self.where} aside: {error}",
                "Move the directory away yourself, or let the loader's user write there.",
            ) from error
        return f"{self.where.rstrip('/')}/{into}"

    def _cut_off(self, planned: list[int], done: list[int]) -> str:
        """Return which file that Spark reads at a start is not whole; empty: each of them is."""
        metadata = [name for name in self._files.names("") if name == _METADATA]
        files = [("", name, 1) for name in metadata]
        files += [(_OFFSETS, str(batch), 3) for batch in planned[-2:]]
        files += [(_COMMITS, str(batch), 2) for batch in done[-1:]]
        for within, name, lines in files:
            if not _is_whole(self._text(within, name), lines):
                return f"{within}/{name}".lstrip("/")
        return ""

    def _text(self, within: str, name: str) -> str:
        """Return the text of a file; empty where a disk that lost a part left no text."""
        try:
            return self._files.text(within, name)
        except UnicodeDecodeError:
            return ""


def _batches(names: list[str]) -> list[int]:
    return sorted(int(name) for name in names if name.isdigit())


def _parsed(text: str) -> CheckpointPositions:
    """Parse a file of Spark's offset log: version, metadata, the source's offsets, one a line."""
    try:
        source = json.loads(text.splitlines()[-1])
        offsets = {int(p): int(offset) for p, offset in source.items() if p != "journal"}
        return CheckpointPositions(str(source["journal"]), offsets)
    except (IndexError, KeyError, ValueError, AttributeError):
        return CheckpointPositions("")


def _is_whole(text: str, lines: int) -> bool:
    """Return whether a file of Spark's has so many lines; the last one is JSON in each of them."""
    found = text.splitlines()
    try:
        json.loads(found[-1])
    except (IndexError, ValueError):
        return False
    return len(found) >= lines


@contextlib.contextmanager
def alone(where: str) -> Iterator[None]:
    """Hold the checkpoint's lock until the context ends.

    Raises:
        Fenced: another loader holds it.
        ConfigError: the directory cannot be made, or nothing can be written there.
    """
    if ELSEWHERE.match(where):
        yield
        return
    try:
        Path(where).mkdir(parents=True, exist_ok=True)
        file = (Path(where) / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"checkpoint {where}: {error}", "Name a directory that this user may write to."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise used(where, file.read(200).strip()) from error
        except OSError:  # a file system without locks
            yield
            return
        file.truncate(0)
        print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
        yield


def unread(where: str, error: OSError) -> ConfigError | Unavailable:
    """Return the error for a checkpoint that cannot be read, or whose file system does not answer.

    `where`: as of Checkpoint; `error`: of `Checkpoint.found`.
    """
    text = f"cannot read checkpoint {where}: {error}"
    if ELSEWHERE.match(where):
        return Unavailable(
            text,
            "Start this file system, let the loader's user in, or give Spark the jars and settings "
            "that it needs for it.",
        )
    return ConfigError(text, "Let the loader's user read what is in it.")


def used(where: str, by: str = "") -> Fenced:
    """Return the error for a second loader with this checkpoint.

    `by`: which process has it; empty: not known.
    """
    return Fenced(
        f"another loader{f' ({by})' if by else ''} uses checkpoint {where}",
        "Stop that loader, or give this one a directory of its own (loader.checkpoint, or "
        "--checkpoint): two loaders of one app may run, each with its own.",
    )
