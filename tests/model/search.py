"""Two ways through the model: every short schedule, and long random ones from a seed.

Receives a World (or the settings to make one), gives the number of states or steps gone
through; an anomaly comes with the schedule that leads to it.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.core.state import Fencing
from tests.model.judge import partitions
from tests.model.quiet import settle as come_to_rest
from tests.model.records import SOURCE
from tests.model.world import Action, AnomalyError, World, limits, log

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.model.member import Guards


@dataclass(frozen=True, slots=True)
class Finding:
    """An anomaly and how to get there."""

    what: str
    schedule: tuple[Action, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {i:3d} {action}" for i, action in enumerate(self.schedule))
        return f"{self.what}\n{steps}"


@dataclass(slots=True)
class Searched:
    """What a search went through."""

    states: int = 0
    steps: int = 0
    deepest: int = 0
    complete: bool = True
    finding: Finding | None = None


def search(
    world: World,
    *,
    faults: int,
    kinds: Collection[str],
    depth: int,
    seconds: float,
    settle: bool = False,
) -> Searched:
    """All schedules of at most `depth` actions with at most `faults` of the given kinds.

    Breadth first, so the first finding has the shortest schedule. A world reached before
    with as many faults left is not gone through again.

    Args:
        settle: also let every world come to rest, and demand that nothing is stuck.
        seconds: of processor time, then give up; `complete` says so.
    """
    result = Searched()
    seen = {(world.key(), faults)}
    # A schedule is a linked list: (schedule before, action).
    queue: deque[tuple[World, int, int, Any]] = deque([(world, faults, 0, None)])
    deadline = time.process_time() + seconds
    while queue:
        now, left, deep, path = queue.popleft()
        result.deepest = max(result.deepest, deep)
        if time.process_time() > deadline:
            result.complete = False
            break
        if deep == depth:
            continue
        options = [(action, left) for action in now.turns()]
        if left:
            options += [(a, left - 1) for a in now.faults() if a[0] in kinds]
        for action, then_left in options:
            then = now.clone(action[1] if isinstance(action[1], str) else "")
            result.steps += 1
            try:
                then.do(action)
                key = (then.key(), then_left)
                if key in seen:
                    continue
                seen.add(key)
                then.check()
                if settle:
                    come_to_rest(then.clone())
            except AnomalyError as error:
                result.finding = Finding(str(error), _schedule((path, action)))
                result.states = len(seen)
                return result
            queue.append((then, then_left, deep + 1, (path, action)))
    result.states = len(seen)
    return result


def _schedule(path: Any) -> tuple[Action, ...]:
    actions: list[Action] = []
    while path is not None:
        path, action = path
        actions.append(action)
    return tuple(reversed(actions))


WEIGHTS = {
    "fault": 1.0,
    "crash": 0.15,
    "boot": 0.3,
    "revoke": 0.3,
    "rejoin": 0.5,
    "stop": 0.4,
    "move": 0.3,
    "deliver": 4.0,
    "timeout": 0.2,
    "reload": 0.1,
}
"""How often a fault is chosen beside another, once it is a fault's turn."""


@dataclass(frozen=True, slots=True)
class Walk:
    """How random histories are made: `histories` of `steps` each, from `seed` on."""

    seed: int
    histories: int
    steps: int = 300
    guards: Guards | None = None
    fencing: Fencing = Fencing.GROUP
    ledger: bool = True


def walk(plan: Walk, progress: Callable[[int, int], None] | None = None) -> Searched:
    """Random histories; each ends in quiet and is judged. Stops at the first finding."""
    result = Searched()
    for index in range(plan.histories):
        seed = plan.seed + index
        finding, steps = one_history(seed, plan)
        result.steps += steps
        result.states += 1
        if progress:
            progress(seed, result.steps)
        if finding is not None:
            result.finding = Finding(f"seed {seed}: {finding.what}", finding.schedule)
            return result
    return result


def one_history(seed: int, plan: Walk) -> tuple[Finding | None, int]:
    """One history; the same for the same seed."""
    rng = random.Random(seed)
    world = make_world(rng, plan)
    fault_rate = rng.choice((0.02, 0.1, 0.3))
    sleepy: str | None = None
    done: list[Action] = []
    try:
        for _ in range(plan.steps):
            if rng.random() < 0.02:  # somebody pauses, somebody wakes
                sleepy = rng.choice((None, *world.members))
            action = _choose(rng, world, fault_rate, sleepy)
            done.append(action)
            world.do(action)
            if action[0] == "deliver":  # what was torn apart is seen at once
                world.check()
        world.check()
        done.append(("settle",))
        come_to_rest(world)
    except AnomalyError as error:
        return Finding(str(error), tuple(done)), len(done)
    return None, len(done)


def make_world(rng: random.Random, plan: Walk) -> World:
    """Two partitions, two loaders, and limits that seal for every reason."""
    return World(
        [log(), log()],
        relay_limits=limits(
            max_rows=rng.choice((2, 3, 6)),
            max_bytes=rng.choice((30, 1_000)),
            max_age_ms=rng.choice((1, 50, 1_000)),
            max_per_second=rng.choice((1.0, 5.0, 1_000.0)),
            commit_interval_ms=rng.choice((0, 20)),
            max_buffer_bytes=rng.choice((60, 1_000)),
            max_reread=rng.choice((4, 8, 1_000)),
            flush_point_interval_ms=rng.choice((200, 100_000)),
            keepalive_ms=rng.choice((100, 100_000)),
            max_buffers=rng.choice((2, 100)),
            max_decoded_bytes=rng.choice((60, 3_000)),
        ),
        guards=plan.guards,
        fencing=plan.fencing,
        ledger=plan.ledger,
        marks_at_once=rng.random() < 0.5,
        loaders=2,
    )


def _choose(rng: random.Random, world: World, fault_rate: float, sleepy: str | None) -> Action:
    draw = rng.random()
    if draw < 0.06:
        return ("tick", rng.choice((1, 10, 60)))
    if draw < 0.2:
        partition = rng.choice(partitions(world.kafka))
        if len(world.kafka.log((SOURCE, partition)).entries) < 60:
            return ("append", partition, log(rng.choice(("x", "x", "y", "z", "x!", "y-", "|")))[0])
    if draw < 0.21:
        ready = [u for u, m in world.members.items() if m.booted and not m.todo]
        if ready:
            return ("schema", rng.choice(ready), rng.choice("xyz"))
    turns = [action for action in world.turns() if action[1] != sleepy]
    if not turns or rng.random() < fault_rate:
        faults = world.faults()
        return rng.choices(faults, [WEIGHTS[action[0]] for action in faults])[0]
    return rng.choice(turns)
