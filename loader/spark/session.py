"""Spark's session: its settings, each with its reason, and what it is not to say."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import psutil
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from loader.console import say
from loader.spark import class_archive, leftovers
from relay import failpoints, log
from relay.config.settings import Settings
from relay.errors import MissingTool

STREAMING = "org.apache.spark.sql.execution.streaming"
_AT_WORK = (f"{STREAMING}.runtime.ProcessingTimeExecutor",)
"""Warns of every batch longer than the trigger's interval, which is a least pause here."""
AT_THE_END = ("org.apache.spark.scheduler.DAGScheduler", "org.apache.hadoop.util.Shell")
"""Warn that no job was to be cancelled, and of the interrupt that ends the query."""

TASK_TRIES = 4
"""Spark's default on a cluster (spark.task.maxFailures)."""
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*\])?")


def session(settings: Settings, master: str | None, *, json_log: bool = False) -> SparkSession:
    """Start Spark, quiet and without its web server; `json_log`: its own lines are JSON, too."""
    name = f"block-relay loader of {settings.app}"
    where = with_retries(master or settings.loader.master)
    return started(name, where, class_archive.reading(), json_log=json_log)


def started(
    name: str, master: str, java_options: Sequence[str] = (), *, json_log: bool = False
) -> SparkSession:
    """Start Spark under a name; `java_options` are of a driver that runs the tasks, too.

    Raises:
        MissingTool: its JVM did not start.
    """
    os.environ["PYSPARK_PYTHON"] = python(master, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ[failpoints.DRIVER] = str(os.getpid())
    options = _options(name, master)
    if json_log:
        options["spark.log.structuredLogging.enabled"] = "true"
        options[f"spark.executorEnv.{log.FORMAT}"] = "json"  # a cluster's have one of their own
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # opens no port to the network
        # No row passes through this JVM: compiling further costs more than all its work.
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *java_options)
        options["spark.driver.defaultJavaOptions"] = " ".join(quick)
    conf = SparkConf().setAll(list(options.items()))
    # A signal to the whole group is for this process to act upon; the JVM ends with it.
    before = _children()
    try:
        gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    except (SystemExit, KeyboardInterrupt):
        _end(_children() - before)
        raise
    except PySparkRuntimeError as error:
        raise MissingTool(
            f"Spark's JVM did not start: {error}",
            "The JVM's own message is above. Spark needs bash, Java 17 or newer (JAVA_HOME, or in "
            "PATH) and a directory for temporary files.",
        ) from error
    _clear(SparkConf(_jvm=gateway.jvm))
    SparkContext(conf=conf, gateway=gateway)
    spark = SparkSession.builder.getOrCreate()
    set_log_level(spark, *_AT_WORK)
    return spark


def _children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def _end(starting: set[psutil.Process]) -> None:
    """End a JVM that was not up yet when this process was stopped, and its process group.

    PySpark removes the directory into which the JVM then wants to write its port: its main thread
    ends there, and the JVM would stay for ever.
    """
    for process in starting:
        with contextlib.suppress(ProcessLookupError):  # it has ended, or leads no group
            os.killpg(process.pid, signal.SIGKILL)


def _options(name: str, master: str) -> dict[str, str]:
    return {
        "spark.app.name": name,
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Tasks may run twice (each makes its own claim), but not for nothing.
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",  # keeps consumer and HTTP client
        "spark.python.daemon.module": "loader.spark.workers",  # whose workers end without a word
        "spark.sql.shuffle.partitions": "1",  # nothing is shuffled
        "spark.sql.adaptive.enabled": "false",  # else every start warns that streams cannot
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        # By default Spark asks a program of its own, readlink, about each file of the checkpoint in
        # a local directory: half of the 37 processes a second that it starts at 400,000 rows/s.
        "spark.sql.streaming.checkpointFileManagerClass": f"{STREAMING}.checkpointing."
        "FileSystemBasedCheckpointFileManager",
    }


def _clear(given: SparkConf) -> None:
    """Remove what an earlier driver in this pod left behind; only log if that fails."""
    pod = given.get("spark.kubernetes.driver.pod.name")
    if pod is None:
        return
    namespace = given.get("spark.kubernetes.namespace") or "default"
    try:
        removed = leftovers.remove(leftovers.in_pod(), namespace, pod)
    except OSError as error:
        reason = f"cannot remove what an earlier driver left behind: {error}"
        hint = "Its executors end by themselves; one that is pending takes a CPU later."
        say(f"{reason}. {hint}", level=logging.WARNING)
        return
    if removed:
        say(f"removed what an earlier driver left behind: {', '.join(removed)}")


def registered(spark: SparkSession) -> Callable[[], int] | None:
    """Return a counter of registered executors; None if tasks run in the driver."""
    if str(spark.sparkContext.master).startswith("local["):
        return None
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001 - the only way

    def count() -> int:
        try:
            return len(tracker.getExecutorInfos()) - 1  # the driver is one of them
        except (Py4JError, ConnectionError):
            return 0  # the JVM has ended

    return count


def with_retries(master: str) -> str:
    """Return the master, such that a task whose worker process died is tried again.

    Without a second number in local[N, FAILURES], Spark fails the whole job at the first.
    """
    threads = _LOCAL.fullmatch(master)
    return f"local[{threads[1] or '1'},{TASK_TRIES}]" if threads else master


def widened(master: str, pipelines: int) -> str:
    """Return a local master with the slots of one pipeline for each of them.

    On a cluster each pipeline gets its share of the slots, at least one: it needs as many.
    """
    threads = _LOCAL.fullmatch(master)
    if threads is None:
        return master
    cores = len(os.sched_getaffinity(0)) if threads[1] == "*" else int(threads[1] or 1)
    return f"local[{cores * pipelines}]"


def python(master: str, environment: Mapping[str, str]) -> str:
    """Return the Python interpreter of Spark's processes, which must import this package.

    Executors of a cluster may have it elsewhere; PYSPARK_PYTHON then says where.
    """
    elsewhere = None if master.startswith("local") else environment.get("PYSPARK_PYTHON")
    return elsewhere or sys.executable


def set_log_level(spark: SparkSession, *loggers: str, level: str = "ERROR") -> None:
    """Have these loggers log nothing below `level` from now on."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the only way to one logger's level
    log4j = jvm.org.apache.logging.log4j
    for logger in loggers:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.valueOf(level))


_heard: list[Any] = []
"""Where the JVM's threads print, while they are mute."""


def mute(spark: SparkSession) -> None:
    """Drop what `muted_threads` drops from now on, until `unmute`.

    A query that a batch ends commits to its source once more as well, in its own time.
    """
    java: Any = spark._jvm.java  # type: ignore[union-attr] # noqa: SLF001 - as above
    if not _heard:
        _heard.append(java.lang.System.err)
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))


def unmute(spark: SparkSession) -> None:
    """Undo `mute`."""
    while _heard:
        spark._jvm.java.lang.System.setErr(_heard.pop())  # type: ignore[union-attr] # noqa: SLF001


@contextlib.contextmanager
def muted_threads(spark: SparkSession) -> Iterator[None]:
    """Suppress the tracebacks of threads that end meanwhile; logging continues.

    A query that is stopped commits to its source once more, whose connection is closed by then
    (Spark 4.3, with progress written beside the batches): a stack trace at every stop. What a query
    itself ends with is raised by awaitTermination.
    """
    java: Any = spark._jvm.java  # type: ignore[union-attr] # noqa: SLF001 - as above
    errors = java.lang.System.err
    java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
    try:
        yield
    finally:
        java.lang.System.setErr(errors)
