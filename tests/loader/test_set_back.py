"""A person sets ClickHouse back, empties the ledger or replaces it: FAULTS C3 and C5."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core.plan import PERHAPS, SURELY
from loader.operate.resolve import resolve
from relay.errors import ContractBroken, Unavailable
from tests.loader.blocks import DEADLINE, Journal, batch
from tests.loader.restored import Backup
from tests.loader.test_work import copies, make, others_insert
from tests.loader.unsparked import Run, Unsparked


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


@pytest.fixture
def loader(journal: Journal) -> Unsparked:
    return Unsparked(journal)


def ledger_of(journal: Journal) -> str:
    return f"{journal.settings().loader.database}.ledger"


def loaded(loader: Unsparked, table: str, *firsts: int) -> None:
    """Blocks of 100 rows, sealed and loaded."""
    for first in firsts:
        loader.journal.seal(table, batch(first, 100))
    loader.run()


@pytest.mark.long
@pytest.mark.timeout(6 * DEADLINE)
def test_the_whole_loader_after_a_restore_and_after_a_loss(
    journal: Journal, client: Client, table: str
) -> None:
    """With Spark and its own checkpoint: C3, 100 of 300 rows were lost; then the ledger is lost."""
    for first in (0, 100):
        journal.seal(table, batch(first, 100))
    assert journal.run("run", "--once")[0] == 0
    backup = Backup(client, table, ledger_of(journal))
    journal.seal(table, batch(200, 100))
    assert journal.run("run", "--once")[0] == 0
    backup.restore()
    assert copies(client, table) == (200, 200)
    status, said = journal.run("run", "--once")
    assert (status, "ClickHouse went back" in said) == (0, True), said
    assert copies(client, table) == (300, 300)

    # The same where the checkpoint is on a file system that Spark knows.
    elsewhere = ("--checkpoint", f"file:{journal.directory}/elsewhere")
    journal.seal(table, batch(300, 100))
    assert journal.run("run", "--once", *elsewhere)[0] == 0
    client.command(f"TRUNCATE TABLE {ledger_of(journal)}")
    status, said = journal.run("run", "--once", *elsewhere)
    assert status == 6, said
    assert "has no position of app" in said
    assert "next: If the ledger was lost" in said
    assert "Traceback" not in said
    status, said = journal.run("run", "--once", "--ledger-lost", *elsewhere)
    assert (status, "the checkpoint was moved to file:" in said) == (0, True), said
    assert copies(client, table) == (400, 400)


@pytest.mark.long  # 124 s, with Spark; test_begin_plan.py decides it
@pytest.mark.timeout(6 * DEADLINE)
def test_the_whole_loader_goes_on_without_a_checkpoint_that_is_cut_off(
    journal: Journal, client: Client, table: str
) -> None:
    """As a power failure leaves Spark's files. Red before: status 6 and a wrong cause, or 70."""
    checkpoint = journal.directory / "checkpoint"
    for first in (0, 100):
        journal.seal(table, batch(first, 100))
        assert journal.run("run", "--once")[0] == 0
    for rows, log in ((300, "offsets"), (400, "commits")):
        newest = max(
            (one for one in (checkpoint / log).iterdir() if one.name.isdigit()),
            key=lambda one: int(one.name),
        )
        newest.write_bytes(b"")
        journal.seal(table, batch(rows - 100, 100))
        status, said = journal.run("run", "--once")
        assert status == 0, said
        assert f"{newest} of Spark's checkpoint is empty or cut off" in said
        assert f"the checkpoint was moved to {checkpoint}/aside-" in said
        assert "went back" not in said
        assert copies(client, table) == (rows, rows)
    status, said = journal.run("run", "--once")
    assert (status, "cut off" in said) == (0, False), said
    assert copies(client, table) == (400, 400)


def test_a_checkpoint_that_is_cut_off_is_not_needed(
    loader: Unsparked, client: Client, table: str
) -> None:
    """Where ClickHouse was set back, too, and where no ledger says where to begin."""
    loaded(loader, table, 0)
    backup = Backup(client, table, ledger_of(loader.journal))
    loaded(loader, table, 100)
    backup.restore()
    newest = loader.journal.directory / "checkpoint" / "commits" / "1"
    newest.write_bytes(b"")
    said = "\n".join(loader.run())
    assert f"{newest} of Spark's checkpoint is empty or cut off" in said
    assert "the checkpoint was moved to" in said
    assert copies(client, table) == (200, 200)
    assert loader.run() == [], "said once"
    (loader.journal.directory / "checkpoint" / "offsets" / "0").write_bytes(b"")
    client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    with pytest.raises(ContractBroken, match=r"offsets/0 of .* has no position") as stopped:
        loader.run()
    assert "--ledger-lost" in stopped.value.next_step


