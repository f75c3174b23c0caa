"""Decides what becomes of one block, from what the ledger and the servers say; pure.

`step(run, answer) -> (run, effect)`: no clock, no client. The same steps run in
production (loader.blocks.worker carries the effects out) and under the exhaustive search of
tests/loader/model.py. An attempt at a block goes

    ReadEntries -> Claim -> ReadEntries -> [Ask -> [AskRecord]]
        -> Insert -> [Ask] | Park -> Settle -> [ReadEntries] -> Done

and, where the INSERT refuses the rows themselves, from there

    Isolate -> Claim -> ReadEntries -> Ask
        -> Insert | Park -> Settle -> [ReadEntries] -> Done

Why it is safe, however many loaders run and whenever they pause or die:

* The claim is written before the ledger is read again. So of two attempts that could
  both insert, at least one sees the other's claim, and that one asks first.
* INSERT and Settle carry `holds` as a condition, evaluated by ClickHouse when the
  statement runs: an attempt that was overtaken, or settled by another, inserts nothing.
  So after its own claim is in, an attempt need only look at what earlier claims did.
* A statement of an earlier claim may have passed its condition and still be running:
  then the attempt ends in `retry`, and nothing is decided yet.
* The server's answer to the attempt's own INSERT is proof: at least the block's rows
  written means done, 0 means that nothing happened. No count overrules it, because rows
  may expire, merge or be hidden from this user the moment they are written. A repeat under a
  token that a MergeTree may have without the part is answered, and recorded, alike: there rows are
  counted again.
* What an earlier claim did is proved in the order of `_decide`: all of its rows, where their
  number means something and the server keeps them; that the server recorded the statement as
  finished; the same statement again under the same token while the table surely remembers it; what
  else the server recorded; none of its rows. Where nothing proves it, or rows are there that by the
  record nobody inserted, the block is parked.
* Tables and ledger may be restored from a backup, together or the ledger's older than the table's.
  So what a statement wrote has to be where it wrote it, and a statement under a claim that the
  ledger does not have shows that the ledger was set back.
* Where loader.transform makes the rows, each claim says how many, and by which version of it. What
  is in the table came under one claim; what two versions may have made is never completed by
  either, and told apart by its count, or parked.
* Messages that the table refuses are left out of the INSERT. Which ones is found out on another
  table, so that nothing is at stake; the next claim names them before anything is inserted, and
  every later attempt leaves out the same. It counts as a version of what makes the rows. The
  refused statement is over, and its claim is followed by another of the same owner: of those, only
  the last can have inserted.
* A person's word about a parked block goes the same way: it is written under a claim of its
  own, if that still holds, and not against what the table's own count says.
* Messages that were left out may become dead letters instead of rows, under a claim that says so.
  Kafka asks no ledger, so the order is: have the epoch of the dead letters' producer, write the
  claim, read the ledger, write. Whoever finds such a claim of another fences that producer, looks
  whether the letters are there, and reads the ledger again: of two attempts one is fenced, or sees
  the other's claim, or sees its letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from loader.core.retry_cause import RetryCause
from relay.clickhouse.errors import About
from relay.names import SAID_LOADED

PREPARED, LOADED, PARKED = "prepared", "loaded", "parked"
DISCARDED = "discarded"
"""A person gave the block up; as final as loaded, and never the same."""
DEAD = "dead"
"""The block's messages are dead letters, each once; as final as loaded, and never the same."""
FINAL = (LOADED, DISCARDED, DEAD)
ASIDE = "aside"
"""The block waits for its table, and holds up no other: loader.core.set_aside_plan tries it again
from time to time, as a person's "retry" would. What the INSERTs before it did is found out then."""
_RECLAIMS = 3
"""Changes of the token in one attempt: what it is told of the table may change as often."""
PERHAPS, SURELY = "?", "!"
"""In place of a claim: the ledger may have lost what it knew of the block; a person says so."""
_OVERTAKEN = "the server recorded that an INSERT succeeded, and nothing of it was there later"
NOTHING_MADE = "-"
"""In place of a transform's version: a claim that inserts nothing."""

