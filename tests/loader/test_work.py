"""The worker against real Kafka and ClickHouse's real engine, without Spark."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks import insert_groups
from loader.blocks import worker as blocks_worker
from loader.blocks.worker import Outcome, Worker
from loader.clickhouse.ledger import Ledger, NewEntry
from loader.clickhouse.running_statements import Still
from loader.core import plan
from loader.operate.resolve import resolve
from relay.clickhouse import http_pool
from relay.clickhouse.errors import About
from relay.config.settings import Settings
from relay.errors import ConfigError
from relay.records_pb2 import Block
from tests.broker.pipeline import wait_until
from tests.loader.blocks import DEADLINE, Journal, await_next_second, batch, parked_blocks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(client: Client, database: str) -> str:
    return make(client, f"{database}.stamped", stamped=True)


def make(client: Client, table: str, *, stamped: bool, window: int = 1, extra: str = "") -> str:
    """A table; of one with a window, in a second before any claim: it has surely its tokens."""
    stamp = ", _block String" if stamped else ""
    client.command(
        f"CREATE TABLE {table} (id Int64, name LowCardinality(String){stamp}) ENGINE = MergeTree "
        f"ORDER BY id SETTINGS non_replicated_deduplication_window = {window}{extra}"
    )
    if window > 1:
        await_next_second(client)
    return table


def copies(client: Client, table: str) -> tuple[int, int]:
    """(rows, different rows), without those of others (negative ids)."""
    rows = client.query(f"SELECT count(), uniqExact(id) FROM {table} WHERE id >= 0").result_rows
    return rows[0][0], rows[0][1]


def others_insert(client: Client, table: str, times: int = 3) -> None:
    for i in range(times):
        client.command(
            f"INSERT INTO {table} (id, name) SETTINGS async_insert = 0 VALUES (-{i + 1}, 'x')"
        )


def killed(
    journal: Journal,
    blocks: list[Block],
    failpoint: str,
    settings: Settings | None = None,
    seconds: float = DEADLINE,
) -> None:
    """An attempt in a process that ends itself by SIGKILL at the failpoint.

    A table that was made just now has surely its tokens: the attempt claims in a later second, by
    the clock that the servers here have, too.
    """
    before = int(time.time())
    wait_until(lambda: time.time() >= before + 1, "the next second")
    path = journal.directory / "settings.json"
    path.write_text((settings or journal.settings()).model_dump_json())
    done = subprocess.run(
        [sys.executable, "-m", "tests.loader.once", str(path)]
        + [block.SerializeToString().hex() for block in blocks],
        env={"RELAY_FAILPOINT": failpoint, "PYTHONPATH": f"{ROOT}:{journal.directory}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def before_the_next_insert(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """A loader pauses right before its INSERT, once, and this happens meanwhile."""
    real = insert_groups.insert

    def pause(*arguments: Any, **named: Any) -> plan.Answer:
        monkeypatch.setattr(insert_groups, "insert", real)
        happens()
        return real(*arguments, **named)

    monkeypatch.setattr(insert_groups, "insert", pause)


def outcomes(done: list[Outcome]) -> list[str]:
    return [one.outcome for one in done]


def test_blocks_become_rows(journal: Journal, worker: Worker, client: Client, table: str) -> None:
    """Blocks of several chunks are loaded once, however often they are attempted."""
    blocks = journal.seal(table, *(batch(i * 1000, 1000) for i in range(6)))
    assert max(block.chunks for block in blocks) > 1
    for _ in range(2):
        assert outcomes(worker.load(blocks)) == ["loaded"] * 6
        assert copies(client, table) == (6000, 6000)
    stamps = client.query(f"SELECT uniqExact(_block) FROM {table}").result_rows
    assert stamps == [(6,)]
    parts = client.query(f"SELECT uniqExact(_part) FROM {table}").result_rows[0][0]
    assert parts <= 6, "an INSERT must be one server block"


def test_blocks_called_new_that_are_not(
    journal: Journal, worker: Worker, client: Client, table: str
) -> None:
    """Another loader was there since the ledger was asked: it is seen behind the claim."""
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(3)))
    killed(journal, blocks[:1], "after_insert")
    assert outcomes(worker.load(blocks[1:2])) == ["loaded"]
    first, *others = outcomes(worker.load(blocks, [block.id for block in blocks]))
    # Of two first claims the one whose name ranks higher holds.
    assert first in {"retry", "loaded"}
    assert others == ["loaded"] * 2
    assert outcomes(worker.load(blocks)) == ["loaded"] * 3
    assert copies(client, table) == (300, 300)


def test_merges_hide_no_rows(
    journal: Journal,
    worker: Worker,
    connect: Callable[..., Client],
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Parts are merged all the time; each block is loaded by its first attempt all the same."""
    monkeypatch.setattr(insert_groups, "TOGETHER_BYTES", 0)  # one by one: so they are counted
    blocks = journal.seal(table, *(batch(i * 10, 10) for i in range(40)))
    ended, merged = threading.Event(), threading.Event()

    def merge() -> None:
        merging = connect()
        while not ended.is_set():
            merging.command(f"OPTIMIZE TABLE {table}")
            merged.set()

    thread = threading.Thread(target=merge)
    thread.start()
    try:
        assert merged.wait(30)
        monkeypatch.setattr(blocks_worker, "TOGETHER", 2)
        done = [worker.load(blocks[i : i + 2]) for i in range(0, len(blocks), 2)]
    finally:
        ended.set()
        thread.join()
    assert [outcomes(some) for some in done] == [["loaded"] * 2] * 20


