"""What an INSERT can have left in tables behind its own; pure, with a server made up here.

test_views_forget.py asks a real one.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

from loader.blocks.attempt import Attempt, answer_errors
from loader.clickhouse.client import ReplicaSilent
from loader.clickhouse.ledger import Claimed
from loader.clickhouse.running_statements import Running, Still
from loader.clickhouse.server_records import Parts
from loader.clickhouse.tables import Tables, Target
from loader.clickhouse.tables_behind import Repeat, room_behind, views_of_takers
from loader.clickhouse.unconfirmed_parts import ReplicaState
from loader.core import plan
from loader.core.retry_cause import RetryCause
from loader.core.table_rules import nature
from relay.records_pb2 import Block

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

BLOCK = Block(id="app:d.t:0:0:0", table="d.t")
CREATE = "CREATE MATERIALIZED VIEW d.v TO d.m (`id` Int64) AS SELECT id FROM d.t"
SINCE, ALTERED, NOW = 3, 1_000, 2_000_000
VERSION = "26.9.2.1"


@dataclasses.dataclass
class Server:
    """Stands for ServerRecords and Running: a table d.t, and d.m, which the view d.v fills.

    Attributes:
        full: engine_full of d.m; "": this user does not see it.
        partition: its key.
        parts: what the part log has of it since the claim; None: the log may lack some.
        numbered: parts that came since the claim, by their numbers; None: this user may not ask.
        several: its replicas are more than one.
        alike: the view gives the same tokens on each of them; None: one of them does not answer.
        unmasked: SETTINGS of a SELECT that counts rows.
        first: engine_full of d.t.
    """

    full: str
    partition: str = ""
    parts_of_it: Parts | None = None
    numbered: int | None = 1
    several: bool = False
    alike: bool | None = True
    unmasked: str = ""
    first: str = "MergeTree ORDER BY id"

    def ask(self, sql: str, _: int, **about: Any) -> list[Sequence[Any]] | None:
        if "arrayZip" not in sql:
            if "system.parts" in sql:
                return None if self.numbered is None else [(self.numbered,)]
            return [("d", "v", "", CREATE)]
        first, engine = (re.split(r"[ (]", full)[0] for full in (self.first, self.full))
        rows = [
            ("d", "t", first, "", "", [("d", "v")], self.first, "", ALTERED),
            ("d", "v", "MaterializedView", "", CREATE, [], "", "", ALTERED),
            ("d", "m", engine, "", "", [], self.full, self.partition, ALTERED),
        ]
        return [row for row in rows if f"d.{row[1]}" in about["tables"] and row[2]]

    def parts(self, place: dict[str, str], _: int) -> Parts | None:
        return self.parts_of_it if place["name"] == "m" else Parts(0, 0)

    def deletes(self, *_: object) -> int:
        return 0

    def hidden(self, _: str) -> str:
        return ""

    def filtered(self, _: str) -> str:
        return ""

    def elsewhere(self, _: object) -> bool:
        return self.several

    def of(self, _: Block) -> Still:
        return Still(running=False)

    def agree(self, table: str, views: Sequence[str]) -> bool:
        assert (table, list(views)) == ("d.t", ["d.v"])
        if self.alike is None:
            raise ReplicaSilent("replica r does not answer")
        return self.alike


def facts(
    server: Server,
    *,
    newest: int = SINCE,
    seconds: float = 60.0,
    full: str = "MergeTree ORDER BY id",
    before: str = VERSION,
) -> plan.InsertFacts:
    """What the loader knows of a block of which d.t shows no row."""
    server.first = full
    asked = cast("Any", Tables(cast("Any", None), "_block", running=cast("Any", server)))
    asked.evidence = server
    asked._replica = lambda *_: ReplicaState(newest)
    asked.counted = lambda *_: {}
    asked.counted_whole = lambda *_: ({}, "")
    asked._window_defaults = lambda _: {}
    of = nature(re.split(r"[ (]", full)[0], full, {}, views=("d.v",))
    target = Target({"_block": "String"}, 0, of, newest, version=VERSION)
    entry = plan.Entry(plan.PREPARED, 1, "a", SINCE, stamped=True, rows=10, sent=plan.ALONE)
    run = plan.Run("b", 10, stamped=True, since=SINCE, all_stamped=True, earlier=(entry,))
    found: plan.InsertFacts = asked.facts(
        BLOCK, run, target, Claimed(seconds, NOW * 1_000, frozenset({before}))
    )
    return found


MONTHS = "toYYYYMM(day)"
PLAIN = "MergeTree ORDER BY id"
REMEMBERS = f"{PLAIN} SETTINGS non_replicated_deduplication_window = 100"
REPLICATED = (
    "ReplicatedMergeTree('/m', 'r') ORDER BY id SETTINGS replicated_deduplication_window = 100, "
    "replicated_deduplication_window_seconds = 3600"
)


@pytest.mark.parametrize(
    ("server", "seconds", "untouched"),
    [
        # Its one part waits for the end of the table's own.
        (Server(PLAIN), 60.0, True),
        (Server(REPLICATED, several=True), 3_000.0, True),
        (Server("Null"), 60.0, True),
        # Of several, those before the last one do not wait.
        (Server(PLAIN, MONTHS, Parts(1, 0)), 60.0, False),
        (Server(PLAIN, MONTHS, Parts(0, 0)), 60.0, True),
        (Server(REMEMBERS, MONTHS, Parts(1, 0)), 60.0, True),
        (Server(REMEMBERS, MONTHS, Parts(60, 0)), 60.0, False),
        (Server(REMEMBERS, MONTHS, Parts(1, 1)), 60.0, False),
        # No log, as after the server's restart: the parts are numbered.
        (Server(PLAIN, MONTHS, numbered=0), 60.0, True),
        (Server(PLAIN, MONTHS, numbered=1), 60.0, False),
        (Server(REMEMBERS, MONTHS, numbered=1), 60.0, True),
        (Server(REMEMBERS, MONTHS, numbered=60), 60.0, False),
        (Server(PLAIN, MONTHS, numbered=None), 60.0, False),
        # Of these an emptied part may be gone.
        (Server("SummingMergeTree ORDER BY id", MONTHS, numbered=0), 60.0, False),
        (Server("MergeTree ORDER BY id TTL day", MONTHS, numbered=0), 60.0, False),
        (Server(REPLICATED, MONTHS, several=True), 60.0, True),
        (Server(REPLICATED, MONTHS, several=True), 3_000.0, False),
        (Server(REPLICATED, MONTHS, numbered=0, several=True), 3_000.0, False),
        # They take rows as these come, or are not seen.
        (Server("Log"), 60.0, False),
        (Server("Distributed('c', 'd', 'x')"), 60.0, False),
        (Server(""), 60.0, False),
    ],
)
def test_a_table_without_a_part_says_little_of_those_behind(
    server: Server, seconds: float, *, untouched: bool
) -> None:
    """The INSERT ended before the table had its part: a month behind it was doubled."""
    assert facts(server, seconds=seconds).inserted == (0 if untouched else None)


def test_a_version_that_does_not_know_the_tokens_behind() -> None:
    server = Server(REMEMBERS, MONTHS, Parts(1, 0))
    assert facts(server, before="25.8.1.1").inserted is None
    assert facts(Server(PLAIN), before="25.8.1.1").inserted == 0


def test_where_rows_cancel_each_other_a_view_may_have_them() -> None:
    """No part of the table itself is waited for then."""
    assert facts(Server(PLAIN), full="SummingMergeTree ORDER BY id").inserted is None


@pytest.mark.parametrize(
    ("server", "repeated"),
    [
        (Server(REPLICATED, several=True), True),
        (Server(REPLICATED, several=True, alike=False), False),
        (Server(REPLICATED, parts_of_it=Parts(0, 0), alike=False), False),
        (Server(REMEMBERS, parts_of_it=Parts(1, 0), alike=False), True),  # no other server's
    ],
)
def test_another_replica_may_give_a_view_another_token(server: Server, *, repeated: bool) -> None:
    """A repeat there doubled the rows behind the view."""
    found = facts(server, newest=SINCE + 1, full=f"{REPLICATED}, of = 't'")
    assert found.inserted == 1
    assert (found.inserted <= found.margin) == repeated


def test_rows_that_all_come_by_one_server_have_its_tokens() -> None:
    """Under a quorum replicas of the block's table were looked for, and that has none: parked."""
    found = facts(Server(REPLICATED, alike=False, several=True), newest=SINCE + 1, full=REMEMBERS)
    assert found.inserted == 1
    assert found.margin >= 1