Human = Literal["nothing", "retry", "absent", "loaded", "discard", "dead"]
"""What a person said of a parked block: nothing; decide again; none of it is in the table; all
of it is; never load it; make its messages dead letters. The last is loader.rejected's word, too."""
Outcome = Literal["loaded", "parked", "discarded", "dead", "aside", "retry"]
"""Of an attempt: the block's state, or nothing decided yet."""
Sent = str
"""How an INSERT under a claim is sent (Entry.sent)."""
ALONE: Sent = "alone"
UNREMEMBERED: Sent = "unremembered"
"""Alone, into a table that remembered no token then, whatever its window is now."""
TOGETHER: Sent = "together"
DEAD_LETTERS: Sent = "dead letters"
"""Not at all: under this claim the messages are written to the dead letters."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One ledger row of a block.

    Attributes:
        attempt: grows; of two claims with one attempt the greater `claim` is current.
        claim: random, names the attempt's owner.
        seen: the table's insert counter before the claim; -1 where it has none. Of a claim for
            dead letters, the end of their partition before it.
        stamped: whether an INSERT under this claim fills the block-id column.
        rows: that an INSERT under this claim inserts.
        transform: version of what made them; empty: they are the block's.
        sent: how an INSERT under this claim is sent: "alone", under the block's first token, its
            id; "alone 2" and so on, under a further one, since nothing of the block was there;
            "unremembered": alone, but the table remembered no token then; "together": under a token
            of this claim's, maybe with other blocks; "dead letters": it is not; "" in ledgers of
            earlier versions of the program, which did not say.
        left_out: rows of messages that an INSERT under this claim leaves out.
        record: of such a claim, the block that they make (loader.core.left_out).
    """

    state: str
    attempt: int
    claim: str
    seen: int = -1
    stamped: bool = False
    reason: str = ""
    rows: int = 0
    transform: str = ""
    sent: Sent = ""
    left_out: int = 0
    record: str = ""


def say_alone(token: int) -> Sent:
    """Return how an INSERT under this one of the block's own tokens, from 1 on, is sent."""
    return ALONE if token == 1 else f"{ALONE} {token}"


def read_token(sent: Sent) -> int:
    """Return which of the block's own tokens such an INSERT has; 0: none, or it is not known."""
    if sent == ALONE:
        return 1
    return int(sent.removeprefix(ALONE)) if sent.startswith(ALONE) else 0


def doubt(rows: int, *, lost: bool, record: str = "") -> Entry:
    """Return the row that stands for a claim which the ledger may have lost.

    It is written before the block is attempted: so the doubt outlives the attempt. `lost`: a person
    says that the ledger was lost; `record`: of messages that are dead letters, as of a claim that
    leaves them out.
    """
    claim = SURELY if lost else PERHAPS
    return Entry(PREPARED, 0, claim, stamped=True, rows=rows, record=record)


def _rank(entry: Entry) -> tuple[int, bool, str]:
    return entry.attempt, entry.state != PREPARED, entry.claim


def settled(entries: Sequence[Entry]) -> Entry | None:
    """Return the row that settles the block: a final one, or the latest if parked or aside."""
    final = next((entry for state in FINAL for entry in entries if entry.state == state), None)
    if final or not entries:
        return final
    current = max(entries, key=_rank)
    return current if current.state in {PARKED, ASIDE} else None


def holds(entries: Sequence[Entry], claim: str) -> bool:
    """Return whether the claim is the current one: the condition of INSERT and Settle.

    loader.clickhouse.ledger has the same in SQL (`HOLDS`); a test compares the two.
    """
    return settled(entries) is None and bool(entries) and max(entries, key=_rank).claim == claim


@dataclass(frozen=True, slots=True)
class InsertFacts:
    """What the server says now about a block that an earlier claim may have inserted.

    Attributes:
        running: why an INSERT of this block may still be running; "": none is.
        inserted: the most parts that anybody can have inserted since the oldest claim; None
            where nothing bounds them.
        margin: parts that may come after an INSERT while the table surely remembers its token;
            -1 where nothing is sure.
        newest: the table's insert counter now; -1 where it has none.
        counted: rows that carry the block's id; None where they cannot be counted.
        fewer: why fewer rows than the block has prove nothing: they may have been there and
            expired, been merged, been removed, or be hidden from this user; "": they prove it.
        views: materialized views behind the table, whose rows the table's rows say nothing of.
        repeatable: whether the same messages once more change nothing, token or not, where the same
            version makes their rows.
        one_step: whether an INSERT into the table, apart from views, lands as a whole or not at
            all.
        unconfirmed: why the server may yet drop the rows that it shows: a replica keeps those of an
            INSERT that Keeper did not answer, and drops them later if Keeper does not have them;
            or, where it shows fewer than the block has, why others may come: a replica has parts
            still to fetch. "": what it shows stays.
        passing: whether the server finds out by itself, and nobody has to do anything.
        logs_tokens: whether the table keeps its tokens in a log of its own, apart from its parts.
            It writes that first: after a failure it may have a token without the part, drops the
            rows of a repeat under it, and answers that it wrote them (MergeTreeSink).
        restarted: whether the server was started since the oldest claim.
        removed: where fewer rows are there than the block has, or a person says that none of it is,
            why rows of the table may have been removed since the oldest claim; "": none were.
    """

    running: str = ""
    inserted: int | None = None
    margin: int = -1
    newest: int = -1
    counted: int | None = None
    fewer: str = ""
    views: tuple[str, ...] = ()
    repeatable: bool = False
    one_step: bool = False
    unconfirmed: str = ""
    passing: bool = True
    logs_tokens: bool = False
    restarted: bool = False
    removed: str = ""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What the server recorded of the block's INSERTs since the oldest claim.

    Attributes:
        state: "written": one finished, and wrote at least as many rows as the block has;
            "never": the record is complete, and none has written anything; "gone": one finished,
            and its parts were dropped since, as when a table is restored; "replaced": one finished,
            and its parts went, while others may have its rows now; "perhaps": one finished,
            and whether its parts were dropped is not known; "unclear": else.
        claim: of the statement that finished, where the record names it.
        said: the same in words.
    """

    state: Literal["written", "never", "unclear", "gone", "replaced", "perhaps"]
    claim: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class LettersFound:
    """What the topic of dead letters has of the block.

    Attributes:
        state: "written": all of them; "never": none, and whoever was about to write them no longer
            can; "unclear": some of what came since the claim was deleted.
        said: where they are, or why nobody knows.
    """

    state: Literal["written", "never", "unclear"]
    said: str = ""


# Effects: what the adapter is to do next.


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """Read the block's ledger rows; answer: a tuple of Entry."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a prepared row under the run's claim; answer: Ok, or Made where a transform is set.

    `token`: which of the block's own its INSERT has, should it be sent alone.
    """

    attempt: int
    token: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the table; answer: InsertFacts."""


