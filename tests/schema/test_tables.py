"""Two relays, several tables: whose columns count."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from relay.config.allowed_tables import LEDGER_COLUMNS, Targets
from relay.errors import ClickHouseAway, Refused, Unavailable
from relay.kafka.block_topics import BlockTopics
from relay.program.waiting import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS
from relay.rows.codecs_of_tables import SPELLED, TableCodecs
from relay.rows.row_codec import RowCodec
from relay.schema.asked_apart import MOST_FAILURES
from relay.schema.catalogue import TableColumns
from relay.schema.evolution import ColumnDef, evolve
from relay.schema.registry import Versions
from tests.schema.rows import versions_of
from tests.unit.test_block_topics import Topics as OfBrokers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from relay.records_pb2 import TableSchema

N = ColumnDef("n", "Int64")
OLD, NEW = ColumnDef("old", "String"), ColumnDef("new", "String")


class ClickHouse:
    """Columns by table, as a catalogue gives them.

    Attributes:
        replica: its name, where all tables are Replicated.
        lags: whether an ALTER of another replica is not made here yet.
        away: whether it does not answer.
        blind: databases that it cannot look into; of what is asked together, it answers nothing.
        silent: whether it says so, or nothing.
    """

    def __init__(self, replica: str = "", **tables: list[ColumnDef]) -> None:
        self.tables = {f"d.{name}": columns for name, columns in tables.items()}
        self.replica = replica
        self.lags = False
        self.viewed: set[str] = set()
        self.listings = self.readings = 0
        self.away = False
        self.blind: set[str] = set()
        self.silent = False

    def caught_up(self, tables: Collection[str]) -> set[str]:
        assert self.replica, "asked of a table that has no replica"
        return set() if self.lags else {*tables}

    def names(self) -> list[str]:
        self.listings += 1
        if self.away:
            raise ClickHouseAway("nobody answers", "wait")
        return sorted(self.tables)

    def read(self, tables: Collection[str]) -> dict[str, TableColumns]:
        self.readings += 1
        if self.away:
            raise ClickHouseAway("nobody answers", "wait")
        if self.blind.intersection(table.partition(".")[0] for table in tables):
            why = TimeoutError() if self.silent else DatabaseError("", code=279)
            raise ClickHouseAway("no connection to MySQL", "wait") from why
        there = sorted(self.tables.keys() & set(tables))
        uuid, replicated = f"u{self.replica}", bool(self.replica)
        return {
            table: TableColumns(
                uuid, tuple(self.tables[table]), table not in self.viewed, replicated
            )
            for table in there
        }


class Registry:
    """One topic, read by one relay; `meanwhile` is what others do before its proposal."""

    def __init__(self) -> None:
        self.topic: list[TableSchema] = []
        self.read: Versions = {}
        self.meanwhile: list[Callable[[], None]] = []
        self.proposals = 0

    def catch_up(self) -> None:
        self.read = versions_of(self.topic)

    def current(self, table: str) -> TableSchema | None:
        of_table = self.read.get(table)
        return of_table[max(of_table)] if of_table else None

    def propose(self, *schemas: TableSchema) -> list[TableSchema]:
        self.proposals += 1
        while self.meanwhile:
            self.meanwhile.pop()()
        self.topic += schemas
        self.catch_up()
        found = [self.current(schema.table) for schema in schemas]
        return [one for one in found if one is not None]


class Topics:
    """Gives each table a topic, but for the first `silent` times when brokers do not answer."""

    def __init__(self) -> None:
        self.silent = 0
        self.found: set[str] = set()
        self.dark: frozenset[str] = frozenset()

    def lacking(self, tables: Collection[str]) -> set[str]:
        return {*tables} - self.found

    def ensure(self, tables: Collection[str]) -> None:
        if tables and self.silent:
            self.silent -= 1
            raise Unavailable("nobody answers", "wait")
        self.found |= {*tables}

    def need(self, partitions: int) -> None:
        raise AssertionError(f"{partitions} partitions, where none was named")

    def have(self, tables: Collection[str]) -> frozenset[str]:
        self.found |= {*tables}
        return frozenset()

    def retry(self) -> None:
        pass

    def refusal(self, _: str) -> str:
        return ""

    def still_dark(self, tables: Collection[str]) -> frozenset[str]:
        return self.dark.intersection(tables)


def tables(
    clickhouse: Any,
    registry: Any,
    topics: Any = None,
    clock: Callable[[], float] = time.monotonic,
) -> TableCodecs:
    made = topics or Topics()
    return TableCodecs(clickhouse, registry, made, "_block", Targets("relay"), clock)


def test_a_proposal_for_one_table_makes_none_of_another_older() -> None:
    """A relay has read the columns of two tables and proposes for the first, while another relay
    registers that a column of the second was renamed. The new name stays: with the columns that
    were read before, it would look dropped."""
    clickhouse = ClickHouse(a=[N], b=[N, OLD])
    registry = Registry()
    relay = tables(clickhouse, registry)
    relay.resolve(["d.a", "d.b"])

    def renamed() -> None:
        clickhouse.tables["d.b"] = [N, NEW]
        after = evolve(registry.current("d.b"), "d.b", "u", [N, NEW])
        assert after is not None
        registry.topic.append(after)

    clickhouse.tables["d.a"] = [N, NEW]
    registry.meanwhile.append(renamed)
    assert relay.refresh() == {"d.a", "d.b"}
    relay.adopt()

    registry.catch_up()
    current = registry.current("d.b")
    assert current is not None
    assert [(c.name, c.number, c.dropped) for c in current.columns] == [
        ("n", 1, False),
        ("old", 2, True),
        ("new", 3, False),
    ]


class TwoReplicas:
    """Of the table d.a, with a relay at each; `first` makes an ALTER before `second`."""

    def __init__(self, *columns: ColumnDef) -> None:
        self.first, self.second = (ClickHouse(name, a=list(columns)) for name in ("r1", "r2"))
        self.registries = Registry(), Registry()
        self.registries[1].topic = self.registries[0].topic
        pairs = zip((self.first, self.second), self.registries, strict=True)
        self.relays = [tables(*pair) for pair in pairs]
        for relay in self.relays:
            relay.resolve(["d.a"])

    def alter(self, *columns: ColumnDef) -> None:
        """On the first; the second has not heard of it yet."""
        self.first.tables["d.a"] = list(columns)
        self.second.lags = True

    def catch_up(self) -> None:
        """The second makes it, too."""
        self.second.tables = self.first.tables
        self.second.lags = False

    def look(self) -> list[list[str]]:
        """Both relays look again, three times; return the columns that each carries then."""
        for _ in range(3):
            for relay in self.relays:
                relay.refresh()
                relay.adopt()
        return [carried(relay) for relay in self.relays]

    def versions(self) -> int:
        return len(self.registries[0].topic)


def carried(relay: TableCodecs) -> list[str]:
    """Columns of d.a that its row message has, sorted."""
    codec = relay.codec("d.a")
    assert isinstance(codec, RowCodec)
    return sorted(codec.column_names)


@pytest.mark.parametrize(
    "altered",
    [[N, OLD, NEW], [N], [N, NEW], [N, OLD._replace(type="Date")], [N._replace(type="Int32"), OLD]],
    ids=["added", "dropped", "renamed", "of another type", "narrower"],
)
def test_a_replica_that_lags_takes_nothing_back(altered: list[ColumnDef]) -> None:
    """Its relay goes by what the other registered, or a column's values would be left out; once it
    has made the ALTER, nothing is to be said any more."""
    both = TwoReplicas(N, OLD)
    assert (both.look(), both.versions()) == ([["n", "old"]] * 2, 1), "a version for each uuid"
    both.alter(*altered)
    names = sorted(column.name for column in altered)
    assert (both.look(), both.versions()) == ([names] * 2, 2)
    late = tables(both.second, both.registries[1])
    late.resolve(["d.a"])
    assert carried(late) == names, "a relay that starts meanwhile"
    both.catch_up()
    assert (both.look(), both.versions()) == ([names] * 2, 2)


def test_a_replica_that_makes_an_alter_is_believed_at_once() -> None:
    """A new column even where it may have to catch up; a change back once it has."""
    both = TwoReplicas(N, OLD)
    both.first.lags = True
    both.alter(N, OLD, NEW)
    assert both.look() == [["n", "new", "old"]] * 2
    both.alter(N, OLD)
    assert both.look() == [["n", "new", "old"]] * 2
    both.first.lags = False
    assert both.look() == [["n", "old"]] * 2


def test_many_new_tables_are_proposed_together() -> None:
    """One by one, the tables of a first start of a thousand took twenty seconds."""
    many = {f"t{n}": [N] for n in range(50)}
    registry = Registry()
    relay = tables(ClickHouse(**many), registry)
    relay.resolve([f"d.{name}" for name in many])
    assert registry.proposals == 1
    assert all(isinstance(relay.codec(f"d.{name}"), RowCodec) for name in many)
    relay.resolve(["d.t0"])
    assert relay.refresh() == frozenset()
    assert registry.proposals == 1


def test_what_a_producer_registered_is_used_before_the_next_refresh() -> None:
    """Of messages that cannot be read, their producer may know more; but what rows cannot carry
    is no reason to drop what can be read, nor is a registry that does not answer."""
    clickhouse, registry = ClickHouse(a=[N]), Registry()
    relay = tables(clickhouse, registry)
    relay.resolve(["d.a"])
    assert not relay.overtaken("d.a")
    assert not relay.overtaken("d.unknown")

    def altered(*columns: ColumnDef) -> None:
        after = evolve(versions_of(registry.topic)["d.a"][len(registry.topic)], "d.a", "u", columns)
        assert after is not None
        registry.topic.append(after)

    altered(N, NEW)
    assert relay.overtaken("d.a")
    codec: Any = relay.codec("d.a")
    assert codec.column_names == ["n", "new"]
    assert not relay.overtaken("d.a")

    altered(N, ColumnDef("odd", "QBit(Int8, 3)"))
    assert not relay.overtaken("d.a")
    assert relay.codec("d.a") is codec

    def away() -> None:
        raise Unavailable("away", "wait")

    registry.catch_up = away  # type: ignore[method-assign]
    assert not relay.overtaken("d.a")


def test_a_table_comes_and_goes() -> None:
    """Unknown, then there, then dropped, then there again with its numbers."""
    clickhouse, registry = ClickHouse(a=[N, OLD]), Registry()
    relay = tables(clickhouse, registry)
    relay.resolve(["d.a", "d.b"])
    assert "unknown table d.b" in str(relay.codec("d.b"))
    del clickhouse.tables["d.a"]
    assert relay.refresh() == relay.gone() == {"d.a"}
    relay.adopt()
    assert relay.gone() == frozenset()
    assert "unknown table d.a" in str(relay.codec("d.a"))
    clickhouse.tables["d.a"] = [OLD, N]
    relay.resolve(["d.a"])
    codec: Any = relay.codec("d.a")
    assert [(c.name, c.number) for c in codec.schema.columns] == [("n", 1), ("old", 2)]


def test_a_topic_that_no_broker_answered_about_is_asked_for_again() -> None:
    """Else the table would have columns and no topic, and its rows nowhere to go."""
    topics = Topics()
    topics.silent = 1
    relay = tables(ClickHouse(a=[N], b=[N]), Registry(), topics)
    with pytest.raises(Unavailable):
        relay.resolve(["d.a", "d.b"])
    assert not topics.found
    relay.resolve(["d.b", "d.none"])
    assert topics.found == {"d.b"}
    relay.resolve(["d.a"])
    assert topics.found == {"d.a", "d.b"}


def test_an_unknown_table_is_answered_with_those_spelled_like_it() -> None:
    """Of few between two refreshes, and not asked again meanwhile: messages name anything."""
    clickhouse = ClickHouse(orders=[N], returns=[N])
    relay = tables(clickhouse, Registry())
    for _ in range(3):
        relay.resolve(["d.ordres", "d.nothing", "e.orders"])
    assert clickhouse.listings == 1
    assert str(relay.codec("d.ordres")).endswith("none of this name; did you mean d.orders?")
    assert str(relay.codec("e.orders")).endswith("; did you mean d.orders?")
    assert str(relay.codec("d.nothing")).endswith("none of this name")
    many = [f"d.order{at}" for at in range(1_000)]
    relay.resolve(many)
    relay.resolve(many)
    assert clickhouse.listings == 2
    assert sum("did you mean" in str(relay.codec(one)) for one in many) == SPELLED - 3
    relay.refresh()
    del clickhouse.tables["d.orders"]
    relay.resolve(["d.ordres"])
    assert "did you mean" not in str(relay.codec("d.ordres"))
    looked = relay.look(["d.retuns"])
    assert str(looked["d.retuns"]).endswith("; did you mean d.returns?")


class Outage:
    """A relay that starts while ClickHouse is away; the registry has d.old, of a version before."""

    def __init__(self, *, away: bool = True) -> None:
        self.now = 0.0
        self.clickhouse, self.registry = ClickHouse(old=[N, OLD], new=[N]), Registry()
        tables(self.clickhouse, self.registry).resolve(["d.old"])
        self.clickhouse.tables["d.old"] = [N, OLD, NEW]
        self.clickhouse.away, self.clickhouse.readings = away, 0
        self.relay = tables(self.clickhouse, self.registry, clock=lambda: self.now)


def test_in_an_outage_the_registry_says_what_it_has() -> None:
    """As a relay that met the table before goes by the columns that it knows. Red before: it waited
    for ClickHouse, and everything with it."""
    outage = Outage()
    assert outage.relay.undecided(["d.old", "d.new", ""]) == {"d.new"}
    known = outage.relay.codec("d.old")
    assert isinstance(known, RowCodec)
    assert sorted(known.column_names) == ["n", "old"]
    outage.clickhouse.away = False
    assert outage.relay.refresh() == {"d.old"}
    outage.relay.adopt()
    known = outage.relay.codec("d.old")
    assert isinstance(known, RowCodec)
    assert sorted(known.column_names) == ["n", "new", "old"]


def test_in_an_outage_clickhouse_is_asked_seldom() -> None:
    """Each table that is new would wait for its time-out; what others register counts at once."""
    outage = Outage()
    assert outage.relay.undecided(["d.new"]) == outage.relay.undecided(["d.new"]) == {"d.new"}
    assert outage.relay.still_undecided(frozenset({"d.new"})) == {"d.new"}
    assert outage.clickhouse.readings == 1
    outage.now += FIRST_PAUSE_SECONDS
    assert outage.relay.still_undecided(frozenset({"d.new"})) == {"d.new"}
    assert outage.clickhouse.readings == 2
    registered = evolve(None, "d.new", "u", [N])
    assert registered is not None
    outage.registry.topic.append(registered)
    assert outage.relay.undecided(["d.new"]) == frozenset()
    assert outage.clickhouse.readings == 2
    assert isinstance(outage.relay.codec("d.new"), RowCodec)


def test_after_an_outage_each_table_is_what_clickhouse_says() -> None:
    outage = Outage()
    held = frozenset({"d.new", "d.typo"})
    assert outage.relay.undecided(held) == held
    outage.clickhouse.away = False
    assert outage.relay.still_undecided(held) == held, "not asked yet"
    outage.now += FIRST_PAUSE_SECONDS
    assert outage.relay.still_undecided(held) == frozenset()
    assert isinstance(outage.relay.codec("d.new"), RowCodec)
    assert "unknown table d.typo" in str(outage.relay.codec("d.typo"))


def test_in_an_outage_nothing_is_said_to_be_undecodable() -> None:
    """The column may have been altered since: a relay that did not meet the table does not know."""
    outage = Outage()
    strange = evolve(None, "d.strange", "u", [ColumnDef("a", "AggregateFunction(sum, UInt8)")])
    assert strange is not None
    outage.registry.topic.append(strange)
    assert outage.relay.undecided(["d.strange"]) == {"d.strange"}


def test_in_an_outage_a_ledger_stays_one() -> None:
    """What was seen before the outage counts, of tables that no row may go into as well."""
    clickhouse = ClickHouse(ledger=[ColumnDef(name, "String") for name in LEDGER_COLUMNS])
    relay = tables(clickhouse, Registry(), clock=lambda: 0.0)
    assert relay.undecided(["d.ledger"]) == frozenset()
    clickhouse.away = True
    assert relay.undecided(["d.ledger"]) == frozenset()
    assert "ledger" in str(relay.codec("d.ledger"))


def test_a_database_that_cannot_be_looked_into_holds_up_no_other() -> None:
    """Of engine MySQL, its server away; any producer may name it. Red before: all waited."""
    outage = Outage(away=False)
    outage.clickhouse.blind = {"m"}
    held = frozenset({"m.t"})
    assert outage.relay.undecided(["d.new", "d.typo", "m.t", "x.y"]) == held
    assert isinstance(outage.relay.codec("d.new"), RowCodec)
    assert "unknown table d.typo" in str(outage.relay.codec("d.typo"))
    outage.clickhouse.readings = 0
    assert outage.relay.still_undecided(held) == held
    assert outage.relay.undecided(["m.t", "m.u"]) == {"m.t", "m.u"}
    assert outage.clickhouse.readings == 0, "not asked so soon"
    assert outage.relay.undecided(["m.t", "d.other"]) == held
    assert outage.clickhouse.readings == 1, "and what is asked apart needs one question"
    outage.clickhouse.blind = set()
    outage.clickhouse.tables["m.t"] = [N]
    outage.now += FIRST_PAUSE_SECONDS
    assert outage.relay.still_undecided(held) == frozenset()
    assert isinstance(outage.relay.codec("m.t"), RowCodec)


def test_what_is_known_of_a_database_lasts_while_it_cannot_be_looked_into() -> None:
    """Red before: no table's ALTER was seen."""
    outage = Outage(away=False)
    outage.clickhouse.tables["m.t"] = [N]
    assert outage.relay.undecided(["d.old", "m.t"]) == frozenset()
    outage.clickhouse.blind = {"m"}
    outage.clickhouse.tables["d.old"] = [N]
    assert outage.relay.refresh() == {"d.old"}
    assert outage.relay.gone() == frozenset()
    outage.relay.adopt()
    assert isinstance(outage.relay.codec("m.t"), RowCodec)
    outage.now += FIRST_PAUSE_SECONDS
    assert outage.relay.refresh() == frozenset()
    outage.clickhouse.blind = set()
    del outage.clickhouse.tables["m.t"]
    outage.now += 2 * FIRST_PAUSE_SECONDS
    assert outage.relay.refresh() == outage.relay.gone() == {"m.t"}
    outage.relay.adopt()
    outage.clickhouse.blind = {"d"}
    for _ in range(2):  # asked, and not asked again so soon
        with pytest.raises(ClickHouseAway, match="no connection"):
            outage.relay.refresh()


