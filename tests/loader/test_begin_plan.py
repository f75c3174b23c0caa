"""Where a loader begins, by what ledger, journal and checkpoint say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loader.core.positions import (
    Noted,
    Unsure,
    column_row,
    gone_row,
    parse_noted,
    rows_of,
    superseded_row,
)
from loader.journal.begin_plan import (
    StartFacts,
    check_column,
    check_rewinds,
    decide,
    end_unsure,
    forgot,
)
from loader.journal.checkpoint import Checkpoint, CheckpointPositions
from loader.journal.rewinds import followed
from relay.errors import ContractBroken, Refused

BOUNDS = {0: (0, 100), 1: (0, 50)}
BOTH = {("J", 0): 40, ("J", 1): 20}


def facts(
    positions: dict[tuple[str, int], int] | None = None,
    found: CheckpointPositions | None = None,
    **changes: object,
) -> StartFacts:
    made = StartFacts("shop", "`relay`.ledger", "J", Noted(positions or {}), BOUNDS, found, "there")
    return replace(made, **changes)  # type: ignore[arg-type]


def test_a_first_start_begins_at_the_beginning_and_is_unsure_of_what_is_there() -> None:
    begun = decide(facts())
    assert begun.positions == begun.new == {0: 0, 1: 0}
    assert (begun.ends, begun.why, begun.aside) == ({0: 100, 1: 50}, "unsure", False)
    assert begun.unsure[0] == Unsure(100)


def test_an_empty_journal_leaves_nothing_unsure() -> None:
    begun = decide(facts(bounds={0: (0, 0)}))
    assert (begun.positions, begun.ends) == ({0: 0}, {})


@pytest.mark.parametrize("ended", [{}, {0: 40, 1: 20}, {0: 39, 1: 20}, {0: 1}])
def test_a_checkpoint_whose_last_batch_ends_at_the_ledgers_position_changes_nothing(
    ended: dict[int, int],
) -> None:
    begun = decide(facts(BOTH, CheckpointPositions("J", ended, {0: 40, 1: 20})))
    assert begun.positions == {0: 40, 1: 20}
    assert (begun.new, begun.ends, begun.aside, begun.warnings) == ({}, {}, False, ())


@pytest.mark.parametrize(
    ("behind", "ends"),
    [
        ({}, {0: 100, 1: 50}),
        ({0: 1}, {0: 100, 1: 50}),
        ({0: 39, 1: 19}, {0: 100, 1: 50}),
        ({0: 40, 1: 19}, {1: 50}),
        ({0: 40}, {1: 50}),
    ],
)
def test_a_checkpoint_behind_the_ledger_says_nothing_of_how_far_others_came(
    behind: dict[int, int], ends: dict[int, int]
) -> None:
    """As none. Red before: of a restored ClickHouse no table was asked, and rows doubled."""
    begun = decide(facts(BOTH, CheckpointPositions("J", behind, behind)))
    assert (begun.positions, begun.aside, begun.warnings) == ({0: 40, 1: 20}, False, ())
    assert (begun.ends, begun.why) == (ends, "unsure")


def test_a_batch_that_was_only_planned_may_have_been_done() -> None:
    """A loader was killed in its midst, and what the ledger knew of it may be gone since."""
    begun = decide(facts(BOTH, CheckpointPositions("J", {0: 40, 1: 20}, {0: 45, 1: 20})))
    assert begun.positions == {0: 40, 1: 20}
    assert (begun.ends, begun.why, begun.aside, begun.warnings) == ({0: 45}, "unsure", False, ())
    assert begun.unsure[0] == Unsure(45)


def test_a_checkpoint_beyond_the_ledger_says_that_clickhouse_went_back() -> None:
    begun = decide(facts(BOTH, CheckpointPositions("J", {0: 41, 1: 20})))
    assert begun.positions == {0: 40, 1: 20}
    assert (begun.ends, begun.why, begun.aside) == ({0: 100, 1: 50}, "back", True)
    (warning,) = begun.warnings
    assert "partition 0: 40, checkpoint 41" in warning
    assert "partition 1" not in warning


STOPS: dict[str, tuple[StartFacts, str]] = {
    "no position, a checkpoint": (
        facts({}, CheckpointPositions("J", {0: 41})),
        r"no position.* stands at 41",
    ),
    "one partition's position is gone": (
        facts({("J", 0): 40}, CheckpointPositions("J", {0: 40, 1: 20})),
        r"partition 1 .* stands at 20",
    ),
    "nobody loaded the beginning": (
        facts(bounds={0: (7, 100)}),
        r"partition 0 begins at offset 7, and no loader",
    ),
    "nor since the checkpoint": (
        facts({}, CheckpointPositions("J", {0: 5}), bounds={0: (7, 100)}),
        r"begins at offset 7, and no loader",
    ),
    "another journal's positions": (
        facts({("old", 0): 9}),
        r"belong to journal old, .*created again",
    ),
    "another journal's checkpoint": (
        facts(BOTH, CheckpointPositions("old")),
        r"checkpoint belongs to journal old",
    ),
    "a checkpoint of another query": (
        facts(BOTH, CheckpointPositions("")),
        r"\(it names none\)",
    ),
    "no position, and a checkpoint that is cut off": (
        facts({}, CheckpointPositions("", cut_off="offsets/57")),
        r"there/offsets/57 of Spark's checkpoint is empty or cut off.* no position",
    ),
}


def test_a_checkpoint_that_is_cut_off_counts_as_none_where_the_ledger_has_a_position() -> None:
    """Red before: the loader ended with status 6 and said that the journal was created again."""
    begun = decide(facts(BOTH, CheckpointPositions("", cut_off="commits/56")))
    none = decide(facts(BOTH))
    assert "there/commits/56" in begun.cut_off
    assert replace(begun, aside=False, cut_off="") == none
    assert (begun.aside, none.aside, none.cut_off) == (True, False, "")
    assert none.ends == {0: 100, 1: 50}, "all is unsure"
    # A partition that is new has no position yet: that is no loss.
    grown = decide(facts({("J", 0): 40}, CheckpointPositions("", cut_off="offsets/57")))
    assert (grown.positions, grown.aside) == ({0: 40, 1: 0}, True)
    with pytest.raises(ContractBroken, match="belong to journal old"):
        decide(facts({("old", 0): 9}, CheckpointPositions("", cut_off="offsets/57")))


@pytest.mark.parametrize("case", STOPS)
def test_what_only_a_person_knows_stops(case: str) -> None:
    found, said = STOPS[case]
    with pytest.raises(ContractBroken, match=said) as stopped:
        decide(found)
    assert stopped.value.next_step


@pytest.mark.parametrize("case", STOPS)
def test_a_person_says_that_the_ledger_was_lost(case: str) -> None:
    """Then all goes on, from positions that are there, else from what the journal still holds."""
    found, _ = STOPS[case]
    begun = decide(replace(found, lost=True))
    mine = found.noted.of("J")
    assert begun.positions == {p: mine.get(p, low) for p, (low, _) in found.bounds.items()}
    assert begun.unsure == {p: Unsure(end, lost=end) for p, (_, end) in found.bounds.items()}
    assert begun.aside == (found.checkpoint is not None)


def test_what_retention_deleted_meanwhile_is_given_up_only_as_a_person_says() -> None:
    late = facts({("J", 0): 5, ("J", 1): 3}, bounds={0: (7, 100), 1: (3, 9)})
    with pytest.raises(ContractBroken, match="partition 0 begins at offset 7") as stopped:
        decide(late)
    assert "partition 1" not in stopped.value.message, "nothing is missing there"
    assert "--ledger-lost" in stopped.value.next_step
    begun = decide(replace(late, lost=True))
    assert (begun.positions, begun.new) == ({0: 7, 1: 3}, {0: 7})


@pytest.mark.parametrize("lost", [False, True])
def test_a_journal_that_ends_before_the_ledgers_position_stops(*, lost: bool) -> None:
    """As after a restore of Kafka from an older copy. Red before: it began there, and what was
    written up to there later was never read; a person who says that the ledger was lost, too."""
    set_back = facts({("J", 0): 101, ("J", 1): 50}, lost=lost)
    with pytest.raises(ContractBroken, match=r"0 holds offsets 0 to 100, but .* 101") as stopped:
        decide(set_back)
    assert "partition 1" not in stopped.value.message, "it stands at the end"
    assert stopped.value.next_step


@pytest.mark.parametrize("lost", [False, True])
def test_where_nothing_shows_the_journals_end_a_loader_begins(*, lost: bool) -> None:
    """Negative control: it stands at the end; a partition is not shown; the journal is another."""
    at_the_end = facts({("J", 0): 100, ("J", 1): 51}, bounds={0: (0, 100)}, lost=lost)
    assert decide(at_the_end).positions == {0: 100, 1: 51}
    anew = Noted({("old", 0): 900}, {}, {"old"})
    assert decide(facts(noted=anew, bounds={0: (0, 3)}, lost=lost)).positions == {0: 0}


def test_of_a_record_that_was_settled_the_marker_alone_may_be_deleted() -> None:
    """A relay's transaction has one record in a partition; behind it, where loaders stand, this."""
    for bounds in ((102, 102), (102, 300)):
        begun = decide(
            facts(
                {("J", 0): 101},
                CheckpointPositions("J", {0: 101}, {0: 101}),
                bounds={0: bounds},
            )
        )
        assert (begun.positions, begun.new, begun.warnings) == ({0: 102}, {0: 102}, ())
        assert (begun.ends, begun.aside) == ({}, False)
    alone = decide(facts({("J", 0): 101}, bounds={0: (102, 102)}))
    assert (alone.positions, alone.ends) == ({0: 102}, {})