@dataclass(frozen=True, slots=True)
class AskRecord:
    """Ask what the server recorded of the block's statements; answer: ServerRecord."""


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert the block if the claim holds; answer: Wrote, or NoAnswer if insert counter > limit.

    A claim that does not hold any more inserts nothing, and the server says so (0 rows).
    """

    limit: int | None


@dataclass(frozen=True, slots=True)
class Isolate:
    """Find out which of the block's messages the table refuses; answer: Ok once they are known.

    `reason`: why it refused the rows. The claims that follow leave these messages out.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class AskLetters:
    """Fence whoever writes the block's dead letters, then look for them; answer: LettersFound.

    `since`: the end of their partition before the oldest claim for them; -1: not known.
    """

    since: int


@dataclass(frozen=True, slots=True)
class WriteLetters:
    """Write the block's messages to the dead letters, all or none; answer: LettersFound, written.

    By a producer that was there before the claim was read: another's look fences it.
    """


@dataclass(frozen=True, slots=True)
class Settle:
    """Write a loaded row, a discarded or a dead one, if the claim holds; answer: Ok.

    Or Marked, where it is FIRST and the ledger has this claim of the block and nothing else.
    `made_by`: an earlier claim whose rows these are, and not the run's own.
    """

    attempt: int
    state: str = LOADED
    reason: str = ""
    made_by: str = ""


FIRST = Settle(1)
"""The mark of a block that its first attempt has loaded: all of its rows, without a remark."""


@dataclass(frozen=True, slots=True)
class Park:
    """Write a parked row; answer: Ok."""

    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt is over.

    `about`: of relay.clickhouse.errors, where an error ended it; `cause`: of a "retry", to be
    counted.
    """

    outcome: Outcome
    reason: str = ""
    about: str = ""
    cause: RetryCause = field(default=RetryCause.ERROR, compare=False)


Effect = (
    ReadEntries
    | Claim
    | Ask
    | AskRecord
    | AskLetters
    | WriteLetters
    | Insert
    | Isolate
    | Settle
    | Park
    | Done
)


# Answers beside tuple[Entry, ...], InsertFacts, ServerRecord and LettersFound.


@dataclass(frozen=True, slots=True)
class Ok:
    """The server took the statement."""


@dataclass(frozen=True, slots=True)
class Marked:
    """The server says that it wrote the block's loaded row: nothing can overrule that."""


@dataclass(frozen=True, slots=True)
class Wrote:
    """The server took the INSERT.

    Attributes:
        rows: that it wrote, as it says: those of materialized views too, and those whose token
            was there before, which are in the table from then. 0: its condition was false.
    """

    rows: int


@dataclass(frozen=True, slots=True)
class Made:
    """The server took the claim, for so many rows that this version of the transform made."""

    rows: int
    transform: str


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No answer, or one that may differ next time: nothing is known.

    `about`: of relay.clickhouse.errors, where it was an error of ClickHouse's about the block's
    own statement; `cause`: to be counted.
    """

    reason: str
    about: str = ""
    cause: RetryCause = field(default=RetryCause.ERROR, compare=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Table or transform refuse some of the rows; not all of their messages need be to blame."""

    reason: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """It will not work until somebody changes something."""

    reason: str


