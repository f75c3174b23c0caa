"""Relays, loader and producers of one app, while its tables are altered.

Receives the steps of tests.schema.alterations, carries them out with rows under way before and
after each, and gives what the judge needs: what was written, and where it is.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from loader.clickhouse.ledger import Ledger
from loader.core.plan import ASIDE, settled
from relay.config import settings_file
from relay.produce.gathering import Batching
from relay.produce.row_producer import RowProducer
from tests.broker.pipeline import PARTITIONS, Pipeline, wait_until
from tests.chaos.programs import Program
from tests.loader.blocks import parked_blocks
from tests.schema.alterations import Columns, Step
from tests.schema.altered import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from clickhouse_connect.driver.client import Client
    from clickhouse_connect.driver.httpclient import HttpClient

    from relay.records_pb2 import Block

ROWS = 20
"""That a producer writes into a table at a time."""
PATIENCE = 120.0
_IN_MESSAGE = 5
_STATEMENTS = "SELECT elapsed, query FROM system.processes"
_RUNNING = (
    "SELECT count() FROM system.processes WHERE query LIKE 'INSERT%' "
    "AND position(query, '{database}') > 0"
)


class Writer:
    """A producer that knows each table as it was when it first wrote there."""

    def __init__(self, settings: Any, database: str) -> None:
        self._rows = RowProducer.from_settings(settings, batching=Batching(rows=_IN_MESSAGE))
        self._database = database
        self.known: dict[str, Columns] = {}

    def learn(self, tables: dict[str, Columns]) -> None:
        """The tables that it does not know yet, as they are now."""
        for table in tables.keys() - self.known.keys():
            codec = self._rows.codec(f"{self._database}.{table}")
            assert {*codec.column_names} == {"n", *tables[table]}
            self.known[table] = tables[table]

    def write(self, table: str, rows: Iterable[int]) -> None:
        columns = self.known[table]
        for n in rows:
            values = {name: one.wire(one.value(n)) for name, one in columns.items()}
            self._rows.write(f"{self._database}.{table}", {"n": n, **values})

    def flush(self) -> None:
        self._rows.flush()

    def close(self) -> None:
        self._rows.close()


@dataclass
class Aside:
    """A table that was dropped or replaced: its rows by block, and blocks loaded by then."""

    table: str
    rows: dict[str, list[int]]
    loaded: set[str]


@dataclass
class Underway:
    """One app under way.

    Attributes:
        written: by table and row, the columns that its producer knew.
        asides: what was dropped.
    """

    pipeline: Pipeline
    client: Client
    file: Path
    programs: dict[str, Program]
    tables: dict[str, Columns] = field(default_factory=dict)
    writers: list[Writer] = field(default_factory=list)
    written: dict[str, dict[int, Columns]] = field(default_factory=lambda: defaultdict(dict))
    asides: list[Aside] = field(default_factory=list)
    _replaced: list[tuple[str, str, set[str]]] = field(default_factory=list)
    _ends: list[dict[int, int]] = field(default_factory=list)
    _rows: int = 0

    def __post_init__(self) -> None:
        settings = settings_file.load(self.file)
        self.settings = settings
        connected: HttpClient = self.client  # type: ignore[assignment]
        self.ledger = Ledger(connected, settings.loader.database, settings.app)
        self._group = Consumer(
            {"bootstrap.servers": self.pipeline.bootstrap, "group.id": f"{settings.app}.relay"}
        )

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
        self._group.close()
        for program in self.programs.values():
            program.kill()

    def command(self, sql: str) -> None:
        self.client.command(sql.replace("{db}", self.pipeline.database))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, with all programs started again that were killed; in vain: say what they said."""

        def holds() -> bool:
            self.tend()
            return condition()

        try:
            wait_until(holds, what, PATIENCE)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self._last_words()])) from error

    def _last_words(self) -> list[str]:
        """Of the server and of each program."""
        running = self.client.query(_STATEMENTS).result_rows
        said = [f"{name} said:\n{one.last_lines(15)}" for name, one in self.programs.items()]
        return [f"statements that run: {running}", *said]

    def tend(self) -> None:
        for program in self.programs.values():
            _, expected = program.tend() or (0, True)
            assert expected, program.last_lines()
            if program.wanted and not program.runs():
                program.start()

    def write(self) -> None:
        """Every producer into every table; what was sent before the last one must have passed."""
        for writer in self.writers:
            writer.learn(self.tables)
            for table in self.tables:
                rows = range(self._rows, self._rows + ROWS)
                self._rows += ROWS
                writer.write(table, rows)
                self.written[table].update(dict.fromkeys(rows, writer.known[table]))
        for writer in self.writers:
            writer.flush()
        self._ends.append(
            {
                p: self._group.get_watermark_offsets(
                    TopicPartition(self.pipeline.source, p), timeout=30
                )[1]
                for p in range(PARTITIONS)
            }
        )

    def passed(self, back: int) -> bool:
        """Whether the relays have committed all up to that many writes ago."""
        places = [TopicPartition(self.pipeline.source, p) for p in range(PARTITIONS)]
        ends = self._ends[-1 - back] if back < len(self._ends) else dict.fromkeys(range(2), 0)
        return all(
            place.offset >= ends[place.partition] or ends[place.partition] == 0
            for place in self._group.committed(places, timeout=30)
        )

    def replace_writer(self, *, keep: int, most: int) -> None:
        """A producer that knows the tables of now, in place of the oldest but the first ones."""
        if len(self.writers) >= most:
            self.writers.pop(keep).close()
        self.writers.append(Writer(self.settings, self.pipeline.database))
        self.writers[-1].learn(self.tables)

    def alter(self, step: Step) -> None:
        """Carry the step out."""
        match step.kind:
            case "recreate" | "other":
                self._recreate(step)
            case "exchange":
                self._exchange(step)
            case _:
                self.command(step.sql)
        self.tables = step.tables

    def _recreate(self, step: Step) -> None:
        """DROP and CREATE, with rows under way that no loader has seen, and one that was killed.

        Renamed first, so that what a statement still under way inserts is seen.
        """
        loader = self.programs["loader"]
        loader.wanted = False
        loader.kill()
        self.write()
        self.until(lambda: self.passed(0), "blocks under the old schema")
        gone = f"{step.table}_gone{len(self.asides)}"
        self.command(f"RENAME TABLE {{db}}.{step.table} TO {{db}}.{gone}")
        running = _RUNNING.format(database=self.pipeline.database)
        self.until(lambda: self.client.command(running) == 0, "the end of the last INSERT")
        self.asides.append(Aside(step.table, self._by_block(gone), self.loaded()))
        self.command(f"DROP TABLE {{db}}.{gone} SYNC")
        self.command(step.sql)
        loader.wanted = True

    def _exchange(self, step: Step) -> None:
        """Another table under the name from one moment to the next, while all goes on."""
        following = f"{step.table}_next"
        self.command(step.sql.replace(f".{step.table} ", f".{following} "))
        loaded = self.loaded()
        self.command(f"EXCHANGE TABLES {{db}}.{step.table} AND {{db}}.{following}")
        self._replaced.append((step.table, following, loaded))

    def loaded(self) -> set[str]:
        """Blocks that the ledger calls loaded."""
        found = self.client.query(
            f"SELECT DISTINCT block FROM {self.ledger.name} "
            f"WHERE app = '{self.settings.app}' AND state = 'loaded'"
        )
        return {block for (block,) in found.result_rows}

    def _by_block(self, table: str) -> dict[str, list[int]]:
        found = self.client.query(
            f"SELECT _block, groupArray(n) FROM {self.pipeline.database}.{table} GROUP BY _block"
        )
        return dict(found.result_rows)

    def blocks(self) -> list[Block]:
        """Of the journal."""
        return [
            b for commits in self.pipeline.journal().values() for c in commits for b in c.blocks
        ]

    def settle(self) -> None:
        """Until every message is in a block or dead, and every block loaded or parked."""
        self.until(lambda: self.passed(0), "all messages in blocks or dead letters")
        blocks = self.blocks()

        def left() -> list[str]:
            known = self.ledger.entries(blocks)
            last = {block.id: settled(known.get(block.id, ())) for block in blocks}
            waiting = {id_: one for id_, one in last.items() if one is None or one.state == ASIDE}
            return [f"{id_}: {'open' if one is None else one}" for id_, one in waiting.items()]

        try:
            # A machine with much to do takes seconds for each block whose labels are no numbers:
            # as long as another one is settled in time, none is stuck.
            while waiting := len(left()):
                self.until(lambda at=waiting: len(left()) < at, "one more block loaded or parked")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *left()])) from error
        for table, following, loaded in self._replaced:
            self.asides.append(Aside(table, self._by_block(following), loaded))
        self._replaced.clear()

    def parked(self) -> list[tuple[Block, str, Any]]:
        """Parked blocks with reason and contents."""
        topics: dict[str, Any] = {}
        return [
            (block, why, self.pipeline.rows_of(block, topics))
            for block, why in parked_blocks(self.ledger)
        ]

    def found(self) -> dict[str, Found]:
        """Where the rows of every table are."""
        found = {table: Found(self.rows(table)) for table in self.tables}
        for aside in self.asides:
            for block, rows in aside.rows.items():
                if block in aside.loaded:
                    found[aside.table].gone.update(rows)
                else:
                    found[aside.table].perhaps.update(rows)
        for value, headers in self.pipeline.dead():
            table = headers["table"].removeprefix(f"{self.pipeline.database}.")
            found[table].dead.update(rows_of(value or b""))
        for block, _, batch in self.parked():
            table = block.table.removeprefix(f"{self.pipeline.database}.")
            found[table].parked.update(batch.column("n").to_pylist())
        return found

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All of a table."""
        found = self.client.query(f"SELECT * FROM {self.pipeline.database}.{table}")
        return list(found.named_results())


def rows_of(value: bytes) -> list[int]:
    """Field 1 of every row of a RowBatch: the row's number."""
    batch = UnknownFieldSet(Empty.FromString(value))
    return [
        field.data
        for row in batch
        for field in UnknownFieldSet(Empty.FromString(row.data))
        if field.field_number == 1
    ]