def noted_by_a_start(at: int, now: int, *, lost: int = 0) -> Noted:
    """A ledger whose loader began at `at`, and is at `now`."""
    rows = [
        *rows_of("J", {0: at}, {0: lost} if lost else {}, "lost"),
        *rows_of("J", {}, {}, "back"),
    ]
    read = parse_noted([(row["block"], row["attempt"], 77) for row in rows])
    return replace(read, positions={("J", 0): now})


@pytest.mark.parametrize(
    ("of", "low"),
    [
        (Noted({("J", 0): 101}), 103),  # a record lay at 102
        (Noted({("J", 0): 0}), 1),  # or at 0, where a first start begins
        (noted_by_a_start(101, 101), 102),
        (noted_by_a_start(101, 101, lost=101), 102),
        # As earlier versions noted it: a person said that the ledger was lost, up to the end.
        (Noted({("J", 0): 101}, {("J", 0): Unsure(300, lost=300)}), 102),
    ],
)
def test_where_a_record_may_have_been_deleted_a_loader_stops(of: Noted, low: int) -> None:
    """Negative control: no more than a marker, and behind a record that was settled."""
    late = facts(bounds={0: (low, 400)}, noted=of)
    with pytest.raises(ContractBroken, match=f"begins at offset {low}, but the loader stands"):
        decide(late)


