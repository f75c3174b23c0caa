"""Which blocks stand aside, and when they are tried again; no servers, and a clock by hand."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from loader.core import set_aside_plan
from loader.core.plan import DEAD, LOADED, PARKED
from loader.core.retry_cause import RetryCause
from loader.core.set_aside_plan import (
    FEW,
    FIRST_SECONDS,
    KEPT,
    LONGEST_SECONDS,
    TRIES,
    Aside,
    Asides,
    queue,
    stands_aside,
)
from loader.core.waiting import LETTERS
from loader.spark.micro_batch import listed, named
from relay.clickhouse.errors import About
from relay.names import LEFT_OUT
from relay.records_pb2 import Block


def block(number: int, table: str = "a.b") -> Block:
    return Block(id=f"app:{table}:0:0:{number}", table=table)


def aside(number: int, about: str = About.TABLE, table: str = "a.b") -> Aside:
    return Aside(block(number, table), f"why {number}", about)


def of(*blocks: Block) -> dict[str, str]:
    return {one.id: LOADED for one in blocks}


def test_dead_letters_and_rows_wait_for_their_own_troubles() -> None:
    """Letters that cannot be written keep no block of the table; each is tried with its like."""
    asides, letters = Asides(), aside(1, About.UNKNOWN)
    letters.block.to_dead_letters = True
    asides.put(letters, 0.0)
    asides.put(aside(2), 0.0)
    first, second = asides.due(1.0), []
    asides.tried(queue(first[0]), {}, [Aside(first[0], "no", About.TABLE)], 1.0)
    second = asides.due(1.0)
    assert {one.id for one in (*first, *second)} == {block(1).id, block(2).id}
    assert len(first) == len(second) == 1
    asides.tried(queue(letters.block), {letters.block.id: DEAD}, [], 2.0)
    assert letters.block.id not in asides
    # A person may have said otherwise meanwhile.
    said = aside(2)
    said.block.to_dead_letters = True
    asides.found([said], {}, 3.0)
    assert (len(asides), [one.to_dead_letters for one in asides.due(9.0)]) == (1, [True])


@pytest.mark.parametrize(
    ("about", "tries", "seconds", "others", "stands"),
    [
        (About.TABLE, 1, 0.0, False, True),
        (About.SIZE, 1, 0.0, False, True),
        (About.UNKNOWN, 1, 0.0, False, True),
        (About.TABLE_NOW, TRIES - 1, 9.0, True, False),
        (About.TABLE_NOW, TRIES, 9.0, False, True),
        (About.SERVER, TRIES, 9.0, False, False),
        (About.SERVER, TRIES - 1, 9.0, True, False),
        (About.SERVER, TRIES, 9.0, True, True),
        (About.SERVER, TRIES, 60.0, False, True),
        (About.SERVER, 1, 61.0, True, True),
        (About.SERVER, 2, 59.0, True, False),
        ("", TRIES, 59.0, False, False),
        ("", TRIES, 9.0, True, True),
        (About.CONNECTION, 1, 0.0, True, False),
    ],
)
def test_who_stands_aside(
    about: str, tries: int, seconds: float, others: bool, stands: bool
) -> None:
    """A table's trouble at once, any other after as many failures, sooner where others flow.

    Where each failure takes long, so many would hold up the others for many minutes.
    """
    assert stands_aside(about, tries, seconds, others_loaded=others) is stands


def test_one_block_of_a_table_is_tried_and_then_all() -> None:
    """However many wait, a table that takes nothing costs one try in a while."""
    found = Asides()
    for number in range(2 * FEW + 3):
        found.put(aside(number), 0.0)
    assert found.shut("a.b") == f"why {2 * FEW + 2}"
    assert found.due(FIRST_SECONDS - 0.1) == []
    now, pauses, tried = FIRST_SECONDS, [], []
    for _ in range(12):
        (one,) = found.due(now)
        tried.append(one.id)
        found.tried("a.b", {}, [Aside(one, "still", About.TABLE)], now)
        before = now
        while not found.due(now):
            now += 0.5
        pauses.append(now - before)
    assert pauses[:4] == [2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] == max(pauses) == LONGEST_SECONDS
    assert len(set(tried)) == 12, "another one at each try: the first may be the one that is wrong"
    gone: list[str] = []
    while some := found.due(now):
        gone += [one.id for one in some]
        found.tried("a.b", of(*some), [], now)
    assert len(gone) == len(set(gone)) == 2 * FEW + 3, "without a pause, once one was loaded"
    assert (len(found), found.shut("a.b")) == (0, "")


def test_a_table_that_takes_nothing_for_days_is_tried_on() -> None:
    """Red before: after the 1024th failure in a row the pause was no number any more."""
    found, now = Asides(), 0.0
    found.put(aside(0), now)
    for _ in range(1_100):
        now += LONGEST_SECONDS
        found.tried("a.b", {}, [aside(0)], now)
    assert found.due(now + LONGEST_SECONDS - 0.1) == []
    assert found.due(now + LONGEST_SECONDS) == [block(0)]


def test_a_block_that_is_too_large_stands_alone() -> None:
    """Its table is not shut; it holds back no other block of it, and is not tried for ever."""
    found = Asides()
    found.put(aside(0, About.SIZE), 0.0)
    assert found.shut("a.b") == ""
    for number in range(1, 5):
        found.put(aside(number, About.UNKNOWN), 0.0)
    tries = 0
    now = 1.0
    for _ in range(10):
        while some := found.due(now):
            tries += 1
            able = [one for one in some if not one.id.endswith(":0")]
            left = [aside(0, About.SIZE)] if len(able) < len(some) else []
            found.tried("a.b", of(*able), left, now)
        now += 1.0
    assert len(found) == 1
    assert tries < 9
    assert block(0).id in found


def test_a_table_that_flows_again_is_tried_at_once() -> None:
    """A block that was loaded in a micro-batch says more than any pause."""
    found = Asides()
    for number in range(5):
        found.put(aside(number, About.TABLE_NOW), 0.0)
        found.put(aside(number, About.SIZE, "a.large"), 0.0)
    for table in ("a.b", "a.large"):
        found.tried(table, {}, [aside(0, About.SIZE if "l" in table else About.TABLE, table)], 1.0)
    assert found.due(1.5) == []
    found.loaded("a.b", 1.5)
    assert [one.id for one in found.due(1.5)] == [block(n).id for n in (1, 2, 3, 4, 0)]
    assert found.shut("a.b") == ""
    found.tried("a.b", of(*found.due(1.5)), [], 1.5)
    found.loaded("a.large", 1.5)
    assert found.due(1.5) == [], "too large for a limit stays too large"


@pytest.mark.parametrize("flood", [PARKED, About.SIZE, LOADED])
def test_a_table_with_many_due_blocks_waits_behind_the_others(flood: str) -> None:
    """Red before: where none was loaded, all others waited until it had no block left."""
    found = Asides()
    for number in range(3 * FEW):
        found.put(aside(number, About.SIZE, "a.flood"), 0.0)
    found.put(aside(0, About.TABLE_NOW, "a.well"), 0.5)
    if flood == About.SIZE:  # the first was loaded, and the others have their turns
        found.tried("a.flood", of(*found.due(1.0)), [], 1.0)
    now = 2.0
    first = found.due(now)
    assert {one.table for one in first} == {"a.flood"}
    if flood == About.SIZE:
        found.tried("a.flood", {}, [Aside(one, "large", flood) for one in first], now)
    else:
        found.tried("a.flood", {one.id: flood for one in first}, [], now)
    assert [one.table for one in found.due(now)] == ["a.well"]
    found.tried("a.well", of(*found.due(now)), [], now + 0.1)
    assert found.due(now + 0.1)[0].table == "a.flood", "and it goes on"


def last_tries(
    found: Asides,
    table: str,
    about: str,
    well: set[str],
    cause: RetryCause = RetryCause.ERROR,
) -> list[str]:
    """What a run that ends tries: those in `well` are loaded, others fail."""
    found.hurry(0.0)
    tried: list[str] = []
    now = 0.0
    while some := found.due(now):
        now += 0.01
        tried += [one.id for one in some]
        able = [one for one in some if one.id in well]
        left = [Aside(one, "no", about, cause=cause) for one in some if one not in able]
        found.tried(table, of(*able), left, now)
        assert len(tried) < 2_000, "spins"
    return tried


@pytest.mark.parametrize("well", [(), (7,), (3, 7), range(2, 9)])
def test_a_run_that_ends_tries_each_block_that_failed_for_its_own_sake(well: list[int]) -> None:
    """Red before: the oldest that failed kept the others from being tried, in each run anew."""
    found, blocks = Asides(), [block(n) for n in range(9)]
    found.found([Aside(one, "large", since_ms=n + 1) for n, one in enumerate(blocks)], {}, 0.0)
    tried = last_tries(found, "a.b", About.SIZE, {block(n).id for n in well})
    assert set(tried) == {one.id for one in blocks}
    assert len(found) == len(blocks) - len(well)


def test_a_run_that_ends_tries_each_of_very_many() -> None:
    """Red before: the pause behind the last of more than a thousand was no number any more."""
    found = Asides()
    found.found([Aside(block(n), since_ms=n + 1) for n in range(1_100)], {}, 0.0)
    assert len(last_tries(found, "a.b", About.UNKNOWN, set())) == 1_100


@pytest.mark.parametrize("cause", sorted(set(RetryCause) - {RetryCause.ERROR}))
def test_a_run_that_ends_goes_on_behind_a_block_that_another_works_on(cause: RetryCause) -> None:
    """Red before: a statement of one block that still ran kept all others from their last try."""
    found, blocks = Asides(), [block(n) for n in range(9)]
    found.found([Aside(one, "no", since_ms=n + 1) for n, one in enumerate(blocks)], {}, 0.0)
    well = {one.id for one in blocks[1:]}
    assert set(last_tries(found, "a.b", "", well, cause)) == {one.id for one in blocks}
    assert (len(found), blocks[0].id in found) == (1, True)


@pytest.mark.parametrize("about", [About.TABLE, About.SERVER, About.CONNECTION, ""])
def test_a_run_that_ends_tries_one_block_of_a_table_that_takes_nothing(about: str) -> None:
    found, blocks = Asides(), [block(n) for n in range(9)]
    found.found([Aside(one, "no", since_ms=n + 1) for n, one in enumerate(blocks)], {}, 0.0)
    assert last_tries(found, "a.b", about, set()) == [blocks[0].id]


class Counted(str):
    """What a failure was about, that counts how often it is looked up."""

    __slots__ = ()
    looks: ClassVar[list[str]] = []

    def __hash__(self) -> int:
        self.looks.append(self)
        return super().__hash__()


def test_what_waits_costs_the_blocks_that_flow_nothing() -> None:
    """Each loaded block of any table asks; as many as wait, that looks at none of them."""
    found = Asides()
    for number in range(1_000):
        found.put(aside(number, Counted(About.SERVER)), 0.0)
    Counted.looks.clear()
    for table in ("a.c", "a.b", "a.b"):
        found.loaded(table, 1.0)
    assert len(Counted.looks) < 10


def test_a_server_that_is_back_wakes_all_tables() -> None:
    """Those that stood aside for the server's sake, after one of them was loaded."""
    found = Asides()
    for table in ("a.b", "a.c", "a.d"):
        about = About.TABLE if table == "a.d" else About.SERVER
        found.put(aside(0, about, table), 0.0)
        for now in (1.0, 3.0, 7.0, 15.0):
            found.tried(table, {}, [aside(0, about, table)], now)
    assert found.due(16.0) == []
    found.loaded("a.b", 16.0)
    assert {found.due(16.0)[0].table} <= {"a.b", "a.c"}
    found.tried("a.b", of(block(0)), [], 16.0)
    assert found.due(16.0)[0].table == "a.c"
    found.tried("a.c", of(block(0, "a.c")), [], 16.0)
    assert found.due(16.0) == [], "a right that is missing is still missing"


