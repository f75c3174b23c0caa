"""The programs that are measured, each as a process of its own on the same broker.

Receives a source topic and a directory, gives a process that can be started, asked
whether it still runs, and ended. Never measures.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from relay import names
from relay.config.settings import Relay
from relay.dev import jars
from relay.errors import MissingTool, Unavailable
from relay.program import java
from tests.bench.passthrough import Order
from tests.bench.source import Source

STREAMS_COORDINATE = "org.apache.kafka:kafka-streams:4.1.1"
ROOT = Path(__file__).parents[2]
_STOP_SECONDS = 30.0
RELAY_COMMIT_SECONDS: float = Relay.model_fields["commit_interval_seconds"].default
"""The relay's own interval, so that its ceiling commits as often."""

# Tried at rest, one thread, 30 million rows at 100 per message, medians of four alternating
# rounds: 2.5 million rows/s with polls of 10000 records and batches of 512 KiB; 3.2 with these,
# which are smaller; 3.4 with the parallel garbage collector too; 3.1 if commits are every 100 ms
# besides; 3.3 with two threads. Two rounds: 1.9 with the defaults, 2.1 with commits every 1500 ms,
# 3.0 with LZ4 where all else gave 2.9.
_STREAMS_JAVA = ("-Xmx2g", "-XX:+UseParallelGC")
_STREAMS_SETTINGS = {
    "processing.guarantee": "exactly_once_v2",
    "auto.offset.reset": "earliest",
    "replication.factor": "1",
    "commit.interval.ms": "500",
    "buffered.records.per.partition": "5000",
    "poll.ms": "20",
    "main.consumer.max.poll.records": "2000",
    "main.consumer.fetch.max.bytes": "67108864",
    "main.consumer.max.partition.fetch.bytes": "16777216",
    "main.consumer.receive.buffer.bytes": "1048576",
    "producer.batch.size": "131072",
    "producer.linger.ms": "5",
    "producer.buffer.memory": "268435456",
    "producer.compression.type": "none",
    "statestore.cache.max.bytes": "0",
    "metrics.recording.level": "INFO",
}


@dataclass(frozen=True, slots=True)
class Contender:
    """How to start one, and where its output and its progress are.

    Attributes:
        prefix: of all its topics.
        group: to which it commits source offsets.
        outputs: topics that must be there before it starts.
        directory: in which it runs; Python finds packages there first.
    """

    command: list[str]
    prefix: str
    group: str
    outputs: list[str]
    log: Path
    directory: Path = ROOT


class Process:
    """A started contender; leaving the context ends it, and only it.

    Raises:
        Unavailable: by `still_runs`, when it has died; with the end of its log.
    """

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        contender.log.parent.mkdir(parents=True, exist_ok=True)
        self._log = contender.log.open("wb")
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            contender.command, cwd=contender.directory, stdout=self._log, stderr=subprocess.STDOUT
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    @property
    def pid(self) -> int:
        """Of the process itself; it may have children."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it did, with whatever status."""
        return self._process.poll() is not None

    def ask_to_end(self) -> None:
        """SIGTERM, as a supervisor sends it; `wait` waits for what comes of it."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        self._process.kill()
        self._process.wait()

    def still_runs(self) -> None:
        """Raises if it does not."""
        status = self._process.poll()
        if status is not None:
            raise self._died(status)

    def has_not_failed(self) -> None:
        """Raises if it ended with another status than 0."""
        status = self._process.poll()
        if status not in {None, 0}:
            raise self._died(status)

    def wait(self, seconds: float) -> None:
        """For its end with status 0."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired as problem:
            raise Unavailable(
                f"still running {seconds:g} s after its work was done",
                f"its log is {self._contender.log}",
            ) from problem
        self.has_not_failed()

    def _died(self, status: int | None) -> Unavailable:
        tail = self._contender.log.read_text(errors="replace")[-2000:]
        return Unavailable(
            f"{self._contender.log.stem} ended with status {status}:\n{tail}",
            f"its log is {self._contender.log}",
        )


def relay(
    config: Path,
    app: str,
    log: Path,
    processes: int = 1,
    member: str | None = None,
    checkout: Path = ROOT,
) -> Contender:
    """One relay command, as a user runs it; under the file's member, or this one."""
    command = [
        *_program("relay", checkout=checkout),
        "run",
        str(config),
        "--processes",
        str(processes),
    ]
    if member is not None:
        command += ["--member", member]
    return Contender(command, f"{app}.", names.group_id(app), [], log, checkout)


