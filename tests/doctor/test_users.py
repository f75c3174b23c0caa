"""The rights that `relay doctor --grants` prints, on ClickHouse's own server with users.

Each role works with exactly what is printed for it; each right taken away in turn is missed by
name. The server asks for all grants that ClickHouse's packages switch on, and for those of engines.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from loader.blocks import worker as blocks_worker
from loader.blocks.worker import Worker
from loader.clickhouse import dedup_trial, ledger_table
from loader.clickhouse.tables import Tables
from loader.core.entries import NewEntry
from loader.core.plan import PARKED, PREPARED, Entry
from loader.journal.startup import ledger_of
from loader.operate.resolve import resolve
from loader.operate.supersede import supersede
from relay import names
from relay.config.allowed_tables import LEDGER_LATER
from relay.config.settings import Settings
from relay.errors import Refused, RelayError
from relay.operate.doctor import examine, grants
from relay.operate.doctor.ask.clickhouse import ClickHouseQuestions
from relay.operate.doctor.findings import Severity
from relay.operate.doctor.grants import ClickHouseRight
from relay.operate.doctor.judge import rights
from relay.operate.doctor.versions import parsed
from relay.operate.verify.read.landed_rows import LandedRows
from relay.operate.view.clickhouse_state import LandedBlocks
from relay.operate.view.ledger_looks import LedgerLooks
from relay.records_pb2 import Block
from relay.schema.catalogue import Catalogue
from tests.loader.blocks import batch, stands
from tests.versions.engines import Engine, running
from tests.versions.releases import NOW
from tests.versions.users import STRICT, User

TABLE = "shop.orders"
ROWS = 10
ROLES = ("relay", "loader", "verifier", "operator", "feeder")
"""Those with rights in ClickHouse."""


def settings(name: str) -> Settings:
    """Of a user: app and ledger are its own, so that what it has to make is not there yet."""
    given = {
        "app": f"app-{name}",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "source": {"topic": "rows"},
        "clickhouse": {"url": "http://127.0.0.1:1", "user": name, "password": name},
        "loader": {"checkpoint": "c", "database": f"of_{name}"},
    }
    return Settings.model_validate(given)


def single(rights: tuple[ClickHouseRight, ...]) -> list[ClickHouseRight]:
    """One privilege each."""
    return [
        ClickHouseRight(privilege, right.place, right.before, right.note)
        for right in rights
        for privilege in re.split(r", (?![^(]*\))", right.privileges)  # not within SELECT(…)
    ]


def of_role(role: str, name: str, tables: Collection[str] = (TABLE,)) -> list[ClickHouseRight]:
    """What is printed for the role in user `name`'s settings."""
    every = grants.roles(settings(name), tables, parsed(NOW.engine))
    (found,) = [one for one in every if one.name == role]
    return single(found.clickhouse)


@dataclass(frozen=True)
class Case:
    """A user of a role without one of its rights; -1: with all."""

    role: str
    without: int

    @property
    def name(self) -> str:
        return f"{self.role}{self.without + 1}"

    @property
    def rights(self) -> list[ClickHouseRight]:
        return of_role(self.role, self.name)

    @property
    def missing(self) -> ClickHouseRight:
        return self.rights[self.without]

    @property
    def user(self) -> User:
        given = [r for at, r in enumerate(self.rights) if at != self.without]
        return User(
            self.name,
            self.name,
            tuple(f"GRANT {right.privileges} ON {right.place}" for right in given),
        )


CASES = [Case(role, at) for role in ROLES for at in range(-1, len(of_role(role, "x")))]
OPTIONAL = [case for case in CASES if case.without >= 0 and case.missing.note[:8] == "optional"]
NEEDED = [case for case in CASES if case.without >= 0 and case not in OPTIONAL]
WHOLE = [case for case in CASES if case.without < 0]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    users = [case.user for case in CASES]
    with running(NOW, tmp_path_factory.mktemp("users"), users, more=STRICT) as server:
        with contextlib.closing(server.client()) as admin:
            admin.command("CREATE DATABASE shop")
            admin.command(
                f"CREATE TABLE {TABLE} (id Int64, name LowCardinality(String), _block String) "
                "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 100"
            )
        yield server