def test_a_replica_without_an_answer_is_waited_for() -> None:
    """The block was parked, as if that replica gave the view's rows another token."""
    run, effect = plan.start("b", 10, stamped=True)
    attempt = Attempt(BLOCK, run, effect, None, ())
    with answer_errors([attempt]):
        facts(Server(REPLICATED, several=True, alike=None), newest=SINCE + 1, full=REPLICATED)
    assert isinstance(attempt.effect, plan.Done)
    assert attempt.effect == plan.Done("retry", "replica r does not answer")
    assert attempt.effect.cause is RetryCause.STILL_RUNNING


def test_replicas_are_asked_once_and_only_where_it_decides() -> None:
    """However many tables are behind; each question is a dozen connections through a balancer."""
    to_n = CREATE.replace("d.v", "d.w").replace("d.m", "d.n")
    rows = [
        row("t", REPLICATED, ("d", "v"), ("d", "w")),
        row("v", "MaterializedView", create=CREATE),
        row("w", "MaterializedView", create=to_n),
        row("m", REPLICATED),
        row("n", REPLICATED),
    ]

    asked: list[list[str]] = []

    def ask(_: str, __: int, *, tables: list[str], databases: list[str]) -> Sequence[Any]:
        assert databases == ["d"]
        return [one for one in rows if f"d.{one[1]}" in tables]

    def agree(views: Collection[str]) -> bool:
        asked.append(sorted(views))
        return True

    claimed = Claimed(60.0, NOW * 1_000, frozenset({VERSION}))
    repeat = Repeat("d.t", "_block", claimed, inserted=1, untouched=False)
    server = cast("Any", Server(REPLICATED, parts_of_it=Parts(1, 0)))
    server.ask = ask
    assert room_behind(server, repeat, lambda *_: 10, agree) == 9
    assert asked == [["d.v", "d.w"]]
    assert room_behind(server, repeat, lambda *_: 0, agree) < 0  # m has forgotten it
    assert len(asked) == 1