def test_a_restored_clickhouse_gets_what_came_since(
    loader: Unsparked, client: Client, database: str, table: str
) -> None:
    """Tables and ledger of one moment, the checkpoint newer, with and without the column."""
    bare = make(client, f"{database}.bare", stamped=False)
    loaded(loader, table, 0, 100)
    loaded(loader, bare, 0)
    backup = Backup(client, table, bare, ledger_of(loader.journal))
    loaded(loader, table, 200)
    loaded(loader, bare, 100)
    backup.restore()
    assert copies(client, table) == (200, 200)
    said = "\n".join(loader.run())
    assert "ClickHouse went back" in said
    assert "the checkpoint was moved to" in said
    assert (copies(client, table), copies(client, bare)) == ((300, 300), (200, 200))
    assert loader.run() == [], "said once"
    assert copies(client, table) == (300, 300)


def test_journal_records_that_were_deleted_before_a_loader_read_them(
    loader: Unsparked, client: Client, table: str
) -> None:
    """Said before anything is loaded, with the way on; `loader status` says the same."""
    loaded(loader, table, 0)
    for first in (100, 200):
        loader.journal.seal(table, batch(first, 100))
    loader.journal.delete_journal(4)
    with pytest.raises(
        ContractBroken, match="begins at offset 4, but the loader stands"
    ) as stopped:
        loader.run()
    assert "--ledger-lost" in stopped.value.next_step
    status, said = loader.journal.run("status")
    assert (status, "begins at offset 4" in said, "--ledger-lost" in said) == (6, True, True), said
    assert copies(client, table) == (100, 100)
    loader.run(lost=True)
    assert copies(client, table) == (200, 200), "all that the journal still has"
    assert loader.run() == []
    assert loader.journal.run("status")[0] == 0


def test_a_journal_that_ends_before_the_ledgers_position(
    loader: Unsparked, ledger: Ledger, client: Client, table: str
) -> None:
    """As after a restore of Kafka from an older copy: said before anything is loaded. Red before:
    `loader run --once` ended with 0, and the next blocks were never read."""
    loaded(loader, table, 0)
    (journal, _), *_ = ledger.noted().positions
    ledger.save_positions(journal, {0: 99})
    loader.journal.seal(table, batch(100, 100))
    for lost in (False, True):
        with pytest.raises(ContractBroken, match=r"holds offsets 0 to \d+, but .* stands at 99"):
            loader.run(lost=lost)
    status, said = loader.journal.run("status")
    assert (status, "but the loader stands at 99" in said) == (6, True), said
    assert copies(client, table) == (100, 100)


def test_tables_newer_than_the_restored_ledger_are_not_filled_twice(
    loader: Unsparked, client: Client, table: str
) -> None:
    """A backup of the ledger taken first, of the table later; a block of the middle is missing."""
    loaded(loader, table, 0, 100)
    backup = Backup(client, ledger_of(loader.journal))
    loaded(loader, table, 200, 300, 400)
    client.command(f"DELETE FROM {table} WHERE id >= 300 AND id < 400")
    backup.restore()
    assert "ClickHouse went back" in "\n".join(loader.run())
    assert copies(client, table) == (500, 500)


