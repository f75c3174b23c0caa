"""What brings a topic into ClickHouse: the product's two programs, and its peers.

Receives servers and a topic, gives consumers that can be started, seen to work, killed part by
part, and ended. Each part that is killed is started again at once, as a supervisor does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from relay.dev import clickhouse, process
from relay.dev import stack as dev
from tests.bench import (
    config,
    contenders,
    kafka_engine,
    loader_bench,
    native_loader,
    rows,
    servers,
)
from tests.bench import source as sources
from tests.bench.contenders import Contender, Process
from tests.bench.kafka_engine import Readers

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.dev.stack import Stack
    from tests.bench.rows import Shape

PRODUCT = "relay and loader"
SERVER, BROKER = "ClickHouse", "the broker"


@dataclass(slots=True)
class Scene:
    """Servers of a bench whose ClickHouse may be killed, and the tables of one run.

    Attributes:
        prepared: where the archive of Spark's classes lies.
        native: program of the loader in Go; None: it is left out.
    """

    directory: Path
    stack: Stack
    shape: Shape
    partitions: int
    prepared: Path
    native: Path | None = None
    client: Client = field(init=False)
    visible: Callable[[], int] = field(init=False)

    def __post_init__(self) -> None:
        self._ask_anew()

    def _ask_anew(self) -> None:
        self.client = servers.client(self.stack)
        self.visible = loader_bench.visible_rows(self.client)

    def pids(self) -> dict[str, int]:
        """Of the servers."""
        endpoint, broker = self.stack.clickhouse_pid, self.stack.broker_pids[0]
        assert endpoint is not None and broker is not None, "they run"  # noqa: PT018
        return {SERVER: endpoint, BROKER: broker}

    def kill_server(self) -> None:
        """SIGKILL ClickHouse and start it again; back when it answers."""
        directory = self.stack.directory
        process.end(directory, clickhouse.NAME, kill=True)
        self.stack = dev.up(directory, progress=_quiet)
        self._ask_anew()


def _quiet(_line: str) -> None:
    """Nobody waits for this."""


class Consumer(ABC):
    """One way from a topic into tables; leaving the context ends it.

    Args:
        scene: its servers.
        topic: that it reads, a name of its own for each run.
    """

    name: str
    delimited = False
    """Whether its messages begin with their length."""
    block_column = False
    """Whether its tables have the column `_block`."""

    def __init__(self, scene: Scene, topic: str) -> None:
        self.scene, self.topic = scene, topic

    def __enter__(self) -> Self:
        self.start()
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """End all parts of it."""

    @abstractmethod
    def start(self) -> None:
        """Start all parts, without waiting for them."""

    @abstractmethod
    def pids(self) -> dict[str, int]:
        """Its programs, besides the servers."""

    @abstractmethod
    def groups(self) -> list[str]:
        """The consumer groups that commit the topic's offsets, each all of them."""

    @abstractmethod
    def still_runs(self) -> None:
        """Raise if a part has ended."""

    @abstractmethod
    def kills(self) -> Mapping[str, Callable[[], None]]:
        """By part: SIGKILL it and start it again."""


class Programs(Consumer):
    """A consumer that has programs of its own."""

    def __init__(self, scene: Scene, topic: str) -> None:
        super().__init__(scene, topic)
        self._ending = ExitStack()
        self._started = 0

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def _log(self, part: str) -> Path:
        return self.scene.directory / f"{self.topic}-{part}-{self._started}.log"

    def _started_now(self, contender: Contender) -> Process:
        self._started += 1
        return self._ending.enter_context(Process(contender))


