"""Knows which tables exist now, and how their rows are decoded.

Receives table names, gives a codec or the reason why there is none. It joins three
neighbours: the catalogue (columns in ClickHouse), the registry (field numbers) and the
block topics. A changed row message is found by `refresh` and used only after `adopt`, so
that buffers read under the old one are sealed under the old one; but for messages that the
old one cannot read, or not all values of, for which `overtaken` asks the registry at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from relay import names
from relay.config.allowed_tables import Targets, is_ledger, ledger_refusal
from relay.errors import ClickHouseAway, Unavailable
from relay.kafka.block_topics import BlockTopics
from relay.names import NO_TABLE
from relay.program.spelling import did_you_mean_table
from relay.program.waiting import Retry
from relay.records_pb2 import TableSchema
from relay.rows.row_codec import RowCodec
from relay.schema.asked_apart import DatabasesApart
from relay.schema.catalogue import Catalogue, TableColumns
from relay.schema.dead_reason import DeadKind, DeadReason
from relay.schema.evolution import evolve, takes_back, unsupported_columns
from relay.schema.registry import Registry

log = logging.getLogger(__name__)

NO_HEADER = DeadReason(
    DeadKind.NO_TABLE, "no header 'table' that names database.table exactly once in UTF-8"
)
SPELLED = 5  # unknown tables whose spelling is compared with those there, between two refreshes
PAUSE_SECONDS = 0.25  # from an answer of the registry until it is asked again by what asks seldom
PAUSE_SHARE = 20  # times what the answer took: the pause where that is more; so for `refresh`
PROPOSALS = 10  # two relays agree after one round; ten lost in a row are no race any more


class TableCodecs:
    """Codecs by table, and the topics of the tables' blocks.

    Raises (resolve and refresh):
        Unavailable: ClickHouse or Kafka did not answer.
        Refused: one of them said no.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        registry: Registry,
        topics: BlockTopics,
        block_column: str,
        targets: Targets,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._targets = targets
        self._ledgers: set[str] = set()
        self._catalogue = catalogue
        self._registry = registry
        self.topics = topics
        self._block_column = block_column
        self._clock = clock
        self._pause_until = -float("inf")
        self._clickhouse = Retry(clock)
        self._apart = DatabasesApart(clock)
        self._alone: set[str] = set()
        self._lagging: set[str] = set()
        self._meant: dict[str, str] = {}
        self._known: dict[str, RowCodec | DeadReason] = {}
        self._changed: dict[str, RowCodec | DeadReason | None] = {}
        # By table: what the registry and ClickHouse gave when the two had the same columns.
        self._agreed: dict[str, tuple[TableSchema | None, TableColumns]] = {}

    def codec(self, table: str) -> RowCodec | DeadReason:
        """Return the table's codec, or why its messages are dead letters."""
        if table == NO_TABLE:
            return NO_HEADER
        if refusal := self._targets.refusal(table):
            return table_refused(refusal)
        if table in self._ledgers:
            return table_refused(ledger_refusal(table))
        if why := self.topics.refusal(table):
            return DeadReason(DeadKind.NO_BLOCK_TOPIC, why)
        return self._known.get(table) or unknown_table(table, self._meant.get(table, ""))

    def resolve(self, tables: Collection[str]) -> None:
        """Ask ClickHouse about tables not known yet; have their block topics."""
        self._meet(self._unmet(tables))
        self.topics.ensure(self.topics.lacking(self._known.keys() & set(tables)))

    def resolve_visible(self, tables: Collection[str]) -> None:
        """As `resolve`; those of databases that ClickHouse cannot look into stay unknown."""
        self._apart.ask(self._unmet(tables), self._meet)
        self.have_topics(tables)

    def undecided(self, tables: Collection[str]) -> frozenset[str]:
        """Return those of which nothing can be said now: ClickHouse is away, or was just before.

        What the registry has of a table counts until ClickHouse answers, as it does of one that was
        met before the outage. Of others nobody knows whether they exist.
        """
        unmet = self._unmet(tables)
        if unmet and self._clickhouse.due:
            try:
                unmet = set(self._apart.ask(unmet, self._meet))
            except ClickHouseAway as error:
                pause = self._clickhouse.failed()
                log.warning(
                    "cannot ask ClickHouse about tables that are new here; messages wait of those "
                    "that the schema registry does not have either",
                    extra={"why": error.message, "next": error.next_step, "again_in_s": pause},
                )
            else:
                self._clickhouse.answered()
        if unmet:
            self._registry.catch_up()
        for table in unmet:
            schema = self._registry.current(table)
            if schema is not None:
                self._decode_by(table, schema)  # what cannot be decoded may be altered since
        return frozenset(unmet - self._known.keys() - self._ledgers)

    def still_undecided(self, tables: frozenset[str]) -> frozenset[str]:
        """Return what `undecided` does, if it is time to ask; all if the registry is away, too.

        Those whose block topics are dark, or cannot be had now, are undecided as well.
        """
        waiting = self.topics.still_dark(tables)
        waiting |= self.have_topics(tables - waiting)
        others = tables - waiting
        if not (self._clickhouse.due and self._apart.is_due(others)):
            return waiting | self._unmet(others)
        try:
            return waiting | self.undecided(others)
        except Unavailable as error:
            self._clickhouse.failed()
            log.warning("cannot read the schema registry topic", extra={"why": error.message})
            return tables

    def have_topics(self, tables: Collection[str], partition: int | None = None) -> frozenset[str]:
        """Have block topics, also of tables met before; return the tables that wait for theirs.

        From now on topics have to have `partition`; None: what they had to have before.
        """
        if partition is not None:
            self.topics.need(partition + 1)
        return self.topics.have(self._known.keys() & set(tables))

    def _unmet(self, tables: Collection[str]) -> set[str]:
        unmet = set(tables) - self._known.keys() - {NO_TABLE}
        return {table for table in unmet if not self._targets.refusal(table)}

    def _meet(self, unmet: set[str]) -> None:
        if unmet:
            for table, schema in self._schemas(unmet).items():
                self._known[table] = self._codec(table, schema)
            self._find_meant(unmet - self._known.keys())

    def look(self, tables: Collection[str]) -> dict[str, RowCodec | DeadReason]:
        """Return the codec of each of these tables, or why there is none; makes no block topic."""
        refused = {table: why for table in tables if (why := self._refusal(table))}
        schemas = self._schemas(set(tables) - refused.keys())
        ledgers = self._ledgers.intersection(tables)
        refused |= {table: table_refused(ledger_refusal(table)) for table in ledgers}
        self._find_meant(set(tables) - schemas.keys() - refused.keys())
        unknown = {table: unknown_table(table, self._meant.get(table, "")) for table in tables}
        codecs = {table: self._codec(table, schema) for table, schema in schemas.items()}
        return {**unknown, **refused, **codecs}

    def _refusal(self, table: str) -> DeadReason | None:
        """Why no row may go into the table by its name alone."""
        if not names.is_table_name(table):
            why = f"not a table name: {table!r}; write database.table"
            return DeadReason(DeadKind.NO_TABLE, why)
        refusal = self._targets.refusal(table)
        return table_refused(refusal) if refusal else None

    def alone(self, tables: Collection[str]) -> frozenset[str]:
        """Return those of them whose blocks the loader inserts one by one, as last seen.

        Rows that do not carry their block's id, or that do not stay as they are, cannot be counted.
        """
        return frozenset(self._alone.intersection(tables))

    def refresh(self) -> frozenset[str]:
        """Return tables whose row message changed since adopted; `codec` still gives the old.

        Those of a database that ClickHouse cannot look into stay as they are; it is an error where
        that is so of all.
        """
        self._meant.clear()
        if not self._known:
            return frozenset()
        self.topics.retry()
        schemas: dict[str, TableSchema] = {}
        known = self._known.keys()
        unread = self._apart.ask(known, lambda some: schemas.update(self._schemas(some)))
        if unread.keys() == known:
            raise next(iter(unread.values()))
        self._changed = {}
        for table in known - unread.keys():
            codec = self._codec(table, schemas[table]) if table in schemas else None
            if codec is None or _version(codec) != _version(self._known[table]):
                self._changed[table] = codec
        return frozenset(self._changed)

    def is_searching(self) -> bool:
        """Return whether it is still to be found out on which database a `refresh` failed."""
        return self._apart.is_searching(self._known)

    def gone(self) -> frozenset[str]:
        """Return tables that the last `refresh` found to be there no more."""
        return frozenset(table for table, codec in self._changed.items() if codec is None)

    def adopt(self) -> None:
        """Use what the last `refresh` found."""
        both = self._known | self._changed
        self._known = {table: codec for table, codec in both.items() if codec is not None}
        self._changed = {}

    def overtaken(self, table: str, *, seldom: bool = False) -> bool:
        """Return whether the registry has a newer message than `codec` gave; now it gives that.

        A producer that goes by the registry is never ahead of it: so its rows are read though
        no `refresh` was due. Where the registry does not answer, what was read of it counts.

        Args:
            table: whose messages `codec` does not read, or not all values of.
            seldom: whether not to ask again soon after an answer, and go by what was read then:
                for what a producer older than the table may send for ever, in each message.
        """
        known = self._known.get(table)
        if not isinstance(known, RowCodec):
            return False
        if not seldom or self._clock() >= self._pause_until:
            self._ask()
        schema = self._registry.current(table)
        if schema is None or schema.version <= known.schema.version:
            return False
        return self._decode_by(table, schema)

    def _decode_by(self, table: str, schema: TableSchema) -> bool:
        """Use the schema's codec from now on, if there is one; return whether there is."""
        codec = self._codec(table, schema)
        if isinstance(codec, RowCodec):
            self._known[table] = codec
        return isinstance(codec, RowCodec)

    def _ask(self) -> None:
        """Read what the registry has by now, if it answers; the next pause begins."""
        begun = self._clock()
        try:
            self._registry.catch_up()
        except Unavailable as error:
            log.warning("cannot read the schema registry topic", extra={"why": error.message})
        now = self._clock()
        self._pause_until = now + max(PAUSE_SECONDS, PAUSE_SHARE * (now - begun))

    def _find_meant(self, unknown: set[str]) -> None:
        """Find which tables are spelled like unknown ones: of a few, for messages name anything."""
        new = sorted(unknown - self._meant.keys())[: SPELLED - len(self._meant)]
        if not new:
            return
        with suppress(ClickHouseAway):  # it has just said that it has none of them
            there = [name for name in self._catalogue.names() if not self._targets.refusal(name)]
            self._meant |= {table: did_you_mean_table(table, there) for table in new}

    def _codec(self, table: str, schema: TableSchema) -> RowCodec | DeadReason:
        known = self._known.get(table)
        if isinstance(known, RowCodec) and known.schema.version == schema.version:
            return known
        problems = unsupported_columns(schema)
        if problems:
            log.error(
                "rows of a table cannot be decoded",
                extra={"table": table, "why": "; ".join(problems)},
            )
            return unsupported(problems)
        return RowCodec(schema)

    def _schemas(self, tables: Collection[str]) -> dict[str, TableSchema]:
        """The registry's schema of each table that ClickHouse has, proposed where it is new.

        The registry is read before the catalogue, and both again after a lost proposal: with
        older columns than another relay registered, its new column would look dropped, and
        what producers sent for it be lost. So each proposal is based on what was read before,
        though a proposal for another table has read on meanwhile: then it loses.
        """
        for _ in range(PROPOSALS):
            self._registry.catch_up()
            before = {table: self._registry.current(table) for table in tables}
            listed = self._unless_ledgers(self._catalogue.read(tables))
            self._see_alone(listed)
            if self._win(self._proposals(before, listed)):
                return {t: s for t in listed if (s := self._registry.current(t)) is not None}
        raise AssertionError(f"{PROPOSALS} proposals lost in a row for some of {sorted(tables)}")

    def _proposals(
        self, before: Mapping[str, TableSchema | None], listed: Mapping[str, TableColumns]
    ) -> list[TableSchema]:
        """What the registry is to have for the tables listed.

        A replica that has not made an ALTER yet which another relay saw elsewhere would take it
        back. So such a change counts only if this one has made all, and as it is after that.
        """
        wanted = self._all_wanted(before, listed)
        doubtful = {
            t for t, s in wanted.items() if listed[t].replicated and takes_back(before[t], s)
        }
        if not doubtful:
            return list(wanted.values())
        caught_up = self._catalogue.caught_up(doubtful)
        for table in sorted(doubtful - caught_up - self._lagging):
            why = "the replica of ClickHouse that was asked has ALTERs still to make"
            log.warning("a table's change does not count yet", extra={"table": table, "why": why})
        self._lagging = doubtful - caught_up
        again = self._unless_ledgers(self._catalogue.read(caught_up))
        sure = {table: schema for table, schema in wanted.items() if table not in doubtful}
        return [*sure.values(), *self._all_wanted(before, again).values()]

    def _all_wanted(
        self, before: Mapping[str, TableSchema | None], listed: Mapping[str, TableColumns]
    ) -> dict[str, TableSchema]:
        """What the registry is to have for these columns, without tables of which it has them."""
        wanted = {}
        for table, columns in listed.items():
            current, agreed = before[table], self._agreed.get(table)
            if agreed is not None and agreed[0] is current and agreed[1] is columns:
                continue
            # Replicas that were made one by one have each a uuid of their own.
            uuid = current.uuid if columns.replicated and current is not None else columns.uuid
            schema = evolve(current, table, uuid, columns.columns, block_column=self._block_column)
            if schema is None:
                self._agreed[table] = current, columns
            else:
                wanted[table] = schema
        return wanted

    def _unless_ledgers(self, listed: Mapping[str, TableColumns]) -> Mapping[str, TableColumns]:
        """The tables that rows may go into; remembers which others are ledgers."""
        ledgers = {t for t, its in listed.items() if is_ledger({c.name for c in its.columns})}
        self._ledgers = (self._ledgers - listed.keys()) | ledgers
        return {table: its for table, its in listed.items() if table not in ledgers}

    def _see_alone(self, listed: Mapping[str, TableColumns]) -> None:
        alone = {
            table
            for table, its in listed.items()
            if not its.plain or self._block_column not in {c.name for c in its.columns}
        }
        self._alone = (self._alone - listed.keys()) | alone

    def _win(self, proposed: Sequence[TableSchema]) -> bool:
        """Whether the registry has these schemas now, each because we proposed it."""
        winners = self._registry.propose(*proposed) if proposed else []
        pairs = zip(winners, proposed, strict=True)
        return all((w.version, w.columns) == (p.version, p.columns) for w, p in pairs)


def unknown_table(table: str, meant: str = "") -> DeadReason:
    """Return why messages for a table are bad that ClickHouse does not have.

    `meant` ends the sentence with those that are spelled like it.
    """
    why = f"unknown table {table}: ClickHouse has none of this name{meant}"
    return DeadReason(DeadKind.UNKNOWN_TABLE, why)


def table_refused(why: str) -> DeadReason:
    """Return why messages for a table are bad that rows may not go into."""
    return DeadReason(DeadKind.TABLE_REFUSED, why)


def unsupported(problems: Sequence[str]) -> DeadReason:
    """Return why messages for a table are bad whose columns rows cannot carry."""
    return DeadReason(DeadKind.UNSUPPORTED_TYPE, "; ".join(problems))


def _version(codec: RowCodec | DeadReason) -> int | DeadReason:
    return codec if isinstance(codec, DeadReason) else codec.schema.version
