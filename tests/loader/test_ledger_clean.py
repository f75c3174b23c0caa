"""`loader ledger clean`: what may go goes, and nothing that anybody asks for."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from click.testing import CliRunner
from clickhouse_connect.driver.client import Client
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from loader.blocks.worker import Worker
from loader.cli import loader as command
from loader.clickhouse.ledger import Ledger
from loader.core.positions import Why, gone_row, letters_rows, rows_of, superseded_row
from loader.journal import startup
from loader.operate.clean import Cleaned, clean
from relay import names
from relay.errors import ConfigError, Refused
from relay.records_pb2 import Block
from tests.loader.blocks import Journal, batch
from tests.loader.test_work import copies, make
from tests.loader.unsparked import Run, Unsparked

DAYS = 86_400


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


def test_a_ledger_of_an_earlier_version_is_named(ledger: Ledger, client: Client) -> None:
    """As a command finds it before a loader of this version has run, which adds what is missing."""
    client.command(f"ALTER TABLE {ledger.name} DROP COLUMN sent")
    with pytest.raises(Refused, match="earlier version of the loader made this ledger") as found:
        ledger.entries([Block(id="a:d.t:0:0:0", table="d.t")])
    assert "`loader run` of this version" in found.value.next_step
    ledger.ensure()
    assert ledger.entries([Block(id="a:d.t:0:0:0", table="d.t")]) == {}


def forget(journal: Journal, offset: int) -> None:
    """Retention deletes the journal's records before `offset`."""
    admin = AdminClient({"bootstrap.servers": journal.settings().kafka.bootstrap})
    place = TopicPartition(names.journal_topic(journal.app), 0, offset)
    for future in admin.delete_records([place]).values():
        future.result(30)


def idle(journal: Journal) -> None:
    """A record without blocks, as a relay writes one for an idle partition; read by the loader."""
    with journal.transaction():
        journal.commit()
    Unsparked(journal).run()


def age(client: Client, ledger: Ledger, blocks: list[Block], days: int) -> None:
    """As if all that the ledger says of these blocks had been said so many days ago."""
    listed = ", ".join(f"'{block.id}'" for block in blocks)
    client.command(
        f"ALTER TABLE {ledger.name} UPDATE at = at - INTERVAL {days} DAY "
        f"WHERE block IN ({listed}) SETTINGS mutations_sync = 2"
    )


def known(client: Client, ledger: Ledger) -> set[str]:
    """Ids of the blocks that the ledger has entries of."""
    rows = client.query(f"SELECT DISTINCT block FROM {ledger.name} WHERE table != ''").result_rows
    return {str(row[0]) for row in rows}


def cleaned(journal: Journal, ledger: Ledger, *, run: bool = True, **said: Any) -> Cleaned:
    wanted = {"gone": (), "seconds": 7 * DAYS} | said
    return clean(journal.settings(), ledger, wanted["gone"], wanted["seconds"], run=run)