def test_behind_where_it_began_a_loader_stands_behind_records() -> None:
    """Also after a person said that the ledger was lost, and before that start's end."""
    of = noted_by_a_start(97, 101, lost=300)
    assert decide(facts(bounds={0: (102, 400)}, noted=of)).positions == {0: 102}


def test_a_backup_older_than_the_journals_retention_stops_likewise() -> None:
    """The checkpoint shows that ClickHouse went back; what came since is not all there."""
    old = facts({("J", 0): 5}, CheckpointPositions("J", {0: 90}), bounds={0: (7, 100)})
    with pytest.raises(ContractBroken, match="stands at 5"):
        decide(old)
    begun = decide(replace(old, lost=True))
    assert (begun.positions, begun.why, begun.aside) == ({0: 7}, "lost", True)


def test_a_checkpoint_that_began_with_what_was_left_is_no_loss() -> None:
    """Earlier versions did so, and had no position before the first record."""
    begun = decide(
        facts({}, CheckpointPositions("J", {0: 7, 1: 0}), bounds={0: (7, 100), 1: (0, 0)})
    )
    assert begun.positions == {0: 7, 1: 0}


def test_without_a_checkpoint_nobody_knows_whether_the_ledger_was_set_back() -> None:
    """Nor with one of a journal that is gone; what is behind the position has to be asked about."""
    begun = decide(facts(BOTH))
    assert begun.positions == {0: 40, 1: 20}
    assert (begun.ends, begun.why, begun.aside) == ({0: 100, 1: 50}, "unsure", False)
    assert begun.unsure == {0: Unsure(100), 1: Unsure(50)}
    old = Noted(BOTH, {}, frozenset({"old"}))
    assert decide(facts(found=CheckpointPositions("old", {0: 9}), noted=old)).ends == {
        0: 100,
        1: 50,
    }


