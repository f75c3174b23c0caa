"""One app on the real broker, for the scenarios beside: relays as processes, and an
independent reading of what they made visible."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from relay.blocks import chunks
from relay.config.server_settings import ClickHouse
from relay.dev.clickhouse import toml
from relay.records_pb2 import Block, Commit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PARTITIONS = 2
WAIT_SECONDS = 120.0
LOG_LINES = 40
"""Of each process that a failed test shows."""
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}
_NOT_THERE = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE}


@dataclass
class Pipeline:
    """An app with a source topic of two partitions and the table `t (id Int64, v String)`."""

    bootstrap: str
    clickhouse: ClickHouse
    app: str
    database: str
    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    sent: Counter[int] = field(default_factory=Counter)
    without: str = ""
    """The guard that relays run without (tests.broker.unguarded)."""
    partitions: int = field(default_factory=lambda: PARTITIONS)
    """Of the source; a test that grows it says so here."""
    patience_seconds: float = 120.0
    end_seconds: float = 60.0
    """How long a scenario waits for the end of a process; in a control, perhaps in vain."""
    failed: frozenset[int] = frozenset({1, 2, 4, 70})
    """Statuses of a relay that will not do what is waited for."""

    @property
    def table(self) -> str:
        return f"{self.database}.t"

    @property
    def source(self) -> str:
        return f"{self.app}.source"

    @property
    def source_bootstrap(self) -> str:
        """Of the cluster that has the source and the relays' group."""
        return self.bootstrap

    def create_source(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.source_bootstrap})
        new = NewTopic(self.source, self.partitions, 1, config={"cleanup.policy": "delete"})
        create_topics(admin, new)

    def delete_source(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.source_bootstrap})
        delete_topic(admin, self.source)

    def config(self, extra: str = "", **relay: float | str) -> Path:
        """A TOML file; sessions are short, so that zombies are made in seconds."""
        settings: dict[str, Any] = {
            "commit_interval_seconds": 0.1,
            "session_timeout_seconds": 6.0,
            "transaction_timeout_seconds": 5.0,
            "wait_for_servers_seconds": 30.0,
            **relay,
        }
        lines = "\n".join(f"{k} = {v!r}".replace("'", '"') for k, v in settings.items())
        path = self.directory / f"relay-{len(list(self.directory.glob('*.toml')))}.toml"
        path.write_text(
            f"""
app = "{self.app}"
[kafka]
bootstrap = "{self.bootstrap}"
[source]
topic = "{self.source}"
start = "earliest"
[clickhouse]
{toml(self.clickhouse)}[block]
max_age_seconds = 0.2
[loader]
checkpoint = "{self.directory}/checkpoint"
[relay]
{lines}
{extra}
""",
            encoding="utf-8",
        )
        return path

    def start(
        self,
        member: str,
        config: Path | None = None,
        failpoint: str = "",
        arguments: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """A relay process; its log is `log(process)`."""
        path = self.directory / f"{member}-{len(self.processes)}.log"
        program = [Path(sys.executable).parent / "relay"]
        if self.without:
            program = [sys.executable, "-m", "tests.broker.unguarded", self.without]
        command = [*program, "run", config or self.config()]
        with path.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--member", member, *arguments],
                stderr=output,
                stdout=output,
                env={
                    **os.environ,
                    "PYTHONFAULTHANDLER": "1",
                    "RELAY_FAILPOINT": failpoint,
                    "UNGUARDED_GROUP": f"{self.app}.relay",
                },
            )
        process.log = path  # type: ignore[attr-defined]
        self.processes.append(process)
        return process

    def watch(
        self, command: str, config: Path, *arguments: str, failpoint: str = ""
    ) -> subprocess.Popen[bytes]:
        """A command that lasts; what it prints is `log(process)`."""
        path = self.directory / f"{command}-{len(self.processes)}.log"
        program = [Path(sys.executable).parent / "relay", command, config, *arguments]
        environment = {**os.environ, "RELAY_FAILPOINT": failpoint}
        with path.open("wb") as output:
            process = subprocess.Popen(program, stderr=output, stdout=output, env=environment)
        process.log = path  # type: ignore[attr-defined]
        self.processes.append(process)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        path: Path = process.log  # type: ignore[attr-defined]
        return path.read_text(encoding="utf-8")

    def end_of(self, process: subprocess.Popen[bytes]) -> int:
        """The status that the relay ends with; where it does not end, its stacks are in its log."""
        try:
            return process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.wait(30)
            raise

    def until(self, condition: Callable[[], bool], what: str, seconds: float | None = None) -> None:
        """Wait for a condition; fail at once where a relay ended with an error of its own."""

        def holds() -> bool:
            for process in self.processes:
                assert process.poll() not in self.failed, self.log(process)
            return condition()

        wait_until(holds, what, seconds or self.patience_seconds)

    def stop_all(self) -> None:
        """End what still runs, and print every log: pytest shows it where the test failed."""
        for process in self.processes:
            if process.poll() is None:
                members = psutil.Process(process.pid).children(recursive=True)
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait(30)
                for member in members:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
        for path in sorted(self.directory.glob("*.log")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            print(f"-- {path.name}", *lines[-LOG_LINES:], sep="\n")

    def send(self, ids: Sequence[int], partition: int = 0, *, per_message: int = 1) -> None:
        """Rows with these ids, committed to the source."""
        producer = Producer({"bootstrap.servers": self.source_bootstrap, "acks": "all"})
        for at in range(0, len(ids), per_message):
            value = row_batch(ids[at : at + per_message])
            self.produce(producer, value, partition)
        assert producer.flush(30) == 0
        self.sent.update(ids)

    def produce(
        self,
        producer: Producer,
        value: bytes | None,
        partition: int,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        headers = [("table", self.table.encode())] if headers is None else headers
        producer.produce(self.source, value, partition=partition, headers=headers)

    def journal(self) -> dict[int, list[Commit]]:
        """Visible journal records by partition, in order."""
        records = self.read(f"{self.app}.journal", self.partitions)
        return {p: [Commit.FromString(v or b"") for _, v, _ in r] for p, r in records.items()}

    def rows(self) -> Counter[int]:
        """Ids of all rows in all blocks that the journal names, each block checked."""
        found: Counter[int] = Counter()
        topics: dict[str, dict[int, list[Any]]] = {}
        for block in (b for commits in self.journal().values() for c in commits for b in c.blocks):
            found.update(self.rows_of(block, topics).column("id").to_pylist())
        return found

    def rows_of(self, block: Block, topics: dict[str, dict[int, list[Any]]]) -> pa.RecordBatch:
        """The block's rows, checked; `topics` as of chunks_of."""
        values = self.chunks_of(block, topics)
        assert len(values) == block.chunks
        assert chunks.crc32c(values) == block.crc32c
        batch = chunks.decode(values)
        if block.HasField("share"):
            batch = batch.slice(block.share.first_row, block.rows)
        assert batch.num_rows == block.rows
        return batch

    def chunks_of(self, block: Block, topics: dict[str, dict[int, list[Any]]]) -> list[bytes]:
        """The block's chunks; `topics` holds what was read before, and is read on if need be.

        A commit becomes visible partition by partition, the journal's perhaps first.
        """
        if block.topic not in topics:
            topics[block.topic] = self.read(block.topic, self.partitions)
        values: list[bytes] = []
        partition = block.share.partition if block.HasField("share") else block.partition

        def complete() -> bool:
            values[:] = [
                value
                for offset, value, _ in topics[block.topic][partition]
                if block.first_offset <= offset < block.next_offset
            ]
            if len(values) < block.chunks:
                topics[block.topic] = self.read(block.topic, self.partitions)
            return len(values) >= block.chunks

        wait_until(complete, f"all chunks of {block.id}")
        return values

    def dead(self) -> list[tuple[bytes | None, dict[str, str]]]:
        """Value and headers of all visible dead letters."""
        records = self.read(f"{self.app}.dead", self.partitions)
        return [
            (value, {k: (v or b"").decode(errors="replace") for k, v in headers})
            for of_partition in records.values()
            for _, value, headers in of_partition
        ]

    def read(self, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes | None, Any]]]:
        """Everything a read_committed reader sees of a topic now."""
        found: dict[int, list[tuple[int, bytes | None, Any]]] = {p: [] for p in range(partitions)}
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.app}.judge",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        # Only this topic: the shared broker has thousands, and tests ask several times a second.
        listed = reader.list_topics(topic, timeout=WAIT_SECONDS).topics[topic]
        if listed.error is not None:
            assert listed.error.code() in _NOT_THERE, listed.error
            reader.close()
            return found
        partitions = min(partitions, len(listed.partitions))
        reader.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        ended: set[int] = set()
        deadline = time.monotonic() + WAIT_SECONDS
        while len(ended) < partitions and time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                found[message.partition() or 0].append(
                    (message.offset() or 0, message.value(), message.headers() or [])
                )
        reader.close()
        assert len(ended) == partitions, f"{topic} was not read to its end"
        return found

    def await_markers(self, *topics: str) -> None:
        """Wait until readers see all that was committed to these topics, or to all of the app.

        A commit is answered before its markers are in the logs.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        listed = admin.list_topics(timeout=WAIT_SECONDS).topics
        names = topics or [name for name in listed if name.startswith(f"{self.app}.")]
        places = [TopicPartition(name, p) for name in names for p in listed[name].partitions]
        wait_until(lambda: is_stable(admin, *places), "the markers of the transactions")

    def chain_is_whole(self) -> None:
        """Floors chain, n grows by one, flush points count what blocks and dead letters hold."""
        for commits in self.journal().values():
            counted = 0
            for before, record in zip([None, *commits], commits, strict=False):
                if before is not None:
                    assert record.previous_floor == before.floor
                    assert record.n == before.n + 1
                counted += sum(b.messages for b in record.blocks)
                counted += sum(d.messages for d in record.dead)
                if record.flush_point:
                    assert record.count == counted
                    counted = 0

    def committed(self) -> list[TopicPartition]:
        """The group's offsets, with metadata, by partition."""
        servers = self.source_bootstrap
        reader = Consumer({"bootstrap.servers": servers, "group.id": f"{self.app}.relay"})
        places = [TopicPartition(self.source, p) for p in range(self.partitions)]
        found: list[TopicPartition] = []

        def told() -> bool:
            try:
                found[:] = reader.committed(places, timeout=30)
            except (
                KafkaException
            ) as error:  # the group's coordinator moves in a cluster that is new
                if error.args[0].code() not in _MOVING:
                    raise
                return False
            return True

        wait_until(told, "the group's coordinator")
        reader.close()
        return found

    def floor(self, partition: int) -> int:
        """The committed floor; unlike a read_committed reader, no open transaction hides it."""
        return self.committed()[partition].offset

    def has_blocks_of(self, member: str) -> bool:
        """Whether a visible journal record with blocks was written by this member."""
        return any(c.member == member and c.blocks for cs in self.journal().values() for c in cs)

    def committed_is_journal_head(self) -> None:
        """The group's floors and the last visible journal records say the same.

        Seen at a moment in which no relay committed: a flush point between the two looks is none of
        their doing.
        """
        heads, floors = self._heads(), {}

        def stood_still() -> bool:
            before = dict(heads)
            floors.update((place.partition, place.offset) for place in self.committed())
            heads.update(self._heads())
            return heads == before

        self.until(stood_still, "a moment without a commit")
        assert floors == heads

    def _heads(self) -> dict[int, int]:
        """Floors of the last visible journal records; -1001, as of a group, where there is none."""
        return {p: records[-1].floor if records else -1001 for p, records in self.journal().items()}

    def exactly_once(self) -> None:
        """Every sent row is in exactly one block, and the records agree with each other."""
        self.until(lambda: sum(self.rows().values()) >= sum(self.sent.values()), "all rows")
        assert self.rows() == self.sent
        self.chain_is_whole()
        self.committed_is_journal_head()