class Product(Programs):
    """`relay run` and `loader run`, as users run them, with default settings.

    Attributes:
        app: of both.
    """

    name = PRODUCT
    block_column = True

    def __init__(self, scene: Scene, topic: str) -> None:
        super().__init__(scene, topic)
        # A ledger for each app: what is measured is an app on its own.
        ledger = topic.replace("-", "_") + "_ledger"
        self.app = f"{topic}-app"
        self._file = config.write(scene.directory, self.app, scene.stack, topic, ledger=ledger)

    def start(self) -> None:
        """Both at once."""
        self._relay, self._loader = (
            self._started_now(self._relays()),
            self._started_now(self.loader(self.scene.prepared)),
        )

    def pids(self) -> dict[str, int]:
        """Relay and loader; the loader has Spark's JVM and its workers as children."""
        return {"relay": self._relay.pid, "loader": self._loader.pid}

    def groups(self) -> list[str]:
        """The relay's."""
        return [self._relays().group]

    def still_runs(self) -> None:
        """Raise if one has ended."""
        self._relay.still_runs()
        self._loader.still_runs()

    def kills(self) -> Mapping[str, Callable[[], None]]:
        """Each program, and the server."""
        return {
            "relay": self._kill_relay,
            "loader": self._kill_loader,
            SERVER: self.scene.kill_server,
        }

    def end_loader(self) -> None:
        """SIGTERM, and wait."""
        self._loader.__exit__()

    def start_loader(self, prefix: Path) -> Process:
        """Start it again, with the archive of classes that lies there."""
        self._loader = self._started_now(self.loader(prefix))
        return self._loader

    def loader(self, prefix: Path) -> Contender:
        """The loader, to be started."""
        return contenders.loader(
            self._file, self.app, self._log("loader"), once=False, prefix=prefix
        )

    def _relays(self) -> Contender:
        return contenders.relay(self._file, self.app, self._log("relay"))

    def _kill_relay(self) -> None:
        self._relay.kill()
        self._relay = self._started_now(self._relays())

    def _kill_loader(self) -> None:
        self._loader.kill()
        self._loader = self._started_now(self.loader(self.scene.prepared))


class Engine(Consumer):
    """The Kafka engine, which is a part of the server."""

    delimited = True
    readers = kafka_engine.EACH

    def __init__(self, scene: Scene, topic: str) -> None:
        super().__init__(scene, topic)
        self.name = self.readers.name

    def start(self) -> None:
        """Readers and views."""
        kafka_engine.start(
            self.scene.client, self.scene.stack, self.topic, self.scene.shape, self.readers
        )

    def __exit__(self, *_: object) -> None:
        kafka_engine.stop(self.scene.client)

    def pids(self) -> dict[str, int]:
        """None: it is the server."""
        return {}

    def groups(self) -> list[str]:
        """One of each reader."""
        many = 1 if self.readers.alone else self.scene.shape.tables
        return [kafka_engine.group(self.topic, number) for number in range(many)]

    def still_runs(self) -> None:
        """Raise if the server has ended."""
        self.scene.visible()

    def kills(self) -> Mapping[str, Callable[[], None]]:
        """The server, as often as the product's parts are killed."""
        return {f"{SERVER}, {time} time": self.scene.kill_server for time in ("1st", "2nd", "3rd")}


class LoneEngine(Engine):
    """The same with one reader for all tables, which only like tables can have."""

    readers: Readers = kafka_engine.ALONE


class NativeLoader(Programs):
    """The program in Go, at least once."""

    name = native_loader.NAME

    def start(self) -> None:
        """Start its one program."""
        program = self.scene.native
        assert program is not None, "it is not left out"
        self._loader = self._started_now(
            native_loader.contender(
                *(program, self.scene.stack, self.topic, self.scene.shape.names),
                self._log("native"),
            )
        )

    def pids(self) -> dict[str, int]:
        """Return the one's."""
        return {"loader in Go": self._loader.pid}

    def groups(self) -> list[str]:
        """Return its only one."""
        return [native_loader.group(self.topic)]

    def still_runs(self) -> None:
        """Raise if it has ended."""
        self._loader.still_runs()

    def kills(self) -> Mapping[str, Callable[[], None]]:
        """Return as many as the product's: twice the program, and the server."""
        return {
            "program, 1st time": self._kill,
            "program, 2nd time": self._kill,
            SERVER: self.scene.kill_server,
        }

    def _kill(self) -> None:
        self._loader.kill()
        self.start()


def tables(consumer: Consumer) -> None:
    """Empty tables for it, and none of another run's."""
    consumer.scene.client.command(f"DROP DATABASE IF EXISTS {rows.DATABASE} SYNC")
    rows.create_tables(
        consumer.scene.client, consumer.scene.shape, block_column=consumer.block_column
    )


def committed(consumer: Consumer) -> Callable[[], int]:
    """How many messages every group of it has committed; asked often."""
    scene = consumer.scene
    asked = [
        sources.CommittedOffsets(scene.stack.bootstrap, group, consumer.topic, scene.partitions)
        for group in consumer.groups()
    ]
    return lambda: min(ask() for ask in asked)