class Replicas:
    """Stand for connections to replicas, behind one address or not."""

    def __init__(self, *answers: object) -> None:
        self.url, self._answers = "http://r", iter(answers)
        self._names = [f"r{number}" for number in range(len(answers))]
        self._at = iter(self._names)

    def ask(self, _: str, __: object, *, afresh: bool = False) -> object:
        answer = next(self._answers, "no answer")
        if isinstance(answer, str):
            return answer
        return [(next(self._at), self._names, answer)] if afresh else [(answer,)]


ONE, OTHER = [("d.v", "1-1", "SELECT 1")], [("d.v", "2-2", "SELECT 1")]


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize(
    ("altered", "alike"),
    [
        (([], [], []), True),
        ((ONE, ONE, ONE), True),
        (([], ONE, ONE), False),  # the first was started again
        ((ONE, OTHER, ONE), False),  # each made its own
        ((ONE, [("d.v", "1-1", "SELECT 2")], ONE), False),  # it was altered on one alone
    ],
)
def test_whether_replicas_agree_on_a_views_tokens(
    altered: Sequence[object], *, balanced: bool, alike: bool
) -> None:
    """`altered`: of each replica, which views were altered since its start."""
    running = cast("Any", Running(cast("Any", None)))
    running._alone = False
    if balanced:
        running._balancer = Replicas(*altered)
    else:
        running._replicas = [Replicas(one) for one in altered]
    assert running.agree("d.t", ["d.v"]) is alike


