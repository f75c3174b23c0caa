"""Carries out loader.core.plan's effects for a few blocks; runs in Spark's worker processes.

Receives blocks, gives one outcome per block. A task that Spark runs twice is two loaders
at once, which the plan is made for: claims are written here, not by the driver.
"""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from loader.blocks.attempt import Attempt, Outcome, alike, guarded, outcome, retry
from loader.blocks.dead_letters import DeadLetterWriter
from loader.blocks.fetch import Fetcher
from loader.blocks.insert_groups import Inserter
from loader.blocks.isolation import ASKED_TO_END, Isolator, never
from loader.blocks.made_rows import Maker
from loader.blocks.own_entries import claim_of, loaded
from loader.blocks.table_runs import front, near
from loader.clickhouse import client
from loader.clickhouse.client import TableRefused
from loader.clickhouse.ledger import Claimed, Ledger
from loader.clickhouse.replica_lag import lag
from loader.clickhouse.running_statements import Running
from loader.clickhouse.servers import several
from loader.clickhouse.table_cache import TableCache
from loader.clickhouse.tables import Tables, Target
from loader.core import left_out as core_left_out
from loader.core import plan
from loader.core.entries import NewEntry, earliest
from loader.core.retry_cause import RetryCause
from relay.clickhouse.errors import About, is_answer
from relay.clickhouse.http_pool import in_urls
from relay.config.allowed_tables import ledger_refusal
from relay.errors import Unavailable
from relay.failpoints import reached
from relay.schema.block_column import misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from relay.config.settings import Settings
    from relay.records_pb2 import Block

    Ends = Callable[[], bool]
    Begin = Callable[..., tuple[plan.Run, plan.Effect]]

_ALONE = (
    plan.Ask
    | plan.AskRecord
    | plan.AskLetters
    | plan.WriteLetters
    | plan.Insert
    | plan.Isolate
    | plan.Park
)
"""Effects that are carried out for one attempt at a time."""

TOGETHER = 512
"""Blocks claimed by one statement and marked by one. These and the questions between them cost as
much as three INSERTs (tests/bench/RESULTS.md, "Many quiet tables"), and 512 small blocks of many
tables, source partitions and transactions may be no more than thirty. The ids of more would not fit
into one statement; and of a loader that dies, so many are asked about one by one."""
TOKEN_TOGETHER = 32
"""Of these, blocks of tables where a token in the table's window decides, and not a count."""
CLAIMED_TOGETHER = 8
"""Of these, blocks that were claimed before. Each is asked about and inserted by itself, half a
second on slow replicas; and of two loaders that take turns at claiming all of each other's blocks,
neither comes to mark one."""
AT_RISK_TOGETHER = 4
"""The same, of tables with neither block-id column nor window: so many blocks at most are
parked when a loader dies in the middle."""
_ROOMY = 8 * TOKEN_TOGETHER
"""Parts that a table's window must have room for, so that its blocks are not at risk."""


