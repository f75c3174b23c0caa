"""What can be accepted, what not, and that relays go on from there."""

from __future__ import annotations

from collections import Counter

import pytest

from relay.errors import ConfigError, ContractBroken
from relay.operate.rewind import accept as accept_steps
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
from relay.operate.rewind.seals import stretches
from relay.operate.verify.audit import Audit
from tests.rewind.world import Crash, World
from tests.verify import histories

AUTHOR = RewindAuthor("accept", 1, "it was so")


def made(seed: int = 0) -> World:
    world = World(seed)
    world.relay(30)
    return world


def accepted(
    world: World, begin: int | None = None, *, run: bool = True
) -> list[accept_steps.Note]:
    begins = {} if begin is None else {0: begin}
    return accept_steps.accept(world, begins, None, (lambda: AUTHOR) if run else None)


def goes_on(world: World) -> None:
    """No relay stops, the next records follow, and the verifier names what was accepted."""
    assert world.stops() == ""
    world.relay(10)
    audit = Audit(histories.APP, histories.SOURCE, 1.0)
    for offset, commit in world.journal:
        audit.record(0, offset, commit)
    assert audit.anomalies == []
    assert all("it was so" in text for text in audit.acknowledged)
    assert len(audit.acknowledged) == sum(c.HasField("accept") for _, c in world.journal) > 0


def test_where_all_agrees_nothing_is_accepted() -> None:
    world = made()
    before = len(world.journal)

    assert accepted(world) == []
    assert len(world.journal) == before


@pytest.mark.parametrize("offsets", [True, False])
def test_another_topic_is_no_topic_made_anew(offsets: bool) -> None:
    """Accepted, and the name put right again, all that the topic still held came a second time."""
    world = made()
    before = len(world.journal)
    world.topic, world.topic_id = "other", "other id"
    if not offsets:
        world.named = None
    again = RewindRequest({0: 0}, None, RewindConsent())

    for refused in (
        lambda: accepted(world),
        lambda: steps.rewind(world, again, "_block", lambda: AUTHOR),
    ):
        with pytest.raises(ConfigError, match="is of topic 'source', and source"):
            refused()

    assert len(world.journal) == before
    assert "is of topic 'source'" in world.stops()
    world.topic, world.topic_id, world.named = histories.SOURCE, histories.TOPIC_ID, "as committed"
    assert world.stops() == ""


def test_without_run_nothing_changes() -> None:
    world = made()
    world.named = None
    before = len(world.journal)

    assert accepted(world, run=False)[0].kinds == ("offsets",)
    assert len(world.journal) == before


@pytest.mark.parametrize("seed", range(8))
def test_retention_that_passed_unread_messages(seed: int) -> None:
    world = made(seed)
    world.log_start = world.floor + 2
    world._end = max(world._end, world.log_start)
    world.messages = [m for m in world.messages if m[0] >= world.log_start]
    assert "were never read and are gone" in world.stops()

    (note,) = accepted(world)

    assert (note.kinds, note.floor) == (("retention",), world.log_start)
    goes_on(world)
    world.settle()
    world.load()
    contents = world.contents()
    assert all(contents[offset] == 1 for offset, _ in world.messages)


@pytest.mark.parametrize("seed", range(8))
def test_offsets_that_were_moved_go_back_to_the_journals_end(seed: int) -> None:
    for named in (None, (3, ""), (10**6, None)):
        world = made(seed)
        world.named = named

        (note,) = accepted(world)

        assert (note.kinds, note.floor) == (("offsets",), note.before)
        goes_on(world)
        world.settle()
        world.load()
        assert world.contents() == world.everything()


def test_a_source_topic_made_anew() -> None:
    world = made()
    world.topic_id, world.named = "another", None
    assert "created again" in world.stops()
    old = {block.id for block in world.blocks()}
    world.messages = []
    world._source, world._end = [], 0

    (note,) = accepted(world)

    assert (note.kinds, note.floor) == (("topic",), 0)
    goes_on(world)
    new = [block.id for block in world.blocks() if block.id not in old]
    assert new
    assert all(":1:" in name for name in new)
    assert world.journal[-1][1].source_topic_id == "another"


def test_a_log_that_lost_its_end_needs_a_persons_word() -> None:
    world = made()
    world._end = world.floor - 5
    world.messages = [m for m in world.messages if m[0] < world._end]

    with pytest.raises(ConfigError, match="give that offset with --from"):
        accepted(world)
    with pytest.raises(ConfigError, match="reaches from"):
        accepted(world, world._end + 1)
    (note,) = accepted(world, world._end - 1)

    assert (note.kinds, note.floor) == (("truncated",), world._end - 1)
    goes_on(world)