def test_a_crash_between_the_note_and_the_checkpoints_move_changes_nothing(
    loader: Unsparked, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the checkpoint told is in the ledger before the checkpoint goes."""
    loaded(loader, table, 0)
    backup = Backup(client, ledger_of(loader.journal))
    loaded(loader, table, 100)
    backup.restore()

    def dies(_: object) -> str:
        raise OSError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("loader.journal.checkpoint.Checkpoint.set_aside", dies)
        with pytest.raises(OSError, match="killed"):
            loader.run()
    shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.run()
    assert copies(client, table) == (200, 200)


@pytest.mark.parametrize("statement", ["TRUNCATE TABLE {}", "DROP TABLE {} SYNC"])
def test_a_ledger_that_is_gone_beside_a_checkpoint_stops(
    loader: Unsparked, client: Client, table: str, statement: str
) -> None:
    """Status 6 with both values, again and again; as told, the tables' rows decide."""
    loaded(loader, table, 0, 100, 200)
    client.command(statement.format(ledger_of(loader.journal)))
    for _ in range(2):
        with pytest.raises(ContractBroken, match=r"has no position .* checkpoint .* stands at"):
            loader.run()
    assert copies(client, table) == (300, 300)
    client.command(f"DELETE FROM {table} WHERE id < 100")
    loader.run(lost=True)
    assert copies(client, table) == (300, 300)
    loaded(loader, table, 300)
    assert copies(client, table) == (400, 400)


def test_another_ledger_database_stops(loader: Unsparked, client: Client, table: str) -> None:
    """loader.database was changed: the ledger of before has what counts."""
    loaded(loader, table, 0, 100)
    before = loader.journal.settings().loader.database
    settings = loader.journal.settings(database=f"{before}_new")
    try:
        with pytest.raises(ContractBroken, match="has no position of app"):
            loader.run(settings=settings)
    finally:
        client.command(f"DROP DATABASE {settings.loader.database} SYNC")
    assert loader.run() == []
    assert copies(client, table) == (200, 200)


def test_an_emptied_ledger_without_a_checkpoint_is_told_by_the_rows(
    loader: Unsparked, client: Client, database: str, table: str
) -> None:
    """Three blocks loaded, ledger truncated, loader started (C5): there were 600 of 300 rows."""
    merging = f"{database}.merging"
    client.command(
        f"CREATE TABLE {merging} (id Int64, name String, _block String, n Int64 DEFAULT 1) "
        "ENGINE = SummingMergeTree ORDER BY id"
    )
    empty = make(client, f"{database}.empty", stamped=True)
    loaded(loader, table, 0, 100, 200)
    loaded(loader, merging, 0)
    client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.journal.seal(table, batch(300, 100))
    loader.journal.seal(empty, batch(0, 100))
    loader.run()
    assert copies(client, table) == (400, 400)
    assert copies(client, empty) == (100, 100)
    # Inserted once more, its rows would be merged into the others: their sums would double.
    assert copies(client, merging) == (100, 100)
    assert client.query(f"SELECT sum(n) FROM {merging}").result_rows == [(100,)]


@pytest.mark.parametrize("lost", [False, True])
def test_a_doubt_outlives_the_attempt(
    loader: Unsparked,
    client: Client,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    lost: bool,
) -> None:
    """A claim of our own is no proof that nobody inserted before it: its window is of now."""
    table = make(client, f"{database}.stamped", stamped=True, window=100)
    loaded(loader, table, 0)
    others_insert(client, table, 150)
    client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    shutil.rmtree(loader.journal.directory / "checkpoint")
    facts, asked = Tables.facts, []

    def away(*given: Any) -> Any:
        asked.append(given)
        if len(asked) < 3:
            raise Unavailable("ClickHouse is away")
        return facts(*given)

    monkeypatch.setattr(Tables, "facts", away)
    loader.run(lost=lost)
    assert len(asked) == 3
    assert copies(client, table) == (100, 100)


def test_a_first_start_on_a_long_journal_inserts_and_asks_once(
    loader: Unsparked, client: Client, database: str, table: str
) -> None:
    """No block-id column, no window, no checkpoint: it is taken for what it is."""
    bare = make(client, f"{database}.bare", stamped=False, window=0)
    for first in range(0, 1000, 100):
        loader.journal.seal(table, batch(first, 100))
        loader.journal.seal(bare, batch(first, 100))
    assert loader.run() == []
    assert (copies(client, table), copies(client, bare)) == ((1000, 1000), (1000, 1000))


@pytest.mark.usefixtures("without_logs")
def test_a_lost_ledger_of_a_table_without_evidence_parks(
    loader: Unsparked, client: Client, database: str
) -> None:
    """A person says that it was lost: what nobody can know waits for a person."""
    bare = make(client, f"{database}.bare", stamped=False, window=0)
    loaded(loader, bare, 0)
    client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    (said,) = (one for one in loader.run(lost=True) if one.startswith("parked"))
    assert "the ledger may have lost the entry" in said
    assert copies(client, bare) == (100, 100)


def test_a_lost_ledger_of_a_table_without_the_column_is_told_by_the_log(
    loader: Unsparked, client: Client, database: str
) -> None:
    """The server recorded that the INSERT ended well, and what it wrote is where it was; of another
    table it went since, and only a person knows whether it should be there."""
    bare = make(client, f"{database}.bare", stamped=False, window=0)
    emptied = make(client, f"{database}.emptied", stamped=False, window=0)
    loaded(loader, bare, 0)
    loaded(loader, emptied, 0)
    client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
    client.command(f"TRUNCATE TABLE {emptied}")
    client.command(f"INSERT INTO {emptied} VALUES (1, 'of somebody')")
    (said,) = (one for one in loader.run(lost=True) if one.startswith("parked"))
    assert "its parts were dropped or replaced since" in said
    assert (copies(client, bare), copies(client, emptied)) == ((100, 100), (1, 1))


def test_a_ledger_set_back_without_a_checkpoint_is_told_by_the_rows(
    loader: Unsparked, client: Client, database: str, table: str
) -> None:
    """Ledger restored, tables not, and the checkpoint went with the pod: nothing shows it.

    Without the block-id column the server's query log tells; of a table whose rows expire, too.
    """
    bare = make(client, f"{database}.bare", stamped=False, window=0)
    expiring = f"{database}.expiring"
    client.command(
        f"CREATE TABLE {expiring} (id Int64, name String, _block String) ENGINE = MergeTree "
        "ORDER BY id TTL toDateTime(id) + INTERVAL 1 DAY"
    )
    client.command(
        f"CREATE MATERIALIZED VIEW {expiring}_view (n UInt64) ENGINE = SummingMergeTree "
        f"ORDER BY () AS SELECT count() AS n FROM {expiring}"
    )
    tables = (table, bare, expiring)
    for one in tables:
        loaded(loader, one, 0)
    backup = Backup(client, ledger_of(loader.journal))
    for one in tables:
        loaded(loader, one, 100)
    backup.restore()
    shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.journal.seal(table, batch(200, 100))
    loader.run()
    assert (copies(client, table), copies(client, bare)) == ((300, 300), (200, 200))
    assert client.query(f"SELECT sum(n) FROM {expiring}_view").result_rows == [(200,)]


def test_tables_dropped_and_restored_get_what_came_since(
    loader: Unsparked, client: Client, database: str, table: str
) -> None:
    """As RESTORE leaves them: the query log still says that the INSERTs ended well."""
    bare = make(client, f"{database}.bare", stamped=False)
    days = f"{database}.days"
    client.command(
        f"CREATE TABLE {days} (id Int64, name String) ENGINE = MergeTree ORDER BY id "
        "PARTITION BY intDiv(id, 1000)"
    )
    tables = (table, bare, days)
    for one in tables:
        loaded(loader, one, 0)
    backup = Backup(client, *tables, ledger_of(loader.journal))
    for one in tables:
        loaded(loader, one, 100)
    backup.make_anew()
    assert copies(client, bare) == (100, 100)
    assert "ClickHouse went back" in "\n".join(loader.run())
    for one in tables:
        assert copies(client, one) == (200, 200)


def test_partitions_put_back_get_what_came_since_or_wait(
    loader: Unsparked, client: Client, database: str
) -> None:
    """REPLACE PARTITION leaves nothing of what it takes, nor an entry in the part log. Where rows
    carry no ids others may be theirs, as where a person wrote a partition anew: red before, the
    blocks counted as loaded."""
    bare = make(client, f"{database}.bare", stamped=False)
    days = f"{database}.days"
    client.command(
        f"CREATE TABLE {days} (id Int64, name String, _block String) ENGINE = MergeTree "
        "ORDER BY id PARTITION BY intDiv(id, 1000)"
    )
    tables = (bare, days)
    for one in tables:
        loaded(loader, one, 0)
    backup = Backup(client, *tables, ledger_of(loader.journal))
    for one in tables:
        loaded(loader, one, 100)
    backup.replace(*tables)
    backup.restore(ledger_of(loader.journal))
    assert [copies(client, one) for one in tables] == [(100, 100)] * 2
    (parked,) = (said for said in loader.run() if said.startswith("parked"))
    assert f":{bare}:" in parked
    assert "as at REPLACE or MOVE PARTITION" in parked
    assert [copies(client, one) for one in tables] == [(100, 100), (200, 200)]


def test_a_token_without_its_part_loads_no_block(
    loader: Unsparked, client: Client, database: str
) -> None:
    """REPLACE and MOVE PARTITION leave the tokens of what they take: an INSERT under one of them
    wrote nothing, was answered as a success, and its block counted as loaded."""
    names = ("replaced", "moved")
    replaced, moved = (make(client, f"{database}.{n}", stamped=True, window=100) for n in names)
    for one in (replaced, moved):
        loaded(loader, one, 0)
    backup = Backup(client, replaced, ledger_of(loader.journal))
    for one in (replaced, moved):
        loaded(loader, one, 100)
    backup.replace(replaced)
    client.command(f"CREATE TABLE {moved}_old AS {moved}")
    client.command(f"ALTER TABLE {moved} MOVE PARTITION tuple() TO TABLE {moved}_old")
    backup.restore(ledger_of(loader.journal))
    assert (copies(client, replaced), copies(client, moved)) == ((100, 100), (0, 0))
    loader.run()
    assert (copies(client, replaced), copies(client, moved)) == ((200, 200), (100, 100))


def test_whether_rows_stayed_is_not_guessed(
    loader: Unsparked, client: Client, database: str
) -> None:
    """A table without parts: the log says that the INSERT ended, and nothing what came of it."""
    flat = f"{database}.flat"
    client.command(f"CREATE TABLE {flat} (id Int64, name String) ENGINE = Log")
    loaded(loader, flat, 0)
    backup = Backup(client, ledger_of(loader.journal))
    loaded(loader, flat, 100)
    backup.restore()
    (said,) = (one for one in loader.run() if one.startswith("parked"))
    assert "not whether its rows are still there" in said
    assert copies(client, flat) == (200, 200)


def test_partitions_that_others_drop_do_not_hide_what_is_there(
    loader: Unsparked, client: Client, database: str
) -> None:
    """Ledger restored, table not: the block's own partition stays, another one went since."""
    days = f"{database}.days"
    client.command(
        f"CREATE TABLE {days} (id Int64, name String) ENGINE = MergeTree ORDER BY id "
        "PARTITION BY intDiv(id, 1000)"
    )
    loaded(loader, days, 0)
    backup = Backup(client, ledger_of(loader.journal))
    loaded(loader, days, 5000)
    client.command(f"ALTER TABLE {days} DROP PARTITION 0")
    backup.restore()
    loader.run()
    assert copies(client, days) == (100, 100)


def test_a_block_that_was_claimed_when_the_backup_was_made(
    loader: Unsparked, client: Client, table: str, database: str
) -> None:
    """Ledger first, tables after it, under a running loader: the claim is there, and the rows.

    The restored table has no tokens: a repeat under the claim's would be inserted again.
    """
    windowed = make(client, f"{database}.windowed", stamped=True, window=100)
    loaded(loader, windowed, 0)
    (block,) = loader.journal.seal(windowed, batch(100, 100))
    ledger = ledger_of(loader.journal)
    run = Run(loader.journal.settings())
    copies_made: list[Backup] = []
    write = Ledger.write

    def write_and_copy(self: Ledger, rows: Any, until: int = 0) -> None:
        write(self, rows, until)
        if any(one.block.id == block.id for one in rows) and not copies_made:
            copies_made.append(Backup(client, ledger))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ledger, "write", write_and_copy)
        while run.batch():
            pass
    run.close()
    copies_made.append(Backup(client, windowed))
    loaded(loader, table, 0)
    for one in copies_made:
        one.make_anew()
    loader.run()
    assert copies(client, windowed) == (200, 200)


