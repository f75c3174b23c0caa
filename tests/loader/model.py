"""A small ClickHouse and loaders that run loader.core.plan's real steps, for exhaustive search.

One block, of one or two parts (table partitions), and maybe a view behind the table; a table with a
finite deduplication window and other writers; rows that expire, are hidden from the loader's user,
or are deleted by a person; a person who alters the window, and takes it back, or who begins a
parked block anew, by a DELETE that takes its time; servers that ignore tokens, that keep a record
of statements or none, and replicas whose ledger lags; statements that pass their condition first
and land later, or never; answers that get lost; loaders that crash, pause at any effect for as long
as they like, and run side by side. `search` visits every reachable state.

What is judged is not what the loader counts: each part's landings are counted by the model itself,
those of the view too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as replace_entry
from functools import cache
from typing import Any, NamedTuple, TypeVar

from loader.core import plan, set_aside_plan
from loader.core.table_rules import Nature, Window

ROWS = 10
ANY = 99
"""How many parts others may insert while a statement runs that relies on no window."""
LEFT = 1
"""Version of the rows without the message that a table rejects."""


@dataclass(frozen=True)
class Guards:
    """What the design relies on; a negative control takes one away."""

    ledger: bool = True  # rows of other attempts are seen at all
    prepare: bool = True  # claims are seen by others
    condition: bool = True  # INSERT asks the ledger
    running: bool = True  # a statement that still runs is waited for, on whichever replica
    limit: bool = True  # INSERT asks the insert counter too
    others: bool = True  # no more than half a window is inserted while one repeat runs
    told: bool = True  # 0 written rows are told from the block's
    fewer: bool = True  # what makes rows vanish, or hides them, is known
    views: bool = True  # views behind the table are known
    bounded: bool = True  # a counter that may have gone back bounds nothing
    sent: bool = True  # claims say whether blocks go together
    over: bool = True  # an own INSERT that was refused may have left parts
    stays: bool = True  # whether what a statement wrote is still there is asked
    dropped: bool = True  # that parts are gone, by a table that was made anew, is known
    fences: bool = True  # whoever looks for dead letters takes their producer's id over
    letters: bool = True  # claims say that they are for dead letters
    remembers: bool = True  # claims say whether the table remembered tokens
    altered: bool = True  # that a table was altered since the oldest claim is known
    same: bool = True  # a repeat asks whether the table was altered since it was looked at
    confirmed: bool = True  # that Keeper may not have what is shown is known
    fetched: bool = True  # that the replica that is asked has not fetched all is known
    unanswered: bool = True  # that an INSERT ended without Keeper's answer is known
    emptied: bool = True  # that rows were deleted since the oldest claim is known
    restarted: bool = True  # that the server was started since the oldest claim is known
    anew: bool = True  # nobody repeats under a token that may be there without its part
    marked: bool = True  # a mark whose claim holds no more is told from one that was written


@dataclass(frozen=True)
class Table:
    stamped: bool = True
    window: int = 1
    altered: int = 1  # the window that a person gives it, and takes back
    parts: int = 1
    sizes: tuple[int, ...] = ()  # rows of a part, by each loader's version of the transform
    expires: bool = False  # rows are gone as soon as they have landed
    hidden: bool = False  # the loader's user does not see them
    viewed: bool = False  # a view takes its rows from the table, in a step of its own
    replaces: bool = False  # ReplacingMergeTree with a version: a repeat changes nothing
    logged: bool = False  # the server keeps a record of statements
    bounded: bool = True  # the insert counter does not go back
    lags: bool = False  # a replica may not see the claim yet
    deaf: bool = False  # a version that ignores tokens
    rejects: bool = False  # a message of the last part is refused while the rule is there
    replicated: bool = False  # Keeper may not answer; the part is shown, whether it has it or not

    def rows(self, version: int, part: int = 0) -> int:
        """Of a part that this version made; the second one of a table that rejects leaves out."""
        if self.rejects:
            return ROWS - (version == LEFT and part == self.parts - 1)
        return self.sizes[version] if self.sizes else ROWS

    def total(self, version: int) -> int:
        """Rows of the block."""
        return sum(self.rows(version, part) for part in range(self.parts))

    def version(self, i: int) -> int:
        """Which one the loader has; the one that finishes has the first."""
        return i % len(self.sizes) if self.sizes else 0

    def named(self, version: int) -> str:
        """As the ledger has it."""
        return f"v{version}" if self.sizes or (self.rejects and version == LEFT) else ""

    @property
    def nature(self) -> Nature:
        """As loader.core.table_rules tells it, of the window that it began with."""
        return Nature(
            Window(self.window, None, "parts"),
            partitioned=self.parts > 1 or not self.bounded,
            vanish="rows expire" if self.expires else "rows merge" if self.replaces else "",
            views=("v",) if self.viewed else (),
            repeatable=self.replaces,
        )

    @property
    def goes_together(self) -> bool:
        """Whether the first claim's INSERT may be sent together with others."""
        return self.nature.is_countable and self.stamped

    def remembers(self, alterations: int) -> int:
        """How many tokens, after so many alterations."""
        return self.altered if alterations % 2 else self.window