def test_a_log_that_lost_its_end_and_has_grown_again() -> None:
    """Its bounds look as ever: the leader knows where the epoch that was read ends."""
    world = made()
    end = world.floor - 5
    world.lose_end(end, new=30)
    assert world._end > world.floor

    with pytest.raises(ConfigError, match="lost its end and has grown again") as refused:
        accepted(world)
    assert f"--from {end} is right" in refused.value.next_step
    with pytest.raises(ConfigError, match="would be passed over"):
        accepted(world, end + 1)
    with pytest.raises(ContractBroken, match="has grown again"):
        steps.rewind(world, RewindRequest({0: 0}, None, RewindConsent()), "_block", lambda: AUTHOR)
    (note,) = accepted(world, end)

    assert (note.kinds, note.floor) == (("truncated",), end)
    goes_on(world)
    world.settle()
    assert set(read_once(world, end).values()) == {1}


def test_a_leader_that_does_not_know_the_epoch() -> None:
    """It has not said that anything was lost: who knows that the log is whole goes on there."""
    world = made()
    before, marks = world.floor, {m.table: m.offset for m in world.journal[-1][1].marks}
    reached = max([before, *marks.values()])
    world.lose_end(world._end, new=30)
    world.lost_end = -1

    with pytest.raises(ConfigError, match="cannot say whether") as refused:
        accepted(world)
    assert f"--from {reached} goes on" in refused.value.next_step
    with pytest.raises(ConfigError, match="would be passed over"):
        accepted(world, reached + 1)
    with pytest.raises(ContractBroken, match="cannot say whether"):
        steps.rewind(world, RewindRequest({0: 0}, None, RewindConsent()), "_block", lambda: AUTHOR)
    (note,) = accepted(world, reached)

    assert (note.kinds, note.floor, note.marks) == (("epoch",), before, marks)
    goes_on(world)
    world.settle()
    assert set(read_once(world, world._end).values()) == {1}


def test_a_leader_that_does_not_know_the_epoch_of_a_log_that_lost_its_end() -> None:
    world = made()
    end = world.floor - 5
    world.lose_end(end, new=30)
    world.lost_end = -1

    (note,) = accepted(world, end)

    assert (note.kinds, note.floor) == (("truncated",), end)
    goes_on(world)
    world.settle()
    assert set(read_once(world, end).values()) == {1}


@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_does_not_know_the_epoch_of_a_log_that_lost_its_beginning(
    seed: int, beyond: int
) -> None:
    """Behind all that was read its epoch does not matter; at its end it still does."""
    world = made(seed)
    reached = max([world.floor, *(m.offset for m in world.journal[-1][1].marks)])
    world.lose_end(world._end, new=30)
    world.lost_end, world.log_start = -1, reached + beyond
    world.messages = [m for m in world.messages if m[0] >= world.log_start]
    if not beyond:
        with pytest.raises(ConfigError, match="cannot say whether"):
            accepted(world)
    with pytest.raises(ConfigError, match="leave out --from" if beyond else "would be passed"):
        accepted(world, reached + 3)

    (note,) = accepted(world, None if beyond else reached)

    assert ("epoch" in note.kinds) == (not beyond)
    assert note.floor == world.log_start
    goes_on(world)
    world.settle()
    assert set(read_once(world, world._end).values()) == {1}


def cut_before_a_mark(seed: int, new: int) -> tuple[World, int]:
    """The log ends between the floor and the greatest mark, and so many messages came since."""
    world = made(seed)
    while not (marks := [m.offset for m in world.journal[-1][1].marks]) or (
        max(marks) < world.floor + 4
    ):
        world.relay(1)
    end = (world.floor + max(marks)) // 2
    world.lose_end(end, new)
    return world, end