@pytest.fixture
def admin(engine: Engine) -> Iterator[Client]:
    client = engine.client()
    yield client
    client.close()


class Fetched:
    """In the place of the fetcher: a block's rows without Kafka."""

    messages = b""

    def __init__(self, *_: object) -> None:
        """Of no broker."""

    def fetch(self, block: Block, _ahead: object) -> Any:
        return batch(int(block.id.rpartition(":")[2]), block.rows)

    def rest(self) -> None:
        """Nothing to rest from."""

    def close(self) -> None:
        """Nothing to close."""


def block(app: str, table: str = TABLE) -> Block:
    first = uuid.uuid4().int % 10**9
    return Block(id=str(names.BlockId(app, table, 0, 0, first)), table=table, rows=ROWS)


def loading(given: Settings, admin: Client) -> None:
    """All that the loader's commands ask of ClickHouse."""
    ledger = ledger_of(given, make=True)
    admin.command(f"ALTER TABLE {ledger.name} DROP COLUMN transform")  # an earlier version's
    ledger_of(given, make=True)
    if untried := dedup_trial.check(ledger.client, given.loader.database):
        raise Refused(untried)
    Tables(ledger.client, "_block")._window_defaults("ReplicatedMergeTree")
    worker = Worker(given)
    fresh, unknown, lost = block(given.app), block(given.app), block(given.app)
    ledger.write([NewEntry(unknown, Entry(PREPARED, 1, "old", 0, stamped=True, rows=ROWS))])
    ledger.write([NewEntry(lost, Entry(PARKED, 1, "old", reason="said no", rows=ROWS))])
    try:
        for one in (fresh, unknown):
            (done,) = worker.load([one])
            if done.outcome != "loaded":
                raise Refused(f"{one.table}: {done.outcome}: {done.reason}")
    finally:
        worker.close()
    assert [one.block.id for one in ledger.waiting()] == [lost.id]
    assert [found[1] for found in resolve(given, ledger, [lost.id], "discard")] == ["discarded"]
    ledger.save_positions("journal", {0: 5})
    assert ledger.positions() == {("journal", 0): 5}
    assert ledger.counts()


def verifying(given: Settings, admin: Client) -> None:
    """`relay verify --deep`, which finds a ledger."""
    prepared(given, admin)
    landed = LandedRows(given)
    assert landed.counted(TABLE) == {}
    assert landed.ledger(TABLE) == landed.discarded(TABLE) == landed.made(TABLE) == {}


def operating(given: Settings, admin: Client) -> None:
    """What shows blocks."""
    verifying(given, admin)
    landed = LandedBlocks(given)
    assert LedgerLooks(lambda: landed).facts({}).there
    assert landed.positions("journal") == {}
    found = landed.landed(block(given.app).id, TABLE)
    assert found.rows == 0
    assert found.written == () or "system." in found.log_problem


def prepared(given: Settings, admin: Client) -> None:
    """The ledger that a loader made before."""
    name = given.loader.database
    admin.command(f"CREATE DATABASE {name}")
    admin.command(f"CREATE TABLE {name}.ledger AS {LEDGER} ENGINE = MergeTree ORDER BY app")


def blank(given: Settings, admin: Client) -> None:
    """As before the first start of a loader."""
    admin.command(f"DROP DATABASE IF EXISTS {given.loader.database}")
    admin.command("DROP TABLE IF EXISTS " + LEDGER)
    admin.command(ledger_table.create(LEDGER))


LEDGER = "shop.ledger_of_another"