class Loader(NamedTuple):
    run: plan.Run | None  # None: over
    effect: plan.Effect
    rounds: int  # attempts still allowed
    made: int = 0  # claims so far
    waiting: bool = False  # for the answer of a flying statement
    human: plan.Human = "nothing"  # what a person said, whose word it carries out
    left: bool = False  # it leaves out the message that the table rejects
    driven: bool = False  # who began its attempt begins the next one, and not this model
    looked: int = 0  # alterations of the table when its attempt began


OVER = Loader(None, plan.Done("retry"), rounds=0)


class Statement(NamedTuple):
    owner: int  # loader that waits for the answer; -1: nobody does any more
    passes: bool
    claim: str = ""
    landed: int = 0  # parts, those of the view behind the table's
    version: int = 0  # that made its rows
    allowance: int = ANY  # parts that others may insert while it runs
    token: str = "block 1"
    wrote: bool = False
    refused: bool = False  # in the end, though parts before the last may have landed


class World(NamedTuple):
    loaders: tuple[Loader, ...]
    faults: int  # crashes and lost answers still to come
    others: int  # other writers' inserts still to come
    asides: int = 0  # times that a driver sets the block aside
    ledger: tuple[plan.Entry, ...] = ()
    deletes: int = 0  # of a person, still to come
    copies: tuple[int, ...] = (0,)  # landings of each part of the block; of the view's behind them
    unconfirmed: int = 0  # parts of the block that are shown, and Keeper does not have
    behind: bool = False  # the replica that is asked has not fetched them
    gone: bool = False  # a person has deleted the rows that were there
    deleted: bool = False  # a person has deleted something
    sent: bool = False  # a statement was begun
    written: str = ""  # claim of the last statement that finished and whose condition was true
    there: bool = False  # parts of it are where a statement wrote them
    stays: bool = False  # those that stand for the statement that finished
    dropped: bool = False  # parts of since the oldest claim are gone, with their tokens
    unclear: bool = False  # a statement wrote something and did not finish
    made: frozenset[int] = frozenset()  # versions that made the parts which are there
    counter: int = 0
    tokens: tuple[str, ...] = ()
    flying: tuple[Statement, ...] = ()
    rule: bool = False  # the table refuses a message now
    turns: int = 0  # times that a person makes the rule or drops it
    letters: int = 0  # how often the block's messages are dead letters
    writer: str = ""  # the claim whose producer has the transactional id of the dead letters
    ending: tuple[tuple[int, str], ...] = ()  # requests to commit letters: owner or -1, claim
    alters: int = 0  # of the window by a person, still to come
    altered: int = 0  # those that came
    claimed: int = -1  # alterations when the oldest claim was written; -1: there is none
    cleans: int = 0  # of a parked block by a person, who then has it inserted, still to come
    doomed: int = 0  # rows that are there until that person's DELETE is done
    kills: int = 0  # of the server, still to come
    killed: bool = False  # it was, since the oldest claim


Value = TypeVar("Value", bound=NamedTuple)