@pytest.mark.parametrize("new", [0, 60])
@pytest.mark.parametrize("seed", range(8))
def test_a_log_that_lost_its_end_before_a_mark_loses_no_message_and_doubles_none(
    seed: int, new: int
) -> None:
    """What is left of the log is in blocks up to the marks; what came since is in none."""
    world, end = cut_before_a_mark(seed, new)
    before = {mark.table: mark.offset for mark in world.journal[-1][1].marks}
    floor = world.floor
    if not new:
        assert "lost records" in world.stops()

    with pytest.raises(ConfigError, match="are in blocks"):
        accepted(world)
    (note,) = accepted(world, end)

    assert (note.kinds, note.floor) == (("truncated",), floor)
    assert note.marks == {table: min(mark, end) for table, mark in before.items()}
    goes_on(world)
    world.settle()
    assert set(read_once(world, end).values()) == {1}
    with pytest.raises(ConfigError, match="the journal no longer says"):
        steps.rewind(
            world, RewindRequest({0: end - 1}, None, RewindConsent()), "_block", lambda: AUTHOR
        )


def test_a_log_that_lost_its_end_and_its_beginning() -> None:
    """Nothing that was read is left: all that is there is new."""
    world = made()
    world.lose_end(world.floor - 5, new=40)
    world.log_start = start = world.floor + 3
    world.messages = [m for m in world.messages if m[0] >= start]

    (note,) = accepted(world, start)

    assert (note.kinds, note.floor) == (("truncated", "retention"), start)
    goes_on(world)


def read_once(world: World, end: int) -> Counter[int]:
    """How often each message of the present log is in a block or dead letter.

    Those from `end` on only in what was sealed since the accept, for offsets mean others there.
    """
    found = Counter(dict.fromkeys((offset for offset, _ in world.messages), 0))
    since = False
    for _, commit in world.journal:
        since |= commit.HasField("accept")
        for one in stretches(commit):
            within = world._between(one.table, one.first, one.next)
            found.update(offset for offset in within if since or offset < end)
    return found


def test_after_a_topic_made_anew_no_rewind_goes_before_it() -> None:
    world = made()
    world.topic_id, world.named = "another", None
    world.messages, world._source, world._end = [], [], 0
    old = {block.id for block in world.blocks()}
    world.load()
    accepted(world)
    world.relay(10)
    world.load()

    done = steps.rewind(
        world, RewindRequest({0: 0}, None, RewindConsent()), "_block", lambda: AUTHOR
    )

    assert done.partitions == {0: min(o for o, _ in world.messages)}
    assert all(world.rows[name] for name in old)


def test_an_unfinished_rewind_comes_first() -> None:
    world = made()
    world.crash_at = 5
    with pytest.raises(Crash):
        steps.rewind(world, RewindRequest({0: 0}, None, RewindConsent()), "_block", lambda: AUTHOR)
    assert world.journal[-1][1].HasField("rewind")

    with pytest.raises(ConfigError, match="a rewind was begun"):
        accepted(world)


def test_a_journal_that_lost_records_cannot_be_accepted() -> None:
    world = made()
    world.journal = world.journal[:-3]

    with pytest.raises(ContractBroken, match="the journal ends before it"):
        accepted(world)

    world.journal = []
    with pytest.raises(ContractBroken, match="has no record"):
        accepted(world)


def test_a_partition_that_nobody_has_read_is_no_loss() -> None:
    world = World(0)
    assert (accepted(world), world.journal) == ([], [])
    again = RewindRequest({0: 0}, None, RewindConsent())
    assert not steps.ready(world, world.look({}), again, "_block").courses


def test_a_past_that_is_gone_is_not_taken_for_none() -> None:
    """Offsets expired and retention emptied the journal while no relay ran for a month.

    Red before: a relay stopped and named `relay accept`, which said that all agrees.
    """
    world = made()
    world.journal_start, world.journal, world.named = world.journal[-1][0] + 2, [], None
    again = RewindRequest({0: 0}, None, RewindConsent())

    for refused in (
        lambda: accepted(world),
        lambda: steps.rewind(world, again, "_block", lambda: AUTHOR),
    ):
        with pytest.raises(ContractBroken, match=r"no committed offset, .* no record") as stopped:
            refused()
        assert f"first {world.journal_start} offsets were deleted" in stopped.value.message
        assert "begin under a new app name" in stopped.value.next_step
    assert world.journal == []


def test_killed_at_any_step_it_happened_or_not() -> None:
    for crash_at in range(5):
        world = made()
        world.log_start = world.floor + 2
        world.crash_at = crash_at
        with pytest.raises(Crash):
            accepted(world)
        happened = world.journal[-1][1].HasField("accept")
        assert (world.stops() == "") == happened

        assert bool(accepted(world)) != happened
        assert sum(c.HasField("accept") for _, c in world.journal) == 1
        goes_on(world)