@pytest.mark.parametrize("balanced", [True, False])
def test_a_replica_that_does_not_answer_is_named(*, balanced: bool) -> None:
    running = cast("Any", Running(cast("Any", None)))
    assert running.agree("d.t", ["d.v"])  # nobody else is asked
    running._alone = False
    if balanced:
        running._balancer = Replicas([], "no answer")
    else:
        running._replicas = [Replicas([]), Replicas("no answer")]
    named = r"replica r1 \(no answer\)" if balanced else "replica http://r does not answer"
    with pytest.raises(ReplicaSilent, match=f"{named}.*: it may give rows .* another token"):
        running.agree("d.t", ["d.v"])


def row(name: str, full: str, *views: tuple[str, str], create: str = "") -> Sequence[Any]:
    engine = re.split(r"[ (]", full)[0]
    return ("d", name, engine, "00-00", create, list(views), full, "", 0)


TO_T = CREATE.replace("d.m", "d.t")


@pytest.mark.parametrize(
    ("rows", "views"),
    [
        ([row("x", "Distributed('c', 'd', 't', rand())"), row("t", PLAIN)], ()),
        ([row("x", "Distributed('c', 'd', 't')"), row("t", PLAIN, ("d", "v"))], ("d.v",)),
        ([row("x", "Distributed(c, d, `t`) SETTINGS a = 1"), row("t", PLAIN)], ()),
        ([row("x", "Alias('t')"), row("t", PLAIN)], ()),
        ([row("x", "Alias('d', 't')"), row("t", PLAIN, ("d", "v"))], ("d.v",)),
        ([row("x", "MaterializedView", create=TO_T), row("t", PLAIN, ("e", "w"))], ("e.w",)),
        ([row("x", "MaterializedView", ("d", "w"), create=TO_T), row("t", "Log")], ()),
        # One behind another, and a ring of them.
        (
            [
                row("x", "Buffer('d', 'y', 16, 10, 100, 1, 2, 3, 4)"),
                row("y", "Distributed('c', 'd', 't')"),
                row("t", PLAIN, ("d", "v")),
            ],
            ("d.v",),
        ),
        (
            [row("x", "Distributed('c', 'd', 'y')"), row("y", "Distributed('c', 'd', 'x')")],
            ("any of the tables behind d.y, a Distributed",),
        ),
        (
            [row("x", "Distributed('c', 'd', 't')")],
            ("any of d.t, which is not seen here (the user may need SHOW TABLES on it)",),
        ),
        # The database is the shards' own default.
        (
            [row("x", "Distributed('c', '', 't')"), row("t", PLAIN)],
            ("any of the tables behind d.x, a Distributed",),
        ),
        ([row("x", "StorageProxy")], ("any of the tables behind d.x, a StorageProxy",)),
        ([], ("any of d.x, which is not seen here (the user may need SHOW TABLES on it)",)),
    ],
)
def test_views_behind_a_table_that_gives_its_rows_to_others(
    rows: Sequence[Any], views: Sequence[str]
) -> None:
    """A count that is whole said nothing of them, and the block was called loaded."""

    def ask(_: str, __: int, *, tables: list[str], databases: list[str]) -> Any:
        asked = (one for one in rows if one[0] in databases)
        return [one for one in asked if f"{one[0]}.{one[1]}" in tables]

    assert views_of_takers(ask, "d.x") == views