Answer = (
    tuple[Entry, ...]
    | InsertFacts
    | ServerRecord
    | LettersFound
    | Ok
    | Marked
    | Wrote
    | Made
    | NoAnswer
    | Rejected
    | Impossible
)
At = Literal[
    "look",
    "claim",
    "again",
    "letters",
    "ask",
    "record",
    "insert",
    "recount",
    "isolate",
    "mark",
    "end",
]


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
        forgotten: the ledger may have known this block and lost what it knew (it was
            emptied, dropped or restored), so that no earlier claim does not mean no INSERT.
        lost: a person says that it did know it, so that it may well have been inserted.
        isolates: whether the messages that the table refuses are looked for in this attempt; it
            may take seconds, in which nobody should wait.
        rejected: why the table refused the rows, once it did; the messages are known then.
        letters: what is known of the block's dead letters, once they were looked for.
        sent: how its INSERT is sent, as its claim says.
        reclaims: how often it has claimed the block for another token.
        recounts: whether the table's rows are counted once the server has answered its INSERT.
        overtaken: claims of which nothing was in the table, as that for a further token says.
    """

    claim: str
    rows: int
    stamped: bool
    human: Human = "nothing"
    why: str = ""
    forgotten: bool = False
    lost: bool = False
    isolates: bool = False
    rejected: str = ""
    letters: Literal["", "never", "unclear"] = ""
    at: At = "look"
    attempt: int = 0
    since: int = -1
    all_stamped: bool = False
    sent: Sent = ALONE
    reclaims: int = 0
    recounts: bool = False
    transform: str = ""
    earlier: tuple[Entry, ...] = ()
    overtaken: frozenset[str] = frozenset()
    facts: InsertFacts = InsertFacts()


def start(
    claim: str,
    rows: int,
    *,
    stamped: bool,
    human: Human = "nothing",
    why: str = "",
    isolates: bool = False,
) -> tuple[Run, Effect]:
    """Return a new attempt and its first effect."""
    return Run(claim, rows, stamped, human, why, isolates=isolates), ReadEntries()


def step(run: Run, answer: Answer) -> tuple[Run, Effect]:
    """Return the next effect, after the answer to the one before."""
    match run.at, answer:
        case _, NoAnswer() | Impossible():
            return _in_vain(run, answer)
        case "look" | "again" | "end", tuple() as entries:
            looks = {"look": _look, "again": _look_again, "end": _look_at_the_end}
            return looks[run.at](run, entries)
        case "claim", Ok() | Made() as taken:
            return _claimed(run, taken), ReadEntries()
        case "ask" | "record" | "recount", InsertFacts() | ServerRecord() as proof:
            return _proved(run, proof)
        case "insert", Wrote(rows):
            return _wrote(run, rows)
        case "insert" | "claim", Rejected(reason):  # a transform may refuse rows, too
            return _rejected(run, reason)
        case "letters", LettersFound() as letters:
            return _decide_by_letters(run, letters)
        case "mark", Marked():
            return run, Done("loaded")
        case "mark" | "isolate", Ok():
            return _go_on(run)
    raise TypeError(f"{answer!r} does not answer {run.at!r}")


def _in_vain(run: Run, answer: NoAnswer | Impossible) -> tuple[Run, Effect]:
    if isinstance(answer, NoAnswer):
        return run, Done("retry", answer.reason, answer.about, answer.cause)
    return replace(run, at="mark"), Park(run.attempt, answer.reason)


def _look(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    last = settled(entries)
    if last is not None and (last.state not in {PARKED, ASIDE} or run.human == "nothing"):
        return run, _outcome(entries)
    attempt = 1 + max((entry.attempt for entry in entries), default=0)
    claim = Claim(attempt, _newest_token(_last_claims(e for e in entries if e.state == PREPARED)))
    return replace(_doubting(run, entries), at="claim", attempt=attempt), claim


def _doubting(run: Run, entries: tuple[Entry, ...]) -> Run:
    claims = {entry.claim for entry in entries}
    return replace(run, forgotten=bool(claims & {PERHAPS, SURELY}), lost=SURELY in claims)


def _look_at_the_end(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    if holds(entries, run.claim):
        reason = "the server wrote nothing, though this loader's claim holds"
        return run, _retry(reason, RetryCause.ROWS_NOT_WRITTEN)
    return run, _outcome(entries)


def _claimed(run: Run, taken: Ok | Made) -> Run:
    if isinstance(taken, Made):
        return replace(run, at="again", rows=taken.rows, transform=taken.transform)
    return replace(run, at="again")


def _look_again(run: Run, entries: tuple[Entry, ...]) -> tuple[Run, Effect]:
    if not holds(entries, run.claim):
        return run, _outcome(entries)
    run, others = _doubting(run, entries), {run.claim, PERHAPS, SURELY}
    claims = [entry for entry in entries if entry.state == PREPARED]
    before = [entry for entry in claims if entry.claim not in others]
    for_letters = [entry.seen for entry in before if entry.sent == DEAD_LETTERS]
    if for_letters and not run.letters:
        return replace(run, at="letters"), AskLetters(min(for_letters))
    before = [entry for entry in before if entry.transform != NOTHING_MADE]
    own = [entry for entry in claims if entry.claim == run.claim]
    sent = max(own, key=_rank).sent if own else ALONE
    earlier = _since_anew(before, own if run.rejected else [])
    if not earlier and not run.forgotten and not run.rejected:
        if run.human in {"nothing", "retry"}:
            return replace(run, at="insert"), Insert(None)
        if run.human == "dead":
            return replace(run, at="letters"), WriteLetters()
    # A claim before the column was there may have left rows without an id: do not count those.
    all_stamped = run.stamped and all(entry.stamped for entry in before)
    # Refused INSERTs count, which may have left parts. And what the ledger has lost may have been
    # before all that it knows.
    asked = [*before, *own] if run.rejected or not before else before
    since = -1 if run.forgotten else min((entry.seen for entry in asked), default=-1)
    run = replace(run, at="ask", since=since, all_stamped=all_stamped, earlier=earlier)
    overtaken = frozenset(one.claim for one in before) - {one.claim for one in earlier}
    return replace(run, overtaken=overtaken, sent=sent, human=_current_word(run, entries)), Ask()


def _current_word(run: Run, entries: tuple[Entry, ...]) -> Human:
    """What a person said, of the attempts that were over then.

    Another's claim since the block was parked may be of the same person's word, whose answer was
    lost.
    """
    parked = [entry for entry in entries if entry.state in {PARKED, ASIDE}]
    if run.human != "absent" or not parked:
        return run.human
    last = max(parked, key=_rank).attempt
    others = [entry for entry in entries if entry.claim != run.claim]
    since = any(last < entry.attempt < run.attempt for entry in others)
    return "retry" if since else "absent"


def _decide_by_letters(run: Run, letters: LettersFound) -> tuple[Run, Effect]:
    """Letters that are there settle the block, whatever was said of it.

    Else the ledger is read again. Who claimed the block before their producer was fenced is seen
    then, and who claims it after that fences this one's.
    """
    if letters.state == "written":
        return replace(run, at="mark"), Settle(run.attempt, DEAD, _remark(run, letters.said))
    if letters.state == "unclear" and run.human not in {"loaded", "discard"}:
        return replace(run, at="mark"), Park(run.attempt, letters.said)
    return replace(run, at="again", letters=letters.state), ReadEntries()


def _go_on(run: Run) -> tuple[Run, Effect]:
    """Behind a mark the ledger has the last word; with messages left out the block is claimed."""
    if run.at == "mark":
        return replace(run, at="end"), ReadEntries()
    token = read_token(run.sent) or 1
    return replace(run, at="claim", attempt=run.attempt + 1), Claim(run.attempt + 1, token)


def _last_claims(claims: Iterable[Entry]) -> list[Entry]:
    """Those that may have inserted.

    An owner claims again only when his INSERT was refused, or before he has sent one.
    """
    return list({entry.claim: entry for entry in sorted(claims, key=_rank)}.values())


def _since_anew(before: Sequence[Entry], refused: Sequence[Entry]) -> tuple[Entry, ...]:
    """Those that may have inserted, since an owner found that nothing of the block was there.

    He claimed it again for a further token then. What he had seen was of claims that his first one
    had overtaken; of one that came in between nobody knows. `before`: claims of others; `refused`:
    the attempt's own, if an INSERT of it was refused.
    """
    claims = _last_claims(before)
    last = [*claims, *_last_claims(refused)]
    newest = _newest_token(last)
    owners = {entry.claim for entry in last if read_token(entry.sent) == newest}
    of_owners = [entry for entry in (*before, *refused) if entry.claim in owners]
    first = [_rank(entry) for entry in of_owners if read_token(entry.sent) < newest]
    if newest == 1 or not first:
        return tuple(claims)
    return tuple(
        entry for entry in claims if read_token(entry.sent) == newest or _rank(entry) > max(first)
    )


def _rejected(run: Run, reason: str) -> tuple[Run, Effect]:
    """The table refuses rows that no claim before has left out."""
    if run.rejected:
        return replace(run, at="mark"), Park(run.attempt, reason)
    if not run.isolates:
        return run, Done("retry", reason, About.BLOCK)
    return replace(run, at="isolate", rejected=reason), Isolate(reason)


def _wrote(run: Run, rows: int) -> tuple[Run, Effect]:
    """The server's answer to one's own statement is proof."""
    if rows >= run.rows:
        return (replace(run, at="recount"), Ask()) if run.recounts else _inserted(run)
    if rows == 0:
        # The claim was lost, or the ledger that this server sees lags behind: look again.
        return replace(run, at="end"), ReadEntries()
    reason = f"the server wrote {rows} of {run.rows} rows"
    return run, _retry(reason, RetryCause.ROWS_NOT_WRITTEN)


def _inserted(run: Run) -> tuple[Run, Effect]:
    absent = "a person found none of its rows in the table" if run.human == "absent" else ""
    return replace(run, at="mark"), Settle(run.attempt, reason=_remark(run, absent))


def _remark(run: Run, *findings: str) -> str:
    """What the ledger keeps beside a state: what was found, and the person's own words."""
    return "; ".join(filter(None, [*findings, run.why]))


