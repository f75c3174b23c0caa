"""The loader's process around tests/loader/model.py's attempts, and people who set ClickHouse back.

A process begins where ledger and checkpoint say (loader.journal.begin_plan, its real decision),
asks of which block the ledger may have lost something (loader.core.positions, the real one), makes
attempts at one block, saves the position in the ledger and commits Spark's checkpoint; it may die
between any two of these. A person makes a backup, of the ledger and of the table, and puts it back
later, with or without the checkpoint; or loses the ledger.

What is judged is what is in the table in the end, by the model's own count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from loader.core import plan
from loader.core.entries import claims
from loader.core.positions import Noted, Unsure
from loader.journal import begin_plan
from loader.journal.checkpoint import CheckpointPositions
from relay.errors import ContractBroken
from tests.loader import model
from tests.loader.model import Guards, Loader, Table, Violation, World, replace

JOURNAL = "J"


@dataclass(frozen=True)
class Scenario:
    """What people do.

    Attributes:
        backup: how ledger and table are copied: "stopped", no loader runs and nothing flies;
            "ledger first", and the table any time later; "table first".
        lost: what is put back, or emptied: "both", the "ledger" alone, or it is "emptied".
        how: the table is put back: made "anew", or "truncated" and filled.
        running: the loader is not stopped for it.
        flying: a table is emptied while an INSERT into it runs.
        later: the block is sealed after a loader has run, so that ledger and checkpoint have
            their first position.
        waits: the block has waited in the ledger since before that position, without a claim, as
            what was left out of another; each process tries it, as a person says.
    """

    backup: Literal["stopped", "ledger first", "table first"] = "stopped"
    lost: Literal["both", "ledger", "emptied"] = "both"
    how: Literal["anew", "truncated"] = "anew"
    running: bool = False
    flying: bool = False
    later: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Around:
    """What the design relies on; a negative control takes one away."""

    ledger_counts: bool = True  # and not the checkpoint, where a loader begins
    asks: bool = True  # of blocks of which the ledger may have lost something
    agreeing: bool = True  # of those that wait, also where all positions agree
    planned: bool = True  # what the checkpoint planned may have been done
    saved: bool = True  # a position is saved only where the ledger still has the one before
    within: Guards = field(default_factory=Guards)


class Kept(NamedTuple):
    """What is in ClickHouse of the block, or was when a backup was made; None: not copied yet."""

    entries: tuple[plan.Entry, ...] | None = None
    position: int | None = None
    unsure: Unsure | None = None
    copies: tuple[int, ...] | None = None


class Process(NamedTuple):
    """A loader that runs: where it is, and what it knew when it began."""

    at: Literal["look", "try", "save", "commit", "check"]
    position: int
    unsure: Unsure


class State(NamedTuple):
    """Everything; the block's record is the first of its journal."""

    world: World
    starts: int  # processes that may still begin
    looks: int  # times that a process may look at the block again
    position: int | None = None
    unsure: Unsure | None = None
    checkpoint: tuple[int, int] | None = None  # committed, planned
    process: Process | None = None
    backup: Kept = Kept()
    restored: bool = False


def begin(
    table: Table, scenario: Scenario, *, starts: int, looks: int, faults: int, others: int
) -> State:
    """No loader runs, and none has met the block."""
    idle = Loader(None, plan.Done("retry"), 0, driven=True)
    steps = table.parts * (2 if table.viewed else 1)
    world = World((idle,), faults, others, copies=(0,) * steps)
    if scenario.waits:
        world = replace(world, ledger=(plan.Entry(plan.PARKED, 1, "of the block it came in"),))
        return State(world, starts, looks, position=1, checkpoint=(1, 1))
    if scenario.later:
        return State(world, starts, looks, position=0, checkpoint=(0, 0))
    return State(world, starts, looks)


def _started(state: State, table: Table, around: Around, *, lost: bool = False) -> State:
    """A process begins; raises ContractBroken where a person has to decide."""
    noted = Noted(
        {} if state.position is None else {(JOURNAL, 0): state.position},
        {} if state.unsure is None else {(JOURNAL, 0): state.unsure},
    )
    found = None
    if state.checkpoint is not None:
        done, planned = state.checkpoint
        found = CheckpointPositions(JOURNAL, {0: done}, {0: planned if around.planned else done})
    facts = begin_plan.StartFacts("app", "ledger", JOURNAL, noted, {0: (0, 1)}, found, "here", lost)
    begun = begin_plan.decide(facts)
    position = begun.positions[0]
    if not around.ledger_counts and found is not None:
        position = found.offsets[0]
    unsure = begun.unsure.get(0, Unsure(0))
    checkpoint = None if begun.aside else state.checkpoint
    state = replace(state, position=position, unsure=unsure if begun.ends else state.unsure)
    entries = state.world.ledger
    process = Process("look", position, unsure)
    seen = begun.ends or (around.agreeing and _among(state.world, table, process))
    if seen and around.asks and _waits(entries) and begin_plan.forgot(claims(entries), begun.why):
        state = _doubted(state, lost=begun.why == "lost")
    return replace(state, starts=state.starts - 1, process=process, checkpoint=checkpoint)


