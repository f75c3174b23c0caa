from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from loader import asides, plan
from loader.window import window
from tests.loader import model
from tests.loader.model import Guards, Table, Violation, begin, search

STAMPED, BARE = Table(stamped=True), Table(stamped=False)


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize(
    ("size", "loaders", "rounds", "faults", "others"),
    [
        (0, 2, 1, 1, 1),
        (1, 2, 1, 1, 2),
        (2, 2, 1, 1, 2),
        (0, 1, 4, 3, 2),
        (1, 1, 4, 3, 2),
        (2, 1, 4, 3, 3),
    ],
)
def test_every_order_of_events(
    stamped: bool, size: int, loaders: int, rounds: int, faults: int, others: int
) -> None:
    """Loaders, faults, other inserts in every order: never doubled, never marked without rows."""
    table = Table(stamped=stamped, window=size)
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=others)
    states, endings = search(start, table, Guards())
    print(f"{table}: {states} states, endings {endings}")
    assert "loaded" in endings
    if stamped:
        assert endings == {"loaded"}, "the block-id column makes every case decidable"


@pytest.mark.parametrize("stamped", [True, False])
def test_blocks_over_two_partitions(stamped: bool) -> None:
    """An INSERT that ends between its parts is completed or parked, never doubled."""
    table = Table(stamped=stamped, window=6, parts=2)
    _, endings = search(begin(table, loaders=2, rounds=1, faults=1, others=1), table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize(
    "table",
    [
        # Fewer rows of the second version; as many as two parts of the first; others, as many.
        *(Table(True, 0, 2, sizes) for sizes in ((7, 4), (4, 8), (3, 3))),
        Table(False, 2, 1, (7, 4)),
        Table(False, 6, 2, (3, 3)),
    ],
)
def test_two_versions_of_a_transform(table: Table) -> None:
    """In every order: parts of both are never in the table, and the ledger names the right one."""
    _, endings = search(begin(table, loaders=2, rounds=1, faults=1, others=0), table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize("human", ["loaded", "discard"])
def test_a_person_beside_a_loader_with_a_transform(human: plan.Human) -> None:
    """A claim of a person's command inserts nothing, and is taken for no version's."""
    table = Table(sizes=(7, 4))
    start = begin(table, loaders=2, rounds=1, faults=1, others=1, human=human)
    _, endings = search(start, table, Guards())
    assert "loaded" in endings


@pytest.mark.parametrize(
    ("table", "unsaid"),
    [
        (Table(False, 6, 2, (3, 3)), {"transform": "the same"}),
        (Table(True, 0, 2, (4, 8)), {"rows": 8}),
    ],
)
def test_what_claims_do_not_say_of_versions_is_found(
    table: Table, unsaid: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: with one version, or one number of rows, in all claims."""
    real = model._made
    monkeypatch.setattr(model, "_made", lambda *of: replace(real(*of), **unsaid))
    monkeypatch.setattr(model, "_check_named", lambda *_: None)
    with pytest.raises(Violation, match=r"mixed|loaded with copies"):
        search(begin(table, loaders=2, rounds=1, faults=1, others=0), table, Guards())


@pytest.mark.parametrize(
    ("guards", "table"),
    [
        (Guards(ledger=False), STAMPED),
        (Guards(ledger=False), BARE),
        (Guards(prepare=False), STAMPED),
        (Guards(prepare=False), BARE),
        (Guards(condition=False), STAMPED),
        (Guards(condition=False), BARE),
        (Guards(running=False), STAMPED),
        (Guards(running=False), BARE),
        (Guards(limit=False), Table(stamped=False, window=2)),
        (Guards(others=False), Table(stamped=False, window=2)),
    ],
)
def test_without_a_guard_the_search_finds_it(guards: Guards, table: Table) -> None:
    """Negative control: each guard taken away doubles rows somewhere."""
    with pytest.raises(Violation, match="doubled"):
        search(begin(table, loaders=2, rounds=1, faults=1, others=2), table, guards)


@pytest.mark.parametrize("table", [STAMPED, BARE])
def test_a_person_gives_up_a_block_beside_a_loader(table: Table) -> None:
    """In every order: no row comes after it, and it stays given up or was loaded before."""
    start = begin(table, loaders=2, rounds=1, faults=1, others=1, human="discard")
    _, endings = search(start, table, Guards())
    assert {"discarded", "loaded"} <= endings


def test_a_person_calls_a_block_loaded_beside_a_loader() -> None:
    """In every order: where the rows can be counted, a wrong word marks nothing."""
    start = begin(STAMPED, loaders=2, rounds=1, faults=1, others=1, human="loaded")
    _, endings = search(start, STAMPED, Guards())
    assert {"parked", "loaded"} <= endings


@pytest.mark.parametrize("guards", [Guards(condition=False), Guards(running=False)])
def test_without_a_guard_rows_come_after_a_block_was_given_up(guards: Guards) -> None:
    """Negative control of the search above."""
    start = begin(BARE, loaders=2, rounds=1, faults=1, others=0, human="discard")
    with pytest.raises(Violation, match="given up"):
        search(start, BARE, guards)


def decide(
    facts: plan.Facts,
    *,
    stamped: bool = True,
    since: int = 0,
    human: plan.Human = "nothing",
    was_stamped: bool | None = None,
) -> plan.Effect:
    """The effect for a block that an earlier claim prepared, as the table has it."""
    run, _ = plan.start("me", 10, stamped=stamped, human=human)
    before = stamped if was_stamped is None else was_stamped
    earlier = plan.Entry(plan.PREPARED, 1, "other", since, before, rows=10)
    run, _ = plan.step(run, (earlier,))
    run, _ = plan.step(run, plan.Ok())
    run, effect = plan.step(run, (earlier, plan.Entry(plan.PREPARED, 2, "me", 5, stamped, rows=10)))
    assert effect == plan.Ask()
    return plan.step(run, facts)[1]


def test_a_mark_that_saw_no_rows_ends_the_attempt() -> None:
    """As "retry", and not as another loader's doing; a claim that was lost meanwhile is that."""
    run, _ = plan.start("me", 10, stamped=True)
    run, _ = plan.step(run, ())
    run, _ = plan.step(run, plan.Ok())
    mine = plan.Entry(plan.PREPARED, 1, "me", 0, stamped=True, rows=10)
    run, effect = plan.step(run, (mine,))
    assert effect == plan.Insert(None)
    run, effect = plan.step(run, plan.Ok())
    assert effect == plan.Mark(1)
    run, effect = plan.step(run, plan.Ok())
    assert effect == plan.Read()
    others = (mine, plan.Entry(plan.PREPARED, 2, "other", rows=10))
    lost = plan.Done("retry", "another loader works on this block")
    assert plan.step(run, others)[1] == lost
    marked = (mine, plan.Entry(plan.LOADED, 1, "me", rows=10))
    assert plan.step(run, marked)[1] == plan.Done("loaded")
    assert plan.step(run, (mine,))[1] == plan.Done(
        "retry", "its rows were not seen in the table yet"
    )


def test_the_designs_table() -> None:
    """Every line of DESIGN.md's table for a block found prepared."""
    assert isinstance(decide(plan.Facts(10, 3, 0, running=False)), plan.Mark)
    assert decide(plan.Facts(0, 3, 0, running=False)) == plan.Insert(None)
    assert isinstance(decide(plan.Facts(4, 3, 0, running=False)), plan.Park)
    assert decide(plan.Facts(None, 3, 50, running=False), stamped=False) == plan.Insert(50)
    assert isinstance(decide(plan.Facts(None, 51, 50, running=False), stamped=False), plan.Park)
    # Rows that were to be counted may be there under the token of several blocks.
    gone = {"stamped": False, "was_stamped": True}
    assert isinstance(decide(plan.Facts(None, 3, 50, running=False), **gone), plan.Park)  # type: ignore[arg-type]
    assert decide(plan.Facts(None, 0, 50, running=False), **gone) == plan.Insert(0)  # type: ignore[arg-type]
    assert isinstance(decide(plan.Facts(None, 3, 50, running=True), stamped=False), plan.Done)
    # Nothing was inserted since: safe without any window.
    assert decide(plan.Facts(None, 0, -1, running=False), stamped=False) == plan.Insert(0)
    # A counter that went back, or is not known, proves nothing.
    assert isinstance(
        decide(plan.Facts(None, 3, 50, running=False), stamped=False, since=4), plan.Park
    )
    assert isinstance(
        decide(plan.Facts(None, -1, -1, running=False), stamped=False, since=-1), plan.Park
    )


def test_a_person_decides_a_parked_block() -> None:
    """A parked block stays parked, until somebody says retry or absent."""
    parked = (plan.Entry(plan.PARKED, 1, "other", reason="table missing"),)
    assert plan.step(plan.start("me", 1, stamped=True)[0], parked)[1] == plan.Done(
        "parked", "table missing"
    )
    run, _ = plan.start("me", 1, stamped=True, human="retry")
    assert plan.step(run, parked)[1] == plan.Claim(2)
    facts = plan.Facts(None, 99, -1, running=False)
    assert decide(facts, stamped=False, human="absent") == plan.Insert(None)


@pytest.mark.parametrize(
    ("human", "counted", "effect"),
    [
        ("loaded", 10, plan.Mark),
        ("loaded", None, plan.Mark),
        ("loaded", 4, plan.Park),
        ("loaded", 0, plan.Park),
        ("discard", 10, plan.Mark),
        ("discard", 4, plan.Mark),
        ("discard", None, plan.Mark),
    ],
)
def test_the_tables_count_has_the_last_word(
    human: plan.Human, counted: int | None, effect: type[plan.Effect]
) -> None:
    """A person is believed where nothing can be counted, and not against a count."""
    found = decide(
        plan.Facts(counted, 3, 0, running=False), stamped=counted is not None, human=human
    )
    assert isinstance(found, effect)
    if isinstance(found, plan.Mark):
        whole = human == "loaded" or counted == 10
        assert found.state == (plan.LOADED if whole else plan.DISCARDED)
        assert found.reason
    assert isinstance(
        decide(plan.Facts(None, 3, 0, running=True), stamped=False, human=human), plan.Done
    )


def test_what_was_given_up_stays_so() -> None:
    """No attempt, and no further word, takes up a discarded block."""
    entries = (
        plan.Entry(plan.PARKED, 1, "a", reason="no table"),
        plan.Entry(plan.PREPARED, 3, "late"),
        plan.Entry(plan.DISCARDED, 2, "b", reason="test rows"),
    )
    for human in ("nothing", "retry", "absent", "loaded", "discard"):
        run, _ = plan.start("me", 1, stamped=True, human=cast("plan.Human", human))
        assert plan.step(run, entries)[1] == plan.Done("discarded", "test rows")
    assert not plan.holds(entries, "late")


@pytest.mark.parametrize(
    ("engine", "settings", "parts", "counter"),
    [
        ("MergeTree", "", 0, "global"),
        ("MergeTree", " SETTINGS non_replicated_deduplication_window = 8, x = 1", 8, "global"),
        ("ReplicatedMergeTree", "", 10000, "partitions"),
        ("ReplicatedMergeTree", " SETTINGS replicated_deduplication_window = 0", 0, "partitions"),
        ("Null", "", 0, "none"),
    ],
)
def test_windows(engine: str, settings: str, parts: int, counter: str) -> None:
    """A table's window is its own setting, else the server's; 0 and other engines have none."""
    defaults = {
        "non_replicated_deduplication_window": 0,
        "replicated_deduplication_window": 10000,
        "replicated_deduplication_window_seconds": 3600,
    }
    found = window(engine, f"{engine} ORDER BY a{settings}", defaults)
    assert (found.parts, found.counter) == (parts, counter)
    if engine.startswith("Replicated"):
        assert found.margin(10) == parts // 2
        assert found.margin(1801) == -1


OLD, NEW = "m:f@old", "m:f@new"


def versions(counted: int | None, *earlier: plan.Entry, newest: int = 3) -> plan.Effect:
    """What version NEW, of 6 rows, does after these claims."""
    stamped = counted is not None
    run, _ = plan.start("me", 10, stamped=stamped)
    run, _ = plan.step(run, earlier)
    run, _ = plan.step(run, plan.Made(6, NEW))
    mine = plan.Entry(plan.PREPARED, 9, "me", 3, stamped, rows=6, transform=NEW)
    run, _ = plan.step(run, (*earlier, mine))
    return plan.step(run, plan.Facts(counted, newest, 50, running=False))[1]


def claimed(rows: int, transform: str, claim: str = "other", *, stamped: bool = True) -> plan.Entry:
    return plan.Entry(plan.PREPARED, 1, claim, 2, stamped, "", rows, transform)


def test_the_count_tells_which_version_made_the_rows() -> None:
    """None there: the new one inserts; all of the old one's: they stay; else it is parked."""
    assert versions(0, claimed(9, OLD)) == plan.Insert(None)
    assert versions(9, claimed(9, OLD)) == plan.Mark(2, made_by="other")
    assert versions(6, claimed(6, NEW)) == plan.Mark(2, made_by="other")
    # Six rows: all of the new one's, or a part of the old one's.
    both = claimed(9, OLD), claimed(6, NEW, "again")
    parked = versions(6, *both)
    assert isinstance(parked, plan.Park)
    assert "6 of its 6 or 9 rows" in parked.reason
    assert "versions of the transform" in parked.reason
    # Nine cannot be six.
    assert versions(9, *both) == plan.Mark(2, made_by="other")
    # Six of either: which of them, nobody can say.
    assert isinstance(versions(6, claimed(6, OLD), claimed(6, NEW, "again")), plan.Park)
    # A claim of a person's command made none of them.
    assert versions(9, claimed(9, OLD), claimed(10, plan.NOTHING_MADE, "human")) == plan.Mark(
        2, made_by="other"
    )


def test_without_counting_another_version_is_never_repeated_under_the_token() -> None:
    """The window vouches for rows of the same version only."""
    same, other = claimed(6, NEW, stamped=False), claimed(6, OLD, stamped=False)
    assert versions(None, same) == plan.Insert(52)
    parked = versions(None, other)
    assert isinstance(parked, plan.Park)
    assert "the transform has changed" in parked.reason
    # Nothing at all was inserted since the old claim.
    assert versions(None, other, newest=2) == plan.Insert(2)


@pytest.mark.parametrize("table", [STAMPED, replace(BARE, window=2)])
@pytest.mark.parametrize(("loaders", "rounds", "faults"), [(2, 1, 0), (1, 2, 2)])
def test_a_block_set_aside_in_any_moment(
    table: Table, loaders: int, rounds: int, faults: int
) -> None:
    """A driver may set it aside beside claims and INSERTs under way, and tries it again: it is
    never doubled, and where its rows can be counted it is loaded in the end."""
    start = begin(table, loaders=loaders, rounds=rounds, faults=faults, others=1, asides=1)
    states, endings = search(start, table, Guards())
    print(f"{table}: {states} states, endings {endings}")
    assert "loaded" in endings
    if table.stamped:
        assert endings == {"loaded"}


def test_a_block_set_aside_without_the_condition_doubles() -> None:
    """Negative control: an INSERT that does not ask the ledger goes in after the second try."""
    start = begin(STAMPED, loaders=2, rounds=1, faults=1, others=1, asides=1)
    with pytest.raises(Violation):
        search(start, STAMPED, Guards(condition=False))


def test_who_sets_it_aside_never_overrules() -> None:
    """What is loaded, given up or parked stays so; nothing else is written of it."""
    for state in (plan.LOADED, plan.DISCARDED, plan.PARKED, plan.ASIDE):
        assert asides.entry((plan.Entry(state, 3, "x"),), "y", 10, "why") is None
    new = asides.entry((plan.Entry(plan.PREPARED, 3, "x"),), "y", 10, "why")
    assert new == plan.Entry(plan.ASIDE, 4, "y", reason="why", rows=10)
    assert plan.settled((plan.Entry(plan.PREPARED, 4, "z"), new)) == new
    assert plan.settled((plan.Entry(plan.PREPARED, 5, "z"), new)) is None