def replace(value: Value, **changes: Any) -> Value:
    """The same value with changes. States are named tuples, since the searches do little but this
    and hashing, and a dataclass takes four times as long for either."""
    return value._replace(**changes)


class Violation(AssertionError):
    """A state that must not be reachable."""


def begin(
    table: Table,
    *,
    loaders: int,
    rounds: int,
    faults: int,
    others: int,
    deletes: int = 0,
    human: plan.Human = "nothing",
    asides: int = 0,
    turns: int = 0,
    alters: int = 0,
    kills: int = 0,
    cleans: int = 0,
) -> World:
    """`human`: what the last of the loaders is told to do, with `cleans` once the block is parked;
    with `asides`, each of the others tries again what stands aside."""
    idle = Loader(None, plan.Done("retry"), rounds, human="retry" if asides else "nothing")
    all_of = (*(idle,) * (loaders - 1), replace(idle, human=human))
    steps = table.parts * (2 if table.viewed else 1)
    world = World(
        all_of,
        faults,
        others,
        asides,
        deletes=deletes,
        copies=(0,) * steps,
        rule=table.rejects,
        turns=turns,
        alters=alters,
        kills=kills,
        cleans=cleans,
    )
    for i in range(loaders - bool(cleans)):
        world = _restart(world, i, table)
    return world


def begin_left_out(
    humans: tuple[plan.Human, ...], *, rounds: int, faults: int, table: Table
) -> World:
    """A block of left out messages, that stands aside, and what each loader is told to do."""
    loaders = tuple(Loader(None, plan.Done("retry"), rounds, human=human) for human in humans)
    steps = table.parts * (2 if table.viewed else 1)
    aside = plan.Entry(plan.ASIDE, 1, "rest", rows=ROWS)
    world = World(loaders, faults, others=0, ledger=(aside,), copies=(0,) * steps)
    for i in range(len(humans)):
        world = _restart(world, i, table)
    return world


def _restart(world: World, i: int, table: Table) -> World:
    loader = world.loaders[i]
    if loader.driven:
        return _with(world, i, replace(loader, run=None, effect=plan.Done("retry"), waiting=False))
    # A finisher comes after all others, so its claims must not be named like theirs.
    claim = f"{i}-{loader.made}"
    human = loader.human
    rows = table.total(0)
    run, effect = plan.start(claim, rows, stamped=table.stamped, human=human, isolates=True)
    rounds, made = loader.rounds - 1, loader.made + 1
    again = Loader(run, effect, rounds, made, human=human, looked=world.altered)
    return _with(world, i, again)


def _with(world: World, i: int, loader: Loader) -> World:
    return replace(world, loaders=(*world.loaders[:i], loader, *world.loaders[i + 1 :]))


def _entries(world: World, claim: str, guards: Guards) -> tuple[plan.Entry, ...]:
    if guards.ledger and guards.prepare:
        return world.ledger
    return tuple(
        entry
        for entry in world.ledger
        if entry.claim == claim or (guards.ledger and entry.state != plan.PREPARED)
    )


@cache
def _step(run: plan.Run, answer: plan.Answer) -> tuple[plan.Run, plan.Effect]:
    """The real step; most attempts are in the same state, and hear the same, in many worlds."""
    return plan.step(run, answer)


def _answer(world: World, i: int, answer: plan.Answer, table: Table) -> World:
    loader = world.loaders[i]
    assert loader.run is not None
    run, effect = _step(loader.run, answer)
    if not isinstance(effect, plan.Done):
        return _with(world, i, replace(loader, run=run, effect=effect, waiting=False))
    if effect.outcome == "loaded":
        repeated = any(copies > 1 for copies in world.copies) and not table.replaces
        if 0 in world.copies or repeated:
            raise Violation(f"marked loaded with copies {world.copies}")
        _check_named(world, table)
    if effect.outcome in plan.FINAL and world.letters != (effect.outcome == plan.DEAD):
        raise Violation(f"{effect.outcome}, with {world.letters} dead letters")
    if effect.outcome == "retry" and loader.rounds > 0:
        return _restart(world, i, table)
    return _with(world, i, _over(loader, effect))