def test_what_is_noted_already_is_not_noted_again() -> None:
    """Nor is there anything unsure where the ledger stands at the journal's end."""
    before = Noted({("J", 0): 40, ("J", 1): 50}, {("J", 0): Unsure(100)})
    assert decide(facts(noted=before)).ends == {}


def test_letters_are_looked_for_up_to_where_an_earlier_start_was_unsure() -> None:
    """In a pod that start was before a backup, and what it was unsure of was loaded after it."""
    of = facts({("J", 0): 50, ("J", 1): 50}, bounds={0: (0, 100), 1: (0, 50)})
    noted_before = replace(of.noted, unsure={("J", 0): Unsure(100)})
    begun = decide(replace(of, noted=noted_before))
    assert begun.ends == {}
    assert end_unsure(begun, of.bounds) == {0: 100, 1: 50}
    assert end_unsure(decide(of), of.bounds) == {0: 100, 1: 50}


def test_no_letters_are_looked_for_of_blocks_that_no_loader_can_have_met() -> None:
    """Negative control: the checkpoint says so, or the position has come beyond."""
    begun = decide(facts(BOTH, CheckpointPositions("J", {0: 40, 1: 20}, {0: 45, 1: 20})))
    assert end_unsure(begun, BOUNDS) == {0: 45, 1: 20}
    beyond = decide(facts(noted=Noted({("J", 0): 100, ("J", 1): 50}, {("J", 0): Unsure(70)})))
    assert end_unsure(beyond, BOUNDS) == {0: 100, 1: 50}


@pytest.mark.parametrize(
    ("claims", "unsure", "back"),
    [((), True, True), (("c",), False, True), (("?",), False, False), (("c", "!"), False, False)],
)
def test_blocks_that_wait_may_have_been_settled_since(
    claims: tuple[str, ...], *, unsure: bool, back: bool
) -> None:
    """A restored ledger calls them parked or aside; their claims count where it may not be one."""
    assert (forgot(claims, "unsure"), forgot(claims, "back")) == (unsure, back)


def test_a_deleted_journal_that_a_person_knows_stops_nothing() -> None:
    known = Noted({}, {}, frozenset({"old"}))
    begun = decide(facts({}, CheckpointPositions("old", {0: 9}), noted=known))
    assert (begun.positions, begun.aside) == ({0: 0, 1: 0}, True)


def test_what_was_unsure_stays_so() -> None:
    """The later end more than the earlier; a person's word for as far as it was said of."""
    before = Noted(BOTH, {("J", 0): Unsure(70, lost=70), ("old", 1): Unsure(9, lost=9)})
    begun = decide(facts(found=CheckpointPositions("J", {0: 41}), noted=before))
    assert begun.unsure == {0: Unsure(100, back=100, lost=70), 1: Unsure(50, back=50)}