def test_the_ledger_has_the_last_word() -> None:
    """What another loader set aside is tried here too; what a person settled is not."""
    found = Asides()
    found.put(aside(0), 0.0)
    found.found([Aside(block(7, "a.c"), "of another loader")], {}, 5.0)
    assert block(0).id not in found
    assert [one.id for one in found.due(5.0)] == [block(7, "a.c").id]
    found.tried("a.c", {block(7, "a.c").id: PARKED}, [], 5.0)
    assert len(found) == 0


def test_of_many_blocks_a_few_are_in_memory_and_all_have_their_turn() -> None:
    """The ledger gives the next ones, behind the one that was tried last; none is left out."""
    ledger = {n: Aside(block(n), since_ms=n + 1) for n in range(3 * KEPT + 5)}
    found, hopeless, refills = Asides(), {3, KEPT + 3}, 0

    def refill(now: float) -> None:
        at = found.places().get("a.b", (0, ""))
        ring = sorted(
            ledger.values(), key=lambda one: ((one.since_ms, one.block.id) <= at, one.since_ms)
        )
        found.found(ring[:KEPT], {"a.b": max(0, len(ring) - KEPT)}, now)

    refill(0.0)
    found.tried("a.b", {}, [Aside(found.due(0.0)[0], "no", About.TABLE)], 0.0)
    assert len(found) == len(ledger)
    tried: list[str] = []
    now = 0.0
    while len(ledger) > len(hopeless):
        now += 1.0
        assert now < LONGEST_SECONDS
        while (lacks := found.lacks(now)) or (some := found.due(now)):
            if lacks:
                refill(now)
                refills += 1
                continue
            tried += [one.id for one in some]
            left = [b for b in some if int(b.id.split(":")[-1]) in hopeless]
            gone = [b for b in some if b not in left]
            for one in gone:
                del ledger[int(one.id.split(":")[-1])]
            found.tried("a.b", of(*gone), [Aside(b, "no", About.BLOCK) for b in left], now)
    assert sum(len(table.waiting) for table in found._tables.values()) <= KEPT
    assert len(tried) < 3 * KEPT + 12, "hardly one twice"
    assert refills < 5
    found.found(ledger.values(), {}, now)
    assert len(found) == len(hopeless)