def loader(
    config: Path,
    app: str,
    log: Path,
    *,
    once: bool = True,
    prefix: Path | None = None,
    checkout: Path = ROOT,
) -> Contender:
    """One loader, as a user runs it; `once`: it ends when all sealed blocks are loaded.

    Spark starts with the archive of its classes that lies under `prefix`, if there is one.
    """
    command = [*_program("loader", prefix, checkout), "run", str(config), *["--once"][: int(once)]]
    return Contender(command, f"{app}.", "", [], log, checkout)


def prepare(prefix: Path, log: Path) -> Contender:
    """`loader prepare`, which writes the archive of Spark's classes under `prefix`."""
    return Contender([*_program("loader", prefix), "prepare"], "", "", [], log)


def feed(order: Path, log: Path) -> Contender:
    """Rows at a steady rate, as the order says (tests.bench.feed)."""
    return Contender([sys.executable, "-m", "tests.bench.feed", str(order)], "", "", [], log)


def _program(package: str, prefix: Path | None = None, checkout: Path = ROOT) -> list[str]:
    if checkout != ROOT:
        return [str(checkout / ".venv" / "bin" / package)]
    # What the console script does, without asking where it was installed. The archive of Spark's
    # classes lies under the environment's prefix, which a bench leaves as it is.
    elsewhere = "" if prefix is None else f"sys.prefix = {str(prefix)!r}; "
    code = f"import sys; {elsewhere}from {package}.cli import main; sys.exit(main())"
    return [sys.executable, "-c", code]


def passthrough(
    source: Source,
    app: str,
    log: Path,
    commit_seconds: float = RELAY_COMMIT_SECONDS,
    *,
    exactly_once: bool = True,
) -> Contender:
    """Plain confluent-kafka: values copied, no table, no decoding."""
    output = f"{app}.out"
    order = Order(source.bootstrap, source.topic, app, output, commit_seconds, exactly_once)
    command = [sys.executable, "-m", "tests.bench.passthrough", order.argument()]
    return Contender(command, f"{app}.", app, [output], log)


def streams(
    source: Source, app: str, threads: int, classes: list[Path], directory: Path
) -> Contender:
    """Kafka Streams exactly_once_v2 that routes to a topic per table."""
    settings = {
        **_STREAMS_SETTINGS,
        "bootstrap.servers": source.bootstrap,
        "application.id": app,
        "num.stream.threads": str(threads),
        "state.dir": str(directory / f"{app}.state"),
        "bench.source": source.topic,
        "bench.output.prefix": f"{app}.",
    }
    file = directory / f"{app}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    path = os.pathsep.join(map(str, classes))
    command = [str(java.require()), *_STREAMS_JAVA, "-cp", path, "Routing", str(file)]
    return Contender(command, f"{app}.", app, routed(source, app), directory / f"{app}.log")


def routed(source: Source, app: str) -> list[str]:
    """The topics of a contender that routes by table."""
    return [f"{app}.{table}" for table in source.shape.names]


def typed(config: Path, way: str, log: Path) -> Contender:
    """Spark with typed rows through the JVM, as a user without the loader would write it.

    Args:
        config: of the app whose blocks are read.
        way: that they reach ClickHouse by, "rows" or "columns" (tests.bench.typed).
        log: of its output.
    """
    command = [sys.executable, "-m", "tests.bench.typed", str(config), way]
    return Contender(command, "", "", [], log)


def compile_streams(directory: Path, progress: Callable[[str], None]) -> list[Path]:
    """The class path of the peer: Kafka Streams' jars, and Routing.java compiled.

    Raises:
        MissingTool: no compiler beside the Java in use.
    """
    program = java.require()
    compiler = program.resolve().parent / "javac"
    if not compiler.exists():
        raise MissingTool(
            f"no javac beside {program}: this Java has no compiler",
            "Install a JDK, 17 or newer (on Debian: apt-get install openjdk-17-jdk-headless).",
        )
    found = jars.resolve(STREAMS_COORDINATE, progress)
    classes = directory / "classes"
    progress("compiling the Kafka Streams peer")
    subprocess.run(
        [
            *(str(compiler), "-cp", os.pathsep.join(map(str, found)), "-d", str(classes)),
            str(Path(__file__).parent / "peer" / "Routing.java"),
        ],
        check=True,
    )
    return [classes, *found]
