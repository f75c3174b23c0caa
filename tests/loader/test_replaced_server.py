"""A server that is replaced under live connections by one that knows fewer settings (code 115).

The front before the real ClickHouse refuses what the other would, and does not list it.
tests/versions does the same with two real versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.clickhouse import client as loaders
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.running_statements import Running
from loader.clickhouse.server_records import ServerRecords
from loader.clickhouse.tables import Tables
from loader.core.entries import NewEntry
from loader.core.plan import Entry
from relay.clickhouse.quoting import table_parameters
from relay.clickhouse.reconfigure import RenewingClient, unknown_setting
from relay.errors import Unavailable
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.verify.landing import Landing
from relay.schema.catalogue import Catalogue
from tests.loader.blocks import batch
from tests.loader.front import Error, Front, front
from tests.loader.test_settling import Rig, begin, tables
from tests.loader.test_work import copies, make

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from relay.config.server_settings import ClickHouse
    from relay.config.settings import Settings
    from tests.loader.blocks import Journal

__all__ = ["begin", "tables"]
GONE = frozenset(
    {
        "use_query_cache",
        "date_time_input_format",
        "cast_string_to_dynamic_use_inference",
        "final",
        "deduplicate_insert_select",
    }
)


@pytest.fixture
def before(clickhouse: ClickHouse) -> Iterator[Front]:
    with front(clickhouse.url) as made:
        yield made


@pytest.fixture
def through(journal: Journal, before: Front) -> Settings:
    settings = journal.settings()
    return settings.model_copy(
        update={"clickhouse": settings.clickhouse.model_copy(update={"url": before.url})}
    )


@pytest.fixture
def old(through: Settings, ledger: Ledger) -> Iterator[Ledger]:
    """A ledger whose connection is older than the server."""
    client = loaders.connect(through.clickhouse, 20)
    yield Ledger(client, through.loader.database, ledger.app)
    client.close()


def test_the_drivers_ledger_goes_on(
    journal: Journal, begin: Callable[..., Rig], before: Front, old: Ledger, database: str,
    client: Client,
) -> None:  # fmt: skip
    """The blocks go in, the position is written, and nothing was set aside or parked."""
    orders = make(client, f"{database}.orders", stamped=True)
    rig = begin()
    first, second = journal.seal(orders, batch(0, 10)) + journal.seal(orders, batch(10, 10))
    rig.settling._ledger = rig.settling._known._ledger = old
    rig.settle(first)
    before.forgotten = GONE
    rig.settle(second)
    assert rig.states(first, second) == ["loaded", "loaded"]
    assert copies(client, orders) == (20, 20)
    assert rig.ledger.noted().positions[rig.journal, 0] == 3
    assert not any("aside" in line or "parked b" in line for line in rig.said)


def test_a_statement_that_writes_is_not_sent_again_by_itself(
    journal: Journal, before: Front, old: Ledger, database: str, client: Client
) -> None:
    """Whoever sent it hears that there was no answer, with the setting's name, and asks again."""
    (block,) = journal.seal(make(client, f"{database}.t", stamped=True), batch(0, 10))
    assert old.entries([block]) == {}  # a loader that has worked; its first question learns, too
    before.forgotten = GONE
    row = NewEntry(block, Entry("prepared", 1, "c"))
    with pytest.raises(Unavailable, match=r"does not know the setting (use_query|date_time|cast_)"):
        old.write([row])
    assert old.entries([block]) == {}
    old.write([row])
    assert len(old.entries([block])[block.id]) == 1
    assert before.asked_for_settings == 2


ASKS: dict[str, Callable[[Settings, Any, str], Callable[[], object]]] = {
    "the tables": lambda _, client, table: lambda: Tables(client, "_block").look({table})[table],
    "what was recorded": lambda _, client, table: (
        lambda: ServerRecords(client, several=False).deletes(table_parameters(table), 0, "_block")
    ),
    "what runs": lambda _, client, table: (
        lambda: (
            not Running(client)
            .of(
                SimpleNamespace(id="a:1", table=table)  # type: ignore[arg-type] # as far as it is asked
            )
            .running
        )
    ),
    "the relay's catalogue": lambda all_, _, table: _read(Catalogue(all_.clickhouse), table),
    "doctor": lambda settings, _, table: _looked(ClickHouseQuestions(settings), table),
    "verify --deep": lambda settings, _, __: _judged(Landing(settings, {})),
}


