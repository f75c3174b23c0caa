"""JVMs of tests and campaigns: brokers and Spark, ended after seconds and started again."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loader.spark import class_archive
from relay.dev import broker, jars, layout

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Most of a short life goes into the second compiler. A broker's start took 2.5 s of processor time
with it, 4.6 s without."""


def live_shortly() -> None:
    """What this process starts from now on; whoever has set options of their own keeps them."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", _options())


def prepare_spark() -> None:
    """Have `loader prepare` run once in this environment: each later start takes half the time."""
    with _one_at_a_time():
        if not class_archive.written():
            subprocess.run([sys.executable, "-m", "loader.cli", "prepare"], check=True)


def prepare_kafka() -> None:
    """Write an archive of a broker's classes once in this environment, as Spark has one.

    Format and start of a broker took 2.4 s of processor time with it, 3.7 s without (medians of
    three): tests start a hundred.
    """
    if os.environ.get("JAVA_TOOL_OPTIONS") != SHORT_LIVED:
        return
    jars.classpath(print)
    archive = _kafka_archive()
    with _one_at_a_time():
        if not archive.exists():
            _write(archive)
    os.environ["JAVA_TOOL_OPTIONS"] = _options()


def _write(archive: Path) -> None:
    """Let a broker live for a moment and write the archive as it ends."""
    part = archive.with_suffix(".part")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{SHORT_LIVED} {' '.join(class_archive.writing(part))}"
    with TemporaryDirectory(prefix="block-relay-") as directory:
        place = Path(directory)
        layout.write(place, layout.decide(place, 1, 0, 0)[0])
        broker.start(place, 0)
        broker.stop(place, 0)
    part.rename(archive)  # a JVM that maps a part of a file ends with SIGBUS


def _options() -> str:
    archive = _kafka_archive()
    if not archive.exists() or " " in str(archive):  # at which Java splits its options
        return SHORT_LIVED
    # Spark's own archive is named on its command line, which wins over this.
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} {class_archive.SILENT}"


def _kafka_archive() -> Path:
    return Path(sys.prefix) / "share" / "block-relay" / f"kafka-{jars.KAFKA_VERSION}.jsa"


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold the lock of tests that run side by side."""
    lock = class_archive.place("lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