def _over(loader: Loader, effect: plan.Done) -> Loader:
    """A loader that does nothing any more, the same whatever it was and did: nothing asks for that,
    and what it did is in the world. One that is driven is asked, and goes on."""
    if loader.driven:
        return replace(loader, run=None, effect=effect, waiting=False)
    return OVER


def _check_named(world: World, table: Table) -> None:
    """The ledger says whose rows they are, and how many."""
    loaded = {(e.rows, e.transform) for e in world.ledger if e.state == plan.LOADED}
    (made,) = world.made or {0}
    if loaded != {(table.total(made), table.named(made))}:
        raise Violation(f"the ledger says {loaded or 'nothing'}, made by {made}")


def _carry_out(world: World, i: int, table: Table, guards: Guards) -> tuple[World, plan.Answer]:
    """Every effect but Insert takes hold at once."""
    loader = world.loaders[i]
    assert loader.run is not None
    claim = loader.run.claim
    entries = _entries(world, claim, guards)
    match loader.effect:
        case plan.ReadEntries():
            left = loader.run.at == "look" and any(e.left_out for e in entries)
            return _with(world, i, replace(loader, left=loader.left or left)), entries
        case plan.Isolate():
            if not world.rule:  # a person dropped it meanwhile
                return world, plan.Impossible("the table accepts each of its messages one by one")
            return _with(world, i, replace(loader, left=True)), plan.Ok()
        case plan.Claim(attempt, token):
            made = _made(loader, table, _version(loader, table, i))
            said = {"rows": made.rows, "transform": made.transform, "left_out": int(loader.left)}
            sent = _sent(loader, attempt, token, table, guards)
            if loader.human == "dead":  # its producer is there before
                sent = plan.DEAD_LETTERS if guards.letters else plan.ALONE
                world = replace(world, writer=claim)
            entry = plan.Entry(
                plan.PREPARED, attempt, claim, world.counter, table.stamped, "", **said, sent=sent
            )
            answer = made if made.transform else plan.Ok()
            claimed = world.altered if world.claimed < 0 else world.claimed
            return replace(world, ledger=(*world.ledger, entry), claimed=claimed), answer
        case plan.Settle(attempt, state, _, made_by):
            if not plan.holds(entries, claim):
                return world, plan.Ok() if guards.marked else plan.Marked()
            of = _last_claim(world, made_by or claim)
            entry = plan.Entry(state, attempt, claim, rows=of.rows, transform=of.transform)
            alone = [(one.state, one.claim) for one in entries] == [(plan.PREPARED, claim)]
            answer = plan.Marked() if loader.effect == plan.FIRST and alone else plan.Ok()
            return replace(world, ledger=(*world.ledger, entry)), answer
        case plan.Park(attempt, reason):
            entry = plan.Entry(plan.PARKED, attempt, claim, reason=reason)
            return replace(world, ledger=(*world.ledger, entry)), plan.Ok()
        case plan.AskLetters():
            if guards.fences:
                world = replace(world, writer=claim)
            return world, plan.LettersFound("written" if world.letters else "never")
        case plan.Ask():
            return world, _facts(world, loader, table, guards)
        case plan.AskRecord():
            return world, _record(world, table, guards)
    raise TypeError(loader.effect)


def _sent(loader: Loader, attempt: int, token: int, table: Table, guards: Guards) -> plan.Sent:
    """What a claim says of how its INSERT is sent."""
    if table.goes_together and attempt == 1 and guards.sent:
        return plan.TOGETHER
    if guards.remembers and not table.remembers(loader.looked):
        return plan.UNREMEMBERED
    return plan.say_alone(token)


