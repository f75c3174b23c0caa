"""A marker that cannot be written, for want of a leader, keeps a relay from its first id alone."""

from __future__ import annotations

from relay.core import effects as ef
from tests.model.kafka import Phase
from tests.model.records import JOURNAL
from tests.model.world import World, log

FIRST, SPARE = "app.relay.a", "app.relay.a#"


def test_it_goes_on_under_a_spare_one_and_each_message_is_in_one_block() -> None:
    world = World([log("x", "x")], marks_at_once=False)
    world.do(("boot", "a"))
    world.do(("move", 0, "a"))
    (uid,) = world.members
    member = world.members[uid]
    while not (member.todo and isinstance(member.todo[0], ef.Produce)):
        world.do(("go", uid))
    world.do(("fault", uid, "lost"))
    dark = next(iter(world.kafka.transactions[FIRST].logs))

    for _ in range(60):
        world.do(("go", uid))
        for tid, known in world.kafka.transactions.items():
            for key in sorted(known.unmarked):
                if (tid, key) != (FIRST, dark):
                    world.do(("mark", tid, key))
        world.check()

    assert world.kafka.transactions[FIRST].phase is Phase.PREPARED
    assert world.kafka.transactions[SPARE].phase is Phase.COMPLETE
    committed = world.kafka.log((JOURNAL, 0)).committed(0)
    assert sum(len(record.results) for _, record in committed) == 1

    world.do(("mark", FIRST, dark))
    world.check()
    assert world.kafka.offsets[0].floor == 2