def _waits(entries: tuple[plan.Entry, ...]) -> bool:
    """As loader.clickhouse.ledger.Ledger.waiting: also while it is tried again."""
    states = {one.state for one in entries}
    return bool(states & {plan.PARKED, plan.ASIDE}) and not states & set(plan.FINAL)


def _doubted(state: State, *, lost: bool) -> State:
    ledger = (*state.world.ledger, plan.doubt(model.ROWS, lost=lost))
    return replace(state, world=replace(state.world, ledger=ledger))


def _looks(state: State, table: Table, scenario: Scenario, around: Around) -> State:
    """The process plans a batch, and asks the ledger what it knows of the block."""
    process, world = state.process, state.world
    assert process is not None
    done = 0 if state.checkpoint is None else state.checkpoint[0]
    state = replace(state, checkpoint=(done, 1))
    there = state.position is not None and state.position >= process.position
    if not there:
        return replace(state, process=None)  # ClickHouse went back under it
    if scenario.waits and _waits(world.ledger):
        return _tries(state, table, human="retry")
    if process.position > 0 or plan.settled(world.ledger) is not None:
        return replace(state, process=replace(process, at="save"))
    if process.unsure.asks(0, world.ledger) and around.asks and _among(world, table, process):
        state = _doubted(state, lost=process.unsure.lost > 0)
    return _tries(state, table, new=not state.world.ledger)


def _among(world: World, table: Table, process: Process) -> bool:
    """As loader.clickhouse.forgotten_blocks.Forgotten.among."""
    if world.flying or table.hidden:
        return True
    nature = table.nature
    counted = sum(world.copies[: table.parts]) if table.stamped and not table.expires else 0
    if nature.is_countable and (table.stamped or not any(world.copies)):
        return counted > 0
    if process.unsure.lost:
        return True
    return counted > 0 or (table.logged and world.sent)


def _tries(
    state: State, table: Table, *, new: bool = False, human: plan.Human = "nothing"
) -> State:
    world, process = state.world, state.process
    assert process is not None
    loader = world.loaders[0]
    run, effect = plan.start(
        f"c{loader.made}", table.total(0), stamped=table.stamped, human=human, isolates=True
    )
    trying = replace(loader, run=run, effect=effect, made=loader.made + 1, waiting=False)
    world = model._with(world, 0, trying)
    if new:  # the look is taken for the first reading
        world = model._answer(world, 0, (), table)
    return replace(state, world=world, process=replace(process, at="try"))


def _dead(state: State) -> State:
    """Its process ended; what flies goes on without it."""
    world = state.world
    orphans = tuple(replace(one, owner=-1) for one in world.flying)
    (loader,) = world.loaders
    over = replace(loader, run=None, effect=plan.Done("retry"), waiting=False)
    return replace(state, process=None, world=replace(world, flying=orphans, loaders=(over,)))


def _goes_on(state: State, table: Table, scenario: Scenario, around: Around) -> Iterator[State]:
    """What the process may do next."""
    process, world = state.process, state.world
    assert process is not None
    match process.at:
        case "look":
            if state.looks:
                yield _looks(replace(state, looks=state.looks - 1), table, scenario, around)
        case "try":
            (loader,) = world.loaders
            if loader.run is not None:
                for after in model.successors(world, table, around.within):
                    yield replace(state, world=after)
                return
            assert isinstance(loader.effect, plan.Done)
            over = loader.effect.outcome != "retry"
            yield replace(state, process=replace(process, at="save" if over else "look"))
        case "save":
            position = state.position
            if not around.saved or (position is not None and position >= process.position):
                position = 1
            yield replace(state, position=position, process=replace(process, at="commit"))
        case "commit":
            yield replace(state, checkpoint=(1, 1), process=replace(process, at="check"))
        case "check":
            yield replace(state, process=None)