def _read(catalogue: Catalogue, table: str) -> Callable[[], object]:
    catalogue.read()
    return lambda: catalogue.read({table})[table]


def _looked(server: ClickHouseQuestions, table: str) -> Callable[[], object]:
    def look() -> object:
        found = server.look({table})
        assert not found.unasked
        return found.tables[table]

    return look


def _judged(landing: Landing) -> Callable[[], object]:
    return lambda: landing._asking.facts("system.one", 0, acknowledged=False)


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("who", ASKS)
def test_who_only_asks_notices_nothing(
    who: str, through: Settings, before: Front, database: str, client: Client
) -> None:
    """A log that could not be asked for a setting's sake would read as no log at all."""
    table = make(client, f"{database}.t", stamped=True)
    one = loaders.connect(through.clickhouse, 20)
    ask = ASKS[who](through, one, table)
    known = ask()
    before.forgotten = GONE
    asked = before.asked_for_settings
    assert known is not None
    assert ask() == known
    assert before.asked_for_settings > asked
    one.close()


def test_what_was_never_known_is_an_error_at_once(through: Settings, before: Front) -> None:
    """Negative control: of a view's SELECT, for instance; nothing is asked again."""
    one = loaders.connect(through.clickhouse, 20)
    assert isinstance(one, RenewingClient)
    with pytest.raises(DatabaseError, match="115"):
        one.query("SELECT 1 SETTINGS no_such_setting = 1")
    assert before.asked_for_settings == 1
    one.close()


def test_a_balancer_over_two_versions_is_waited_for(through: Settings, before: Front) -> None:
    """One server does not know it, the one that is asked then does: no answer, again and again."""
    one = loaders.connect(through.clickhouse, 20)
    before.refuses = lambda statement: (
        Error(115, "Unknown setting 'use_query_cache'.") if "SELECT 7" in statement else None
    )
    ledger = Ledger(one, through.loader.database, "a")
    with pytest.raises(Unavailable, match="use_query_cache"):
        ledger.ask("SELECT 7")
    with pytest.raises(Unavailable, match="use_query_cache"):
        ledger.ask("SELECT 7")
    one.close()


def test_the_servers_own_words(client: Client) -> None:
    """Both texts that ClickHouse has for it."""
    for sql in ("SELECT 1 SETTINGS no_such_setting = 1", "SET no_such_setting = 1"):
        with pytest.raises(DatabaseError) as caught:
            client.command(sql)
        assert unknown_setting(str(caught.value)) == "no_such_setting"
    with pytest.raises(DatabaseError) as caught:
        client.query("SELECT 1", settings={"no_such_setting": 1})
    assert unknown_setting(str(caught.value)) == "no_such_setting"
    assert unknown_setting("Code: 60. Unknown setting 'x'") == ""


def test_a_server_that_began_since_is_asked_for_its_defaults_again(
    ledger: Ledger, database: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version remembers fewer tokens: the window of before would promise too much."""
    table = make(client, f"{database}.t", stamped=False)
    client.command(f"ALTER TABLE {table} RESET SETTING non_replicated_deduplication_window")
    looks = Tables(ledger.client, "_block")
    asked, started, ask = [0], [0], Tables._ask

    def counted(self: Tables, sql: str, **parameters: object) -> Any:
        asked[0] += "merge_tree_settings" in sql
        rows = ask(self, sql, **parameters)
        if "uptime()" not in sql:
            return rows
        # The fourth column from the end is when the server began.
        return [(*row[:-4], row[-4] + started[0], *row[-3:]) for row in rows]

    monkeypatch.setattr(Tables, "_ask", counted)
    looks.look({table})
    looks.look({table})
    assert asked == [1]
    started[0] = 3
    looks.look({table})
    assert asked == [2]