def _facts(world: World, loader: Loader, table: Table, guards: Guards) -> plan.InsertFacts:
    run = loader.run
    assert run is not None
    if guards.running and world.flying:
        return plan.InsertFacts(running="it still runs")
    if len(world.made) > 1:
        raise Violation(f"parts made by {set(world.made)}")
    there = _landed(world, table) + ROWS * world.unconfirmed + world.doomed
    unseen = table.expires or table.hidden or world.gone or world.behind
    counted = 0 if unseen else there
    dropped = world.dropped and table.logged and guards.dropped
    removed = "removed" if world.deleted or dropped else ""
    fewer = "rows may be gone" if table.nature.vanish or table.hidden else removed
    bounded = (table.bounded or not guards.bounded) and not dropped
    bounded = bounded and 0 <= run.since <= world.counter
    altered = guards.altered and loader.looked > world.claimed >= 0
    emptied = guards.emptied and world.deleted
    bounded = bounded and not emptied
    return plan.InsertFacts(
        inserted=world.counter - run.since if bounded else None,
        margin=-1 if altered or emptied else table.remembers(loader.looked) // 2,
        newest=world.counter,
        counted=counted if table.stamped else None,
        fewer=fewer if guards.fewer else "",
        views=table.nature.views if guards.views else (),
        repeatable=table.replaces,
        one_step=table.nature.one_step or not guards.over,
        unconfirmed=_unconfirmed(world, guards),
        logs_tokens=guards.anew and not table.replicated and table.remembers(loader.looked) > 0,
        restarted=guards.restarted and world.killed,
        removed=removed,
    )


def _unconfirmed(world: World, guards: Guards) -> str:
    """Asked of a replica that shows rows of the block, and of one that does not."""
    if world.behind:
        return "to be fetched" if guards.fetched else ""
    return "to be checked" if world.unconfirmed and guards.confirmed else ""


def _landed(world: World, table: Table) -> int:
    """Rows of the block that are in the table to stay, apart from its views."""
    (made,) = world.made or {0}
    of_table = enumerate(world.copies[: table.parts])
    return sum(table.rows(made, part) * copies for part, copies in of_table)


def _last_claim(world: World, claim: str) -> plan.Entry:
    """Of its owner: the ones before were refused. None of it, where the ledger was set back."""
    of_owner = [e for e in world.ledger if e.claim == claim and e.state == plan.PREPARED]
    return of_owner[-1] if of_owner else plan.Entry(plan.PREPARED, 1, claim)


def _version(loader: Loader, table: Table, i: int) -> int:
    """Which one the loader's claim and INSERT are of."""
    return int(loader.left) if table.rejects else table.version(i)


def _record(world: World, table: Table, guards: Guards) -> plan.ServerRecord:
    if not table.logged:
        return plan.ServerRecord("unclear")
    if world.written:
        there = world.stays or not guards.stays
        return plan.ServerRecord("written" if there else "gone", world.written)
    return plan.ServerRecord("unclear" if world.unclear else "never")


def _made(loader: Loader, table: Table, version: int) -> plan.Made:
    """What a claim says of its rows."""
    assert loader.run is not None
    if loader.human in {"loaded", "discard", "dead"}:
        return plan.Made(loader.run.rows, plan.NOTHING_MADE)
    return plan.Made(table.total(version), table.named(version))


def _land(world: World, j: int, table: Table) -> World:
    """The next part of a statement, unless its token is remembered."""
    statement = world.flying[j]
    token = f"{statement.token}-{statement.landed}"
    wrote = statement.passes and (table.deaf or token not in world.tokens)
    if wrote:
        if any(entry.state == plan.DISCARDED for entry in world.ledger):
            raise Violation("rows came after the block was given up")
        if world.letters:
            raise Violation("rows of messages that are dead letters")
        world = _insert(world, token, table)
        copies = list(world.copies)
        copies[statement.landed] += 1
        if copies[statement.landed] > 1 and not table.replaces:
            raise Violation(f"rows doubled: copies {copies}")
        # Parts before the last are the same, whether the message is left out or not.
        same = table.rejects and statement.landed % table.parts < table.parts - 1
        made = world.made | (set() if same else {statement.version})
        if len(made) > 1:
            raise Violation(f"versions mixed: {set(made)}")
        world = replace(world, copies=tuple(copies), made=made, there=True)
    moved = replace(statement, landed=statement.landed + 1, wrote=statement.wrote or wrote)
    return replace(world, flying=(*world.flying[:j], moved, *world.flying[j + 1 :]))


