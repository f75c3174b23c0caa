"""INSERTs of claimed blocks: small ones of one table together, all others one by one.

Receives attempts whose next effect is an INSERT, answers each. What a statement costs beside its
rows is most of a small block's cost, and every statement leaves a part to be merged.

Blocks go together only where that loses no evidence: first attempts, on a table whose rows are
counted by the block-id column, stay as they are, and land in one step
(loader.core.table_rules.Nature). Elsewhere a block's own token is the first repair after an unknown
outcome, and a block goes alone. Of blocks that go together the ledger has this claim and nothing
else, which is what an INSERT of several asks of it. No other attempt ever repeats such a statement,
so its token is its own; whether it still runs is seen in system.processes, and whether it ran, in
the rows of each block. After a failure each block is tried again by itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    Future,
    ThreadPoolExecutor,
    wait,
)
from threading import Lock
from typing import NamedTuple, TypeGuard

import numpy as np
import pyarrow as pa
from clickhouse_connect.driver.httpclient import HttpClient

from loader.blocks.attempt import Attempt, answer_errors
from loader.blocks.fetch import Damaged, Fetcher
from loader.blocks.insert_statement import insert
from loader.clickhouse.ledger import Ledger
from loader.clickhouse.replica_lag import differs, lag
from loader.clickhouse.tables import Tables, Target
from loader.clickhouse.unseen_columns import unseen
from loader.core import plan
from loader.core.bad_messages import without_an_example
from loader.core.block_size import rows_size
from loader.core.left_out import is_divisible
from loader.core.retry_cause import RetryCause
from relay.clickhouse.errors import About, is_surely_a_value
from relay.config.settings import Loader
from relay.failpoints import reached
from relay.schema.types.column_type import CLICKHOUSE_TYPE

TOGETHER_BYTES = 8 << 20
"""Of Arrow data in one INSERT of several blocks."""
BESIDE_BYTES = 32 << 20
"""Of Arrow data in an INSERT beside which the next blocks are fetched: so much more is held."""
LONG_SECONDS = 30.0
"""Of an INSERT that failed: the task's next ones into its table are not sent. A task may have a
dozen of them, each of which would take as long."""
_SAME_TROUBLE = frozenset({About.SERVER, About.TABLE_NOW})
"""What the next INSERT into the table would meet as well."""
ID_BYTES = 5_000
"""Of the ids of blocks in one INSERT: its log_comment names them, in the URL, with escapes."""


class ReadyBlock(NamedTuple):
    """A block whose rows were fetched.

    Attributes:
        size: in bytes, of the rows; of those in a shared chunk as loader.core.block_size has it.
            pyarrow adds it up each time it is asked.
    """

    attempt: Attempt
    target: Target
    batch: pa.RecordBatch
    size: int
    limit: int | None


class Inserter:
    """Send INSERTs through one client, each on condition that the ledger has the blocks' claim.

    Attributes:
        at_once: how many INSERTs may be under way, each into another table: with a quorum, a
            replica takes no second INSERT into a table before the first has one.
    """

    def __init__(
        self,
        client: HttpClient,
        ledger: Ledger,
        tables: Tables,
        fetcher: Fetcher,
        settings: Loader,
    ) -> None:
        self._client, self._ledger, self._tables = client, ledger, tables
        self._fetcher, self._stamp = fetcher, settings.block_column
        self._dead = settings.rejected == "dead"
        self._sender = ThreadPoolExecutor(thread_name_prefix="insert")
        self._under_way: dict[Future[None], str] = {}
        self._silent: dict[str, plan.NoAnswer] = {}  # tables, since it rested
        self._looking = Lock()
        self._looked: dict[str, Target | None] = {}
        self.at_once = 1

    def rest(self) -> None:
        """End a task: in the next one, tables that did not answer are tried again."""
        self._silent = {}

    def close(self) -> None:
        """End the threads that send."""
        self._sender.shutdown()

    def insert(self, attempts: Sequence[Attempt]) -> None:
        """Insert the blocks of these attempts, all under one claim, and answer each.

        While INSERTs are under way, the next blocks are fetched.

        Raises:
            Refused: ClickHouse or Kafka no longer accepts the user.
        """
        try:
            self._insert(attempts)
        finally:
            self._wait()

    def _insert(self, attempts: Sequence[Attempt]) -> None:
        self._looked = {}
        waiting: list[ReadyBlock] = []
        for attempt in attempts:
            ready: ReadyBlock | None = None
            with answer_errors([attempt]):
                ready = self._ready(attempt)
            if ready is None:
                continue
            if waiting and not joins(waiting, ready, self._stamp):
                self._send(waiting)
                waiting = []
            waiting.append(ready)
            # One that waits for no other is not held while the next is fetched.
            if not open_for_more(waiting[0], self._stamp):
                self._send(waiting)
                waiting = []
        if waiting:
            self._send(waiting)

    def _ready(self, attempt: Attempt) -> ReadyBlock | None:
        """Fetch the rows of an attempt; return None if it is answered without an INSERT."""
        assert attempt.target is not None
        assert isinstance(attempt.effect, plan.Insert)
        start = time.monotonic()
        batch, attempt.made = attempt.made, None
        shared = batch is None and attempt.block.HasField("share")
        try:
            if batch is None:
                batch = self._fetcher.fetch(attempt.block, attempt.ahead)
                listed = self._fetcher.messages
                attempt.divisible = is_divisible(attempt.block, listed, dead=self._dead)
        except Damaged as error:
            attempt.answer(plan.Impossible(str(error)))
            return None
        attempt.figures.fetch_seconds += time.monotonic() - start
        # An INSERT leaves out what its table does not have, and dead letters are for ever.
        if differs(batch.schema, attempt.target) and (
            behind := lag(self._client, attempt.block.table, attempt.target, keeps_values=False)
        ):
            attempt.answer(behind)
            return None
        if denied := self._deny_columns(batch.schema.names, attempt):
            attempt.answer(denied)
            return None
        # To add up what a slice holds of each column takes longer than all else here.
        size = rows_size(attempt.block) if shared else batch.nbytes
        if not batch.num_rows:
            attempt.answer(plan.Wrote(0))  # the transform left no row
            return None
        return ReadyBlock(attempt, attempt.target, batch, size, attempt.effect.limit)

    def _deny_columns(self, columns: Sequence[str], attempt: Attempt) -> plan.NoAnswer | None:
        """Return why columns that the table seems not to have are not left out yet."""
        assert attempt.target is not None
        table = attempt.block.table
        if attempt.target.columns.keys() >= set(columns):
            return None
        if table not in self._looked:
            # The look before the claim may be older than the block; and to this user, who does not
            # see the column, the table looks the same before it was altered and after.
            with self._looking:
                self._looked[table] = self._tables.look({table}).get(table)
        now = self._looked[table]
        reason = "" if now is None else unseen(table, now, columns)
        if not reason:
            return None
        # Blocks without the column go on.
        return plan.NoAnswer(reason, About.UNKNOWN, RetryCause.NO_RIGHT_ON_COLUMN)

    def _send(self, group: Sequence[ReadyBlock]) -> None:
        """Send an INSERT once there is room for it beside those under way."""
        table = group[0].attempt.block.table
        while len(self._under_way) >= self.at_once or table in self._under_way.values():
            self._wait(FIRST_COMPLETED)
        if met := self._silent.get(table):
            reason = f"not sent, because an earlier INSERT into {table} met: {met.reason}"
            for ready in group:
                ready.attempt.answer(plan.NoAnswer(reason, met.about))
            return
        self._under_way[self._sender.submit(self._insert_group, group)] = table
        if sum(ready.size for ready in group) > BESIDE_BYTES:
            self._wait()

    def _wait(self, until: str = ALL_COMPLETED) -> None:
        """Wait for all INSERTs that are under way, or for the first that ends."""
        ended, _ = wait(self._under_way, return_when=until)
        for future in ended:
            del self._under_way[future]
        for future in ended:
            future.result()

    def _insert_group(self, group: Sequence[ReadyBlock]) -> None:
        """Send the INSERT of these blocks and answer each; runs in a thread of its own."""
        first, figures = group[0], group[0].attempt.figures
        with answer_errors([ready.attempt for ready in group]):
            start = time.monotonic()
            figures.inserts += 1
            figures.repeats += first.attempt.asked
            rows = join_rows(group, self._stamp)
            answer = insert(
                self._client,
                self._ledger,
                [ready.attempt.block for ready in group],
                rows,
                first.attempt.run.claim,
                first.target,
                stamp=self._stamp,
                limit=first.limit,
                token=first.attempt.token,
            )
            seconds = time.monotonic() - start
            figures.insert_seconds += seconds
            if seconds >= LONG_SECONDS and _is_of_all(answer):
                self._silent[first.attempt.block.table] = answer
            reached("after_insert")
            answers = self._answers(group, self._unless_altered(answer, first), rows.num_rows)
            figures.failures += not isinstance(answer, plan.Wrote)
            now_ms = time.time_ns() // 1_000_000
            for ready, own in zip(group, answers, strict=True):
                ready.attempt.inserted = isinstance(own, plan.Wrote) and own.rows > 0
                if ready.attempt.inserted:
                    ready.attempt.figures.queryable_ms = now_ms
                ready.attempt.answer(own)

    def _answers(
        self, group: Sequence[ReadyBlock], answer: plan.Answer, rows: int
    ) -> Sequence[plan.Answer]:
        """Translate the statement's answer into one answer for each block."""
        if len(group) == 1:
            return [_of_one_message(answer, group[0].attempt)]
        if isinstance(answer, plan.Wrote) and answer.rows >= rows:
            return [plan.Wrote(ready.batch.num_rows) for ready in group]
        if _is_refused(answer, About.SIZE, About.UNKNOWN):
            # For one of them, perhaps: the next attempt at each finds that by itself. Where it is
            # for its rows, other tables do not wait for that attempt: they stand aside.
            about = About.BLOCK if isinstance(answer, plan.Rejected) else ""
            reason = f"in one INSERT with {len(group) - 1} others: {answer.reason}"
            answer = plan.NoAnswer(reason, about)
        return [answer] * len(group)

    def _unless_altered(self, answer: plan.Answer, ready: ReadyBlock) -> plan.Answer:
        """Keep a refusal only if the table is still the one that was looked at."""
        table = ready.attempt.block.table
        if _is_refused(answer, About.TABLE, About.UNKNOWN):
            with self._looking:
                now = self._tables.look({table}).get(table)
            if now is None or now.shape != ready.target.shape:
                reason = f"{table} was altered meanwhile: {answer.reason}"
                return plan.NoAnswer(reason, cause=RetryCause.TABLE_ALTERED)
        return answer