def test_notes_are_read_as_they_were_written() -> None:
    """By block, the greatest attempt."""
    rows = [
        *rows_of("J", {0: 4}, {0: 9, 1: 7}, "lost"),
        *rows_of("J", {}, {0: 5, 1: 8}, "back"),
        *rows_of("a_-", {12: 3}, {12: 6}, "unsure"),
        gone_row("old"),
    ]
    read = parse_noted([(r["block"], r.get("attempt", 0), 77) for r in rows])
    assert read.positions == {("J", 0): 4, ("a_-", 12): 3}
    assert read.unsure == {
        ("J", 0): Unsure(9, back=5, lost=9),
        ("J", 1): Unsure(8, back=8, lost=7),
        ("a_-", 12): Unsure(6),
    }
    assert read.gone == {"old"}
    assert read.now == 77


def written(directory: Path, planned: dict[int, dict[str, object]], done: list[int]) -> Checkpoint:
    for within in ("offsets", "commits"):
        (directory / within).mkdir(parents=True, exist_ok=True)
    for number, offsets in planned.items():
        text = "v1\n{}\n" + json.dumps(offsets)
        (directory / "offsets" / str(number)).write_text(text, "utf-8")
        (directory / "offsets" / f".{number}.crc").write_text("", "utf-8")
    for number in done:
        (directory / "commits" / str(number)).write_text("v1\n{}", "utf-8")
    return Checkpoint(str(directory))


@pytest.mark.parametrize(
    ("planned", "done", "found"),
    [
        ([], [], None),
        ([0], [], CheckpointPositions("J", {}, {0: 1})),
        ([0], [0], CheckpointPositions("J", {0: 1}, {0: 1})),
        ([0, 1], [0], CheckpointPositions("J", {0: 1}, {0: 11})),  # repeats batch 1
        ([0, 1], [0, 1], CheckpointPositions("J", {0: 11}, {0: 11})),
        ([7, 8, 9], [8], CheckpointPositions("J", {0: 81}, {0: 91})),
        ([9, 10], [9, 10], CheckpointPositions("J", {0: 101}, {0: 101})),  # numbers, not texts
    ],
)
def test_a_checkpoint_says_where_spark_would_go_on(
    tmp_path: Path, planned: list[int], done: list[int], found: CheckpointPositions | None
) -> None:
    offsets: dict[int, dict[str, object]] = {n: {"journal": "J", "0": 10 * n + 1} for n in planned}
    assert written(tmp_path, offsets, done).found() == found


@pytest.mark.parametrize("text", ["[]", '{"0": 1}', '{"topic":{"0":1}}', '{"logOffset":0}', "5"])
def test_a_checkpoint_of_another_query_is_nobodys(tmp_path: Path, text: str) -> None:
    made = written(tmp_path, {0: {}}, [0])
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{text}", "utf-8")
    assert made.found() == CheckpointPositions("")


WHOLE = {
    "metadata": '{"id":"a query"}',
    "offsets": 'v1\n{"batchWatermarkMs":0}\n{"journal": "J", "0": 7}',
    "commits": 'v1\n{"nextBatchWatermarkMs":0}',
}


