"""Negative controls: each scenario of the loader goes red when its guard is taken away.

Beside them stand those that need no scenario of their own: without the ledger, and without the
INSERT's condition (test_work), and every guard of the plan (test_plan).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from loader.blocks import fetch, insert_statement
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.tables import Tables
from loader.core.positions import Noted
from loader.journal import startup
from loader.journal.source import JOURNAL, JournalReader
from relay.clickhouse.errors import About
from tests.loader import test_journal_source, test_work
from tests.loader.blocks import Journal
from tests.loader.test_work import copies, make

if TYPE_CHECKING:
    import pyarrow as pa
    from clickhouse_connect.driver.client import Client

    from loader.core.plan import InsertFacts
    from relay.records_pb2 import Block

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.servers  # of the scenarios, whose fixtures are asked for by name


def chunks_are_checked(patch: Patch) -> None:
    """What is read from Kafka is taken for the block that the journal names."""

    def unchecked(_: Block, read: fetch.ReadChunks) -> pa.RecordBatch:
        return read.rows

    patch.setattr(fetch, "_check", lambda *_: None)
    patch.setattr(fetch, "own_rows", unchecked)


def accurate_cast(patch: Patch) -> None:
    """A column that has another type by now takes what ClickHouse makes of the values."""
    patch.setattr(insert_statement, "_strictly", lambda value, _, __: value)


def permanent_errors(patch: Patch) -> None:
    """Every error of an INSERT may pass by itself."""
    patch.setattr(insert_statement, "about", lambda _: About.SERVER)
    patch.setattr(insert_statement, "may_be_a_value", lambda _: False)


def transient_errors(patch: Patch) -> None:
    """No error of an INSERT passes by itself."""
    patch.setattr(insert_statement, "about", lambda _: About.BLOCK)
    patch.setattr(insert_statement, "may_be_a_value", lambda _: True)


def token(patch: Patch) -> None:
    """INSERTs carry no deduplication token."""
    settings = insert_statement.settings

    def without(*arguments: Any, **named: Any) -> dict[str, object]:
        given = settings(*arguments, **named)
        return {key: given[key] for key in given if key != "insert_deduplication_token"}

    patch.setattr(insert_statement, "settings", without)


def window(patch: Patch) -> None:
    """A block is taken to be inside its deduplication window, however much came since."""
    facts = Tables.facts

    def sure(*arguments: Any) -> InsertFacts:
        return dataclasses.replace(facts(*arguments), margin=10**6, inserted=1)

    patch.setattr(Tables, "facts", sure)


class Control(NamedTuple):
    """A scenario without its guard, and where in the scenario's own words the anomaly shows."""

    guard: Callable[[Patch], None]
    scenario: Callable[..., None]
    anomaly: str
    arguments: dict[str, object] = {}  # noqa: RUF012 - of a tuple


OUTSIDE_THE_WINDOW = Control(
    window,
    test_work.test_without_block_column_outside_the_window_is_parked,
    'done.outcome == "parked"',
)
CONTROLS = [
    Control(
        chunks_are_checked,
        test_work.test_permanent_reasons_park_one_block_and_stop_nothing,
        "rows of a damaged block were inserted",
    ),
    Control(
        accurate_cast,
        test_work.test_permanent_reasons_park_one_block_and_stop_nothing,
        "values were changed until they fit",
    ),
    Control(
        permanent_errors,
        test_work.test_permanent_reasons_park_one_block_and_stop_nothing,
        '== {"parked"}',
    ),
    Control(transient_errors, test_work.test_too_many_parts_is_waited_out, '("retry", True,'),
    Control(
        token,
        test_work.test_without_block_column_inside_the_window,
        "== (1000, 1000)",
        {"point": "after_insert"},
    ),
]


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.guard.__name__)
def test_a_scenario_fails_without_its_guard(
    request: pytest.FixtureRequest, monkeypatch: Patch, control: Control
) -> None:
    """The same scenario, run by a loader that lacks the guard, finds the anomaly."""
    given = dict(control.arguments)
    for name in inspect.signature(control.scenario).parameters.keys() - given.keys():
        given[name] = stamped(request) if name == "table" else request.getfixturevalue(name)
    for mark in getattr(control.scenario, "pytestmark", ()):
        if mark.name == "usefixtures":
            request.getfixturevalue(*mark.args)
    control.guard(monkeypatch)

    with pytest.raises(AssertionError) as found:
        control.scenario(**given)

    where = str(found.traceback[-1].statement) + str(found.value)
    assert control.anomaly in where, f"red for another reason: {where}"


def stamped(request: pytest.FixtureRequest) -> str:
    """As the fixture `table` of the scenarios."""
    client: Client = request.getfixturevalue("client")
    return make(client, f"{request.getfixturevalue('database')}.stamped", stamped=True)


def test_outside_the_window_the_rows_double(
    request: pytest.FixtureRequest, monkeypatch: Patch, client: Client, database: str
) -> None:
    """What the scenario of the window would let pass, seen in the table."""
    test_a_scenario_fails_without_its_guard(request, monkeypatch, OUTSIDE_THE_WINDOW)
    assert copies(client, f"{database}.bare") == (2000, 1000)


def test_a_checkpoint_of_another_journal_skips_blocks(journal: Journal, monkeypatch: Patch) -> None:
    """Believed, it hides the blocks before it."""
    positions = JournalReader._positions

    def believing(self: JournalReader, start: dict[str, Any]) -> dict[int, int]:
        return positions(self, start | {JOURNAL: self._start.journal})

    monkeypatch.setattr(JournalReader, "_positions", believing)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_journal_source.test_a_journal_made_anew_is_a_broken_contract(journal)

    source = test_journal_source.reader(journal)
    batches, _ = test_journal_source.drain(source, {JOURNAL: "another", "0": 4})
    assert batches == [[2]], "of the blocks 0, 1 and 2"


def test_positions_of_another_journal_skip_blocks(
    journal: Journal, ledger: Ledger, monkeypatch: Patch
) -> None:
    """Believed, they hide the blocks before them."""
    here = startup.topic_id(journal.settings(), f"{journal.app}.journal")
    noted = Ledger.noted

    def believing(self: Ledger) -> Noted:
        found = noted(self)
        return dataclasses.replace(
            found, positions={(here, p): o for (_, p), o in found.positions.items()}
        )

    monkeypatch.setattr(Ledger, "noted", believing)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_journal_source.test_positions_of_another_journal_are_a_broken_contract(journal, ledger)

    journal.await_markers()
    source = JournalReader(startup.start(journal.settings(), ledger))
    batches, _ = test_journal_source.drain(source, source.initialOffset())
    assert batches == [[2]], "of the blocks 0, 1 and 2"
