"""What can be accepted, what not, and that relays go on from there."""

from __future__ import annotations

import pytest

from relay.errors import ConfigError, ContractBroken
from relay.operate.rewind import accept_steps
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.records import RewindAuthor
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
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