def row_batch(ids: Sequence[int]) -> bytes:
    """A RowBatch of rows (1: id, 2: v), written by hand: the test's own reading of the format."""
    rows = [b"\x08" + varint(i) + b"\x12" + length_prefixed(f"v{i}".encode()) for i in ids]
    return b"".join(b"\x0a" + length_prefixed(row) for row in rows)


def length_prefixed(data: bytes) -> bytes:
    return varint(len(data)) + data


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Poll a condition until it holds; fail, naming it, if it does not in time.

    Looking takes the processor from what is waited for, so the pause is twice as long as the look:
    tests that wait for rows in Kafka took an eighth less time, four at a time on two cores.
    """
    begun = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < begun + seconds, f"did not come within {seconds} s: {what}"
        time.sleep(min(1.0, max(0.1, 2 * (now - looked))))
        looked = time.monotonic()


def create_topics(admin: AdminClient, *new: NewTopic) -> None:
    """Create them, and wait until the broker that is asked lists them: a controller answers first.

    Raises:
        KafkaException: one of them is refused.
    """
    for future in admin.create_topics(list(new)).values():
        future.result(30)
    wanted = {one.topic for one in new}
    wait_until(lambda: wanted <= admin.list_topics(timeout=WAIT_SECONDS).topics.keys(), f"{wanted}")


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Delete it, and wait until the broker that is asked lists it no more.

    Raises:
        KafkaException: it is refused.
    """
    admin.delete_topics([topic])[topic].result(30)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=WAIT_SECONDS).topics, f"{topic} is gone"
    )


def is_stable(admin: AdminClient, *places: TopicPartition) -> bool:
    """Whether readers of committed records see the partitions to their ends.

    A transaction is committed before its markers are in the log.
    """

    def ends(level: IsolationLevel) -> list[int]:
        latest = {place: OffsetSpec.latest() for place in places}
        asked = admin.list_offsets(latest, isolation_level=level)
        return [asked[place].result(WAIT_SECONDS).offset for place in places]

    return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process stands at SIGSTOP."""
    state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    return state.split()[0] == "T"
