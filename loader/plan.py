"""Decides what becomes of one block, from what the ledger and its table say; pure.

`step(run, answer) -> (run, effect)`: no clock, no client. The same steps run in
production (loader.work carries the effects out) and under the exhaustive search of
tests/loader/model.py. An attempt at a block goes

    Read -> Claim -> Read -> [Ask] -> Insert | Park -> Mark -> Read -> Done

Why it is safe, however many loaders run and whenever they pause or die:

* The claim is written before the ledger is read again. So of two attempts that could
  both insert, at least one sees the other's claim, and that one asks first.
* INSERT and Mark carry `holds` as a condition, evaluated by ClickHouse when the
  statement runs: an attempt that was overtaken, or settled by another, inserts nothing.
  So after its own claim is in, an attempt need only look at what earlier claims did.
* A statement of an earlier claim may have passed its condition and still be running:
  then the attempt ends in `retry`, and nothing is decided yet.
* Where loader.transform makes the rows, each claim says how many, and by which version of it. What
  is in the table came under one claim; what two versions may have made is never completed by
  either, and told apart by its count, or parked.
* A person's word about a parked block goes the same way: it is written under a claim of its
  own, if that still holds, and not against what the table's own count says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

PREPARED, LOADED, PARKED = "prepared", "loaded", "parked"
DISCARDED = "discarded"
"""A person gave the block up; as final as loaded, and never the same."""
NOTHING_MADE = "-"
"""In place of a transform's version: a claim that inserts nothing."""

Human = Literal["nothing", "retry", "absent", "loaded", "discard"]
"""What a person said of a parked block: nothing; decide again; none of it is in the table; all
of it is; never load it."""
Outcome = Literal["loaded", "parked", "discarded", "retry"]
"""Of an attempt: the block's state, or nothing decided yet."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One ledger row of a block.

    Attributes:
        attempt: grows; of two claims with one attempt the greater `claim` is current.
        claim: random, names the attempt's owner.
        seen: the table's part counter before the claim; -1 where the engine has none.
        stamped: whether an INSERT under this claim fills the block-id column.
        rows: that an INSERT under this claim inserts.
        transform: version of what made them; empty: they are the block's.
    """

    state: str
    attempt: int
    claim: str
    seen: int = -1
    stamped: bool = False
    reason: str = ""
    rows: int = 0
    transform: str = ""


def _rank(entry: Entry) -> tuple[int, bool, str]:
    return entry.attempt, entry.state != PREPARED, entry.claim


def settled(entries: Sequence[Entry]) -> Entry | None:
    """The row that settles the block: loaded or given up by anyone, or parked by the latest."""
    if not entries:
        return None
    for final in (LOADED, DISCARDED):
        if found := next((entry for entry in entries if entry.state == final), None):
            return found
    current = max(entries, key=_rank)
    return current if current.state == PARKED else None


def holds(entries: Sequence[Entry], claim: str) -> bool:
    """Whether the claim is the current one: the condition of INSERT and Mark.

    loader.ledger has the same in SQL (`HOLDS`); a test compares the two.
    """
    return settled(entries) is None and bool(entries) and max(entries, key=_rank).claim == claim


@dataclass(frozen=True, slots=True)
class Facts:
    """What the table says about a block that an earlier claim may have inserted.

    Attributes:
        counted: rows that carry the block's id; None where the column is not there.
        newest: the table's part counter now; -1 where the engine has none.
        margin: parts that may come after an insert while its token surely stays in the
            table's deduplication window; -1 where nothing is sure.
        running: an INSERT of this block runs on the server.
    """

    counted: int | None
    newest: int
    margin: int
    running: bool


# Effects: what the adapter is to do next.


@dataclass(frozen=True, slots=True)
class Read:
    """Read the block's ledger rows; answer: a tuple of Entry."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a prepared row under the run's claim; answer: Ok, or Made where a transform is set."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the table; answer: Facts."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert the block if the claim holds; answer: Ok, or Failed if part counter > limit.

    A claim that does not hold any more inserts nothing, silently: Mark asks the same and
    writes nothing either. The counter may not fail silently, because Mark cannot see it.
    """

    limit: int | None


@dataclass(frozen=True, slots=True)
class Mark:
    """Write a loaded row, or a discarded one, if the claim holds; answer: Ok.

    `made_by`: an earlier claim whose rows these are, and not the run's own.
    """

    attempt: int
    state: str = LOADED
    reason: str = ""
    made_by: str = ""