def test_a_server_that_fails_at_every_question_is_not_asked_about_each_database() -> None:
    outage = Outage(away=False)
    asked = {f"m{number}.t" for number in range(1000)}
    outage.clickhouse.blind = {table.partition(".")[0] for table in asked}
    assert outage.relay.undecided(asked) == asked
    assert outage.clickhouse.readings == MOST_FAILURES + 1


def test_a_silent_database_holds_up_no_other() -> None:
    """Its server drops packets. Red before: both were asked together for ever, and waited."""
    outage = Outage(away=False)
    outage.clickhouse.blind, outage.clickhouse.silent = {"m"}, True
    asked = ["d.new", "m.x"]
    assert outage.relay.undecided(asked) == {*asked}
    outage.now += FIRST_PAUSE_SECONDS
    assert outage.relay.undecided(asked) == {"m.x"}
    outage.now += 2 * FIRST_PAUSE_SECONDS
    outage.clickhouse.readings = 0
    assert outage.relay.undecided(["m.x", "d.typo"]) == {"m.x"}
    assert outage.relay.refresh() == frozenset()
    assert outage.clickhouse.readings <= 3, "each is asked by itself, the silent one seldom"
    outage.clickhouse.blind = set()
    outage.clickhouse.tables["m.x"] = [N]
    outage.now += LONGEST_PAUSE_SECONDS
    assert outage.relay.still_undecided(frozenset({"m.x"})) == frozenset()