def _recounted(run: Run, facts: InsertFacts) -> tuple[Run, Effect]:
    """The answer to a repeat is also that of a server that has the token and lost the part."""
    if facts.running:  # not counted; a server answers before it strikes the INSERT off its list
        return run, _retry(facts.running, RetryCause.STILL_RUNNING)
    if not _lacks_rows(run, facts, run.rows):
        return _inserted(run)
    return replace(run, at="mark"), _lost_part(run, facts, run.rows)


def _count_tells(run: Run, facts: InsertFacts) -> bool:
    """Whether a count shows what a token without its part has kept out.

    It does not where rows go by themselves, or are hidden. Where somebody may have removed some,
    neither the count nor the answer to a repeat is proof: a person has to say.
    """
    return run.all_stamped and facts.logs_tokens and facts.fewer in {"", facts.removed}


def _lacks_rows(run: Run, facts: InsertFacts, rows: int) -> bool:
    """Whether the table lacks rows of a repeat, of which the server said that it wrote them."""
    return facts.counted is not None and facts.counted < rows and _count_tells(run, facts)


def _lost_part(run: Run, facts: InsertFacts, rows: int) -> Park:
    behind = f" and in {', '.join(facts.views)}" if facts.views else ""
    removed = f", or they were removed ({facts.removed})" if facts.removed else ""
    return Park(
        run.attempt,
        f"the server answered that the table has all of its rows, and {facts.counted} of {rows} "
        f"are there: it has the block's deduplication token and lost a part{removed}. Run ALTER "
        "TABLE ... DELETE ... SETTINGS mutations_sync = 2 for those that are there"
        f"{behind}, be it none, then let the block be inserted",
    )