def _is_of_all(answer: plan.Answer) -> TypeGuard[plan.NoAnswer]:
    """Return whether the next INSERT into the table would meet the same."""
    return isinstance(answer, plan.NoAnswer) and answer.about in _SAME_TROUBLE


def _is_refused(
    answer: plan.Answer, *abouts: About
) -> TypeGuard[plan.Impossible | plan.Rejected | plan.NoAnswer]:
    """Return whether the server refused the rows, or failed for one of these reasons."""
    failed = isinstance(answer, plan.NoAnswer) and answer.about in abouts
    return failed or isinstance(answer, plan.Impossible | plan.Rejected)


def _of_one_message(answer: plan.Answer, attempt: Attempt) -> plan.Answer:
    """Have a refused block parked as a whole if its messages cannot be left out one by one.

    Or wait, where that is not surely for values: one that is refused without those that were left
    out, too.
    """
    if not isinstance(answer, plan.Rejected):
        return answer
    again = bool(attempt.run.rejected) and not is_surely_a_value(answer.reason)
    return without_an_example(answer.reason) if again or not attempt.divisible else answer


def join_rows(group: Sequence[ReadyBlock], stamp: str) -> pa.RecordBatch:
    """Return the rows of all; with several blocks, a column more names each row's block."""
    if len(group) == 1:
        return group[0].batch
    rows: pa.RecordBatch = pa.concat_batches([ready.batch for ready in group])  # type: ignore[attr-defined]
    lengths = [ready.batch.num_rows for ready in group]
    index = np.repeat(np.arange(len(group), dtype=np.int32), lengths)
    ids = [ready.attempt.block.id for ready in group]
    kind = pa.dictionary(pa.int32(), pa.string())
    field = pa.field(stamp, kind, metadata={CLICKHOUSE_TYPE: b"LowCardinality(String)"})
    return rows.append_column(field, pa.DictionaryArray.from_arrays(index, ids))


def joins(group: Sequence[ReadyBlock], ready: ReadyBlock, stamp: str) -> bool:
    """Return whether `ready` may join the INSERT of these blocks."""
    first, joined = group[0], [*group, ready]
    return (
        _joinable(first, stamp)
        and _joinable(ready, stamp)
        and first.attempt.block.table == ready.attempt.block.table
        and first.batch.schema.equals(ready.batch.schema, check_metadata=True)
        and sum(other.size for other in joined) <= TOGETHER_BYTES
        and sum(len(other.attempt.block.id) for other in joined) <= ID_BYTES
    )


def open_for_more(ready: ReadyBlock, stamp: str) -> bool:
    """Return whether other blocks may join the INSERT of this one."""
    return ready.size < TOGETHER_BYTES and _joinable(ready, stamp)


def _joinable(ready: ReadyBlock, stamp: str) -> bool:
    """Return whether the claim allows others, and nobody else has claimed the block."""
    return (
        not ready.attempt.token
        and not ready.attempt.asked
        and ready.limit is None
        and stamp not in ready.batch.schema.names
    )