def test_a_database_that_falls_silent_holds_up_no_other() -> None:
    """That ClickHouse could not look into before, or could; and of many databases, few. Red before:
    no ALTER was seen from then on."""
    outage = Outage(away=False)
    many = {f"m{number:02}.t" for number in range(64)}
    outage.clickhouse.tables |= {table: [N] for table in many}
    assert outage.relay.undecided(many | {"d.old"}) == frozenset()
    outage.clickhouse.blind = {"m07", "m40"}
    assert outage.relay.refresh() == frozenset()
    outage.clickhouse.blind |= {"m21", "m22"}
    outage.clickhouse.silent = True
    for _ in range(40):
        outage.now += LONGEST_PAUSE_SECONDS
        with suppress(ClickHouseAway):
            outage.relay.refresh()
    outage.clickhouse.tables["d.old"] = [N]
    outage.now += LONGEST_PAUSE_SECONDS
    assert outage.relay.refresh() == {"d.old"}
    outage.relay.adopt()
    outage.clickhouse.tables |= {table: [N, NEW] for table in many}
    outage.clickhouse.blind = {"m21"}
    outage.now += LONGEST_PAUSE_SECONDS
    assert outage.relay.refresh() == many - {"m21.t"}


def test_what_only_messages_named_shortens_no_pause() -> None:
    """They may never be asked about again: a partition goes to another relay, with its messages."""
    outage = Outage(away=False)
    assert outage.relay.undecided(["d.old"]) == frozenset()
    outage.clickhouse.blind, outage.clickhouse.silent = {"m"}, True
    assert outage.relay.undecided(["m.x", "n.x"]) == {"m.x", "n.x"}
    assert not outage.relay.is_searching()


