"""`python -m tests.bench rebalance`: how long rows stand still when a relay ends, comes or goes.

Receives a directory, a Load and rounds, gives figures. Rows come at a steady rate into every
partition, and each partition's committed floor is looked at all the time. A pause is the longest
time that one partition's floor stood still around what happened, which is never less than the age
at which blocks are sealed: so the longest one while nothing happens stands beside the others.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from relay.config.settings_file import load as settings_of
from relay.dev.stack import Stack
from relay.errors import Unavailable
from relay.operate.view.group import GroupReader
from tests.bench import config, contenders, rows, servers
from tests.bench import source as sources
from tests.bench.contenders import Process
from tests.bench.feed import Order
from tests.bench.figures import Figure
from tests.bench.live import Load

SESSION_SECONDS = 6.0
"""Of the relays here: who is gone for good is missed only then (as shipped after 45 s)."""
_TIMEOUTS = {"session_timeout_seconds": SESSION_SECONDS, "transaction_timeout_seconds": 5.0}
_TOPIC, _APP = "source", "moving"
_STAYS, _COMES = "stays", "comes"
_QUIET_SECONDS = 10.0
_MOVES = 2
"""So often each floor has to move under its new owner: it works, and not just once."""
_EVERY_SECONDS = 0.02
_LOOK_SECONDS = 0.2
"""Between two questions about the group's members."""
_PATIENCE_SECONDS = 120.0
_FEED_SECONDS = 3600.0  # it is ended with the last round

Progress = Callable[[str], None]


@dataclass(slots=True)
class Moves:
    """When each partition's floor was seen to move."""

    at: dict[int, list[float]] = field(default_factory=dict)
    _last: list[int] = field(default_factory=list)

    def look(self, now: float, floors: Sequence[int]) -> None:
        """What is committed now, by partition."""
        for partition, floor in enumerate(floors):
            seen = self.at.setdefault(partition, [])
            if not self._last or floor != self._last[partition]:
                seen.append(now)
        self._last = list(floors)

    def all_moved(self, since: float, times: int) -> bool:
        """Whether each floor did, so often, after that."""
        return all(sum(at > since for at in seen) >= times for seen in self.at.values())

    def pause(self, begin: float, end: float, times: int) -> float:
        """Seconds of the longest time in which one floor stood still.

        Args:
            begin: the last move before it counts.
            end: so many moves after it count.
            times: that.

        Raises:
            ValueError: a floor did not move before, or less often after.
        """
        return max(_longest(seen, begin, end, times) for seen in self.at.values())


def _longest(seen: Sequence[float], begin: float, end: float, times: int) -> float:
    before = [at for at in seen if at <= begin]
    after = [at for at in seen if at > end][:times]
    if not before or len(after) < times:
        raise ValueError("a floor has to move before and after what is measured")
    moved = [before[-1], *(at for at in seen if begin < at <= end), *after]
    return max(late - early for early, late in pairwise(moved))


def run(directory: Path, load: Load, runs: int, progress: Progress) -> list[Figure]:
    """`runs` rounds on one broker, under one feed."""
    with servers.started(directory, progress) as stack, ExitStack() as ending:
        rows.create_tables(servers.client(stack), load.shape)
        sources.create_topics(stack.bootstrap, [_TOPIC], load.partitions)
        order = Order(
            *(stack.bootstrap, _TOPIC, load.shape, load.partitions),
            *(load.rate, load.per_message, _FEED_SECONDS),
        )
        feed = contenders.feed(order.written(directory / "feed.json"), directory / "feed.log")
        feeding = ending.enter_context(Process(feed))
        scene = Scene(directory, stack, load, feeding, ending)
        pauses: dict[str, list[float]] = {}
        for turn in range(-1, runs):
            found = _round(scene)
            shown = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in found.items())
            progress(f"{f'round {turn + 1} of {runs}' if turn >= 0 else 'warming up'}: {shown}")
            for what, seconds in found.items() if turn >= 0 else ():
                pauses.setdefault(what, []).append(seconds)
    return figures(pauses)


