"""`loader supersede` lives on when another `relay rewind` ends its rewind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loader.journal.rewind_check import overtaken
from relay.errors import Refused, Unavailable
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.records import rewound as ended
from relay.records_pb2 import Commit
from tests.rewind.test_run import SEEDS, is_exact, rewound
from tests.rewind.test_shortened import ALL, ONE, accepted, made
from tests.rewind.world import World

if TYPE_CHECKING:
    from relay.operate.rewind.rewind import RewindRequest
    from relay.operate.rewind.seals import RecordedRewind


class Deferred(World):
    """The first `loader supersede` gets its blocks, and does nothing for now."""

    left: RecordedRewind | None = None

    def supersede(self, rewind: RecordedRewind) -> int:
        if self.left is None:
            self.left = rewind
            raise Unavailable("this run was killed", "")
        return super().supersede(rewind)


def left_running(seed: int, what: RewindRequest) -> Deferred:
    """Its starter was killed; then retention moved."""
    world = Deferred(seed)
    world.relay(30)
    world.load()
    with pytest.raises(Unavailable):
        rewound(world, what)
    world.lose_beginning(world.journal[-1][1].previous_floor // 2)
    return world


@pytest.mark.parametrize("what", [ALL, ONE], ids=["all", "one"])
@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_that_count_again_keep_their_rows(seed: int, what: RewindRequest) -> None:
    world = left_running(seed, what)
    assert world.left is not None
    assert rewound(world, None).shortened
    rows = world.rows.copy()
    with pytest.raises(Refused, match="count again"):
        world.supersede(world.left)
    assert world.rows == rows
    is_exact(world)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_not_loaded_yet_they_are_not_discarded(seed: int) -> None:
    world = left_running(seed, ALL)
    world.ledger.clear()
    world.rows.clear()
    assert world.left is not None
    assert rewound(world, None).shortened
    with pytest.raises(Refused, match="count again"):
        world.supersede(world.left)
    is_exact(world)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_removed_before_the_end_is_on_record_they_are_read_again(seed: int) -> None:
    """The journal cannot tell yet: so the second run looks once more before it records the end."""
    world = left_running(seed, ALL)
    second = world.supersede

    def both(rewind: RecordedRewind) -> int:
        assert world.left is not None
        removed = second(rewind)
        return removed + second(world.left)

    world.supersede = both  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="were to stay were removed meanwhile"):
        rewound(world, None)
    assert world.journal[-1][1].HasField("rewind"), "the end is not on record"
    world.supersede = second  # type: ignore[method-assign]
    rewound(world, None)
    if world.stops():  # the first messages of what was removed are gone
        accepted(world, None)
    world.settle()
    world.load()
    assert world.contents() == world.everything()


def test_what_the_journal_says_is_what_may_be_done() -> None:
    world = made(1)
    rewound(world, ALL)
    at = next(i for i, (_, commit) in enumerate(world.journal) if commit.HasField("rewind"))
    began, end = (commit for _, commit in world.journal[at : at + 2])
    marks = {mark.table: mark.offset for mark in end.marks}
    later = ended(began, (end.floor + 5, marks), RewindAuthor("b", 1, ""))
    narrow = Commit()
    narrow.CopyFrom(began)
    for start in narrow.rewind.starts:
        start.offset += 10**6

    assert overtaken(began, [began]) == ""
    assert overtaken(narrow, [began]) == "", "it may do less than was recorded"
    assert "counts again" not in overtaken(began, [began, end])
    assert overtaken(began, [began, end]) == "", "it ended as it was begun"
    assert "count again" in overtaken(began, [began, later])
    assert overtaken(narrow, [began, later]) == ""
    for other in ([], [end], [world.journal[at - 1][1], began]):
        assert "no such record" in overtaken(began, other)
    more = Commit()
    more.CopyFrom(began)
    more.rewind.starts.add(table="d.other", offset=10**7)
    assert "does not name d.other" in overtaken(more, [began])