def test_few_of_many_databases_are_found_however_they_lie() -> None:
    """Red before: failures were added up over all questions, answered ones between them or not, and
    what had been found was forgotten."""
    outage = Outage(away=False)
    asked = {f"m{number:02}.t" for number in range(64)}
    blind = {table for table in asked if int(table[1:3]) % 8 == 0}
    outage.clickhouse.blind = {table.partition(".")[0] for table in blind}
    assert outage.relay.undecided(asked) == blind


def test_what_was_found_away_is_remembered_though_the_server_failed() -> None:
    """Red before: nothing was, and the next try began anew."""
    outage = Outage(away=False)
    asked = {f"m{number:02}.t" for number in range(64)}
    outage.clickhouse.blind = {table.partition(".")[0] for table in asked}
    for _ in range(64):
        assert outage.relay.undecided(asked) == asked
        outage.now += LONGEST_PAUSE_SECONDS
    outage.clickhouse.blind.remove("m63")
    for _ in range(2):  # each is asked in its turn
        outage.relay.undecided(asked)
        outage.now += LONGEST_PAUSE_SECONDS
    assert outage.relay.undecided(asked) == asked - {"m63.t"}


def test_a_topic_that_cannot_grow_now_keeps_no_alter() -> None:
    """Red before: each refresh failed of it, before ClickHouse was asked, whose error it was."""

    class Unmade(OfBrokers):
        def widen(self, topics: Collection[str], _wanted: int = 0) -> dict[str, Refused]:
            if topics:
                raise Unavailable("no controller", "start it")
            return {}

    clickhouse, topics = ClickHouse(a=[N]), BlockTopics("app", cast("Any", Unmade()))
    relay = tables(clickhouse, Registry(), topics)
    relay.resolve(["d.a"])
    topics.widen_soon("d.a")
    clickhouse.tables["d.a"] = [N, NEW]
    assert relay.refresh() == {"d.a"}