@pytest.mark.parametrize("file", ["metadata", "offsets/7", "offsets/8", "commits/7"])
def test_a_file_of_sparks_that_is_cut_off_is_named(tmp_path: Path, file: str) -> None:
    """Wherever it is cut off, or filled with zeros; those that Spark does not read do not count."""
    made = written(tmp_path, {n: {"journal": "J", "0": n} for n in (6, 7, 8)}, [6, 7])
    (tmp_path / "metadata").write_text(WHOLE["metadata"], "utf-8")
    for old in ("offsets/6", "commits/6"):
        (tmp_path / old).write_text("", "utf-8")
    whole = WHOLE[file.partition("/")[0]].encode()
    for end in range(len(whole)):
        for rest in (0, len(whole) - end):
            (tmp_path / file).write_bytes(whole[:end] + bytes(rest))
            assert made.found() == CheckpointPositions("", cut_off=file), (end, rest)
    (tmp_path / file).write_bytes(b"\xff" * len(whole))
    assert made.found() == CheckpointPositions("", cut_off=file)
    (tmp_path / file).write_bytes(whole)
    found = made.found()
    assert found is not None
    assert (found.journal, found.cut_off) == ("J", "")


def test_before_the_first_batch_there_is_sparks_metadata_alone(tmp_path: Path) -> None:
    made = Checkpoint(str(tmp_path))
    (tmp_path / "metadata").write_text(WHOLE["metadata"], "utf-8")
    assert made.found() is None
    (tmp_path / "metadata").write_text("", "utf-8")
    assert made.found() == CheckpointPositions("", cut_off="metadata")


def test_a_checkpoint_is_set_aside_whole_and_found_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is moved last is what says that there is one."""
    made = written(tmp_path, {0: {"journal": "J", "0": 5}}, [0])
    (tmp_path / "metadata").write_text("{}", "utf-8")

    def fails(_: object, name: str, __: str) -> None:
        raise OSError(f"no {name}")

    with monkeypatch.context() as patched:
        patched.setattr("loader.journal.checkpoint.Here.move", fails)
        with pytest.raises(Refused, match="cannot move the checkpoint"):
            made.set_aside()
    assert made.found() == CheckpointPositions("J", {0: 5}, {0: 5})
    aside = Path(made.set_aside())
    assert made.found() is None
    assert sorted(one.name for one in aside.iterdir()) == ["commits", "metadata", "offsets"]
    assert [one.name for one in tmp_path.iterdir()] == [aside.name]
    assert made.found() is None


def test_a_rewind_without_a_note_stops() -> None:
    """Notes of one rewind each: that of a later one, or of another journal, is none."""
    rows = [superseded_row("J", 0, 7), superseded_row("J", 1, 9), superseded_row("K", 0, 5)]
    known = parse_noted((row["block"], row["attempt"], 3) for row in rows)
    assert (known.positions, known.unsure, known.gone) == ({}, {}, frozenset())
    check_rewinds("ledger", "J", known, [(0, 7), (1, 9)])
    for one in ((0, 5), (1, 7), (10, 7)):
        with pytest.raises(ContractBroken, match=f"1 rewind .*partition:offset {one[0]}:{one[1]}"):
            check_rewinds("ledger", "J", known, [(0, 7), one])


@pytest.mark.parametrize(
    ("records", "ended"),
    [
        ("", []),
        ("0r", []),
        ("0r 1. 1.", []),
        ("0r 0.", [(0, 0)]),
        ("0r 0r", [(0, 0)]),
        ("0. 0r 1r 0. 0r 0. 1.", [(0, 1), (0, 4), (1, 2)]),
    ],
)
def test_a_rewind_has_ended_where_a_record_of_its_partition_follows(
    records: str, ended: list[tuple[int, int]]
) -> None:
    rows = [
        (int(one[0]), offset, b"" if one[1] == "r" else None)
        for offset, one in enumerate(records.split())
    ]
    assert sorted(followed(rows)) == ended


def test_the_column_of_block_ids_is_noted_once_and_by_its_name() -> None:
    row = str(column_row("_block")["block"])
    known = parse_noted([(row, 0, 1)])
    assert known == Noted(columns=frozenset({"_block"}), now=1)
    assert known.of("") == {}, "no position of any journal"
    check_column("`l`.ledger", "app", "_block", known)
    check_column("`l`.ledger", "app", "x", Noted())
    with pytest.raises(ContractBroken, match="filled _block"):
        check_column("`l`.ledger", "app", "x", known)