@pytest.mark.parametrize("checkpoint", [True, False])
def test_blocks_that_stood_aside_when_the_backup_was_made(
    loader: Unsparked, client: Client, database: str, table: str, *, checkpoint: bool
) -> None:
    """Loaded since, and untried before: the ledger has no claim of theirs to warn of it."""
    missing = f"{database}.missing"
    loader.journal.seal(missing, batch(0, 100))
    loaded(loader, table, 0)
    backup = Backup(client, ledger_of(loader.journal))
    make(client, missing, stamped=False, window=0)
    loaded(loader, table, 100)
    assert copies(client, missing) == (100, 100)
    backup.restore()
    if not checkpoint:
        shutil.rmtree(loader.journal.directory / "checkpoint")
    loader.journal.seal(table, batch(200, 100))
    loader.run()
    assert (copies(client, missing), copies(client, table)) == ((100, 100), (300, 300))


@pytest.mark.parametrize("who", ["a loader", "a person"])
@pytest.mark.parametrize("stamped", [True, False], ids=["by its column", "by the log"])
def test_a_block_that_stood_aside_and_no_record_that_came_since(
    loader: Unsparked, ledger: Ledger, client: Client, database: str, who: str, *, stamped: bool
) -> None:
    """The positions agree: what settled the block moved none, and no INSERT is remembered."""
    missing = f"{database}.missing"
    loader.journal.seal(missing, batch(0, 100))
    loader.run()
    backup = Backup(client, ledger_of(loader.journal))
    make(client, missing, stamped=stamped, window=0)
    loader.run()
    assert copies(client, missing) == (100, 100)
    backup.restore()
    if who == "a person":
        ((_, outcome, why),) = resolve(loader.journal.settings(), ledger, ["aside"], "retry")
        assert outcome == "loaded", why
    loader.run()
    assert copies(client, missing) == (100, 100)


