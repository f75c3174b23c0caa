"""A user without the right to insert into a table: that table's blocks wait, and none parks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.blocks.attempt import REFUSED
from loader.blocks.worker import Worker
from loader.clickhouse.ledger import Ledger
from loader.spark import workers
from relay.clickhouse.errors import About
from relay.errors import ErrorPage, Refused
from tests.loader.blocks import parked_blocks
from tests.loader.test_work import batch, copies, make, outcomes

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.records_pb2 import Block
    from tests.loader.blocks import Journal

DENIED = "Code: 497. DB::Exception: eve: Not enough privileges. (ACCESS_DENIED)"
WRONG = "Code: 469. DB::Exception: Constraint `small` is violated. (VIOLATED_CONSTRAINT)"
LOCKED_OUT = "Code: 516. DB::Exception: eve: Authentication failed. (AUTHENTICATION_FAILED)"


@pytest.fixture
def blocks(journal: Journal, client: Client, database: str) -> list[Block]:
    return journal.seal(make(client, f"{database}.t", stamped=True, window=100), batch(0, 10))


def answer(
    monkeypatch: pytest.MonkeyPatch,
    worker: Worker,
    blocks: list[Block],
    text: str,
    *,
    for_good: bool = False,
) -> None:
    """The server answers INSERTs into the blocks' table with this; for good: all that follows."""
    name = blocks[0].table.split(".")[1]
    real, begun = worker._client.command, False

    def command(sql: str, *arguments: Any, **named: Any) -> Any:
        nonlocal begun
        statement = sql or bytes(named.get("data") or b"")[:2000].decode("utf-8", "replace")
        into = statement.startswith("INSERT") and f".`{name}` (" in statement
        begun |= into
        if into or (for_good and begun):
            raise DatabaseError(text)
        return real(sql, *arguments, **named)

    monkeypatch.setattr(worker._client, "command", command)


def test_what_a_user_may_not_do_is_nothing_about_the_block(
    worker: Worker,
    ledger: Ledger,
    client: Client,
    blocks: list[Block],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the right is granted the block is loaded, and nobody had to settle anything."""
    with monkeypatch.context() as denied:
        answer(denied, worker, blocks, DENIED)
        (one,) = worker.load(blocks)
    assert (one.outcome, one.about) == ("retry", About.TABLE)
    assert f"INSERT into {blocks[0].table}: Code: 497" in one.reason
    assert list(parked_blocks(ledger)) == []

    assert outcomes(worker.load(blocks)) == ["loaded"]
    assert copies(client, blocks[0].table) == (10, 10)


def test_the_driver_hears_of_it_without_a_traceback(
    journal: Journal, worker: Worker, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would carry an exception as text; an outcome brings message, next step and page."""
    answer(monkeypatch, worker, blocks, LOCKED_OUT, for_good=True)
    monkeypatch.setitem(workers._workers, journal.app, worker)

    (one,) = workers._attempt(journal.settings(), blocks, (), 0)

    assert one.outcome == REFUSED
    told = Refused.printed(one.reason)
    assert "Authentication failed" in told.message
    assert "rights" in told.next_step
    assert told.page == ErrorPage.CREDENTIALS


def test_what_is_wrong_with_the_block_parks_it(
    worker: Worker, ledger: Ledger, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control, over the same way."""
    answer(monkeypatch, worker, blocks, WRONG)

    assert outcomes(worker.load(blocks)) == ["parked"]
    assert [block.id for block, _ in parked_blocks(ledger)] == [blocks[0].id]