@dataclass(frozen=True, slots=True)
class Park:
    """Write a parked row; answer: Ok."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt is over."""

    outcome: Outcome
    reason: str = ""


Effect = Read | Claim | Ask | Insert | Mark | Park | Done


# Answers beside tuple[Entry, ...] and Facts.


@dataclass(frozen=True, slots=True)
class Ok:
    """The server took the statement."""


@dataclass(frozen=True, slots=True)
class Wrote(Ok):
    """The server took the INSERT.

    Attributes:
        rows: that it wrote, as it says: those of materialized views too, and those whose token
            was there before, which are in the table from then; 0 where it does not say.
    """

    rows: int


@dataclass(frozen=True, slots=True)
class Made:
    """The server took the claim, for so many rows that this version of the transform made."""

    rows: int
    transform: str


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or one that may differ next time: nothing is known."""

    reason: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """It will not work until somebody changes something."""

    reason: str


Answer = tuple[Entry, ...] | Facts | Ok | Made | Failed | Impossible


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at a block.

    Attributes:
        claim: unique to this attempt.
        rows: that it inserts.
        transform: version of what made them; empty: they are the block's.
        stamped: whether the table has the block-id column now.
        human: what a person said of the block.
        why: the person's own words, for the ledger.
        forgotten: the ledger may have lost the entries of earlier claims.
    """

    claim: str
    rows: int
    stamped: bool
    human: Human = "nothing"
    why: str = ""
    at: Literal["look", "claim", "again", "ask", "insert", "mark", "end"] = "look"
    attempt: int = 0
    since: int = -1
    all_stamped: bool = False
    transform: str = ""
    earlier: tuple[Entry, ...] = ()
    forgotten: bool = False


def start(
    claim: str,
    rows: int,
    *,
    stamped: bool,
    human: Human = "nothing",
    why: str = "",
    forgotten: bool = False,
) -> tuple[Run, Effect]:
    """A new attempt and its first effect."""
    return Run(claim, rows, stamped, human, why, forgotten=forgotten), Read()


def step(run: Run, answer: Answer) -> tuple[Run, Effect]:
    """The next effect, after the answer to the one before."""
    if isinstance(answer, Failed):
        return run, Done("retry", answer.reason)
    if isinstance(answer, Impossible):
        return replace(run, at="mark"), Park(run.attempt, answer.reason)
    match run.at, answer:
        case "look", tuple() as entries:
            return _look(run, entries)
        case "claim", Ok() | Made() as taken:
            return _claimed(run, taken), Read()
        case "again", tuple() as entries:
            return _look_again(run, entries)
        case "ask", Facts() as facts:
            return _decide(run, facts)
        case "insert", Ok():
            return replace(run, at="mark"), Mark(run.attempt)
        case "mark", Ok():
            return replace(run, at="end"), Read()
        case "end", tuple() as entries:
            return _look_at_the_end(run, entries)
    raise TypeError(f"{answer!r} does not answer {run.at!r}")


