"""Micro-batches whose blocks have trouble of their own: the real ClickHouse, and no Spark.

What Spark's worker processes do, a worker of the test does: the driver's part is the product's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from confluent_kafka import KafkaError, KafkaException

from loader.blocks.fetch import Fetcher
from loader.blocks.worker import Worker
from loader.core import plan, set_aside_plan
from loader.core.entries import NewEntry
from loader.core.plan import ASIDE
from loader.core.set_aside_plan import Aside
from loader.journal.source import Start
from loader.journal.startup import topic_id
from loader.metrics.observer import NOTHING
from loader.operate.resolve import resolve
from loader.spark import micro_batch
from loader.spark.micro_batch import Settling
from loader.spark.set_aside import SetAside, set_aside
from loader.spark.workers import _attempt
from relay import names
from relay.clickhouse import errors
from relay.clickhouse.errors import About
from relay.errors import Refused, Unavailable
from tests.broker.pipeline import wait_until
from tests.loader.blocks import batch
from tests.loader.front import Error, Front, front
from tests.loader.test_work import copies, make, others_insert

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from loader.blocks.attempt import Outcome
    from loader.blocks.fetch import ReadChunks
    from loader.clickhouse.ledger import Ledger
    from relay.config.server_settings import ClickHouse
    from relay.config.settings import Settings
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

PARTS = "Too many parts (300 with average size of 1.00 B) in table 'd.t'. Merges are slower."
PARTITIONS = "Too many partitions for single INSERT block (more than 100)."


class Rig:
    """A driver of the loader, through a front that can refuse."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.said: list[str] = []
        self.stopping = threading.Event()
        self.asides = SetAside(settings, ledger, self.say)
        using = settings, ledger, self.say, NOTHING, self.asides
        self.settling = Settling(*using, self.stopping)
        self.journal = topic_id(settings, names.journal_topic(settings.app))
        ledger.save_positions(self.journal, {0: 0})  # as every start notes where it begins
        self.settling.begin(Start(settings, self.journal, {0: 0}))
        self.ledger, self.settings = ledger, settings
        self._offset = 0

    def say(self, text: str, **_: Any) -> None:
        self.said.append(text)

    def settle(self, *blocks: Block) -> None:
        """One micro-batch."""
        rows = []
        for block in blocks:
            self._offset += 1
            value = block.SerializeToString()
            rows.append(SimpleNamespace(block=value, partition=0, offset=self._offset))
        self.settling.settle(None, rows)  # type: ignore[arg-type] # Spark's part is ours

    def states(self, *blocks: Block) -> list[str]:
        found = self.ledger.entries(blocks)
        return [
            max(found[b.id], key=lambda e: (e.attempt, e.state != "prepared")).state for b in blocks
        ]


@pytest.fixture
def before(clickhouse: ClickHouse) -> Iterator[Front]:
    with front(clickhouse.url) as made:
        yield made


@pytest.fixture
def begin(
    journal: Journal, ledger: Ledger, before: Front, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Rig]:
    """Makes rigs; the time that a block is waited for is short."""
    monkeypatch.setattr(set_aside_plan, "TRIES", 3)
    monkeypatch.setattr(set_aside_plan, "FIRST_SECONDS", 0.05)

    def attempt(
        _: Any, settings: Settings, blocks: Collection[Block], new: Collection[str], *rest: int
    ) -> list[Outcome]:
        _beside, until = rest
        return _attempt(settings, list(blocks), new, until)

    monkeypatch.setattr(micro_batch, "attempt", attempt)

    def make_one(**loader: Any) -> Rig:
        settings = journal.settings(**{"wait_for_servers_seconds": 20.0, **loader})
        through = settings.clickhouse.model_copy(update={"url": before.url})
        return Rig(settings.model_copy(update={"clickhouse": through}), ledger)

    return make_one


@pytest.fixture
def tables(client: Client, database: str) -> tuple[str, str]:
    names = (f"{database}.orders", f"{database}.troubled")
    return make(client, names[0], stamped=True), make(client, names[1], stamped=True)