def _wrote_letters(world: World, j: int, *, heard: bool, table: Table) -> World:
    """The brokers commit one's letters, unless another has taken the id over since."""
    owner, claim = world.ending[j]
    world = replace(world, ending=world.ending[:j] + world.ending[j + 1 :])
    fenced = world.writer != claim
    if not fenced:
        world = replace(world, letters=world.letters + 1)
        if world.letters > 1:
            raise Violation("dead letters doubled")
        if any(world.copies):
            raise Violation("dead letters of messages whose rows are in the table")
    if owner < 0:
        return world
    answer = plan.NoAnswer("fenced") if fenced else plan.LettersFound("written")
    return _answer(world, owner, answer if heard else plan.NoAnswer("answer lost"), table)


def _insert(world: World, token: str, table: Table) -> World:
    window = table.remembers(world.altered)
    tokens = (*world.tokens, token)[-window:] if window else ()
    return replace(world, tokens=tokens, counter=world.counter + 1)


def _ended(world: World, j: int, *, whole: bool) -> World:
    """The server is done with a statement: it finished, or it gave up in the middle."""
    statement = world.flying[j]
    world = replace(world, flying=world.flying[:j] + world.flying[j + 1 :])
    if whole:
        if not statement.passes:
            return world
        return replace(world, written=statement.claim, stays=world.there)
    return replace(world, unclear=world.unclear or statement.wrote)


def _unanswered(world: World, j: int, table: Table, guards: Guards) -> Iterator[World]:
    """Keeper does not answer the INSERT, whose part the replica shows from now: it may have it."""
    statement = world.flying[j]
    if f"{statement.token}-0" in world.tokens:
        return
    spent = replace(world, faults=world.faults - 1)
    for after in (_land(spent, j, table), replace(spent, unconfirmed=spent.unconfirmed + 1)):
        flying = after.flying[:j] + after.flying[j + 1 :]
        over = replace(after, flying=flying, unclear=after.unclear or guards.unanswered)
        if statement.owner < 0:
            yield over
        else:
            yield _answer(over, statement.owner, plan.NoAnswer("319"), table)


def successors(world: World, table: Table, guards: Guards) -> Iterator[World]:
    """Every state that one more event leads to."""
    for i, loader in enumerate(world.loaders):
        if loader.run is None:
            continue
        if world.faults:  # a crash; what flies goes on without it
            orphans = tuple(replace(s, owner=-1) if s.owner == i else s for s in world.flying)
            ending = tuple((-1 if owner == i else owner, claim) for owner, claim in world.ending)
            spent = {"faults": world.faults - 1}
            yield _restart(replace(world, flying=orphans, ending=ending, **spent), i, table)
        if loader.waiting:
            continue
        if isinstance(loader.effect, plan.WriteLetters):
            sent = _with(world, i, replace(loader, waiting=True))
            yield replace(sent, ending=(*world.ending, (i, loader.run.claim)))
            continue
        if isinstance(loader.effect, plan.Insert):
            entries = _entries(world, loader.run.claim, guards)
            limit = loader.effect.limit
            if guards.limit and limit is not None and world.counter > limit:
                # Said loudly (throwIf): a silent nothing would be marked loaded.
                yield _answer(world, i, plan.NoAnswer("others inserted"), table)
                continue
            if guards.same and limit is not None and world.altered != loader.looked:
                yield _answer(world, i, plan.NoAnswer("altered meanwhile"), table)
                continue
            passes = not guards.condition or plan.holds(entries, loader.run.claim)
            sent = _with(world, i, replace(loader, waiting=True))
            own = _last_claim(world, loader.run.claim)
            together = own.sent == plan.TOGETHER or (not guards.sent and own.attempt == 1)
            # A condition of the design: see loader.core.table_rules.
            window = table.remembers(world.altered)
            repeat = guards.others and limit is not None and window >= 2
            allowance = window // 2 if repeat else ANY
            token = loader.run.claim if together else f"block {plan.read_token(own.sent) or 1}"
            version = _version(loader, table, i)
            refused = passes and world.rule and version != LEFT
            claim = loader.run.claim
            statement = Statement(i, passes, claim, 0, version, allowance, token, refused=refused)
            sent = replace(sent, sent=True)
            yield replace(sent, flying=(*world.flying, statement))
            if table.lags and world.faults:  # this replica has not got the claim yet
                late = replace(statement, passes=False)
                yield replace(sent, faults=world.faults - 1, flying=(*world.flying, late))
            continue
        done, answer = _carry_out(world, i, table, guards)
        yield _answer(done, i, answer, table)
        if world.faults and not isinstance(
            loader.effect, plan.ReadEntries | plan.Ask | plan.AskRecord
        ):
            lost = replace(done, faults=world.faults - 1)
            yield _answer(lost, i, plan.NoAnswer("answer lost"), table)
    yield from _statements(world, table, guards)
    if world.others and all(statement.allowance for statement in world.flying):
        flying = tuple(replace(s, allowance=s.allowance - 1) for s in world.flying)
        yield replace(_insert(world, "other", table), others=world.others - 1, flying=flying)