def successors(state: State, table: Table, scenario: Scenario, around: Around) -> Iterator[State]:
    """Every state that one more event leads to."""
    if state.process is not None:
        yield from _goes_on(state, table, scenario, around)
        yield _dead(state)
    elif state.starts:
        try:
            yield _started(state, table, around)
        except ContractBroken:
            yield _started(state, table, around, lost=True)
    if state.process is None or state.process.at != "try":  # else the process' steps have them
        for after in model._statements(state.world, table, around.within):
            yield replace(state, world=after)
    yield from _people(state, scenario)


def _people(state: State, scenario: Scenario) -> Iterator[State]:
    stopped = state.process is None and not state.world.flying
    kept = state.backup
    if scenario.lost != "emptied" and not state.restored:
        of_ledger = replace(
            kept, entries=state.world.ledger, position=state.position, unsure=state.unsure
        )
        copies = state.world.copies
        if scenario.backup == "stopped" and kept.copies is None and stopped:
            yield replace(state, backup=replace(of_ledger, copies=copies))
        first, second = kept.entries is None, kept.copies is None
        if scenario.backup == "ledger first":
            if first:
                yield replace(state, backup=of_ledger)
            elif second:
                yield replace(state, backup=replace(kept, copies=copies))
        if scenario.backup == "table first":
            if second:
                yield replace(state, backup=replace(kept, copies=copies))
            elif first:
                yield replace(state, backup=of_ledger)
    if not state.restored and _may_be_set_back(state, scenario):
        yield from _set_back(state, scenario)


def _may_be_set_back(state: State, scenario: Scenario) -> bool:
    """As the document `backup` says: no INSERT runs into a table that is emptied.

    Under a running loader only where the ledger's position goes back, which the loader notices.
    """
    if scenario.how == "truncated" and state.world.flying and not scenario.flying:
        return False
    if state.process is None:
        return True
    position = -1 if state.backup.position is None else state.backup.position
    return scenario.running and position < state.process.position


def _set_back(state: State, scenario: Scenario) -> Iterator[State]:
    kept, world = state.backup, state.world
    if scenario.lost == "emptied":
        world = replace(world, ledger=())
        state = replace(state, world=world, position=None, unsure=None)
    elif kept.entries is None or kept.copies is None:
        return
    else:
        world = replace(world, ledger=kept.entries)
        if scenario.lost == "both":
            world = _refilled(world, kept.copies, scenario)
        state = replace(state, world=world, position=kept.position, unsure=kept.unsure)
    state = replace(state, restored=True, backup=Kept())
    yield state
    yield replace(state, checkpoint=None)


def _refilled(world: World, copies: tuple[int, ...], scenario: Scenario) -> World:
    """The table with the rows of the backup, and no token of before."""
    claimed = any(one.state == plan.PREPARED for one in world.ledger)
    made = world.made if any(copies) else frozenset[int]()
    world = replace(
        world, copies=copies, tokens=(), there=False, stays=False, dropped=claimed, made=made
    )
    if scenario.how == "anew":  # what flies goes down with the table; its parts count from 1 again
        orphans = tuple(replace(one, passes=False, owner=-1) for one in world.flying)
        return replace(world, flying=orphans, counter=sum(copies))
    return replace(world, counter=world.counter + 1)


def search(
    table: Table, scenario: Scenario, around: Around = Around(), **bounds: int
) -> tuple[int, set[str]]:
    """Visit every reachable state; return how many, and how the block ended.

    Raises:
        Violation: rows doubled, lost, or no end.
    """
    start = begin(table, scenario, **({"starts": 2, "looks": 3, "faults": 1, "others": 0} | bounds))
    model.forget()
    seen, stack, endings = {start}, [start], set[str]()
    while stack:
        state = stack.pop()
        if state.process is None and not state.world.flying:
            endings.add(_finish(state, table, scenario, around))
        for follower in successors(state, table, scenario, around):
            known = len(seen)
            seen.add(follower)
            if len(seen) > known:
                stack.append(follower)
    return len(seen), endings


def _finish(state: State, table: Table, scenario: Scenario, around: Around) -> str:
    """One more process, undisturbed, must settle the block, rightly."""
    world = replace(state.world, faults=0, others=0)
    state = replace(state, world=world, starts=1, looks=3, backup=Kept(), restored=True)
    for _ in range(60):
        state, *_rest = successors(state, table, scenario, around)
        if state.process is None:
            break
    else:
        raise Violation(f"no end: {state}")
    last = plan.settled(state.world.ledger)
    copies = state.world.copies
    if last is not None and last.state == plan.PARKED:
        return plan.PARKED
    if 0 in copies or (max(copies) > 1 and not table.replaces):
        raise Violation(f"ended with copies {copies}, {last}")
    return "loaded"