def test_a_block_that_stood_aside_is_loaded_where_nothing_was_set_back(
    loader: Unsparked, ledger: Ledger, client: Client, database: str
) -> None:
    """Negative control: the table has other rows, and none of the block's."""
    missing = f"{database}.missing"
    (block,) = loader.journal.seal(missing, batch(0, 100))
    loader.run()
    make(client, missing, stamped=False, window=0)
    client.command(f"INSERT INTO {missing} (id) SELECT 1000 + number FROM numbers(5)")
    loader.run()
    assert copies(client, missing) == (105, 105)
    assert {one.claim for one in ledger.entries([block])[block.id]} & {PERHAPS, SURELY} == set()


@pytest.mark.parametrize("what", ["restored", "emptied"])
def test_clickhouse_set_back_under_a_running_loader(
    loader: Unsparked, client: Client, table: str, what: str
) -> None:
    """It hides nothing behind a position, and ends with the next block; the next start goes on."""
    loaded(loader, table, 0)
    backup = Backup(client, table, ledger_of(loader.journal))
    run = Run(loader.journal.settings())
    try:
        loader.journal.seal(table, batch(100, 100))
        run.seal_end()
        while run.batch():
            pass
        loader.journal.seal(table, batch(200, 100))
        run.seal_end()
        if what == "restored":
            backup.restore()
        else:
            client.command(f"TRUNCATE TABLE {ledger_of(loader.journal)}")
        with pytest.raises(Unavailable, match="went back while the loader ran"):
            run.batch()
    finally:
        run.close()
    if what == "emptied":
        with pytest.raises(ContractBroken, match="has no position of app"):
            loader.run()
    said = loader.run(lost=what == "emptied")
    assert ("ClickHouse went back" in "\n".join(said)) == (what == "restored")
    assert copies(client, table) == (300, 300)


def test_a_position_is_not_saved_over_a_ledger_that_went_back(
    loader: Unsparked, client: Client, table: str
) -> None:
    """Between a batch's look and its end: what was lost would lie before the position."""
    loaded(loader, table, 0)
    backup = Backup(client, table, ledger_of(loader.journal))
    run = Run(loader.journal.settings())
    loader.journal.seal(table, batch(100, 100))
    run.seal_end()
    while run.batch():
        pass
    backup.restore()
    run.known.settled({0: 1_000})
    run.known.look_again()
    with pytest.raises(Unavailable, match="stood at 1000"):
        run.known.check()
    run.close()
    loader.run()
    assert copies(client, table) == (200, 200)


def test_what_only_the_table_lost_is_not_guessed(
    loader: Unsparked, client: Client, table: str
) -> None:
    """The ledger says that its rows are there: `relay verify --deep` finds it, no loader can."""
    loaded(loader, table, 0, 100)
    backup = Backup(client, table)
    loaded(loader, table, 200)
    backup.restore()
    assert loader.run() == []
    assert copies(client, table) == (200, 200)