def _retry(reason: str, cause: RetryCause) -> Done:
    return Done("retry", reason, cause=cause)


def _proved(run: Run, proof: InsertFacts | ServerRecord) -> tuple[Run, Effect]:
    if isinstance(proof, ServerRecord):
        return _on(run, _decide_by_record(run, proof))
    if run.at == "recount":
        return _recounted(run, proof)
    run = replace(run, facts=proof)
    return _on(run, _decide(run))


def _on(run: Run, effect: Effect) -> tuple[Run, Effect]:
    """The run where the answer to this effect finds it."""
    if isinstance(effect, AskRecord):
        return replace(run, at="record"), effect
    if isinstance(effect, Claim):
        run = replace(run, attempt=effect.attempt, reclaims=run.reclaims + 1)
    if isinstance(effect, Insert):
        run = replace(run, recounts=_recounts(run))
    ends: dict[type[Effect], At] = {
        Claim: "claim",
        Insert: "insert",
        Settle: "mark",
        Park: "mark",
        WriteLetters: "letters",
    }
    return replace(run, at=ends.get(type(effect), run.at), facts=InsertFacts()), effect


def _recounts(run: Run) -> bool:
    """Whether an INSERT may find its token without the part, and a count shows it.

    Of rows that were removed any token may be left, also of claims that the ledger has lost.
    """
    orphan = bool(run.facts.removed) or _may_have_token(run.earlier, run.sent)
    return orphan and _count_tells(run, run.facts)


def _may_have_token(claims: Iterable[Entry], sent: Sent) -> bool:
    """Whether an INSERT of these may have left the token of one that is sent so.

    What does not say under which it was sent may have had the first.
    """
    tokens = (read_token(claim.sent) or 1 for claim in claims if claim.sent != TOGETHER)
    return read_token(sent) in tokens


def _repeats(run: Run, claim: str) -> bool:
    """Whether a recorded statement may have found its token without the part."""
    own = next((entry for entry in run.earlier if entry.claim == claim), None)
    if own is None:
        # Which ones were before it, a ledger that was lost cannot say. Rows that somebody removed
        # later stay so then, as those of each block that was loaded.
        return not (run.forgotten and run.facts.removed)
    return _may_have_token((entry for entry in run.earlier if _rank(entry) < _rank(own)), own.sent)


def _decide(run: Run) -> Effect:
    """The order of proof for a block that an earlier claim may have inserted."""
    facts = run.facts
    if facts.running:
        return _retry(facts.running, RetryCause.STILL_RUNNING)
    counted = facts.counted if run.all_stamped else None
    if run.rejected and not run.earlier and not run.forgotten:
        return _after_refusal(run, counted)
    if run.human == "dead":
        return _for_letters(run, counted)
    if run.human == "absent" and not counted and not run.rejected:
        if facts.unconfirmed and facts.passing:
            return _unconfirmed(run)  # who looked may have asked the same replica
        return _insert(run, None, anew=bool(facts.removed) or _may_be_orphan(run, counted))
    if run.human in {"loaded", "discard"}:
        return _decide_by_word(run, counted)
    # All of it, before the token: a table that was restored from a backup has forgotten that.
    nothing = counted == 0 and run.rows > 0
    stays = not nothing and not facts.views and not facts.unconfirmed
    if counted is not None and stays and (maker := _maker_of_all(run, counted)):
        return Settle(run.attempt, made_by=maker.claim)
    # Nobody has inserted anything since the oldest claim, whose INSERT neither.
    if run.earlier and run.since >= 0 and facts.inserted == 0 and not counted:
        return _insert(run, facts.newest, anew=_may_be_orphan(run, counted))
    return AskRecord()


