"""JVMs of tests and campaigns: brokers and Spark, ended after seconds and started again."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

from loader.spark import class_archive

SHORT_LIVED = "-XX:TieredStopAtLevel=1"
"""Most of a short life goes into the second compiler. A broker's start took 2.5 s of processor time
with it, 4.6 s without."""


def live_shortly() -> None:
    """What this process starts from now on; whoever has set options of their own keeps them."""
    os.environ.setdefault("JAVA_TOOL_OPTIONS", SHORT_LIVED)


def prepare_spark() -> None:
    """Have `loader prepare` run once in this environment: each later start takes half the time."""
    lock = class_archive.place("lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of tests that run side by side
        if not class_archive.written():
            subprocess.run([sys.executable, "-m", "loader.cli", "prepare"], check=True)