def figures(pauses: Mapping[str, Sequence[float]]) -> list[Figure]:
    """Medians over the rounds.

    Args:
        pauses: seconds in each round, by what happened.
    """
    return [
        Figure(f"longest pause, {what}", statistics.median(seconds), "s", "lower")
        for what, seconds in pauses.items()
    ]


class Scene:
    """Relays of one app, and what they have committed.

    Args:
        feed: that writes the source topic.
        ending: ends what is started here.
    """

    def __init__(
        self, directory: Path, stack: Stack, load: Load, feed: Process, ending: ExitStack
    ) -> None:
        self._directory, self._ending = directory, ending
        self._partitions = load.partitions
        self._file = config.write(directory, _APP, stack, _TOPIC, load.block, relay=_TIMEOUTS)
        group = contenders.relay(self._file, _APP, directory / "unused.log").group
        self._committed = sources.CommittedOffsets(stack.bootstrap, group, _TOPIC, load.partitions)
        ending.callback(self._committed.close)
        self._group = GroupReader(settings_of(self._file))
        self._running = [feed]
        self._started = 0
        self.moves = Moves()

    def start(self, member: str) -> Process:
        """One more relay."""
        self._started += 1
        log = self._directory / f"{member}-{self._started}.log"
        process = Process(contenders.relay(self._file, _APP, log, member=member))
        self._ending.enter_context(process)
        self._running.append(process)
        return process

    def end(self, process: Process, *, kill: bool) -> None:
        """A relay, by SIGKILL or as a supervisor does; it is gone when this returns."""
        self._running.remove(process)
        if kill:
            process.kill()
            return
        process.ask_to_end()
        self._look_until(lambda: process.ended)
        process.has_not_failed()

    def settled(self, members: Sequence[str]) -> float:
        """When these had all partitions between them; each floor has moved since, and not once."""
        self._look_until(lambda: self._owned_by(members), _LOOK_SECONDS)
        shared = time.monotonic()
        self._look_until(lambda: self.moves.all_moved(shared, _MOVES))
        return shared

    def quiet(self, seconds: float) -> None:
        """Nothing happens for so long."""
        end = time.monotonic() + seconds
        self._look_until(lambda: time.monotonic() >= end)

    def _owned_by(self, members: Sequence[str]) -> bool:
        group = self._group.read()
        owners = {member.name for member in group.members if member.partitions}
        owned = sum(len(member.partitions) for member in group.members)
        return owners == set(members) and owned == self._partitions

    def _look_until(self, done: Callable[[], bool], every: float = 0.0) -> None:
        """Look at the floors until this says so, which is asked no more often than that."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        asked = 0.0
        while True:
            now = time.monotonic()
            if now - asked >= every:
                asked = now
                if done():
                    return
            if now > deadline:
                raise Unavailable(
                    f"the relays did not get where they should within {_PATIENCE_SECONDS:g} s",
                    f"their logs are in {self._directory}",
                )
            for process in self._running:
                process.still_runs()
            self.moves.look(now, self._committed.each())
            time.sleep(_EVERY_SECONDS)  # the sampling interval itself


def _round(scene: Scene) -> dict[str, float]:
    """All that may happen to relays, one after the other; none is left in the end."""
    found: dict[str, float] = {}

    def measure(what: str, happens: Callable[[], object], members: Sequence[str]) -> None:
        begin = time.monotonic()
        happens()
        end = scene.settled(members)
        found[what] = scene.moves.pause(begin, end, _MOVES)

    stays = scene.start(_STAYS)
    scene.settled([_STAYS])
    measure("nothing happens", lambda: scene.quiet(_QUIET_SECONDS), [_STAYS])

    def again(*, kill: bool) -> None:
        nonlocal stays
        scene.end(stays, kill=kill)
        stays = scene.start(_STAYS)

    measure("SIGTERM and started again", lambda: again(kill=False), [_STAYS])
    measure("SIGKILL and started again", lambda: again(kill=True), [_STAYS])
    comes = scene.start(_COMES)
    measure("a second relay comes", lambda: None, [_STAYS, _COMES])
    what = f"one of two is killed for good (session {SESSION_SECONDS:g} s)"
    measure(what, lambda: scene.end(comes, kill=True), [_STAYS])
    scene.end(stays, kill=False)
    return found