OF_A_KIND = pytest.mark.long
"""Of a code that the table of codes has in one class with another here."""
# By code: the error, what the driver does with the block at first, and whether the next block of
# the table is set aside without a try.
CODES = [
    pytest.param(Error(252, PARTS), "aside", True, id="252 parts"),
    pytest.param(Error(252, PARTITIONS), "parked", False, id="252 partitions"),
    pytest.param(Error(242), "aside", True, id="242 read-only table", marks=OF_A_KIND),
    pytest.param(Error(497, "Not enough privileges."), "aside", True, id="497 right"),
    pytest.param(
        Error(164, "Cannot execute query in readonly mode."),
        "aside",
        True,
        id="164",
        marks=OF_A_KIND,
    ),
    pytest.param(
        Error(60, "Table d.v does not exist."),
        "aside",
        True,
        id="60 a view's table",
        marks=OF_A_KIND,
    ),
    pytest.param(
        Error(241, "Query memory limit exceeded: would use 9"), "aside", False, id="241 q"
    ),
    pytest.param(
        Error(241, "(total) memory limit exceeded"), "aside", True, id="241 server", marks=OF_A_KIND
    ),
    pytest.param(Error(499, "The specified key does not exist."), "aside", True, id="499 S3"),
    pytest.param(Error(1000, "Timeout"), "aside", True, id="1000 Poco"),
    pytest.param(Error(1001, "std::bad_alloc"), "aside", True, id="1001 std", marks=OF_A_KIND),
    pytest.param(Error(76, "Cannot open file"), "aside", True, id="76 file"),
    pytest.param(
        Error(696, "Load job canceled"), "aside", True, id="696 shutdown", marks=OF_A_KIND
    ),
    pytest.param(Error(999, "Session expired"), "aside", True, id="999 Keeper", marks=OF_A_KIND),
    pytest.param(Error(115, "Unknown setting 'x'."), "aside", False, id="115 setting"),
    pytest.param(Error(9999, "Of a release to come."), "aside", False, id="unknown"),
    pytest.param(Error(0, "", 413), "aside", True, id="413 of a proxy"),
    pytest.param(Error(469, "Constraint is violated."), "parked", False, id="469 check"),
]


@pytest.mark.parametrize("code", [722, 396])
def test_a_table_that_cannot_be_looked_at_holds_up_nobody(
    journal: Journal,
    begin: Callable[..., Rig],
    monkeypatch: pytest.MonkeyPatch,
    client: Client,
    tables: tuple[str, str],
    code: int,
) -> None:
    """Whether rows are hidden is asked again with its next block; nothing waits for the answer."""
    asked = []

    def fails(_: Client, table: str) -> str:
        asked.append(table)
        raise DatabaseError(f"Code: {code}. DB::Exception: not now")

    monkeypatch.setattr("loader.clickhouse.ledger.shown_once_there", fails)
    rig = begin()
    for first in (0, 10):
        rig.settle(*(b for table in tables for b in journal.seal(table, batch(first, 10))))
    assert [copies(client, table) for table in tables] == [(20, 20)] * 2
    assert len(asked) == 4


@pytest.mark.parametrize(("error", "state", "shut"), CODES)
def test_one_tables_trouble_is_that_tables(  # noqa: PLR0917 - fixtures
    error: Error,
    state: str,
    shut: bool,
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    client: Client,
    tables: tuple[str, str],
) -> None:
    """Whatever answers INSERTs into one table: the other's are loaded, the batch ends, and what
    stands aside is loaded once the trouble is over, by itself."""
    orders, troubled = tables
    rig = begin()
    first = journal.seal(troubled, batch(0, 10)) + journal.seal(orders, batch(0, 10))
    second = journal.seal(troubled, batch(10, 10)) + journal.seal(orders, batch(10, 10))
    before.insert_into(troubled, error)

    rig.settle(*first)
    assert rig.states(*first) == [state, "loaded"]
    sent = before.refused
    rig.settle(*second)
    assert rig.states(*second) == [state, "loaded"]
    assert (before.refused == sent) is shut, "tried, though its table takes nothing"
    assert copies(client, orders) == (20, 20)
    assert copies(client, troubled) == (0, 0)
    assert rig.ledger.positions() == {(rig.journal, 0): 5}

    waiting = {one.block.id: one for one in rig.ledger.waiting()}
    assert waiting.keys() == {first[0].id, second[0].id}
    assert all(one.aside == (state == "aside") for one in waiting.values())
    if error.code:
        assert f"Code: {error.code}" in waiting[first[0].id].reason

    before.refuses = lambda _: None
    rig.asides.finish()
    there = 20 if state == "aside" else 0
    assert copies(client, troubled) == (there, there)
    assert len(rig.ledger.waiting()) == (0 if there else 2)