def test_a_table_whose_topic_cannot_be_made_now_waits_alone() -> None:
    """Red before: the relay did not poll, and all tables waited."""
    now, brokers = 0.0, OfBrokers(says={"app.blocks.d.b": Unavailable("too few", "start them")})
    topics = BlockTopics("app", cast("Any", brokers), lambda: now)
    relay = tables(ClickHouse(a=[N], b=[N]), Registry(), topics, lambda: now)
    both = frozenset({"d.a", "d.b"})
    assert relay.undecided(both) == frozenset()
    assert relay.have_topics(both, 0) == {"d.b"}
    assert relay.still_undecided(frozenset({"d.b"})) == {"d.b"}
    brokers.says.clear()
    now = FIRST_PAUSE_SECONDS
    assert relay.still_undecided(frozenset({"d.b"})) == frozenset()
    assert relay.have_topics(both, 0) == frozenset()


def test_a_table_waits_for_the_leader_of_its_topic_too() -> None:
    """Whatever ClickHouse says; and while it is away, a table that was met goes on without it."""
    topics = Topics()
    clickhouse, registry = ClickHouse(met=[N]), Registry()
    relay = tables(clickhouse, registry, topics, clock=lambda: 0.0)
    relay.resolve(["d.met"])
    held = frozenset({"d.met"})
    topics.dark = held
    assert relay.still_undecided(held) == held

    clickhouse.away = True
    assert relay.undecided(["d.new"]) == {"d.new"}
    assert relay.still_undecided(held | {"d.new"}) == held | {"d.new"}
    topics.dark = frozenset()
    assert relay.still_undecided(held | {"d.new"}) == {"d.new"}


