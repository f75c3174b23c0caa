"""A loader that is stopped while Spark's JVM starts leaves no JVM behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys

import psutil
import pytest

from tests.broker.pipeline import wait_until
from tests.loader.standalone import runs

pytestmark = pytest.mark.servers

PROGRAM = """
import signal, sys
from loader.spark.session import started
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
started("stopped", "local[1]")
"""


def is_jvm(process: psutil.Process) -> bool:
    """Whether it runs Java; what Spark's scripts start may end in between."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name() == "java"
    return False


def test_no_jvm_stays() -> None:
    """By SIGTERM: PySpark takes away the directory that the JVM looks for, which then stood still
    for ever, with its memory."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stderr=subprocess.DEVNULL)
    started: set[psutil.Process] = set()

    def starts() -> bool:
        started.update(psutil.Process(process.pid).children(recursive=True))
        return any(map(is_jvm, started))

    try:
        wait_until(starts, "Spark's JVM")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        wait_until(lambda: not any(map(runs, started)), "the JVM's end", 60)
    finally:
        process.kill()
        for one in filter(runs, started):
            one.kill()
