"""One Kafka broker (KRaft, broker and controller in one process) of a stack.

Receives: the stack's directory and the broker's index, 0 for the first. Gives:
a running broker that has answered. `start`, `stop` and `kill` are also what
tests of faults use.

A file `extra.properties` in the stack's directory is added to every broker's settings, and
`broker-N.extra.properties` to those of one; they are read when a broker starts.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from relay.dev import jars, layout, process
from relay.dev.layout import HOST, Layout
from relay.errors import ConfigError, Unavailable
from relay.program import java

_READY_SECONDS = 180.0
_FORMAT_SECONDS = 90.0
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c{1})%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""

_quiet = logging.getLogger("relay.dev.probe")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def name(index: int) -> str:
    """Return the name of a broker's pid file, log and data."""
    return f"broker-{index}"


def start(directory: Path, index: int) -> int:
    """Start a broker of an existing stack, and wait until it answers; return its pid.

    Raises:
        ConfigError: no such broker.
        Unavailable: it ended or did not answer; with the tail of its log.
    """
    directory = directory.resolve()
    plan = layout.read(directory)
    if plan is None or not 0 <= index < len(plan.kafka_ports):
        raise ConfigError(f"{directory} holds no {name(index)}", "start it with `relay dev up`")
    running = process.find(directory, name(index))
    pid = running.pid if running else launch(directory, index, plan)
    await_ready(directory, index, plan)
    return pid


def stop(directory: Path, index: int) -> bool:
    """End a broker in good order (SIGTERM); False if it did not run."""
    return process.end(directory.resolve(), name(index))


def kill(directory: Path, index: int) -> bool:
    """End a broker as a crash would (SIGKILL); False if it did not run."""
    return process.end(directory.resolve(), name(index), kill=True)


def launch(directory: Path, index: int, plan: Layout) -> int:
    """Start a broker without waiting for it; return its pid."""
    for port in (plan.kafka_ports[index], plan.controller_ports[index]):
        if not layout.is_free(port):
            raise Unavailable(
                f"port {port} of {name(index)} is in use by another process",
                "end that process, or choose ports (--kafka-port) in a new --directory",
            )
    settings = _write_settings(directory, index, plan)
    if not (directory / name(index) / "meta.properties").exists():
        _format(settings, plan.cluster_id)
    # 1 GB is plenty for one broker, 256 MB enough for each of three: measured.
    heap = "-Xmx1g" if len(plan.kafka_ports) == 1 else "-Xmx256m"
    logging_file = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
    command = [*_java(heap, logging_file), "kafka.Kafka", str(settings)]
    return process.spawn(directory, name(index), command)


def await_ready(directory: Path, index: int, plan: Layout) -> None:
    """Wait until the cluster lists the broker as alive; raise as process.await_ready does."""
    admin: list[AdminClient] = []
    address = f"{HOST}:{plan.kafka_ports[index]}"

    def ready() -> bool:
        if layout.is_free(plan.kafka_ports[index]):
            return False  # asking before it listens would only cost the client's back-off
        if not admin:
            admin.append(AdminClient({"bootstrap.servers": address}, logger=_quiet))
        try:
            return index in admin[0].list_topics(timeout=2).brokers
        except KafkaException:
            return False  # not yet; the deadline and the log's tail are await_ready's

    process.await_ready(directory, name(index), ready, _READY_SECONDS)


def properties(directory: Path, index: int, plan: Layout) -> dict[str, str]:
    """Return the broker's settings: Kafka's defaults but for size and haste on one machine."""
    count = len(plan.kafka_ports)
    copies, in_sync = str(min(3, count)), str(2 if count >= 3 else 1)
    voters = ",".join(f"{i}@{HOST}:{port}" for i, port in enumerate(plan.controller_ports))
    client, controller = plan.kafka_ports[index], plan.controller_ports[index]
    return {
        "process.roles": "broker,controller",
        "node.id": str(index),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(directory / name(index)),
        # As in production: a topic exists because somebody made it.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        # Internal topics: few partitions, or the first use of a group or transaction waits
        # for 50 of them.
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Haste: tests wait for rebalances, for dead members and for abandoned transactions.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        # After a crash the broker may register again only when its old session has ended (9 s).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # A new segment has two index files, sparse and as large as this from the beginning, of
        # which a first write faults in as much as the disk reads ahead. At the default of 10 MiB
        # and 8 MiB read ahead the first rows of 512 partitions cleared 8 GB of memory, for 15 s.
        # So few index at least 89 MB of log.
        "log.index.size.max.bytes": "262144",
        # The default of 128 MB would be half of the small heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
    }


def _write_settings(directory: Path, index: int, plan: Layout) -> Path:
    (directory / "log4j2.properties").write_text(_LOGGING, encoding="utf-8")
    path = directory / f"{name(index)}.properties"
    lines = [f"{key}={value}\n" for key, value in properties(directory, index, plan).items()]
    # Of two lines with one key Java takes the later.
    extra = (directory / "extra.properties", directory / f"{name(index)}.extra.properties")
    lines += [f"{file.read_text(encoding='utf-8')}\n" for file in extra if file.exists()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _format(settings: Path, cluster_id: str) -> None:
    """Write the identity of a new, empty data directory."""
    haste = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # it runs for a second
    command = [*_java("-Xmx128m", *haste), "kafka.tools.StorageTool", "format"]
    # One id in 64 begins with "-", which the tool would take for an option of its own.
    command += ["--ignore-formatted", f"--cluster-id={cluster_id}", "--config", str(settings)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"formatting did not end within {_FORMAT_SECONDS:g} s") from error
    if done.returncode != 0:
        raise Unavailable(f"could not format {settings}:\n{(done.stdout + done.stderr)[-2000:]}")


def _java(*options: str) -> list[str]:
    lib = jars.classpath(lambda _: None)[0].parent  # `up` has fetched them and shown progress
    return [str(java.require()), *options, "-cp", f"{lib}/*"]
