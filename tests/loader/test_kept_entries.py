"""What settles a block is written once more where a replica may drop the rows that it shows.

Here on a server without replicas, which says that it may; tests/replicas/test_unconfirmed.py has a
real one that does.
"""

from __future__ import annotations

import pytest
from clickhouse_connect.driver.client import Client

from loader.clickhouse.ledger import Ledger
from loader.core.entries import NewEntry
from loader.core.plan import ASIDE, LOADED, PARKED, PREPARED, Entry
from relay.errors import Unavailable
from relay.names import LEFT_OUT
from relay.records_pb2 import Block

CLAIM = Entry(PREPARED, 1, "c", rows=10)
OVER = {
    "loaded": Entry(LOADED, 1, "c", rows=10),
    "parked": Entry(PARKED, 1, "c", reason="a person has to look", rows=10),
    "aside": Entry(ASIDE, 1, "c", reason="too many parts", rows=10),
}


def block(ledger: Ledger, name: str) -> Block:
    return Block(id=f"{ledger.app}:d.t:0:0:{name}", table="d.t", rows=10)


@pytest.fixture
def blocks(ledger: Ledger) -> list[Block]:
    """One of each state, and one that is only claimed; the loaded one left something out."""
    claimed = block(ledger, "claimed")
    rest = Block(id=f"{block(ledger, 'loaded').id}{LEFT_OUT}", table="d.t", rows=1)
    rows = [NewEntry(claimed, CLAIM), NewEntry(rest, Entry(PARKED, 1, "c", rows=1))]
    for name, entry in OVER.items():
        rows += [NewEntry(block(ledger, name), one) for one in (CLAIM, entry)]
    ledger.write(rows)
    return [claimed, *(block(ledger, name) for name in OVER)]


def copies(client: Client, ledger: Ledger) -> dict[str, int]:
    """Rows by what they are of, without claims."""
    found = client.query(
        f"SELECT replaceOne(block, '{ledger.app}:d.t:0:0:', ''), count() FROM {ledger.name} "
        "WHERE state != 'prepared' GROUP BY block"
    )
    return {str(name): int(n) for name, n in found.result_rows}


def test_what_settles_a_block_is_written_once_more(
    ledger: Ledger, client: Client, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was left out of it; and once, of a block that is looked at again and again."""
    settled = ["loaded", f"loaded{LEFT_OUT}", "parked", "aside"]
    before, counts = ledger.entries(blocks), ledger.counts()
    waiting = ledger.waiting()
    assert ledger.kept_entries(blocks) == before
    assert copies(client, ledger) == dict.fromkeys(settled, 1)
    monkeypatch.setattr(Ledger, "_may_drop", lambda _: True)
    ledger._kept = frozenset()
    for _ in range(2):
        ledger.kept_entries(blocks)
    assert copies(client, ledger) == dict.fromkeys(settled, 2)
    assert {id_: set(of) for id_, of in ledger.entries(blocks).items()} == {
        id_: set(of) for id_, of in before.items()
    }
    assert ledger.counts() == counts
    assert ledger.waiting() == waiting


def test_rows_that_were_dropped_meanwhile_are_read_again(
    ledger: Ledger, client: Client, blocks: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this replica; or another one answers, which has never had them."""

    def drops(_: Ledger) -> bool:
        client.command(
            f"ALTER TABLE {ledger.name} DELETE WHERE state = 'aside' SETTINGS mutations_sync = 2"
        )
        return True

    monkeypatch.setattr(Ledger, "_may_drop", drops)
    with pytest.raises(Unavailable, match="no longer what settled"):
        ledger.kept_entries(blocks)
    assert copies(client, ledger).keys() == {"loaded", f"loaded{LEFT_OUT}", "parked"}
    assert set(copies(client, ledger).values()) == {1}
    assert [one.state for one in ledger.kept_entries(blocks)[blocks[-1].id]] == [PREPARED]


def test_a_block_that_is_tried_again_and_again_has_few_rows(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every try that fails sets it aside anew, and wrote once more all that the tries before had.

    It does so for days, where this user may not ask whether the replica may drop rows.
    """
    monkeypatch.setattr(Ledger, "_may_drop", lambda _: True)
    aside, tries = block(ledger, "aside"), 20
    for attempt in range(1, 2 * tries, 2):
        ledger.kept_entries([aside])
        ledger.write([NewEntry(aside, Entry(PREPARED, attempt, f"c{attempt}", rows=10))])
        ledger.kept_entries([aside])
        reason = f"too many parts, try {attempt}"
        over = Entry(ASIDE, attempt + 1, f"a{attempt}", reason=reason, rows=10)
        ledger.write([NewEntry(aside, over)])
    # Each a claim, what set it aside, and that once more.
    assert len(ledger.entries([aside])[aside.id]) == 3 * tries - 1
    (waits,) = ledger.waiting()
    assert (waits.tries, waits.reason) == (tries, reason)
