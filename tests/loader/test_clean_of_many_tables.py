"""`loader ledger clean` where tables, partitions and waiting blocks fit into no statement."""

from __future__ import annotations

import re

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse.ledger import Ledger
from loader.core.positions import Noted
from loader.journal import startup
from loader.operate import clean_plan
from loader.operate.clean_plan import Retained
from relay import names
from tests.loader.blocks import Journal
from tests.loader.test_ledger_clean import cleaned, known

PARSED = 262_144
"""Bytes of a statement that a server parses (max_query_size)."""
TABLES, PARTITIONS, KEPT = 1000, 16, 7000
MANY = "shop.many"
"""A table with blocks that wait and blocks that are loaded, alternately."""


def retained(epoch: int) -> Retained:
    """A journal that has the blocks from offset 100 on of each table, and of one none."""
    held = Retained(dict.fromkeys(range(PARTITIONS), epoch), {}, set(range(PARTITIONS)))
    held.oldest |= {
        (f"shop.t{n:04}", p): (epoch, 100) for n in range(TABLES) for p in range(PARTITIONS)
    }
    held.oldest[MANY, 0] = (epoch, 2 * KEPT)
    return held


def fill(client: Client, ledger: Ledger, epoch: int) -> set[str]:
    """Write entries of ten days ago; return the ids of the blocks that stay."""
    client.command(
        f"INSERT INTO {ledger.name} (app, table, block, state, at) SELECT '{ledger.app}', t, "
        f"concat('{ledger.app}:', t, ':', toString(p), ':{epoch}:', toString(first)), said, "
        "now() - INTERVAL 10 DAY FROM ("
        "SELECT concat('shop.t', leftPad(toString(number % {tables:UInt32}), 4, '0')) AS t, "
        "intDiv(number, {tables:UInt32}) % {partitions:UInt32} AS p, 'loaded' AS said, "
        "100 * intDiv(number, {tables:UInt32} * {partitions:UInt32}) AS first "
        "FROM numbers(2 * {tables:UInt32} * {partitions:UInt32}) UNION ALL "
        f"SELECT '{MANY}', 0, if(number % 2, 'parked', 'loaded'), number "
        "FROM numbers(2 * {kept:UInt32}) UNION ALL "
        "SELECT arrayJoin(['a.first', 'shop.t0500x', 'z.last']), 0, 'loaded', 7 UNION ALL "
        "SELECT 'shop.t0000', {partitions:UInt32}, 'loaded', 0)",
        parameters={"tables": TABLES, "partitions": PARTITIONS, "kept": KEPT},
    )
    ids = {
        *((f"shop.t{n:04}", p, 100) for n in range(TABLES) for p in range(PARTITIONS)),
        *((MANY, 0, first) for first in range(1, 2 * KEPT, 2)),
        ("shop.t0000", PARTITIONS, 0),  # of a partition whose records nobody has loaded
    }
    return {f"{ledger.app}:{table}:{p}:{epoch}:{first}" for table, p, first in ids}


def test_all_that_may_go_goes_and_nothing_else(
    journal: Journal, ledger: Ledger, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand tables of sixteen partitions, 7 000 blocks that wait, and tables that the journal
    has nothing of."""
    own = startup.topic_id(journal.settings(), names.journal_topic(journal.app))
    ledger.save_positions(own, {0: 5})
    epoch = names.first_epoch(own)
    stay = fill(client, ledger, epoch)
    before = known(client, ledger)
    monkeypatch.setattr("loader.operate.clean._retained", lambda *_: retained(epoch))
    told = cleaned(journal, ledger, run=False)
    assert known(client, ledger) == before
    assert len(told.blocks) == TABLES + 4
    assert told.blocks[MANY] == {"old": KEPT, "new": 0, "unsettled": KEPT}
    assert told.blocks["shop.t0123"] == {"old": PARTITIONS, "new": 0, "unsettled": 0}
    assert told.rows["blocks"] == len(before - stay)
    cleaned(journal, ledger)
    assert known(client, ledger) == stay


def test_no_statement_is_longer_than_a_server_parses() -> None:
    """Whatever the names: those of tables and apps may be long, and of many bytes."""
    held = retained(1 << 30)
    held.oldest |= {(f"shop.{'ü' * 90}{n:04}", 0): (1 << 30, 0) for n in range(2000)}
    held.oldest |= {(f"shop.p{n}", p): (1 << 30, 0) for n in range(3) for p in range(1000)}
    positions = {("J", p): 1 << 60 for p in range(5000)}
    noted = Noted(positions, began=positions, letters=positions)
    found = clean_plan.conditions("J", noted, held, ["old"])
    ids = [f"app:shop.{'ü' * 90}:0:{1 << 30}:{n}" for n in range(KEPT)]
    questions = (clean_plan.question, clean_plan.kept)
    asked = [ask(before, 0) for before in found.before for ask in questions]
    told = list(clean_plan.removals("app", found, [ids, *([] for _ in found.before[1:])], 0))
    assert max(len(sql.encode()) for sql in (*asked, *told, *found.positions)) < PARSED / 1.5
    assert len(told) < 80
    assert sum(one.count("startsWith") for one in told) == 6, "the deleted journal, once"
    kept = [
        one
        for sql in told
        for some in re.findall(r"NOT IN \((.*?)\)", sql)
        for one in some.split(", ")
    ]
    assert sorted(kept) == sorted(f"'{name}'" for name in ids), "each once"


def test_where_there_is_nothing_nothing_is_removed() -> None:
    """A journal whose records nobody has loaded, and a ledger that says nothing."""
    found = clean_plan.conditions("J", Noted(), Retained(), [])
    assert list(clean_plan.removals("app", found, [], 0)) == []
