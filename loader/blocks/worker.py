"""Carries out loader.core.plan's effects for a few blocks; runs in Spark's worker processes.

Receives blocks, gives one outcome per block. A task that Spark runs twice is two loaders
at once, which the plan is made for: claims are written here, not by the driver.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from loader.blocks.attempt import (
    Attempt,
    Outcome,
    answer_errors,
    claim_of,
    group_marks,
    loaded,
    outcome,
    retry,
)
from loader.blocks.block_order import front, near
from loader.blocks.dead_letters import DeadLetterWriter
from loader.blocks.fetch import Fetcher
from loader.blocks.insert_groups import Inserter
from loader.blocks.isolation import ASKED_TO_END, Isolator
from loader.blocks.made_rows import Maker
from loader.clickhouse.client import TableRefused, connect
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
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.failpoints import reached
from relay.records_pb2 import Block
from relay.schema.block_column import misfit

Ends = Callable[[], bool]
Begin = Callable[..., tuple[plan.Run, plan.Effect]]


_SHARED = plan.ReadEntries | plan.Claim | plan.Settle
"""Effects that are carried out for several attempts at once."""

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
    """Load blocks in one process, with clients that are kept over tasks.

    With `isolates` it looks for the messages that a table refuses, which may take seconds; else a
    block that has some is left to a worker that does. `ends` says whether the loader is asked to
    end: no block is claimed then, and no trial begun.
    """

    def __init__(
        self, settings: Settings, *, isolates: bool = False, ends: Ends = lambda: False
    ) -> None:
        self._isolates, self._ends = isolates, ends
        self._stamp = settings.loader.block_column
        self._client = connect(settings.clickhouse, settings.loader.insert_timeout_seconds)
        self._ledger = Ledger(self._client, settings.loader.database, settings.app)
        self._running = Running(self._client, settings.clickhouse)
        many = several(settings.clickhouse, self._ledger.engine())
        self._tables = Tables(self._client, self._stamp, several=many, running=self._running)
        self._looks = TableCache(self._tables, self._stamp)
        self._targets = settings.targets()
        self._until = 0
        self._fetcher = Fetcher(settings.kafka)
        self._maker = Maker(settings.loader, self._fetcher)
        self._inserter = Inserter(
            self._client, self._ledger, self._tables, self._fetcher, settings.loader
        )
        self._isolator = Isolator(self._client, self._maker, settings.loader, ends)
        self._letters = DeadLetterWriter(settings)
        self._dead = settings.loader.rejected == "dead"
        self._seen: set[str] = set()  # tables of new blocks that were looked at
        self._decidable: set[str] = set()  # tables no block of which is at risk
        self._counted: set[str] = set()  # of these, those where a count of rows decides

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
            claimed = self._ledger.entries([b for b in blocks if b.id not in new]).keys()
            self._look_ahead([block for block in blocks if block.id in new], new)
        except Unavailable as error:
            return retry(blocks, error.message)
        begin = partial(plan.start, human=human, why=why, isolates=self._isolates)
        waiting = sorted(near(blocks), key=lambda block: block.id in claimed)
        outcomes: list[Outcome] = []
        try:
            while waiting and not self._ends():
                group = self._take(waiting, claimed)
                waiting = waiting[len(group) :]
                outcomes += self._attempt(group, new, begin, waiting[:TOGETHER])
        finally:
            self._fetcher.rest()
            self._inserter.rest()
        return outcomes + retry(waiting, ASKED_TO_END)

    def _look_ahead(self, blocks: Sequence[Block], new: Collection[str]) -> None:
        """Look at tables of which nothing is known, so that not each is taken to be at risk.

        Only once: whoever claims their blocks looks again, and says what is wrong with a table.
        """
        if unseen := {block.table for block in blocks} - self._seen:
            self._seen |= unseen
            with suppress(TableRefused):
                self._look([block for block in blocks if block.table in unseen], new)

    def _take(self, waiting: Sequence[Block], claimed: Collection[str]) -> Sequence[Block]:
        """Return as many blocks from the front as one statement is to claim."""
        group: list[Block] = []
        by_token = 0
        again = waiting[0].id in claimed
        most = CLAIMED_TOGETHER if again else TOGETHER
        for block in waiting[: most + 1]:
            by_token += block.table not in self._counted
            # What a transform made is held from the claim to the INSERT.
            roomy = block.table in self._decidable and not self._maker.makes(block.table)
            if (block.id in claimed) != again or not roomy or by_token > TOKEN_TOGETHER:
                break
            group.append(block)
        return group[: front(group, most)] or waiting[:AT_RISK_TOGETHER]

    def _attempt(
        self, blocks: Sequence[Block], new: Collection[str], begin: Begin, after: Sequence[Block]
    ) -> list[Outcome]:
        """Attempt blocks under one claim; those `after` them are probably attempted next."""
        try:
            targets = self._look(blocks, new)
        except Unavailable as error:
            return retry(blocks, error.message, self._judge_look(error))
        except TableRefused as error:
            return self._attempt_by_table(error, blocks, new, begin)
        claim = uuid.uuid4().hex
        attempts = []
        for number, block in enumerate(blocks, 1):
            target = targets.get(block.table)
            stamped = target is not None and target.stamped(self._stamp)
            run, effect = begin(claim, block.rows, stamped=stamped)
            attempt = Attempt(block, run, effect, target, [*blocks[number:], *after])
            attempts.append(attempt)
            if block.id in new:
                attempt.new = True
                attempt.answer(())
        while open_ := [a for a in attempts if not isinstance(a.effect, plan.Done)]:
            self._advance(open_)
        return [outcome(attempt) for attempt in attempts]

    def _attempt_by_table(
        self, error: TableRefused, blocks: Sequence[Block], new: Collection[str], begin: Begin
    ) -> list[Outcome]:
        """Attempt table by table blocks whose tables could not all be looked at."""
        tables = sorted({block.table for block in blocks})
        if len(tables) == 1:
            return retry(blocks, error.message, About.TABLE)
        by_table = ([b for b in blocks if b.table == table] for table in tables)
        return [done for group in by_table for done in self._attempt(group, new, begin, ())]

    def _judge_look(self, error: Unavailable) -> str:
        """Return what a look that failed is about: its tables, if the ledger can be looked at.

        So while their database is away, not each micro-batch tries their blocks anew.
        """
        if is_answer(error.__cause__):
            with suppress(Unavailable, TableRefused):
                self._tables.look({self._ledger.table})
                return About.TABLE_NOW
        return ""

    def _look(self, blocks: Sequence[Block], new: Collection[str]) -> dict[str, Target]:
        targets = self._looks.look(blocks, new)
        targets = {name: t for name, t in targets.items() if not self._targets.refusal(name)}
        counted = {name for name, t in targets.items() if t.counts(self._stamp)}
        by_token = {name for name, t in targets.items() if t.nature.window.margin(0) >= _ROOMY}
        looked = {block.table for block in blocks}
        self._counted = (self._counted - looked) | counted
        self._decidable = (self._decidable - looked) | counted | by_token
        return targets

    def _advance(self, attempts: Sequence[Attempt]) -> None:
        """Carry out the next effect of each: if it is one of _SHARED, for several at once."""
        reading = [a for a in attempts if isinstance(a.effect, plan.ReadEntries)]
        claiming = [a for a in attempts if isinstance(a.effect, plan.Claim)]
        marking = [a for a in attempts if isinstance(a.effect, plan.Settle)]
        if reading:
            with answer_errors(reading):
                self._read(reading)
        if claiming:
            with answer_errors(claiming):
                self._claim(claiming)
        for group in group_marks(marking):
            mark = self._mark_first if group[0].effect == plan.FIRST else self._mark
            with answer_errors(group):
                mark(group)
        # Of first attempts; another's may have a limit that what was inserted meanwhile exceeds.
        self._inserter.insert([a for a in attempts if isinstance(a.effect, plan.Insert)])
        for attempt in attempts:
            while not isinstance(attempt.effect, _SHARED | plan.Done):
                with answer_errors([attempt]):
                    self._carry_out(attempt)

    def _read(self, attempts: Sequence[Attempt]) -> None:
        entries = self._ledger.kept_entries([attempt.block for attempt in attempts])
        if any(attempt.run.at == "again" and not attempt.new for attempt in attempts):
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
        self._set_tokens([attempt for attempt, _ in claimed])
        reached("before_prepare")
        if claimed:
            rows = [
                NewEntry(attempt.block, claim_of(attempt, made, dead=self._dead), attempt.version)
                for attempt, made in claimed
            ]
            self._ledger.write(rows, self._until)
        reached("after_prepare")
        for attempt, made in claimed:
            attempt.answer(made)

    def _refusal(self, attempt: Attempt) -> plan.NoAnswer | plan.Impossible | None:
        """Return why no row of the block may go into its table, ever or now; None: it may."""
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

    def _set_tokens(self, attempts: Sequence[Attempt]) -> None:
        """Choose which go alone, and under which token: the claim says so, before any INSERT."""
        blocks_of = Counter(attempt.block.table for attempt in attempts)
        for attempt in attempts:
            assert isinstance(attempt.effect, plan.Claim)
            first = attempt.effect.attempt == 1 and not attempt.run.forgotten
            counts = attempt.target is not None and attempt.target.counts(self._stamp)
            together = first and counts and blocks_of[attempt.block.table] > 1
            attempt.token = 0 if together else attempt.effect.token

    def _mark(self, attempts: Sequence[Attempt]) -> None:
        claim, effect = attempts[0].run.claim, attempts[0].effect
        assert isinstance(effect, plan.Settle)
        rest = plan.ASIDE if self._dead else plan.PARKED
        blocks = [attempt.block for attempt in attempts]
        for some in in_urls(blocks, lambda block: len(block.id)):
            self._ledger.mark(some, claim, (effect.state, effect.reason), effect.made_by, rest)
        reached("after_loaded")
        for attempt in attempts:
            attempt.answer(plan.Ok())

    def _mark_first(self, attempts: Sequence[Attempt]) -> None:
        """Mark what first attempts have loaded; the others of them in the general way."""
        for some in in_urls(attempts, lambda attempt: len(attempt.block.id)):
            rows = [NewEntry(attempt.block, loaded(attempt.run)) for attempt in some]
            if self._ledger.mark_first(rows):
                reached("after_loaded")
                for attempt in some:
                    attempt.answer(plan.Marked())
            else:
                self._mark(some)

    def _carry_out(self, attempt: Attempt) -> None:
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
                rows = {entry.claim: entry.rows for entry in run.earlier}
                rows = rows or {"": core_left_out.rows(block)}
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
        """Return when a statement of the block can first have been sent."""
        claimed = self._ledger.oldest_claim(attempt.block)
        if not attempt.run.forgotten:
            return claimed
        # What the ledger lost was claimed before the row that says so.
        return claimed._replace(at_ms=min(claimed.at_ms, earliest(attempt.block)))