def test_blocks_of_several_tables_are_marked_together(
    journal: Journal, worker: Worker, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by what its own table says: not at all, counted rows, or rows that it merges away."""
    kinds = {"stamped": True, "bare": False, "other": True}
    tables = [make(client, f"{database}.{name}", stamped=on) for name, on in kinds.items()]
    tables.append(f"{database}.replacing")
    client.command(
        f"CREATE TABLE {tables[3]} (id Int64, name String, _block String) "
        "ENGINE = ReplacingMergeTree ORDER BY id"
    )
    blocks = [journal.seal(table, batch(0, 10))[0] for table in tables]
    marked: list[int] = []
    mark_first = Ledger.mark_first

    def counted(ledger: Ledger, some: list[NewEntry]) -> bool:
        marked.append(len(some))
        return mark_first(ledger, some)

    monkeypatch.setattr(Ledger, "mark_first", counted)
    assert outcomes(worker.load(blocks)) == ["loaded"] * 4
    assert marked == [4]
    for table in tables[:3]:
        assert copies(client, table) == (10, 10)


def test_fewer_are_claimed_together_where_a_token_decides(
    journal: Journal, worker: Worker, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed loader leaves claimed must be few for the window. Else a claim ends with a
    table, so that one INSERT takes all of it."""
    monkeypatch.setattr(blocks_worker, "TOGETHER", 4)
    monkeypatch.setattr(blocks_worker, "TOKEN_TOGETHER", 2)
    counted = make(client, f"{database}.a", stamped=True)
    by_token = make(client, f"{database}.b", stamped=False, window=1000)
    seen = [journal.seal(table, batch(0, 10))[0] for table in (counted, by_token)]
    assert outcomes(worker.load(seen)) == ["loaded"] * 2
    claimed: list[int] = []
    write = Ledger.write

    def count(ledger: Ledger, rows: list[NewEntry], *rest: int) -> None:
        claimed.append(len(rows))
        write(ledger, rows, *rest)

    monkeypatch.setattr(Ledger, "write", count)
    blocks = journal.seal(counted, *(batch(n * 10, 10) for n in range(1, 4)))
    blocks += journal.seal(by_token, *(batch(n * 10, 10) for n in range(1, 6)))
    assert outcomes(worker.load(blocks)) == ["loaded"] * 8
    assert claimed == [3, 2, 2, 1]
    assert copies(client, counted) == (40, 40)


def test_tables_seen_for_the_first_time_are_claimed_together(
    journal: Journal, worker: Worker, client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts, or gets another's tables, does not take each for one at risk."""
    tables = [make(client, f"{database}.{name}", stamped=True) for name in "abcdefg"]
    tables += [f"{database}.missing"]
    blocks = [journal.seal(table, batch(0, 10))[0] for table in tables]
    claimed: list[int] = []
    write = Ledger.write

    def count(ledger: Ledger, rows: list[NewEntry], *rest: int) -> None:
        claimed.append(len(rows))
        write(ledger, rows, *rest)

    monkeypatch.setattr(Ledger, "write", count)
    new = {block.id for block in blocks}
    assert outcomes(worker.load(blocks, new)) == ["loaded"] * 7 + ["retry"]
    assert claimed == [7]
    for table in tables[:-1]:
        assert copies(client, table) == (10, 10)


def test_who_is_overtaken_has_settled_what_came_before(
    journal: Journal, worker: Worker, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that were claimed before need seconds where servers are slow. Two loaders that claim
    all of them at once overtake each other for ever: `replicas`, seed 1930383029."""
    monkeypatch.setattr(blocks_worker, "CLAIMED_TOGETHER", 4)
    first, *blocks = journal.seal(table, *(batch(n * 10, 10) for n in range(13)))
    assert outcomes(worker.load([first])) == ["loaded"]  # so that it knows the table
    ledger = Ledger(client, journal.settings().loader.database, journal.settings().app)

    def claim(attempt: int) -> None:
        entry = plan.Entry(plan.PREPARED, attempt, f"another's {attempt}", stamped=True, rows=10)
        ledger.write([NewEntry(block, entry) for block in blocks])

    claim(1)
    steps: list[str] = []

    def overtake(step: str) -> None:
        steps.append(step)
        if len(steps) == 6:  # four are marked, four are under way, four not claimed yet
            claim(9)

    monkeypatch.setattr(insert_groups, "reached", overtake)
    found = outcomes(worker.load(blocks))
    assert (found.count("loaded"), found.count("retry")) == (8, 4)
    assert outcomes(worker.load(blocks)) == ["loaded"] * 12
    assert copies(client, table) == (130, 130)


def test_marks_of_long_ids_go_in_several_statements(
    journal: Journal, worker: Worker, client: Client, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are parameters, in a URL."""
    blocks = journal.seal(table, *(batch(n * 10, 10) for n in range(5)))
    marked: list[int] = []
    mark_first = Ledger.mark_first

    def counted(ledger: Ledger, some: list[NewEntry]) -> bool:
        marked.append(len(some))
        return mark_first(ledger, some)

    monkeypatch.setattr(Ledger, "mark_first", counted)
    monkeypatch.setattr(http_pool, "URL_BYTES", 2 * max(len(block.id) for block in blocks))
    assert outcomes(worker.load(blocks)) == ["loaded"] * 5
    assert marked == [2, 2, 1]
    assert copies(client, table) == (50, 50)


@pytest.mark.parametrize(
    "point", ["before_prepare", "after_prepare", "after_insert", "after_loaded"]
)
def test_killed_at_every_point_leaves_one_copy(
    journal: Journal, worker: Worker, client: Client, table: str, point: str
) -> None:
    """With a block-id column, a kill anywhere and a window long past leave one copy.

    The blocks go into the table together: all of their rows are there, or none.
    """
    blocks = journal.seal(table, batch(0, 1000), batch(1000, 1000))
    killed(journal, blocks, point)
    others_insert(client, table)
    there = copies(client, table)
    assert there == ((2000, 2000) if point in {"after_insert", "after_loaded"} else (0, 0))
    assert outcomes(worker.load(blocks)) == ["loaded"] * 2
    assert copies(client, table) == (2000, 2000)


def test_without_the_ledger_the_same_kill_doubles(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, table: str
) -> None:
    """Negative control: kill between insert and ledger, ledger emptied, window passed."""
    blocks = journal.seal(table, batch(0, 1000))
    killed(journal, blocks, "after_insert")
    others_insert(client, table)
    client.command(f"TRUNCATE TABLE {ledger.name}")
    worker.load(blocks)
    assert copies(client, table) == (2000, 1000)


@pytest.mark.usefixtures("without_logs")
def test_without_block_column_outside_the_window_is_parked(
    journal: Journal,
    worker: Worker,
    ledger: Ledger,
    client: Client,
    database: str,
) -> None:
    """Never inserted blind, never skipped: parked, and a person's word settles it."""
    bare = make(client, f"{database}.bare", stamped=False)
    (block,) = journal.seal(bare, batch(0, 1000))
    killed(journal, [block], "after_insert")
    others_insert(client, bare)
    (done,) = worker.load([block])
    assert done.outcome == "parked"
    assert "forgotten the block's deduplication token" in done.reason
    assert copies(client, bare) == (1000, 1000)
    assert [parked.id for parked, _ in parked_blocks(ledger)] == [block.id]
    assert list(resolve(journal.settings(), ledger, [block.id], "loaded", "counted\nby hand")) == [
        (block.id, "loaded", "a person found all of its rows in the table; counted by hand")
    ]
    with pytest.raises(
        ConfigError, match=f"nothing to settle: {block.id} is loaded: a person found"
    ):
        list(resolve(journal.settings(), ledger, [block.id], "discard"))
    assert outcomes(worker.load([block])) == ["loaded"]
    assert copies(client, bare) == (1000, 1000)


@pytest.mark.usefixtures("without_logs")
@pytest.mark.parametrize("point", ["after_prepare", "after_insert"])
def test_without_block_column_inside_the_window(
    journal: Journal, worker: Worker, client: Client, database: str, point: str
) -> None:
    """Where no log tells, the window decides while the block is surely inside it."""
    bare = make(client, f"{database}.bare", stamped=False, window=100)
    blocks = journal.seal(bare, batch(0, 1000))
    killed(journal, blocks, point)
    others_insert(client, bare)
    assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(client, bare) == (1000, 1000)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_loader_that_wakes_late_inserts_nothing(
    journal: Journal,
    worker: Worker,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    guarded: bool,
) -> None:
    """Paused right before its INSERT, overtaken; without the condition the rows double."""
    (block,) = journal.seal(table, batch(0, 1000))
    overtaker = Worker(journal.settings())

    def overtake() -> None:
        assert outcomes(overtaker.load([block])) == ["loaded"]
        others_insert(client, table)

    before_the_next_insert(monkeypatch, overtake)
    if not guarded:
        worker._ledger.holds = "1"
    assert outcomes(worker.load([block])) == ["loaded"]
    assert copies(client, table) == ((1000, 1000) if guarded else (2000, 1000))
    overtaker.close()


@pytest.mark.parametrize("stamped", [True, False])
def test_two_loaders_at_once(
    journal: Journal, ledger: Ledger, client: Client, database: str, stamped: bool
) -> None:
    """Two workers over the same blocks, no window to help: one copy of each."""
    assert ledger.counts() == []
    table = make(client, f"{database}.both", stamped=stamped, window=0)
    blocks = journal.seal(table, *(batch(i * 100, 100) for i in range(12)))
    rounds: list[list[Outcome]] = []

    def run() -> None:
        worker, open_ = Worker(journal.settings()), list(blocks)
        deadline = time.monotonic() + 60
        while open_ and time.monotonic() < deadline:
            done = worker.load(open_)
            rounds.append(done)
            settled = {one.block for one in done if one.outcome != "retry"}
            open_ = [block for block in open_ if block.id not in settled]
            time.sleep(random.uniform(0, 0.2))
        worker.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each may have overtaken the other until the end: what is left is one loader's.
    with contextlib.closing(Worker(journal.settings())) as last:
        wait_until(lambda: "retry" not in outcomes(last.load(blocks)), "all are settled")
    loaded = sum(n for _, state, n, _ in ledger.counts() if state == "loaded")
    rows, different = copies(client, table)
    assert rows == different, "doubled"
    if stamped:
        assert (loaded, rows) == (12, 1200)
    else:  # overtaken in the middle and nothing to decide by: parked, with or without rows
        assert loaded + len(parked_blocks(ledger)) == 12
        assert loaded * 100 <= rows


def test_too_many_parts_is_waited_out(
    journal: Journal, worker: Worker, client: Client, database: str
) -> None:
    """The table's own trouble: tried again, never parked."""
    extra = ", parts_to_throw_insert = 2, parts_to_delay_insert = 2"
    table = make(client, f"{database}.full", stamped=True, extra=extra)
    client.command(f"SYSTEM STOP MERGES {table}")
    others_insert(client, table, 2)
    blocks = journal.seal(table, batch(0, 10))
    (done,) = worker.load(blocks)
    assert (done.outcome, "252" in done.reason, done.about) == ("retry", True, About.TABLE_NOW)
    client.command(f"TRUNCATE TABLE {table}")
    assert outcomes(worker.load(blocks)) == ["loaded"]


def test_permanent_reasons_park_one_block_and_stop_nothing(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """Unfit type, damaged chunks: parked with the reason; the rest is loaded, and what has no
    table is left to be set aside."""
    good = make(client, f"{database}.good", stamped=True)
    unfit = f"{database}.unfit"
    client.command(f"CREATE TABLE {unfit} (id Int64, name UInt8) ENGINE = MergeTree ORDER BY id")
    (fine,) = journal.seal(good, batch(0, 10))
    (wrong,) = journal.seal(unfit, batch(0, 10))
    (homeless,) = journal.seal(f"{database}.missing", batch(0, 10))
    (damaged,) = journal.seal(good, batch(100, 10))
    damaged.crc32c ^= 1
    (short,) = journal.seal(good, batch(200, 10))
    short.rows += 1
    bad = [wrong, damaged, short]
    done = {o.block: o for o in worker.load([*bad, homeless, fine])}
    assert done[fine.id].outcome == "loaded"
    assert copies(client, good) == (10, 10), "rows of a damaged block were inserted"
    assert copies(client, unfit) == (0, 0), "values were changed until they fit"
    assert {done[b.id].outcome for b in bad} == {"parked"}
    assert "name 0" in done[wrong.id].reason
    assert (done[homeless.id].outcome, done[homeless.id].about) == ("retry", About.TABLE)
    assert "no table" in done[homeless.id].reason
    assert "CRC-32C" in done[damaged.id].reason
    assert "the chunks hold 10 rows" in done[short.id].reason
    make(client, homeless.table, stamped=True)
    assert list(resolve(journal.settings(), ledger, [homeless.id], "retry")) == [
        (homeless.id, "loaded", "")
    ]
    assert copies(client, homeless.table) == (10, 10)


def test_a_block_whose_table_is_gone_is_given_up(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str
) -> None:
    """Discarded without a table, as a last word; what no journal has cannot be resolved."""
    (homeless,) = journal.seal(f"{database}.missing", batch(0, 10))
    settings = journal.settings()
    with pytest.raises(ConfigError, match="neither the ledger nor the journal after"):
        list(resolve(settings, ledger, [f"{homeless.id}0"], "discard"))
    assert outcomes(worker.load([homeless])) == ["retry"]
    ((_, state, reason),) = resolve(settings, ledger, [homeless.id], "loaded")
    assert (state, "no table" in reason) == ("aside", True)
    ((_, state, reason),) = resolve(settings, ledger, [homeless.id], "discard", "rows of a test")
    assert (state, reason) == ("discarded", "a person gave it up; rows of a test")
    make(client, homeless.table, stamped=True)
    assert outcomes(worker.load([homeless])) == ["discarded"]
    assert copies(client, homeless.table) == (0, 0)
    with pytest.raises(ConfigError, match="is discarded: a person gave it up"):
        list(resolve(settings, ledger, [homeless.id], "retry"))
    assert ledger.waiting() == []
    assert ledger.counts() == [(homeless.table, "discarded", 1, 10)]


def test_a_block_is_not_given_up_while_its_insert_runs_though_no_table_is_seen(
    journal: Journal, worker: Worker, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """The table is hidden from this user, or renamed: given up, the block got its rows after."""
    (block,) = journal.seal(f"{database}.missing", batch(0, 10))
    ledger.write([NewEntry(block, plan.Entry(plan.PREPARED, 1, "another's", stamped=True))])
    with monkeypatch.context() as patched:
        still = Still(running=True, reason="an INSERT of this block still runs")
        patched.setattr(worker._running, "of", lambda _: still)
        (outcome,) = worker.load([block], (), "discard", "why")
        assert (outcome.outcome, outcome.reason) == ("retry", still.reason)
    assert outcomes(worker.load([block], (), "discard", "why")) == ["discarded"]


def test_a_resolve_that_was_broken_off_is_done_again(
    journal: Journal, ledger: Ledger, client: Client, table: str
) -> None:
    """Claimed by a person's command that died: still listed, and settled by the next."""
    (block,) = journal.seal(f"{table}_late", batch(0, 10))
    ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 1, "x", reason="no table"))])
    ledger.write([NewEntry(block, plan.Entry(plan.PREPARED, 2, "died"))])
    (one,) = ledger.waiting()
    assert (one.block, one.claimed, one.aside) == (block, True, False)
    assert "no table" in one.reason
    make(client, block.table, stamped=True)
    ((_, state, _),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert state == "loaded"
    assert ledger.waiting() == []
    assert copies(client, block.table) == (10, 10)


def test_the_servers_condition_is_the_plans(ledger: Ledger, client: Client) -> None:
    """Over random ledgers, HOLDS in ClickHouse and plan.holds say the same, and HOLDING counts
    just the blocks of which there is nothing else."""
    dice = random.Random(3)
    found = []
    alone: dict[str, bool] = {}
    for number in range(60):
        block = Block(id=f"b{number}", table="a.b")
        states = [plan.PREPARED] * 6 + [plan.PARKED, plan.ASIDE, plan.LOADED, plan.DISCARDED]
        entries = tuple(
            plan.Entry(dice.choice(states), dice.randint(1, 2), dice.choice("xyz"))
            for _ in range(dice.randint(0, 4))
        )
        ledger.write([NewEntry(block, entry) for entry in entries])
        assert sorted(map(str, ledger.entries([block]).get(block.id, ()))) == sorted(
            map(str, entries)
        )
        parameters = {
            "app": ledger.app,
            "table": "a.b",
            "tables": ["a.b"],
            "block": block.id,
            "claim": "y",
        }
        held = client.query(f"SELECT {ledger.holds}", parameters=parameters).result_rows[0][0]
        assert bool(held) == plan.holds(entries, "y"), entries
        found.append(bool(held))
        alone[block.id] = {(one.state, one.claim) for one in entries} == {(plan.PREPARED, "y")}
        assert held or not alone[block.id], "HOLDING is never true where HOLDS is not"
    assert {*found} == {*alone.values()} == {True, False}

    def holding(blocks: list[str]) -> int:
        asked = {**parameters, "blocks": blocks}
        return int(client.query(f"SELECT {ledger.holding}", parameters=asked).result_rows[0][0])

    ours = [block for block, so in alone.items() if so]
    assert len(ours) > 1
    assert holding(ours) == len(ours)
    for block, so in alone.items():
        assert holding([block]) == so
        assert so or holding([*ours, block]) in {0, len(ours)}, "a block without rows adds none"


def test_first_marks_are_written_all_or_none(ledger: Ledger, client: Client) -> None:
    """Whatever else the ledger has of one of the blocks, none is marked; a view behind the ledger
    counts its rows, too."""
    database = ledger.name.split(".")[0]
    client.command(f"CREATE TABLE {database}.seen (block String) ENGINE = MergeTree ORDER BY block")
    view = f"CREATE MATERIALIZED VIEW {database}.view TO {database}.seen AS SELECT block FROM "
    client.command(view + ledger.name)
    blocks = [Block(id=f"b{n}", table=f"a.{n % 2}") for n in range(4)]
    ours = plan.Entry(plan.PREPARED, 1, "me", rows=10, transform="v1")
    ledger.write([NewEntry(block, ours) for block in blocks])
    loaded = plan.Entry(plan.LOADED, 1, "me", seen=0, rows=10, transform="v1")
    beside = plan.Entry(plan.PREPARED, 1, "other", rows=10), plan.Entry(plan.PARKED, 1, "me")
    for block, other in zip(blocks, beside, strict=False):
        ledger.write([NewEntry(block, other)])
        assert not ledger.mark_first([NewEntry(one, loaded) for one in (block, *blocks[2:])])
    stranger = Block(id="never claimed", table="a.0")
    assert not ledger.mark_first([NewEntry(one, loaded) for one in (*blocks[2:], stranger)])
    assert all(plan.settled(entries) is None for entries in ledger.entries(blocks[2:]).values())
    assert ledger.mark_first([NewEntry(block, loaded) for block in blocks[2:]])
    by_first = ledger.entries(blocks[2:])
    ledger.write([NewEntry(Block(id="general", table="a.0"), ours)])
    ledger.mark([Block(id="general", table="a.0")], "me")
    (generally,) = ledger.entries([Block(id="general", table="a.0")]).values()
    for entries in by_first.values():
        assert set(entries) == set(generally), "both marks leave the same rows"


def test_overtaken_between_insert_and_mark(
    journal: Journal,
    worker: Worker,
    ledger: Ledger,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another loader claims one of the blocks there: that one is not called loaded, the others
    are, and every row comes once."""
    blocks = journal.seal(table, *(batch(n * 10, 10) for n in range(3)))
    mark_first = Ledger.mark_first

    def late(ledger: Ledger, some: list[NewEntry]) -> bool:
        other = plan.Entry(plan.PREPARED, 2, "other", stamped=True, rows=10, sent=plan.ALONE)
        ledger.write([NewEntry(blocks[1], other)])
        return mark_first(ledger, some)

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "mark_first", late)
        assert outcomes(worker.load(blocks)) == ["loaded", "retry", "loaded"]
    assert plan.settled(ledger.entries(blocks)[blocks[1].id]) is None
    assert outcomes(worker.load(blocks)) == ["loaded"] * 3
    assert copies(client, table) == (30, 30)


def test_claimed_by_another_before_it_is_looked_at(
    journal: Journal,
    worker: Worker,
    client: Client,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The statement of a loader that was killed may land late: of blocks that are marked together
    one is a second attempt then, and the others are first ones."""
    blocks = journal.seal(table, *(batch(n * 10, 10) for n in range(3)))
    entries = Ledger.entries
    late = [plan.Entry(plan.PREPARED, 1, "killed", stamped=True, rows=10, sent=plan.TOGETHER)]

    def before_the_look(ledger: Ledger, some: list[Block]) -> dict[str, tuple[plan.Entry, ...]]:
        found = entries(ledger, some)
        while late:
            ledger.write([NewEntry(blocks[1], late.pop())])
        return found

    monkeypatch.setattr(Ledger, "entries", before_the_look)
    assert outcomes(worker.load(blocks)) == ["loaded"] * 3
    assert not late
    assert copies(client, table) == (30, 30)


def test_positions(ledger: Ledger) -> None:
    """The ledger gives the furthest position of each journal and partition."""
    ledger.save_positions("A", {0: 5, 1: 7})
    ledger.save_positions("A", {0: 3})
    ledger.save_positions("B", {0: 1})
    assert ledger.positions() == {("A", 0): 5, ("A", 1): 7, ("B", 0): 1}
    assert json.loads(json.dumps(ledger.counts())) == []