def test_old_entries_of_records_that_are_gone_go(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Not what the journal holds, what is new, or what waits; no table is loaded again.

    Of what waits, one block stands aside, for its table is not there, and one is parked.
    """
    checked = f"{table}_checked"
    client.command(
        f"CREATE TABLE {checked} (id Int64, name String, _block String, CONSTRAINT c CHECK id < 0) "
        "ENGINE = MergeTree ORDER BY id"
    )
    blocks = [journal.seal(table, batch(first * 100, 100))[0] for first in range(6)]
    (missing,) = journal.seal(f"{table}_missing", batch(0, 5))
    (bad,) = journal.seal(checked, batch(0, 5))
    Unsparked(journal).run()
    waiting = {missing.id: True, bad.id: False}
    assert {one.block.id: one.aside for one in ledger.waiting()} == waiting
    offsets = [2 * at for at in range(8)]  # a transaction's marker takes an offset, too
    age(client, ledger, [*blocks, missing, bad], 10)

    told = cleaned(journal, ledger, run=False)
    assert told.blocks == {}, "the journal holds all of them"
    forget(journal, offsets[4])
    age(client, ledger, [blocks[1]], -9)
    told = cleaned(journal, ledger, run=False)
    assert told.blocks[table] == {"old": 3, "new": 1, "unsettled": 0}
    assert known(client, ledger) == {block.id for block in [*blocks, missing, bad]}, "a dry run"
    cleaned(journal, ledger)
    kept = {block.id for block in [blocks[1], *blocks[4:], missing, bad]}
    assert known(client, ledger) == kept

    idle(journal)
    forget(journal, offsets[7] + 2)
    cleaned(journal, ledger)
    # The journal holds none of the table any more, and what waits for a person stays.
    assert known(client, ledger) == {blocks[1].id, missing.id, bad.id}
    assert {one.block.id: one.aside for one in ledger.waiting()} == waiting
    journal.seal(table, batch(600, 100))
    Unsparked(journal).run()
    assert copies(client, table) == (700, 700)


def test_the_newest_position_stays(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """One for each partition, however many there were."""
    loader = Unsparked(journal)
    for first in range(4):
        journal.seal(table, batch(first * 100, 100))
        loader.run()
    before = ledger.positions()
    assert cleaned(journal, ledger).rows["positions"] > 0
    assert ledger.positions() == before
    where = "state = 'position' AND NOT match(block, '#unsure:0|^#column-')"
    left = client.query(f"SELECT count() FROM {ledger.name} WHERE {where}").result_rows
    assert left == [(1,)]
    assert cleaned(journal, ledger).rows == {"blocks": 0, "positions": 0, "gone": 0}
    assert loader.run() == []
    assert copies(client, table) == (400, 400)


def test_of_what_each_start_notes_the_newest_stays(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """A loader is started for years, and clean is all that removes anything of the ledger."""
    journal.seal(table, batch(0, 100))
    Unsparked(journal).run()
    own = startup.topic_id(journal.settings(), names.journal_topic(journal.app))
    starts: tuple[Why, ...] = ("unsure", "back", "lost")
    for at, why in itertools.product((3, 4, 5), starts):
        ledger.note(letters_rows("dead", {0: at, 1: 2 * at}))
        ledger.note(rows_of(own, {0: at}, {0: at}, why))
    ledger.note([gone_row("old"), superseded_row(own, 0, 1)])
    before = ledger.noted()
    cleaned(journal, ledger)
    assert dataclasses.replace(ledger.noted(), now=before.now) == before
    kept = client.query(
        f"SELECT block, uniqExact(attempt) FROM {ledger.name} WHERE state = 'position' GROUP BY 1"
    ).result_rows
    assert len(kept) == 10
    assert {different for _, different in kept} == {1}, kept


def test_a_loader_that_was_paused_in_the_midst_of_a_batch_loads_nothing_again(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """It read that a block is new, another loaded it, the entries were cleaned, and it wakes."""
    blocks = [journal.seal(table, batch(first * 100, 100))[0] for first in range(2)]
    settings = journal.settings()
    seen = _look(journal)
    Unsparked(journal).run()
    age(client, ledger, blocks, 10)
    idle(journal)
    forget(journal, 4)
    assert cleaned(journal, ledger).blocks[table]["old"] == 2
    assert known(client, ledger) == set()
    worker = Worker(settings)
    try:
        # Its look is more than a day ago, by the server's clock.
        late = seen.until - 10 * DAYS
        for one in worker.load(blocks, seen.new, until=late):
            assert one.outcome == "retry"
        assert copies(client, table) == (200, 200)
        # The negative control: without the bound on the claim its rows come twice.
        assert {one.outcome for one in worker.load(blocks, seen.new)} == {"loaded"}
        assert copies(client, table) == (400, 200)
    finally:
        worker.close()


def _look(journal: Journal) -> Any:
    """What a loader knows when it has read its first micro-batch."""
    run = Run(journal.settings())
    try:
        return run.look()
    finally:
        run.close()


def test_what_is_read_behind_the_position_is_settled(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """A loader that wakes before it has read the ledger finds no entries of old blocks."""
    blocks = [journal.seal(table, batch(first * 100, 100))[0] for first in range(2)]
    run = Run(journal.settings())
    Unsparked(journal).run()
    age(client, ledger, blocks, 10)
    client.command(
        f"ALTER TABLE {ledger.name} DELETE WHERE table != '' SETTINGS mutations_sync = 2"
    )
    try:
        assert run.look().left == {}
    finally:
        run.close()
    assert copies(client, table) == (200, 200)


def test_a_journal_that_lives_is_never_gone(journal: Journal, ledger: Ledger, table: str) -> None:
    """Nor one that the ledger has never heard of."""
    journal.seal(table, batch(0, 100))
    Unsparked(journal).run()
    own = startup.topic_id(journal.settings(), names.journal_topic(journal.app))
    for wrong in (own, "nobody"):
        with pytest.raises(ConfigError, match="is not a deleted journal"):
            cleaned(journal, ledger, gone=[wrong])


def test_entries_of_a_deleted_journal_go_beside_those_of_a_living_one(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Both have positions: an earlier version's advice was followed by half."""
    (mine,) = journal.seal(table, batch(0, 100))
    Unsparked(journal).run()
    other = Block(id=f"{journal.app}:{table}:0:{names.first_epoch('old')}:0", table=table)
    rows = f"INSERT INTO {ledger.name} (app, table, block, state) VALUES"
    client.command(f"{rows} ('{journal.app}', '{table}', '{other.id}', 'loaded')")
    ledger.save_positions("old", {0: 7})
    own = startup.topic_id(journal.settings(), names.journal_topic(journal.app))
    ledger.note(superseded_row(topic, 0, 3) for topic in ("old", own))
    assert cleaned(journal, ledger).others == ["old"]
    assert known(client, ledger) == {mine.id, other.id}, "nobody has named it"
    assert cleaned(journal, ledger, gone=["old"]).rows["gone"] == 3
    assert ledger.noted().superseded == {names.superseded_row(own, 0, 3)}
    assert known(client, ledger) == {mine.id}
    assert ledger.noted().gone == {"old"}
    assert {topic for topic, _ in ledger.positions()} == {own}


def test_what_a_rewind_settled_before_any_loader_stays(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Else a superseded block of the new journal is inserted, beside those that replace it."""
    own = startup.topic_id(journal.settings(), names.journal_topic(journal.app))
    begins = {"mine": names.first_epoch(own), "old": names.first_epoch("old"), "oldest": 0}
    ids = {of: f"{journal.app}:{table}:0:{epoch}:0" for of, epoch in begins.items()}
    rows = ", ".join(f"('{journal.app}', '{table}', '{one}', 'discarded')" for one in ids.values())
    client.command(f"INSERT INTO {ledger.name} (app, table, block, state) VALUES {rows}")
    ledger.save_positions("old", {0: 7})
    cleaned(journal, ledger, gone=["old"])
    assert known(client, ledger) == {ids["mine"]}


def test_the_command(journal: Journal, ledger: Ledger, client: Client, table: str) -> None:
    """Shows what would go, as text and as JSON; --run removes it."""
    blocks = [journal.seal(table, batch(first * 100, 100))[0] for first in range(3)]
    Unsparked(journal).run()
    age(client, ledger, blocks, 10)
    forget(journal, 4)
    path = str(journal.configured())
    shown = CliRunner().invoke(command, ["ledger", "clean", path])
    assert shown.exit_code == 0, shown.output
    assert f"{table}: 2 blocks whose journal records were deleted would be removed" in shown.output
    assert "nothing was changed; add --run to remove the entries" in shown.output
    assert len(known(client, ledger)) == 3
    done = CliRunner().invoke(command, ["ledger", "clean", path, "--run", "--json"])
    found = json.loads(done.output)
    assert (found["removed"], found["blocks"][table]["old"]) == (True, 2)
    assert known(client, ledger) == {blocks[2].id}
    refused = CliRunner().invoke(command, ["ledger", "clean", path, "--older-than", "1"])
    assert refused.exit_code == 2
