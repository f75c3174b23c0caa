"""B3 on one server: an INSERT of which some partitions came; its token decides, or a person."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from loader.blocks import insert_statement
from loader.clickhouse.ledger import NewEntry
from loader.core import plan
from loader.operate.resolve import resolve
from relay.clickhouse.insert_settings import deduplicated, known
from tests.loader.blocks import batch
from tests.loader.test_evidence import number, until_settled, window
from tests.loader.test_work import copies, killed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from loader.blocks.worker import Worker
    from loader.clickhouse.ledger import Ledger
    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

ROWS, PARTITIONS = 70, 7


@contextlib.contextmanager
def unheard_once() -> Iterator[None]:
    """The server carries the next INSERT of a block out, and its answer does not arrive."""
    send, lost = insert_statement.send, []

    def sent(*args: Any) -> Any:
        answer = send(*args)
        if not lost:
            lost.append(answer)
            raise OperationalError("the connection was lost")
        return answer

    with mock.patch.object(insert_statement, "send", sent):
        yield
    assert lost


def interrupted(
    journal: Journal, client: Client, table: str, *, stamped: bool, remembers: int = 100
) -> Block:
    """A block of seven partitions, whose INSERT left the rows of six; its loader is dead."""
    client.command(
        f"CREATE TABLE {table} (id Int64, name String{', _block String' * stamped}) "
        f"ENGINE = MergeTree PARTITION BY id % {PARTITIONS} ORDER BY id {window(remembers)}"
    )
    (block,) = journal.seal(table, batch(0, ROWS))
    killed(journal, [block], "after_prepare")
    stamp = f", '{block.id}'" * stamped
    broken_off = f"throwIf(number >= {ROWS}) + number"
    with pytest.raises(ClickHouseError, match="throwIf"):  # once it has written what came before
        client.command(
            f"INSERT INTO {table} SELECT {broken_off}, 'x'{stamp} FROM numbers({2 * ROWS})",
            settings={
                **known(deduplicated(block.id, ROWS), client.server_settings),
                **dict.fromkeys(("max_block_size", "max_insert_block_size"), ROWS),
                "min_insert_block_size_rows": 1,
                "max_threads": 1,
                "log_comment": block.id,
            },
        )
    assert number(client, table) == ROWS - ROWS // PARTITIONS
    return block


def parked_before(ledger: Ledger, block: Block) -> None:
    """By a loader of an earlier version."""
    reason = "60 of its 70 rows"
    ledger.write([NewEntry(block, plan.Entry(plan.PARKED, 9, "x", reason=reason))])


@pytest.mark.parametrize("stamped", [True, False])
def test_the_token_adds_what_is_missing(
    journal: Journal, worker: Worker, client: Client, database: str, *, stamped: bool
) -> None:
    block = interrupted(journal, client, f"{database}.t", stamped=stamped)
    assert until_settled(worker, [block]) == ["loaded"]
    assert copies(client, block.table) == (ROWS, ROWS)


@pytest.mark.parametrize("stamped", [True, False])
def test_a_person_says_retry(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, stamped: bool
) -> None:
    """A loader of before parked it; asked again, it was parked again."""
    block = interrupted(journal, client, f"{database}.t", stamped=stamped)
    parked_before(ledger, block)
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "retry")
    assert (state, copies(client, block.table)) == ("loaded", (ROWS, ROWS)), reason


@pytest.mark.parametrize("stamped", [True, False])
def test_a_partition_is_gone_since(
    journal: Journal, worker: Worker, client: Client, database: str, *, stamped: bool
) -> None:
    """With its parts their tokens are forgotten: the repeat would bring back what a person took."""
    block = interrupted(journal, client, f"{database}.t", stamped=stamped)
    client.command(f"ALTER TABLE {block.table} DROP PARTITION 2")
    assert until_settled(worker, [block]) == ["parked"]
    assert number(client, block.table) == ROWS - 2 * ROWS // PARTITIONS


@pytest.mark.parametrize("remembers", [2, 10])
def test_its_token_may_be_forgotten(
    journal: Journal, worker: Worker, ledger: Ledger, client: Client, database: str, remembers: int
) -> None:
    """Then a person takes the rows away, says so, and all come: a DELETE leaves the tokens."""
    block = interrupted(journal, client, f"{database}.t", stamped=True, remembers=remembers)
    (outcome,) = worker.load([block])
    assert (outcome.outcome, "60 of its 70 rows" in outcome.reason) == ("parked", True)
    client.command(f"DELETE FROM {block.table} WHERE _block = '{block.id}'")
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert (state, copies(client, block.table)) == ("loaded", (ROWS, ROWS)), reason


@pytest.mark.parametrize("stamped", [True, False])
def test_a_person_says_that_none_of_its_rows_are_there(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, stamped: bool
) -> None:
    """Six of seven are: the token knows them, as nobody has removed any since."""
    block = interrupted(journal, client, f"{database}.t", stamped=stamped)
    parked_before(ledger, block)
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert (state, copies(client, block.table)) == ("loaded", (ROWS, ROWS)), reason


@pytest.mark.parametrize("stamped", [True, False])
def test_a_person_took_the_rows_and_the_answer_is_lost(
    journal: Journal, ledger: Ledger, client: Client, database: str, *, stamped: bool
) -> None:
    """Who says it again has not looked again: what became of the INSERT is found out first."""
    block = interrupted(journal, client, f"{database}.t", stamped=stamped)
    parked_before(ledger, block)
    client.command(f"ALTER TABLE {block.table} DELETE WHERE 1 SETTINGS mutations_sync = 2")
    with unheard_once():
        ((_, state, _),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert state == "retry"
    ((_, state, reason),) = resolve(journal.settings(), ledger, [block.id], "absent")
    assert (state, copies(client, block.table)) == ("loaded", (ROWS, ROWS)), reason