@pytest.mark.parametrize("kept", [256, 4], ids=["all in memory", "most in the ledger"])
def test_blocks_that_stand_aside_outlive_the_loader(
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    client: Client,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kept: int,
) -> None:
    """Another loader finds them in the ledger, and tries them in its thread, a few at a time."""
    monkeypatch.setattr(set_aside_plan, "FEW", 3)
    monkeypatch.setattr(set_aside_plan, "KEPT", kept)
    monkeypatch.setattr("loader.spark.set_aside.KEPT", kept)
    _, troubled = tables
    blocks = journal.seal(troubled, *(batch(at * 10, 10) for at in range(8)))
    before.insert_into(troubled, Error(497))
    begin().settle(*blocks)
    assert [one.aside for one in begin().ledger.waiting()] == [True] * 8

    after = begin()
    with after.asides.running():
        wait_until(lambda: before.refused > 1, "another try")
        before.refuses = lambda _: None
        wait_until(lambda: copies(client, troubled) == (80, 80), "all of them")
        wait_until(lambda: after.ledger.waiting() == [], "the ledger")
    assert {one.state for of in after.ledger.entries(blocks).values() for one in of} >= {"loaded"}
    assert any("which had been set aside" in text for text in after.said)


def test_a_block_set_aside_in_the_middle_of_a_try(
    journal: Journal, begin: Callable[..., Rig], client: Client, tables: tuple[str, str]
) -> None:
    """Claimed by a loader that died: the claim hides it from nobody."""
    (block,) = journal.seal(tables[1], batch(0, 10))
    rig = begin()
    set_aside(rig.ledger, [Aside(block, "why", About.TABLE)])
    rig.ledger.write([NewEntry(block, plan.Entry(plan.PREPARED, 2, "died", rows=10, stamped=True))])
    (one,) = rig.ledger.waiting()
    assert (one.aside, one.claimed, one.reason, one.tries) == (True, True, "why", 1)
    rig.asides.finish()
    assert copies(client, tables[1]) == (10, 10)


def test_who_waits_is_named(
    journal: Journal, begin: Callable[..., Rig], before: Front, tables: tuple[str, str]
) -> None:
    """The line that says what is waited for has block and table."""
    rig = begin()
    (block,) = journal.seal(tables[1], batch(0, 10))
    before.insert_into(tables[1], Error(999), times=1)
    rig.settle(block)
    assert rig.states(block) == ["loaded"]
    (line,) = [text for text in rig.said if "next try" in text]
    assert line.startswith(f"1 block waits, of {block.table} ({block.id}), next try in about")


def test_a_user_who_is_locked_out_ends_the_loader(
    journal: Journal, begin: Callable[..., Rig], before: Front, tables: tuple[str, str]
) -> None:
    """That is nothing about a table: from the first INSERT on the server answers nothing else."""
    (block,) = journal.seal(tables[1], batch(0, 10))
    rig, locked_out = begin(), False

    def refuses(statement: str) -> Error | None:
        nonlocal locked_out
        locked_out |= "INSERT INTO `" in statement and ".`troubled`" in statement
        return Error(516, "Authentication failed.", 403) if locked_out else None

    before.refuses = refuses
    with pytest.raises(Refused, match="516"):
        rig.settle(block)


