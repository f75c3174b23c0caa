"""Every order of kills, backups and restores around one block, with the real decisions.

What the searches found stands on the real server in test_restored_claims.
"""

from __future__ import annotations

import pytest

from tests.loader.model import Guards, Table, Violation
from tests.loader.restored_model import Around, Scenario, search

pytestmark = pytest.mark.search

PLAIN = Table(window=6)
BARE = Table(stamped=False, window=6, logged=True)
LOGGED = Table(window=6, logged=True)
VIEWED = Table(window=6, viewed=True, logged=True)
PARTS = Table(window=6, parts=2, logged=True)
EXPIRES = Table(window=0, expires=True, logged=True)

LEDGER = Scenario("ledger first", "ledger")
FIRST = Scenario("ledger first")
LATER = Scenario("ledger first", "ledger", later=True)
EMPTIED = Scenario(lost="emptied")
WAITS = Scenario("ledger first", "ledger", waits=True)


@pytest.mark.parametrize("later", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("how", ["anew", "truncated"])
@pytest.mark.parametrize("table", [PLAIN, BARE, LOGGED, VIEWED, PARTS, EXPIRES])
def test_both_of_one_moment(table: Table, how: str, *, later: bool) -> None:
    """Once in the end, or parked with a reason; the checkpoint stays, or went with the pod."""
    scenario = Scenario(how=how, later=later)  # type: ignore[arg-type]
    # With a second start a block is claimed, copied, loaded, and set back to the claim.
    _, endings = search(table, scenario, starts=2 if table == LOGGED and not later else 1)
    assert "loaded" in endings
    assert table != PLAIN or endings == {"loaded"}


@pytest.mark.parametrize("how", ["anew", "truncated"])
def test_a_ledger_that_is_older_than_the_table(how: str) -> None:
    """A backup without a pause, of a table that can be counted."""
    assert search(PLAIN, Scenario("ledger first", how=how), starts=1)[1] == {"loaded"}  # type: ignore[arg-type]


@pytest.mark.parametrize("table", [PLAIN, BARE, LOGGED])
@pytest.mark.parametrize("scenario", [LEDGER, LATER, EMPTIED])
def test_the_ledger_alone(table: Table, scenario: Scenario) -> None:
    """Restored, or lost, as a person says or as nobody knows: the table is not filled twice."""
    assert "loaded" in search(table, scenario, starts=1)[1]


@pytest.mark.parametrize("table", [PLAIN, BARE, LOGGED, Table(window=0)])
def test_a_block_that_waits_moves_no_position(table: Table) -> None:
    """The ledger alone is restored, and all positions agree."""
    assert "loaded" in search(table, WAITS, starts=1)[1]


def test_under_a_running_loader() -> None:
    """It writes no position over what is gone."""
    assert search(PLAIN, Scenario(running=True), starts=1)[1] == {"loaded"}


@pytest.mark.long
@pytest.mark.parametrize("how", ["anew", "truncated"])
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("table", [PLAIN, BARE, LOGGED, VIEWED, PARTS, EXPIRES])
@pytest.mark.parametrize("backup", ["stopped", "ledger first"])
def test_with_more_starts(backup: str, table: Table, how: str, *, running: bool) -> None:
    """The same with another start, and another look; what may be copied without a pause."""
    if backup == "ledger first" and (running or table not in {PLAIN, LOGGED}):
        pytest.skip("the document `backup` asks for a pause, and to stop the loader")
    scenario = Scenario(backup, "both", how, running)  # type: ignore[arg-type]
    assert "loaded" in search(table, scenario, starts=2)[1]


@pytest.mark.parametrize(
    ("table", "scenario", "around"),
    [
        (PLAIN, Scenario(), Around(ledger_counts=False)),
        (PLAIN, LEDGER, Around(asks=False)),
        (PLAIN, LATER, Around(planned=False)),
        (Table(window=0), WAITS, Around(agreeing=False)),
        (PLAIN, Scenario(running=True), Around(saved=False)),
        (Table(window=0, logged=True), Scenario(), Around(within=Guards(stays=False))),
        (BARE, Scenario(), Around(within=Guards(dropped=False))),
    ],
)
def test_without_a_guard_the_search_finds_it(
    table: Table, scenario: Scenario, around: Around
) -> None:
    """Negative control: rows lost or doubled."""
    with pytest.raises(Violation, match="copies"):
        search(table, scenario, around, starts=1 if around.within.stays else 2)


@pytest.mark.parametrize(
    ("table", "scenario"),
    [
        # The table first: what the ledger calls loaded is not there.
        (PLAIN, Scenario("table first")),
        # Without the column, restored rows do not tell whose they are.
        (BARE, FIRST),
        (EXPIRES, FIRST),
        # Neither column nor logs: a token that the restored table has forgotten.
        (Table(stamped=False, window=6), Scenario()),
        # Between a running loader's look at the ledger and its claim.
        (PLAIN, Scenario("ledger first", running=True)),
        # What still runs goes into the table that was emptied.
        (Table(window=0, viewed=True, logged=True), Scenario(how="truncated", flying=True)),
    ],
)
def test_what_the_document_forbids_is_found(table: Table, scenario: Scenario) -> None:
    """Negative control of the rules in the document `backup`: each is needed."""
    with pytest.raises(Violation, match="copies"):
        search(table, scenario, starts=1)