@pytest.mark.parametrize("to_letters", [False, True])
def test_blocks_of_another_queue_are_listed_once(*, to_letters: bool) -> None:
    """The ledger counts by their ids, and a person said otherwise. Red before: at each look."""
    mark, of_them = ("", "a.b") if to_letters else (LEFT_OUT, f"a.b{LETTERS}")
    some = [
        Aside(Block(id=f"app:a.b:0:0:{n}{mark}", table="a.b", to_dead_letters=to_letters))
        for n in range(KEPT)
    ]
    found = Asides()
    found.found(some, {of_them: 9}, 0.0)
    assert len(found) == KEPT + 9
    of = queue(some[0].block)
    assert of != of_them
    now = 0.0
    for _ in range(5):
        assert not found.lacks(now)
        found.tried(of, {}, [Aside(one, "no", About.TABLE) for one in found.due(now)], now)
        now += LONGEST_SECONDS
    assert not found.lacks(now)
    while due := found.due(now):
        assert not found.lacks(now), "some of those that were listed wait still"
        found.tried(of, {one.id: DEAD for one in due}, [], now)
    assert found.lacks(now), "the others are in the ledger alone"
    found.found([Aside(block(3))], {}, now)
    assert not found.lacks(now)


def test_new_blocks_of_a_table_with_many_stay_in_the_ledger() -> None:
    """Behind those that wait there; and what they failed of is known all the same."""
    found = Asides()
    for number in range(KEPT + 7):
        found.put(aside(number, About.BLOCK), 0.0)
    found.put(aside(KEPT + 8, About.TABLE), 0.0)
    assert (len(found), len(found._tables["a.b"].waiting)) == (KEPT + 8, KEPT)
    assert found.shut("a.b") == f"why {KEPT + 8}"