def _look(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    last = settled(entries)
    if last is not None and (last.state != PARKED or run.human == "nothing"):
        return run, _outcome(entries)
    attempt = 1 + max((entry.attempt for entry in entries), default=0)
    return replace(run, at="claim", attempt=attempt), Claim(attempt)


def _look_at_the_end(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    if holds(entries, run.claim):
        return run, Done("retry", "its rows were not seen in the table yet")
    return run, _outcome(entries)


def _claimed(run: Run, taken: Ok | Made) -> Run:
    if isinstance(taken, Made):
        run = replace(run, rows=taken.rows, transform=taken.transform)
    return replace(run, at="again")


def _look_again(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    if not holds(entries, run.claim):
        return run, _outcome(entries)
    earlier = tuple(e for e in entries if e.state == PREPARED and e.claim != run.claim)
    asked = run.forgotten or run.human in {"loaded", "discard"}
    if not earlier and not asked:
        return replace(run, at="insert"), Insert(None)
    # A claim before the column was there may have left rows without an id: do not count those.
    all_stamped = run.stamped and all(entry.stamped for entry in earlier)
    since = min((entry.seen for entry in earlier), default=-1)
    run = replace(run, at="ask", since=since, all_stamped=all_stamped, earlier=earlier)
    return run, Ask()


def _decide(run: Run, facts: Facts) -> tuple[Run, Effect]:
    """DESIGN.md's table, for a block that an earlier claim prepared."""
    inserting = replace(run, at="insert")
    marking = replace(run, at="mark")
    if facts.running:
        return run, Done("retry", "an INSERT of this block still runs on the server")
    if run.human == "absent":
        return inserting, Insert(None)
    if run.human in {"loaded", "discard"}:
        return marking, _as_told(run, facts.counted if run.all_stamped else None)
    if run.all_stamped and facts.counted is not None:
        return _by_count(run, facts.counted)
    # Under one token, rows of another version would be taken for the same ones. A claim that was
    # to be counted by a column, which is gone now, may have used another (loader.inserting).
    unlike = any(e.transform != run.transform or e.stamped for e in _makers(run))
    margin = 0 if unlike else max(facts.margin, 0)
    # Sure if nothing at all was inserted since, or if every part since fits into the window,
    # with as much again for what others insert while our statement runs (see loader.window).
    if 0 <= run.since <= facts.newest <= run.since + margin:
        return inserting, Insert(run.since + margin)
    before = "an earlier attempt ended before its answer came"
    if not run.earlier:
        before = "the ledger may have lost the entry of an earlier attempt"
    return marking, Park(
        run.attempt,
        f"{before}, the table has no block-id column for "
        "all of it, and its deduplication window may have moved on"
        + ("" if margin else " or the transform has changed")
        + ": only a person can tell whether the rows are there",
    )


def _by_count(run: Run, counted: int) -> tuple[Run, Effect]:
    """By the rows that carry the block's id: of one claim at most, all of it or a part."""
    if counted == 0 and run.rows:
        return replace(run, at="insert"), Insert(None)
    run = replace(run, at="mark")
    if whole := _whole(run, counted):
        return run, Mark(run.attempt, made_by=whole.claim)
    why = "an INSERT over several partitions of the table ended in the middle"
    if len({entry.transform for entry in _makers(run)}) > 1:
        why = "versions of the transform made different numbers of them, one may be there in part"
    return run, Park(run.attempt, f"{_share(run, counted)}: {why}")


def _makers(run: Run) -> list[Entry]:
    """Earlier claims that may have inserted rows."""
    return [entry for entry in run.earlier if entry.transform != NOTHING_MADE]


def _claims(run: Run) -> list[Entry]:
    """Those whose rows may be in the table; the run's own where there is no other."""
    own = Entry(PREPARED, run.attempt, "", rows=run.rows, transform=run.transform)
    return _makers(run) or [own]


def _whole(run: Run, counted: int) -> Entry | None:
    """A claim all of whose rows these are, if they cannot be a part of another version's."""
    able = [entry for entry in _claims(run) if entry.rows >= counted]
    alike = {(entry.rows, entry.transform) for entry in able}
    return able[0] if len(alike) == 1 and able[0].rows == counted else None


def _share(run: Run, counted: int) -> str:
    sizes = sorted({entry.rows for entry in _claims(run)})
    return f"{counted} of its {' or '.join(map(str, sizes))} rows are in the table"


def _as_told(run: Run, counted: int | None) -> Effect:
    """A person's word, unless the rows that carry the block's id say otherwise."""
    found = "" if counted is None else _share(run, counted)
    if run.human == "loaded":
        # Which of two versions it was is the person's to know.
        fitting = [entry for entry in _claims(run) if counted in {None, entry.rows}]
        if not fitting:
            return Park(run.attempt, f"a person said that it is loaded, but {found}")
        said = "; ".join(filter(None, ["a person found all of its rows in the table", run.why]))
        return Mark(run.attempt, LOADED, said, fitting[-1].claim)
    if counted is not None and (whole := _whole(run, counted)):
        return Mark(run.attempt, LOADED, "; ".join(filter(None, [found, run.why])), whole.claim)
    reason = "; ".join(filter(None, ["a person gave it up", found, run.why]))
    return Mark(run.attempt, DISCARDED, reason)


def _outcome(entries: tuple[Entry, ...]) -> Done:
    last = settled(entries)
    if last is None:
        return Done("retry", "another loader works on this block")
    return Done(cast("Outcome", last.state), last.reason)
