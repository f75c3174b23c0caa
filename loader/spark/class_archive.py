"""The archive of the classes that Spark's JVM loads, with which its next start takes half the time.

A JVM reads, checks and links some 13 000 classes before Spark runs its first task. HotSpot can
write them to a file when it ends and map that file when it starts (JEP 350, dynamic class-data
sharing). It checks by itself that Java and every jar are those of the file, and does without the
file where they are not. The file lies in the Python environment, so it goes with its pyspark.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pyspark

from relay.program import java

_SILENT = "-Xlog:cds=off,cds+dynamic=off,class+path=off"
"""A file that does not fit is no news; Spark's launcher, another JVM, has another class path."""


def place(size: int | str = "*") -> Path:
    """Return where the archive of this environment's Spark and this machine's Java lies.

    Its size in bytes is a part of the name; by default a pattern that fits any.

    Raises:
        MissingTool: there is no Java that Spark runs on.
    """
    jars = Path(pyspark.__file__).resolve().parent / "jars"
    both = hashlib.sha256(f"{java.find().resolve()} {jars}".encode()).hexdigest()[:12]
    directory = Path(sys.prefix) / "share" / "block-relay"
    return directory / f"spark-{pyspark.__version__}-{both}-{size}.jsa"


def written() -> list[Path]:
    """Return the archives that are there and whole; several only while one is replaced.

    A JVM that maps a file which was cut off, by a full disk or a copy that was broken off, ends
    with SIGBUS: so the name says the size.
    """
    pattern = place()
    files = sorted(pattern.parent.glob(pattern.name))
    return [file for file in files if file == place(file.stat().st_size)]


def reading() -> list[str]:
    """Return the JVM's options that use the archive; none where nobody has written one."""
    # Spark splits the options of its JVM at blanks.
    archives = [file for file in written() if " " not in str(file) and os.access(file, os.R_OK)]
    return [f"-XX:SharedArchiveFile={archives[-1]}", _SILENT] if archives else []


def writing(archive: Path) -> list[str]:
    """Return the JVM's options that write the archive when it ends."""
    return [f"-XX:ArchiveClassesAtExit={archive}", _SILENT]