def test_random_tables_never_starve_and_never_spin() -> None:
    """Blocks that may go are gone soon after their table is well, whatever else fails."""
    dice = random.Random(27)
    for _ in range(30):
        found = Asides()
        hopeless = {n for n in range(40) if dice.random() < 0.2}
        for number in range(40):
            found.put(aside(number, dice.choice(list(About)), f"a.t{number % 3}"), 0.0)
        now, tries, well = 0.0, 0, dice.uniform(5, 200)
        while now < well + 3 * LONGEST_SECONDS:
            while some := found.due(now):
                tries += 1
                table = some[0].table
                able = [
                    b for b in some if now >= well and int(b.id[-2:].strip(":")) not in hopeless
                ]
                about = About.TABLE if now < well else About.SIZE
                left = [Aside(b, "no", about) for b in some if b not in able]
                found.tried(table, of(*able), left, now)
                assert tries < 400, "spins"
            now += 0.5
        assert len(found) == len(hopeless)


def test_without_another_try_a_block_stands_aside_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the tests above."""
    monkeypatch.setattr(set_aside_plan.Asides, "due", lambda *_: [])
    with pytest.raises((AssertionError, ValueError)):
        test_one_block_of_a_table_is_tried_and_then_all()
    with pytest.raises(AssertionError):
        test_random_tables_never_starve_and_never_spin()


def test_a_line_names_blocks_and_tables() -> None:
    """A few of them; the rest is counted."""
    assert named([block(7)]) == "1 block waits, of a.b (app:a.b:0:0:7)"
    many = [block(n, f"a.{n}") for n in range(5)]
    assert named(many) == (
        "5 blocks wait, of a.0, a.1, a.2 and 2 more (app:a.0:0:0:0, app:a.1:0:0:1, app:a.2:0:0:2 "
        "and 2 more)"
    )
    assert named([]) == ""
    assert listed(["a", "b"]) == "a, b"