def _insert(run: Run, limit: int | None, *, anew: bool) -> Effect:
    """INSERT under the token that earlier claims have, or anew: under one that none of them has.

    The claim says which, and is written again before: whoever finds it knows then that nothing of
    the block was there, and repeats its INSERT under the same token.
    """
    refused = read_token(run.sent) if run.rejected else 0
    token = max(_newest_token(run.earlier), refused)
    if anew:
        # What does not say how it was sent may have had the first.
        used = [read_token(entry.sent) or int(not entry.sent) for entry in run.earlier]
        token = 1 + max([*used, refused, int(run.forgotten)])
    if run.sent in {say_alone(token), UNREMEMBERED}:
        return Insert(limit)
    if run.reclaims == _RECLAIMS:
        return _retry("others insert into the table all the time", RetryCause.OTHERS_INSERTED)
    return Claim(run.attempt + 1, token)


def _newest_token(claims: Iterable[Entry]) -> int:
    return max((read_token(entry.sent) for entry in claims), default=0) or 1


def _may_be_orphan(run: Run, counted: int | None) -> bool:
    """Whether the table may have a token without the part, and nobody needs it.

    Where a count says that nothing is there, nobody does. Else a server that was killed may have
    left one, and the table's counter says that nothing was inserted, or a person does.
    """
    facts = run.facts
    if not facts.logs_tokens or facts.views:  # a view may have rows that only the token tells
        return False
    return facts.restarted or (counted == 0 and not facts.fewer)


def _after_refusal(run: Run, counted: int | None) -> Effect:
    """The rest of a block, after the run's own INSERT of all of it was refused.

    That can have left whole partitions; and the table's part of it, where a view behind it refused.
    The token is right for what it left of partitions: those had no bad row, and are the same now.
    """
    facts = run.facts
    if counted == 0 and not facts.fewer and not facts.unconfirmed:
        return Insert(None)
    if not facts.views and facts.one_step:
        return Insert(None)
    if not facts.views and facts.inserted is not None and facts.inserted <= facts.margin:
        return Insert(facts.newest + facts.margin - facts.inserted)
    if facts.unconfirmed and facts.passing:
        return _unconfirmed(run)
    part = "" if counted is None else f"; {_describe_share(run, counted)}"
    return Park(run.attempt, f"{run.rejected}{part}, and may come from the INSERT that was refused")


def _for_letters(run: Run, counted: int | None) -> Effect:
    """A message becomes a dead letter only where none of its rows is in the table."""
    facts = run.facts
    if run.since >= 0 and facts.inserted == 0 and not counted:
        return WriteLetters()
    if counted == 0 and not (facts.fewer or facts.unconfirmed or facts.views):
        return WriteLetters()
    stays = not facts.views and not facts.unconfirmed
    if counted and stays and (maker := _maker_of_all(run, counted)):
        return Settle(run.attempt, made_by=maker.claim)
    return AskRecord()


def _remembered(run: Run) -> int | None:
    """The greatest insert counter at which the table surely remembers the claims' tokens.

    Then the same statement under the same token adds what is missing, in partitions and in
    views, and nothing else. None where it may do more.
    """
    facts, makers = run.facts, run.earlier
    if not makers or run.since < 0 or facts.inserted is None:
        return None
    if facts.inserted == 0 and not facts.unconfirmed:
        return None  # its rows say that one has
    # Under one token, rows of another version would be taken for the same ones; blocks that were
    # sent together had another one (loader.blocks.insert_groups); and a window that the table got
    # since has not what was inserted before.
    newest = _newest_token(makers)
    unlike = any(e.transform != run.transform or read_token(e.sent) != newest for e in makers)
    if unlike or facts.inserted > facts.margin:
        return None
    # What others insert until the statement runs counts, too (see loader.core.table_rules).
    return facts.newest + facts.margin - facts.inserted


def _decide_by_record(run: Run, record: ServerRecord) -> Effect:
    """What the server recorded, then the token, then what a count means, else a person.

    A token may go without a trace, as with a partition that is dropped from a Replicated table.
    The record says that the INSERT was carried out all the same.
    """
    facts = run.facts
    if record.claim in run.overtaken:
        record = ServerRecord("unclear", said=_OVERTAKEN)
    if effect := _by_success(run, record):
        return effect
    known = _knows(run, record.claim)
    counted = facts.counted if run.all_stamped else None
    # By a person, or a backup without it was restored.
    removed = record.state in {"gone", "replaced"} and known
    doubted = facts.fewer or facts.unconfirmed or facts.views or removed
    counts = counted == 0 and not doubted
    alike = all(entry.transform == run.transform for entry in run.earlier)
    replaces = facts.repeatable and alike and run.human != "dead"
    # Where nobody needs the token, one without its part must not stand for rows that are not there.
    needless = facts.logs_tokens and (counts or replaces)
    believed = run.human != "dead" and not removed and not needless
    if believed and (limit := _remembered(run)) is not None:
        return _insert(run, limit, anew=False)
    if facts.unconfirmed and facts.passing and not replaces:
        return _unconfirmed(run)
    if run.human == "dead":
        if record.state == "never" and not counted:
            return WriteLetters()
        return Park(run.attempt, _describe_evidence(run, counted, record))
    # Rows that are there without an INSERT of them on record: the record is another server's, or
    # lacks something, or a person inserted them by hand.
    if replaces:
        return _insert(run, None, anew=facts.logs_tokens)
    if counts or (record.state == "never" and not counted):
        return _insert(run, None, anew=_may_be_orphan(run, counted))
    unknown = run.forgotten and not run.lost and record.state != "perhaps"
    replaced = record.state == "replaced"  # others may have its rows, and the table its token
    if unknown and not run.earlier and not counted and (counted == 0 or not replaced):
        # Nothing says that its rows were ever here, as with every block at a first start; or they
        # went when the table was set back, together with the ledger.
        return _insert(run, None, anew=replaced)
    return Park(run.attempt, _describe_evidence(run, counted, record))