def reading(given: Settings, _: Client) -> None:
    """Columns, as relay and feeder want them; what is not seen is said by the doctor."""
    catalogue = Catalogue(given.clickhouse)
    with contextlib.closing(catalogue):
        found = catalogue.read([TABLE]).get(TABLE)
    if found is None or [one.name for one in found.columns] != ["id", "name", "_block"]:
        with contextlib.closing(ClickHouseQuestions(given)) as server:
            told = examine.clickhouse.judge(given, server.look([TABLE]), 3600)
            raise Refused(" ".join(one.mend for one in told if one.code == "table-missing"))


WORK: dict[str, Callable[[Settings, Client], None]] = {
    "relay": reading,
    "feeder": reading,
    "loader": loading,
    "verifier": verifying,
    "operator": operating,
}


def worked(engine: Engine, admin: Client, case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """What was said against it; empty: nothing."""
    monkeypatch.setattr(blocks_worker, "Fetcher", Fetched)
    given = settings(case.name)
    given = given.model_copy(update={"clickhouse": engine.reached_as(case.user)})
    blank(given, admin)
    try:
        WORK[case.role](given, admin)
    except RelayError as error:
        return str(error)
    return ""


def name_of(case: Case) -> str:
    if case.without < 0:
        return case.role
    return f"{case.role}-{case.missing.privileges}-{case.missing.place}".replace(" ", "_")


@pytest.mark.parametrize("case", WHOLE, ids=name_of)
def test_a_role_works_with_what_is_printed(
    engine: Engine, admin: Client, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert worked(engine, admin, case, monkeypatch) == ""


@pytest.mark.parametrize("case", OPTIONAL, ids=name_of)
def test_it_works_without_what_is_called_optional(
    engine: Engine, admin: Client, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = worked(engine, admin, case, monkeypatch)
    if case.missing in grants.EVIDENCE:  # who knows less parks rather than guess
        assert said == "" or said.startswith(f"{TABLE}: parked: an earlier attempt ended"), said
    else:
        assert said == ""


REMOVING = [case for case in OPTIONAL if case.missing.privileges == "ALTER DELETE"]


@pytest.mark.parametrize("case", [WHOLE[ROLES.index("loader")], *REMOVING], ids=name_of)
def test_what_removes_rows_names_its_right(
    engine: Engine, admin: Client, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`loader ledger clean --run` and `loader supersede`: named where it is missing, else done."""
    monkeypatch.setattr(blocks_worker, "Fetcher", Fetched)
    given = settings(case.name).model_copy(update={"clickhouse": engine.reached_as(case.user)})
    admin.command(f"DROP DATABASE IF EXISTS {given.loader.database}")
    ledger, one = ledger_of(given, make=True), block(given.app)
    with contextlib.closing(Worker(given)) as worker:
        assert [done.outcome for done in worker.load([one])] == ["loaded"]
    tasks = {
        TABLE: lambda: supersede(given, ledger, [one], keep=False, why="a rewind", check=stands),
        f"{given.loader.database}.ledger": lambda: ledger.remove(["app != ''"]),
    }
    assert case.without < 0 or case.missing.place in tasks
    for place, task in tasks.items():
        if case.without >= 0 and place == case.missing.place:
            with pytest.raises(Refused, match=rf"497.*ALTER DELETE.* ON {re.escape(place)}"):
                task()
        else:
            task()


@pytest.mark.parametrize("case", NEEDED, ids=name_of)
def test_a_right_that_is_missing_is_named(
    engine: Engine, admin: Client, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So each of them is needed, and the error has the GRANT in it."""
    said = worked(engine, admin, case, monkeypatch)
    right = case.missing
    place = re.escape(right.place).replace(r"\*", r"(\*|`?\w+`?)").replace(r"\.", r"\.")
    assert re.search(rf"{right.privileges}\b.* (ON|on) {place}", said, re.DOTALL), said


@pytest.mark.parametrize("case", WHOLE[:3], ids=name_of)
def test_the_doctor_judges_a_role_by_its_own_rights(
    engine: Engine, admin: Client, case: Case
) -> None:
    """With exactly what is printed nothing is missing; nor is what others need."""
    given = settings(case.name)
    given = given.model_copy(update={"clickhouse": engine.reached_as(case.user)})
    blank(given, admin)
    prepared(given, admin)
    with contextlib.closing(ClickHouseQuestions(given)) as server:
        seen = server.look([TABLE])
    assert list(rights.judge_clickhouse(seen, [case.role])) == []
    told = examine.clickhouse.judge(given, seen, 3600, inserts=case.role == "loader")
    assert [one for one in told if one.severity is Severity.ERROR] == []
    others = [role for role in rights.ROLES if role not in {case.role, "relay", "verifier"}]
    if others:
        assert list(rights.judge_clickhouse(seen, others)), "negative control"


def test_the_doctor_finds_each_of_the_loaders(engine: Engine, admin: Client) -> None:
    """Beforehand, with the GRANT; and finds none with the whole."""
    for case in [one for one in (*WHOLE, *NEEDED) if one.role == "loader"]:
        if case in ADDING:
            continue  # where the ledger is an earlier version's, only
        given = settings(case.name)
        given = given.model_copy(update={"clickhouse": engine.reached_as(case.user)})
        admin.command(f"DROP DATABASE IF EXISTS {given.loader.database}")
        with contextlib.closing(ClickHouseQuestions(given)) as server:
            found = [one.mend for one in rights.judge_clickhouse(server.look([TABLE]))]
        if case.without < 0:
            assert found == []
        else:
            right = case.missing
            assert f"GRANT {right.privileges} ON {right.place} TO {case.name}" in found


def test_what_the_loader_works_without_is_a_note(engine: Engine, admin: Client) -> None:
    """Red before: SYSTEM FLUSH LOGS was told by nobody, and system.parts was an error."""
    cases = [one for one in OPTIONAL if one.role == "loader" and one.missing in grants.EVIDENCE]
    assert len(cases) == len(grants.EVIDENCE)
    for case in cases:
        given = settings(case.name)
        given = given.model_copy(update={"clickhouse": engine.reached_as(case.user)})
        admin.command(f"DROP DATABASE IF EXISTS {given.loader.database}")
        with contextlib.closing(ClickHouseQuestions(given)) as server:
            found = [(one.code, one.mend) for one in rights.judge_clickhouse(server.look([TABLE]))]
        right = f"{case.missing.privileges} ON {case.missing.place}"
        assert found == [("right-evidence", f"GRANT {right} TO {case.name}")]


ADDING = [case for case in NEEDED if case.missing.privileges == "ALTER ADD COLUMN"]


@pytest.mark.parametrize("lacks", sorted(LEDGER_LATER))
def test_the_doctor_finds_that_a_loader_may_not_bring_an_older_ledger_up_to_date(
    engine: Engine, admin: Client, lacks: str
) -> None:
    """A loader of this version ends at its start then; an up-to-date ledger needs no such right."""
    (case,) = ADDING
    whole = WHOLE[ROLES.index("loader")]

    def told(of: Case) -> list[str]:
        given = settings(of.name)
        given = given.model_copy(update={"clickhouse": engine.reached_as(of.user)})
        with contextlib.closing(ClickHouseQuestions(given)) as server:
            return [one.mend for one in rights.judge_clickhouse(server.look([TABLE]))]

    for of in (case, whole):
        blank(settings(of.name), admin)
        prepared(settings(of.name), admin)
    assert told(case) == told(whole) == []
    for of in (case, whole):
        admin.command(f"ALTER TABLE {settings(of.name).loader.database}.ledger DROP COLUMN {lacks}")
    place = f"{settings(case.name).loader.database}.ledger"
    assert told(case) == [f"GRANT ALTER ADD COLUMN ON {place} TO {case.name}"]
    assert told(whole) == []