def _statements(world: World, table: Table, guards: Guards) -> Iterator[World]:
    """What the statements that fly may do next, and a person behind them."""
    for j, (owner, _) in enumerate(world.ending):
        yield _wrote_letters(world, j, heard=True, table=table)
        if owner >= 0 and world.faults:
            spent = replace(world, faults=world.faults - 1)
            yield _wrote_letters(spent, j, heard=False, table=table)
    for j, statement in enumerate(world.flying):
        whole = statement.landed == len(world.copies)
        if statement.refused:  # perhaps after some of its parts
            over = _ended(world, j, whole=False)
            if statement.owner < 0:
                yield over
            else:
                yield _answer(over, statement.owner, plan.Rejected("no"), table)
            if statement.landed >= table.parts - 1:
                continue
        if table.replicated and world.faults and statement.passes and not statement.landed:
            yield from _unanswered(world, j, table, guards)
        if not whole:
            yield _land(world, j, table)
        elif statement.owner >= 0:
            owner = world.loaders[statement.owner].run
            assert owner is not None
            rows = owner.rows if statement.passes or not guards.told else 0
            yield _answer(_ended(world, j, whole=True), statement.owner, plan.Wrote(rows), table)
        else:
            yield _ended(world, j, whole=True)
        if statement.owner < 0:  # its client is gone: the server may give up too
            yield _ended(world, j, whole=False)
        elif world.faults:  # the client gives up, the server goes on
            flying = list(world.flying)
            flying[j] = replace(statement, owner=-1)
            lost = replace(world, faults=world.faults - 1, flying=tuple(flying))
            yield _answer(lost, statement.owner, plan.NoAnswer("timeout"), table)
    yield from _replicas(world, table)
    if world.asides:  # between its reading and its writing another may come: as with a claim
        entry = set_aside_plan.entry(world.ledger, f"a-{world.asides}", ROWS, "")
        if entry is not None:
            yield replace(world, asides=world.asides - 1, ledger=(*world.ledger, entry))
            late = replace_entry(entry, attempt=max(1, entry.attempt - 1))
            yield replace(world, asides=world.asides - 1, ledger=(*world.ledger, late))
    if world.turns and table.rejects:
        yield replace(world, turns=world.turns - 1, rule=not world.rule)
    # A condition of the design: none of it while a repeat runs, which relies on the window.
    if world.alters and all(statement.allowance > ANY // 2 for statement in world.flying):
        window = table.remembers(world.altered + 1)
        tokens = world.tokens[-window:] if window else ()
        yield replace(world, alters=world.alters - 1, altered=world.altered + 1, tokens=tokens)
    yield from _deleted(world)
    yield from _cleaned(world, table)
    if world.kills and world.claimed >= 0:
        yield from _killed(world, table)


def _replicas(world: World, table: Table) -> Iterator[World]:
    """What replicas find out by themselves, and that another one is asked, which is behind."""
    if world.unconfirmed:  # the replica has asked Keeper
        yield replace(world, unconfirmed=world.unconfirmed - 1)
    if world.behind:
        yield replace(world, behind=False)
    elif table.replicated and world.faults and world.sent and not world.unconfirmed:
        yield replace(world, behind=True, faults=world.faults - 1)


def _killed(world: World, table: Table) -> Iterator[World]:
    """The server is killed, and starts anew: what flies is over, and its logs lack the end.

    Of a statement that was about to land a part of the table the token may be there, without it.
    """
    kills = {"kills": world.kills - 1, "killed": True, "written": "", "unclear": True}
    dead = replace(world, **kills, flying=())
    for statement in world.flying:
        if statement.owner >= 0:
            dead = _answer(dead, statement.owner, plan.NoAnswer("no answer"), table)
    yield dead
    for statement in world.flying:
        token = f"{statement.token}-{statement.landed}"
        lands = statement.passes and statement.landed < table.parts and not statement.refused
        if lands and token not in world.tokens and table.window:
            yield replace(dead, tokens=(*dead.tokens, token)[-table.remembers(dead.altered) :])


def _deleted(world: World) -> Iterator[World]:
    """A person deletes the rows: tokens stay until a part that was emptied is cleaned up.

    A condition of the design: that takes longer (cleanup_delay_period) than a loader from its look
    to its repeat.
    """
    if not world.deletes or not any(world.copies) or world.flying:
        return
    gone = replace(world, deletes=world.deletes - 1, gone=True, deleted=True)
    yield gone
    if not any(isinstance(one.effect, plan.AskRecord | plan.Insert) for one in world.loaders):
        yield replace(gone, tokens=())


def _cleaned(world: World, table: Table) -> Iterator[World]:
    """A person deletes all of a parked block, in views too, and does not wait for the end of it."""
    if world.doomed:
        yield replace(world, doomed=0)
    rests = plan.settled(world.ledger)
    if not world.cleans or world.flying or rests is None or rests.state != plan.PARKED:
        return
    emptied = replace(
        world,
        cleans=world.cleans - 1,
        doomed=_landed(world, table),
        copies=(0,) * len(world.copies),
        made=frozenset(),
        deleted=True,
    )
    yield _restart(emptied, len(world.loaders) - 1, table)


def forget() -> None:
    """Begin a search anew: a negative control may have changed what a step decides."""
    _step.cache_clear()
    _finished.cache_clear()


def search(start: World, table: Table, guards: Guards) -> tuple[int, set[str]]:
    """Visits every reachable state; returns how many, and how the block ended.

    Raises:
        Violation: rows doubled, lost, or no end.
    """
    forget()
    seen, stack, endings = {start}, [start], set[str]()
    while stack:
        world = stack.pop()
        nexts = list(successors(world, table, guards))
        if not any([*(one.run for one in world.loaders), world.flying, world.ending]):
            endings.add(_finish(world, table, guards))
        for follower in nexts:
            known = len(seen)
            seen.add(follower)  # asked and added at once: its hash is the dearer part
            if len(seen) > known:
                stack.append(follower)
    return len(seen), endings


def _finish(world: World, table: Table, guards: Guards) -> str:
    """One more loader, undisturbed, must settle the block, rightly."""
    # What stands aside the loader tries again by itself; what is parked it leaves.
    rests = plan.settled(world.ledger)
    human: plan.Human = "retry" if rests and rests.state == plan.ASIDE else "nothing"
    last = Loader(None, plan.Done("retry"), 2, made=1_000, human=human)
    events = "faults", "others", "asides", "deletes", "turns", "alters", "kills", "cleans", "doomed"
    none = dict.fromkeys(events, 0)
    calm = replace(world, loaders=(last,), unconfirmed=0, behind=False, **none)
    return _finished(calm, table, guards)


@cache
def _finished(world: World, table: Table, guards: Guards) -> str:
    """How the last loader settles the block; many worlds leave it the same one."""
    world = _restart(world, 0, table)
    for _ in range(20):
        if world.loaders[0].run is None:
            break
        world, *_ = successors(world, table, guards)
    settled = plan.settled(world.ledger)
    if settled is None or world.loaders[0].run is not None:
        raise Violation(f"no end: {world.loaders[0]}, ledger {world.ledger}")
    return settled.state