def test_a_block_topic_that_may_not_be_read_is_its_tables(
    journal: Journal,
    begin: Callable[..., Rig],
    client: Client,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A right on one topic is missing: other tables are loaded, and this one once it is there."""
    blocks = [journal.seal(table, batch(0, 10))[0] for table in tables]
    real = Fetcher._chunks

    def chunks(fetcher: Fetcher, block: Block) -> ReadChunks:
        if block.table == tables[1]:
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        return real(fetcher, block)

    monkeypatch.setattr(Fetcher, "_chunks", chunks)
    rig = begin()
    rig.settle(*blocks)
    assert rig.states(*blocks) == ["loaded", "aside"]
    rig.asides.finish()
    assert rig.states(*blocks) == ["loaded", "aside"]
    monkeypatch.setattr(Fetcher, "_chunks", real)
    rig.asides.finish()
    assert copies(client, tables[1]) == (10, 10)


def test_a_user_of_something_behind_a_table_ends_no_loader(
    journal: Journal, begin: Callable[..., Rig], before: Front, tables: tuple[str, str]
) -> None:
    """The server refuses the INSERT for a user that it does not know, and takes all else from the
    loader's: a view's definer, or a cluster's user."""
    blocks = [journal.seal(table, batch(0, 10))[0] for table in tables]
    before.insert_into(tables[1], Error(192, "There is no user `left`. (UNKNOWN_USER)", 403))
    rig = begin()
    rig.settle(*blocks)
    assert rig.states(*blocks) == ["loaded", "aside"]


def test_a_setting_that_is_gone_makes_the_connection_anew(
    journal: Journal, begin: Callable[..., Rig], before: Front, tables: tuple[str, str]
) -> None:
    """A server rolled back (115 on the first INSERT): settings are asked again, and it goes in."""
    (block,) = journal.seal(tables[1], batch(0, 10))
    asked = 0
    refuse = Error(115, "Unknown setting 'new_one'.")

    def refuses(statement: str) -> Error | None:
        nonlocal asked
        # All of them, as a connection does: not those that few rows are sent with.
        asked += "system.settings" in statement and "isNull(min)" not in statement
        return (
            refuse
            if "INSERT INTO `" in statement and ".`troubled`" in statement and asked < 2
            else None
        )

    before.refuses = refuses
    rig = begin()
    rig.settle(block)
    assert (rig.states(block), asked) == (["loaded"], 2)


def test_many_parts_of_the_real_server(
    journal: Journal, begin: Callable[..., Rig], client: Client, database: str
) -> None:
    """252 as the server says it, then merges catch up; the other table never waits."""
    extra = ", parts_to_throw_insert = 2, parts_to_delay_insert = 2"
    full = make(client, f"{database}.full", stamped=True, extra=extra)
    orders = make(client, f"{database}.orders", stamped=True)
    client.command(f"SYSTEM STOP MERGES {full}")
    others_insert(client, full, 2)
    blocks = journal.seal(full, batch(0, 10)) + journal.seal(orders, batch(0, 10))
    rig = begin()
    rig.settle(*blocks)
    assert rig.states(*blocks) == [ASIDE, "loaded"]
    client.command(f"TRUNCATE TABLE {full}")
    rig.asides.finish()
    assert copies(client, full) == (10, 10)


def test_a_block_over_too_many_days(
    journal: Journal, begin: Callable[..., Rig], client: Client, database: str
) -> None:
    """B2: it goes in whole, or parks; the other table's blocks are loaded in the same batch."""
    days, orders = f"{database}.days", make(client, f"{database}.orders", stamped=True)
    client.command(
        f"CREATE TABLE {days} (id Int64, name String, _block String) ENGINE = MergeTree "
        "PARTITION BY id ORDER BY id"
    )
    blocks = journal.seal(days, batch(0, 150)) + journal.seal(orders, batch(0, 10))
    rig = begin()
    rig.settle(*blocks)
    state, other = rig.states(*blocks)
    assert (state, copies(client, days)) in {("loaded", (150, 150)), ("parked", (0, 0))}
    assert (other, copies(client, orders)) == ("loaded", (10, 10))


def test_a_missing_table_is_waited_for_by_its_own_blocks(
    journal: Journal, begin: Callable[..., Rig], client: Client, database: str
) -> None:
    """Made later, it has them all without a word of anybody's."""
    late, orders = f"{database}.late", make(client, f"{database}.orders", stamped=True)
    blocks = journal.seal(late, batch(0, 10)) + journal.seal(orders, batch(0, 10))
    rig = begin()
    rig.settle(*blocks)
    assert rig.states(*blocks) == [ASIDE, "loaded"]
    rig.asides.finish()
    assert "1 block stands aside" in rig.said[-1]
    make(client, late, stamped=True)
    rig.asides.finish()
    assert copies(client, late) == (10, 10)


@pytest.mark.parametrize("state", ["sealed", "claimed", "aside"])
def test_any_block_that_is_not_loaded_is_given_up(
    state: str, journal: Journal, begin: Callable[..., Rig], client: Client, tables: tuple[str, str]
) -> None:
    """Also one that no loader knows, or that one left in the middle; no loader brings it back."""
    (block,) = journal.seal(tables[1], batch(0, 10))
    rig = begin()
    if state == "claimed":
        rig.ledger.write(
            [NewEntry(block, plan.Entry(plan.PREPARED, 1, "died", rows=10, stamped=True))]
        )
    if state == "aside":
        set_aside(rig.ledger, [Aside(block, "why")])
    done = list(resolve(journal.settings(), rig.ledger, [block.id], "discard", "a test"))
    assert [(name, outcome) for name, outcome, _ in done] == [(block.id, "discarded")]
    rig.settle(block)
    rig.asides.finish()
    assert copies(client, tables[1]) == (0, 0)


def test_a_word_of_a_persons_beside_a_loader_that_tries(
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    client: Client,
    tables: tuple[str, str],
) -> None:
    """A dozen blocks given up while the thread tries them all the time: none is loaded after."""
    _, troubled = tables
    blocks = journal.seal(troubled, *(batch(at * 10, 10) for at in range(12)))
    before.insert_into(troubled, Error(9999))
    rig = begin()
    rig.settle(*blocks)
    with rig.asides.running():
        done = list(resolve(journal.settings(), rig.ledger, ["aside"], "discard"))
        before.refuses = lambda _: None
    discarded = {name for name, outcome, _ in done if outcome == "discarded"}
    rig.asides.finish()
    assert len(discarded) == 12, [one for one in done if one[1] != "discarded"]
    assert copies(client, troubled) == (0, 0)


# Negative controls: what the scenarios above rest on, taken away.


def test_without_standing_aside_every_table_waits(
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The micro-batch does not end, so the next one's blocks of other tables wait too."""
    monkeypatch.setattr(micro_batch, "stands_aside", lambda *_, **__: False)
    (block,) = journal.seal(tables[1], batch(0, 10))
    before.insert_into(tables[1], Error(252, PARTS))
    with pytest.raises(Unavailable, match="did not answer for"):
        begin(wait_for_servers_seconds=2.0).settle(block)


def test_without_the_text_a_block_over_too_many_partitions_never_parks(
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """252 by its number alone is taken for a table that is behind with merges."""
    monkeypatch.setattr(errors, "_PARTITIONS", re.compile(r"(?!)"))
    (block,) = journal.seal(tables[1], batch(0, 10))
    before.insert_into(tables[1], Error(252, PARTITIONS))
    rig = begin()
    rig.settle(block)
    assert rig.states(block) == [ASIDE]


def test_without_another_try_a_block_is_never_loaded(
    journal: Journal,
    begin: Callable[..., Rig],
    before: Front,
    client: Client,
    tables: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stands aside for ever, though its table is well."""
    monkeypatch.setattr(set_aside_plan.Asides, "due", lambda *_: [])
    (block,) = journal.seal(tables[1], batch(0, 10))
    before.insert_into(tables[1], Error(497), times=1)
    rig = begin()
    rig.settle(block)
    rig.asides.finish()
    assert (rig.states(block), copies(client, tables[1])) == ([ASIDE], (0, 0))
    monkeypatch.undo()
    rig.asides.finish()
    assert copies(client, tables[1]) == (10, 10)


def test_a_worker_reads_what_stands_aside(worker: Worker, journal: Journal, database: str) -> None:
    """A worker without a word of the driver's leaves it where it is."""
    (block,) = journal.seal(f"{database}.none", batch(0, 10))
    set_aside(worker._ledger, [Aside(block, "why")])
    assert [(one.outcome, one.reason) for one in worker.load([block])] == [(ASIDE, "why")]