class Worker:
    """Client, consumer and questions of one process, kept over tasks.

    Args:
        settings: of the app.
        isolates: whether it looks for the messages that a table refuses, which may take seconds;
            else a block that has some is left to one that does.
        ends: whether the loader is asked to end: no block is claimed then, and no trial begun.
    """

    def __init__(self, settings: Settings, *, isolates: bool = False, ends: Ends = never) -> None:
        self._isolates, self._ends = isolates, ends
        timeout = settings.loader.insert_timeout_seconds
        self._stamp = settings.loader.block_column
        self._client = client.connect(settings.clickhouse, timeout)
        self._ledger = Ledger(self._client, settings.loader.database, settings.app)
        self._running = Running(self._client, settings.clickhouse)
        many = several(settings.clickhouse, self._ledger.engine())
        self._tables = Tables(self._client, self._stamp, several=many, running=self._running)
        self._looks = TableCache(self._tables, self._stamp)
        self._targets = settings.targets()
        self._until = 0
        self._fetcher = Fetcher(settings.kafka)
        self._maker = Maker(settings.loader, self._fetcher)
        using = self._client, self._ledger, self._tables, self._fetcher
        self._inserter = Inserter(*using, settings.loader)
        self._isolator = Isolator(self._client, self._maker, settings.loader, ends)
        self._letters = DeadLetterWriter(settings)
        self._rejected = settings.loader.rejected
        # Tables, as last seen: no block of them is at risk; of these, a count of rows decides.
        self._seen: set[str] = set()
        self._decidable: set[str] = set()
        self._counted: set[str] = set()

    def close(self) -> None:
        """Close consumer, producer and client."""
        self._inserter.close()
        self._letters.close()
        self._fetcher.close()
        self._running.close()
        self._client.close()

    def load(
        self,
        blocks: Sequence[Block],
        new: Collection[str] = (),
        human: plan.Human = "nothing",
        why: str = "",
        until: int = 0,
        at_once: int = 1,
    ) -> list[Outcome]:
        """Return one attempt at each block.

        Args:
            blocks: sealed ones of the app.
            new: ids of those that the ledger knew nothing of, a moment ago: they are not asked
                for again before the claim. What came since is seen behind it, by all of them.
            human: what a person says of all blocks.
            why: in the person's own words.
            until: claims are taken no later, in Unix seconds by the server's clock; 0: any time.
            at_once: how many INSERTs may be under way.

        Raises:
            Refused: ClickHouse denies what no block can be loaded without.
        """
        self._until, self._inserter.at_once = until, at_once
        try:
            asked = [block for block in blocks if block.id not in new]
            claimed = self._ledger.entries(asked).keys()
            self._look_ahead([block for block in blocks if block.id in new], new)
        except Unavailable as error:
            return retry(blocks, error.message)
        left = sorted(near(blocks), key=lambda block: block.id in claimed)
        outcomes: list[Outcome] = []
        try:
            while left and not self._ends():
                few = self._next(left, claimed)
                left = left[len(few) :]
                begun = partial(plan.start, human=human, why=why, isolates=self._isolates)
                outcomes += self._few(few, new, begun, left[:TOGETHER])
        finally:
            self._fetcher.rest()
            self._inserter.rest()
        return outcomes + retry(left, ASKED_TO_END)

    def _look_ahead(self, blocks: Sequence[Block], new: Collection[str]) -> None:
        """Look at tables of which nothing is known, so that not each is taken to be at risk.

        Only once: whoever claims their blocks looks again, and says what is wrong with a table.
        """
        if unseen := {block.table for block in blocks} - self._seen:
            self._seen |= unseen
            with suppress(TableRefused):
                self._look([block for block in blocks if block.table in unseen], new)

    def _next(self, left: Sequence[Block], claimed: Collection[str]) -> Sequence[Block]:
        """Of these, from the front, as many as are to be claimed by one statement."""
        few: list[Block] = []
        by_token = 0
        again = left[0].id in claimed
        most = CLAIMED_TOGETHER if again else TOGETHER
        for block in left[: most + 1]:
            by_token += block.table not in self._counted
            # What a transform made is held from the claim to the INSERT.
            roomy = block.table in self._decidable and not self._maker.makes(block.table)
            if (block.id in claimed) != again or not roomy or by_token > TOKEN_TOGETHER:
                break
            few.append(block)
        return few[: front(few, most)] or left[:AT_RISK_TOGETHER]

    def _few(
        self,
        blocks: Sequence[Block],
        new: Collection[str],
        begin: Begin,
        after: Sequence[Block],
    ) -> list[Outcome]:
        try:
            targets = self._look(blocks, new)
        except Unavailable as error:
            return retry(blocks, error.message, self._whose(error))
        except TableRefused as error:
            return self._refused(error, blocks, new, begin)
        claim = uuid.uuid4().hex
        attempts = []
        for at, block in enumerate(blocks, 1):
            target = targets.get(block.table)
            stamped = target is not None and target.stamped(self._stamp)
            begun = begin(claim, block.rows, stamped=stamped)
            attempts.append(Attempt(block, *begun, target, [*blocks[at:], *after]))
            if block.id in new:
                attempts[-1].new = True
                attempts[-1].answer(())
        while open_ := [a for a in attempts if not isinstance(a.effect, plan.Done)]:
            self._advance(open_)
        return [outcome(attempt) for attempt in attempts]

    def _refused(
        self, error: TableRefused, blocks: Sequence[Block], new: Collection[str], begin: Begin
    ) -> list[Outcome]:
        """Of blocks whose tables could not all be looked at: table by table then."""
        tables = sorted({block.table for block in blocks})
        if len(tables) > 1:
            by_table = ([b for b in blocks if b.table == table] for table in tables)
            return [one for some in by_table for one in self._few(some, new, begin, ())]
        return retry(blocks, error.message, About.TABLE)

    def _whose(self, error: Unavailable) -> str:
        """What a look that failed is about: its tables, if the server can look at the ledger.

        So while their database is away, not each micro-batch tries their blocks anew.
        """
        if not is_answer(error.__cause__):
            return ""
        try:
            self._tables.look({self._ledger.table})
        except (Unavailable, TableRefused):
            return ""
        return About.TABLE_NOW

    def _look(self, blocks: Sequence[Block], new: Collection[str]) -> dict[str, Target]:
        targets = self._looks.look(blocks, new)
        targets = {t: one for t, one in targets.items() if not self._targets.refusal(t)}
        counted = {table for table, target in targets.items() if target.counts(self._stamp)}
        by_token = {t for t, one in targets.items() if one.nature.window.margin(0) >= _ROOMY}
        looked = {block.table for block in blocks}
        self._counted = (self._counted - looked) | counted
        self._decidable = (self._decidable - looked) | counted | by_token
        return targets

    def _advance(self, attempts: Sequence[Attempt]) -> None:
        """The next effect of each: all but questions and parking for several at once."""
        reading = [a for a in attempts if isinstance(a.effect, plan.ReadEntries)]
        claiming = [a for a in attempts if isinstance(a.effect, plan.Claim)]
        marking = [a for a in attempts if isinstance(a.effect, plan.Settle)]
        if reading:
            guarded(reading, lambda: self._read(reading))
        if claiming:
            guarded(claiming, lambda: self._claim(claiming))
        for some_alike in alike(marking):
            mark = self._mark_first if some_alike[0].effect == plan.FIRST else self._mark
            guarded(some_alike, lambda some=some_alike, mark=mark: mark(some))  # type: ignore[misc]
        # Of first attempts; another's may have a limit that what was inserted meanwhile exceeds.
        self._inserter.insert([a for a in attempts if isinstance(a.effect, plan.Insert)])
        for attempt in attempts:
            while isinstance(attempt.effect, _ALONE):
                guarded([attempt], lambda a=attempt: self._one(a))  # type: ignore[misc]

    def _read(self, attempts: Sequence[Attempt]) -> None:
        entries = self._ledger.kept_entries([attempt.block for attempt in attempts])
        if any(one.run.at == "again" and not one.new for one in attempts):
            # Before anything is inserted: an earlier claim that is hidden would not be asked about.
            self._ledger.check_seen()
        for attempt in attempts:
            of_block = entries.get(attempt.block.id, ())
            # Before the claim, which says what it leaves out.
            if attempt.run.at == "look" and (left_out := core_left_out.known(of_block)):
                attempt.block = core_left_out.without(attempt.block, left_out)
                attempt.closed = core_left_out.are_letters(of_block)
            attempt.letters_by = self._letters.producers
            attempt.answer(of_block)

    def _claim(self, attempts: Sequence[Attempt]) -> None:
        claimed: list[tuple[Attempt, plan.Made]] = []
        for attempt in attempts:
            if refusal := self._refusal(attempt):
                attempt.answer(refusal)
                continue
            made = self._maker.make(attempt)
            if isinstance(made, plan.Rejected | plan.Impossible):  # perhaps only by this replica
                table, target = attempt.block.table, attempt.target
                made = lag(self._client, table, target, keeps_values=True) or made
            if attempt.run.human == "dead":
                end = self._letters.ready(attempt.block)
                if isinstance(end, plan.NoAnswer):
                    made = end
                else:
                    attempt.letters_end = end
            if isinstance(made, plan.Made):
                claimed.append((attempt, made))
            else:
                attempt.answer(made)
        self._part_ways([attempt for attempt, _ in claimed])
        reached("before_prepare")
        if claimed:
            dead = self._rejected == "dead"
            rows = [
                NewEntry(one.block, claim_of(one, made, dead=dead), one.version)
                for one, made in claimed
            ]
            self._ledger.write(rows, self._until)
        reached("after_prepare")
        for attempt, made in claimed:
            attempt.answer(made)

    def _refusal(self, attempt: Attempt) -> plan.NoAnswer | plan.Impossible | None:
        """Why no row of the block may go into its table for ever, or not now; None: it may."""
        table, target = attempt.block.table, attempt.target
        if attempt.run.human in {"discard", "dead"}:
            return None  # a block is given up where its table is gone, too
        if target is not None:
            why = misfit(table, self._stamp, target.columns.get(self._stamp), attempt.block.id)
            return plan.NoAnswer(why, About.TABLE) if why else None
        ledger = ledger_refusal(table) if table in self._tables.ledgers else ""
        if refusal := self._targets.refusal(table) or ledger:
            return plan.Impossible(refusal)
        missing = f"there is no table {table}, or this user may not see it"
        return plan.NoAnswer(missing, About.TABLE, RetryCause.NO_TABLE)

    def _part_ways(self, attempts: Sequence[Attempt]) -> None:
        """Which of them go alone, and under which token: the claim says so, before any INSERT."""
        blocks_of = Counter(attempt.block.table for attempt in attempts)
        for one in attempts:
            assert isinstance(one.effect, plan.Claim)
            first = one.effect.attempt == 1 and not one.run.forgotten
            counts = one.target is not None and one.target.counts(self._stamp)
            together = first and counts and blocks_of[one.block.table] > 1
            one.token = 0 if together else one.effect.token

    def _mark(self, attempts: Sequence[Attempt]) -> None:
        blocks, first = [attempt.block for attempt in attempts], attempts[0]
        assert isinstance(first.effect, plan.Settle)
        said, made_by = (first.effect.state, first.effect.reason), first.effect.made_by
        rest = plan.ASIDE if self._rejected == "dead" else plan.PARKED
        for some in in_urls(blocks, lambda block: len(block.id)):
            self._ledger.mark(some, first.run.claim, said, made_by, rest)
        reached("after_loaded")
        for attempt in attempts:
            attempt.answer(plan.Ok())

    def _mark_first(self, attempts: Sequence[Attempt]) -> None:
        """Mark what first attempts have loaded; the others of them in the general way."""
        for some in in_urls(attempts, lambda one: len(one.block.id)):
            rows = [NewEntry(one.block, loaded(one.run)) for one in some]
            if self._ledger.mark_first(rows):
                reached("after_loaded")
                for attempt in some:
                    attempt.answer(plan.Marked())
            else:
                self._mark(some)

    def _one(self, attempt: Attempt) -> None:
        block, run, effect = attempt.block, attempt.run, attempt.effect
        attempt.asked |= isinstance(effect, plan.Ask)
        match effect:
            case plan.Ask() if attempt.target is None:
                # It may be there, hidden from this user, or refused by the settings of now alone.
                attempt.answer(plan.InsertFacts(running=self._running.of(block).reason))
            case plan.Ask():
                assert attempt.target is not None
                claimed = self._claimed(attempt)
                attempt.answer(self._tables.facts(block, run, attempt.target, claimed))
            case plan.AskRecord():
                rows = {entry.claim: entry.rows for entry in run.earlier} or {
                    "": core_left_out.rows(block)
                }
                since_ms, evidence = self._claimed(attempt).at_ms, self._tables.evidence
                places = block.table, self._ledger.table
                attempt.answer(evidence.record(block.id, rows, since_ms, *places))
            case plan.AskLetters(since):
                attempt.answer(self._letters.look(block, since))
            case plan.WriteLetters():
                attempt.answer(self._letters.write(block, attempt.letters_by))
            case plan.Insert():
                self._inserter.insert([attempt])
            case plan.Isolate(reason):
                attempt.answer(self._isolator.isolate(attempt, reason))
            case plan.Park(number, reason):
                entry = plan.Entry(plan.PARKED, number, run.claim, reason=reason, rows=run.rows)
                self._ledger.write([NewEntry(block, entry)])
                attempt.answer(plan.Ok())

    def _claimed(self, attempt: Attempt) -> Claimed:
        """When a statement of the block can first have been sent."""
        claimed = self._ledger.oldest_claim(attempt.block)
        if not attempt.run.forgotten:
            return claimed
        # What the ledger lost was claimed before the row that says so.
        return claimed._replace(at_ms=min(claimed.at_ms, earliest(attempt.block)))