def _by_success(run: Run, record: ServerRecord) -> Effect | None:
    """What follows where the server recorded that an INSERT wrote the rows; None: it has not."""
    known = _knows(run, record.claim)
    written = record.state == "written" or (record.state == "perhaps" and known)
    if not written or not (maker := _maker(run, record.claim)):
        return None
    if _lacks_rows(run, run.facts, maker.rows) and _repeats(run, record.claim):
        return _lost_part(run, run.facts, maker.rows)
    return Settle(run.attempt, made_by=maker.claim)


def _unconfirmed(run: Run) -> Done:
    """Rows that may go, or come: the server finds out, and then they tell."""
    return _retry(run.facts.unconfirmed, RetryCause.UNCONFIRMED)


def _knows(run: Run, claim: str) -> bool:
    """Whether the ledger has the claim of a statement: else it was set back since.

    "": what earlier versions of the program sent, which did not say.
    """
    return not run.forgotten and claim in {"", run.claim, *(entry.claim for entry in run.earlier)}


def _describe_evidence(run: Run, counted: int | None, record: ServerRecord) -> str:
    """The evidence that was found, for the person who settles the block."""
    facts = run.facts
    findings = ["an earlier attempt ended before the server answered"]
    if not run.earlier:
        findings = ["the ledger may have lost the entry of an earlier attempt"]
    if counted is not None:
        findings.append(_describe_share(run, counted))
        if counted and len({entry.transform for entry in run.earlier}) > 1:
            findings.append("versions of the transform made different numbers of rows")
    elif not run.all_stamped:
        findings.append("the table did not have the block-id column during every attempt")
    if facts.unconfirmed:
        findings.append(facts.unconfirmed)
    if facts.fewer:
        findings.append(f"a count proves nothing: {facts.fewer}")
    if facts.views:
        findings.append(f"rows of the views behind it are not counted: {', '.join(facts.views)}")
    if any(entry.transform != run.transform for entry in run.earlier):
        findings.append("the transform has changed")
    findings.append("the table may have forgotten the block's deduplication token")
    if record.said:
        findings.append(record.said)
    return "; ".join(findings) + ": only a person can tell whether the rows are there"


def _claims(run: Run) -> Sequence[Entry]:
    """Those whose rows may be in the table; the run's own where there is no other."""
    own = Entry(PREPARED, run.attempt, "", rows=run.rows, transform=run.transform)
    return run.earlier or [own]


def _maker(run: Run, claim: str) -> Entry | None:
    """The claim whose rows a recorded statement wrote; None where several may have."""
    claims = _claims(run)
    named = [entry for entry in claims if entry.claim == claim] or claims
    alike = {(entry.rows, entry.transform) for entry in named}
    return named[0] if len(alike) == 1 else None


def _maker_of_all(run: Run, counted: int) -> Entry | None:
    """A claim all of whose rows these are, if they cannot be a part of another version's."""
    able = [entry for entry in _claims(run) if entry.rows >= counted]
    alike = {(entry.rows, entry.transform) for entry in able}
    return able[0] if len(alike) == 1 and able[0].rows == counted else None


def _describe_share(run: Run, counted: int) -> str:
    sizes = sorted({entry.rows for entry in _claims(run)})
    return f"{counted} of its {' or '.join(map(str, sizes))} rows are in the table"


def _decide_by_word(run: Run, counted: int | None) -> Effect:
    """A person's word, unless the rows that carry the block's id say otherwise."""
    share = "" if counted is None else _describe_share(run, counted)
    if run.facts.unconfirmed and run.facts.passing:
        return _unconfirmed(run)
    if run.human == "loaded":
        # Which of two versions it was is the person's to know.
        fitting = [entry for entry in _claims(run) if counted in {None, entry.rows}]
        if not fitting:
            return Park(run.attempt, f"a person marked it as loaded, but {share}")
        return Settle(run.attempt, LOADED, _remark(run, SAID_LOADED), fitting[-1].claim)
    if counted is not None and (maker := _maker_of_all(run, counted)):
        return Settle(run.attempt, LOADED, _remark(run, share), maker.claim)
    return Settle(run.attempt, DISCARDED, _remark(run, "a person gave it up", share))


def _outcome(entries: tuple[Entry, ...]) -> Done:
    last = settled(entries)
    if last is None:
        return _retry("another loader works on this block", RetryCause.ANOTHER_LOADER)
    return Done(cast("Outcome", last.state), last.reason)