def test_a_registry_that_is_away_too_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks beside its work goes on with it; who begins a transaction waits for the brokers."""
    outage = Outage()

    def silent() -> None:
        raise Unavailable("no broker", "wait")

    monkeypatch.setattr(outage.registry, "catch_up", silent)
    held = frozenset({"d.new"})
    assert outage.relay.still_undecided(held) == held
    with pytest.raises(Unavailable, match="no broker"):
        outage.relay.undecided(held)


def test_a_hint_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """ClickHouse has said that it has no such table, and goes away before it lists those it has."""
    outage = Outage()
    outage.clickhouse.away = False

    def silent() -> list[str]:
        raise ClickHouseAway("nobody answers", "wait")

    monkeypatch.setattr(outage.clickhouse, "names", silent)
    assert outage.relay.undecided(["d.typo"]) == frozenset()
    assert str(outage.relay.codec("d.typo")).endswith("none of this name")


def test_no_table_is_named_that_rows_may_not_go_to() -> None:
    clickhouse = ClickHouse(a=[N])
    clickhouse.tables = {"relay.ledger": [N]}
    relay = tables(clickhouse, Registry())
    relay.resolve(["shop.ledger"])
    assert "did you mean" not in str(relay.codec("shop.ledger"))


def test_whose_blocks_the_loader_inserts_one_by_one() -> None:
    """Those of tables whose rows do not say their block, or do not stay as they were inserted."""
    block = ColumnDef("_block", "String")
    clickhouse = ClickHouse(plain=[N, block], bare=[N], views=[N, block])
    clickhouse.viewed = {"d.views"}
    relay = tables(clickhouse, Registry())
    every = ["d.plain", "d.bare", "d.views", "d.none"]
    assert relay.alone(every) == frozenset()  # nobody has looked yet

    relay.resolve(every)
    assert relay.alone(every) == {"d.bare", "d.views"}
    assert relay.alone(["d.plain", "d.bare"]) == {"d.bare"}

    clickhouse.tables["d.bare"] = [N, block]
    clickhouse.viewed = {"d.plain"}
    relay.refresh()
    assert relay.alone(every) == {"d.plain"}
