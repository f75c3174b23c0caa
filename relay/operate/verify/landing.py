"""Compares blocks with ClickHouse, table by table: rows, ledger, and the server's logs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from clickhouse_connect.driver.exceptions import ClickHouseError

from relay.config.settings import Settings
from relay.errors import RelayError
from relay.names import BlockId, sealed
from relay.operate.verify.judge.anomaly import Anomaly, UnplacedAnomaly
from relay.operate.verify.judge.contents import RefusedMessages, given_up, landed, left_out
from relay.operate.verify.judge.ledger_history import WaitingBlock, claims, impossible
from relay.operate.verify.judge.missing_rows import Missing
from relay.operate.verify.judge.operator_records import Superseded, replaced
from relay.operate.verify.judge.tally import UnjudgedTally
from relay.operate.verify.judge.unlisted_blocks import JournalReach, unlisted
from relay.operate.verify.judge.writes import TableWrites, Writes
from relay.operate.verify.read.landed_rows import LandedRows
from relay.operate.verify.read.server_logs import ServerLogs
from relay.operate.verify.read.table_facts import TableAsking
from relay.records_pb2 import Block
from relay.schema.catalogue import translated

LATE_SECONDS = 60.0
"""How long a sealed block may take until it is loaded, before it counts as late."""


class Landing:
    """The judgement of an app's blocks in ClickHouse.

    Args:
        superseded: what rewinds replaced, by source partition.
        removed: tables of which a person removed rows, as they say.
        known: what the journal can know; default: everything.

    Raises (every method):
        Unavailable: ClickHouse did not answer.
        Refused: the user may not ask what has to be asked, of all tables.
    """

    def __init__(
        self,
        settings: Settings,
        superseded: Mapping[int, Superseded],
        removed: Collection[str] = (),
        known: JournalReach | None = None,
    ) -> None:
        self._settings, self._superseded, self._removed = settings, superseded, removed
        self._old = {b for one in superseded.values() for b in one.kept | one.removed}
        self._known = known or JournalReach()
        self._counted: dict[str, Mapping[str, int] | None] = {}
        self._rows = LandedRows(settings)
        column, several = settings.loader.block_column, len(settings.clickhouse.urls) > 1
        self._asking = TableAsking(self._rows.optional(), column)
        self._logs = ServerLogs(self._rows.optional(), settings.app, several=several)
        self.acknowledged: list[str] = []
        """What a person gave up; complete after `judge`."""
        self.refused: dict[str, RefusedMessages] = {}
        """Blocks of left out messages, by id; complete after `judge`."""
        self.waiting: dict[str, list[WaitingBlock]] = {}
        """Blocks that are parked or set aside, by table; complete after `judge`."""
        self.failed: dict[str, RelayError] = {}
        """Why tables could not be judged, to the end or at all; complete after `judge`."""
        self.not_judged: list[str] = []
        """What cannot be known, and why; complete after `judge`."""

    def judge(self, blocks: Sequence[Block]) -> Iterator[Anomaly]:
        """Yield everything that is wrong with them."""
        by_table: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            by_table[block.table].append(block)
        for table, of_table in sorted(by_table.items()):
            try:
                yield from self._table(table, of_table)
            except (ClickHouseError, RelayError) as error:
                self._pass_over(table, error)
        self.waiting = dict(self._all_waiting({block.id: block for block in blocks}))

    def refused_by_now(self, blocks: Iterable[str]) -> dict[str, RefusedMessages]:
        """Return what the ledger has by now of the tables of these blocks, as `refused`."""
        refused: dict[str, RefusedMessages] = {}
        for table in sorted({BlockId.parse(block).table for block in blocks}):
            refused |= self._rows.refused(table, None)
        return refused

    def _pass_over(self, table: str, error: ClickHouseError | RelayError) -> None:
        """Note why a table cannot be judged: where the server answers, the others can.

        Raises:
            Unavailable: it does not answer.
        """
        if isinstance(error, RelayError):
            failure, cause = error, error.__cause__
        else:
            failure, cause = translated(error, self._settings.clickhouse, f"look at {table}"), error
        if getattr(cause, "code", None) is None:
            raise failure from cause
        self.failed[table] = failure
        self.not_judged.append(f"{table}: {failure.message}")

    def _all_waiting(self, listed: Mapping[str, Block]) -> Iterator[tuple[str, list[WaitingBlock]]]:
        """Yield waiting blocks by table, those too whose journal records are deleted."""
        for table, entries in self._rows.waiting().items():
            if table not in self._counted and table not in self.failed:
                try:
                    self._counted[table] = self._rows.counted(table)
                except RelayError as error:
                    self._pass_over(table, error)
            if table in self.failed:
                continue
            counted = self._counted[table] or {}
            yield (
                table,
                [
                    replace(
                        one,
                        block=one.block if one.block.topic else listed.get(one.block.id, one.block),
                        rows=counted.get(one.block.id, 0),
                    )
                    for one in entries
                    if sealed(one.block.id) not in self._old
                ],
            )

    def _table(self, table: str, blocks: list[Block]) -> Iterator[Anomaly]:
        # A block is late by the clock of the look at the ledger: the questions after it may take
        # minutes, in which it is loaded.
        old, now_ms = self._old, time.time_ns() // 1_000_000
        # What is left out by now, the ledger has.
        left_out_rows = self._rows.left_out(table)
        # The ledger first: what it has as loaded by then, must be counted after.
        ledger, made = self._rows.ledger(table), self._rows.made(table)
        blocks = [*blocks, *left_out(blocks, left_out_rows)]
        counted = self._counted[table] = self._rows.counted(table)
        self.refused |= self._rows.refused(table, counted)
        for partition, superseded in self._superseded.items():
            mine = {b.id: b for b in blocks if sealed(b.id) in old and b.partition == partition}
            findings = replaced(mine, superseded, counted, ledger, made)
            yield from anomalies(findings, table, partition)
        live = [block for block in blocks if sealed(block.id) not in old]
        if counted is not None:
            unlisted_ids = sorted(counted.keys() - {block.id for block in blocks})
            yield from self._unlisted(table, {name: counted[name] for name in unlisted_ids})
        self.acknowledged += given_up(live, counted, self._rows.discarded(table))
        since_ms = min((block.sealed_at_ms for block in blocks), default=0)
        facts = self._asking.facts(table, since_ms, acknowledged=table in self._removed)
        column, unasked = self._settings.loader.block_column, self._asking.unasked()
        recorded = self._logs.recorded(table, facts, since_ms)
        # Once more: rows of blocks that were claimed since are counted and recorded already.
        made = {**made, **self._rows.made(table)}
        missing = Missing(table, facts, ledger, column, unasked, recorded)
        findings = landed(live, counted, ledger, now_ms, LATE_SECONDS, made, missing)
        yield from anomalies(findings, table)
        yield from anomalies(impossible(live, ledger), table)
        writes = Writes(
            TableWrites(
                table,
                facts,
                {block.id: block for block in blocks},
                frozenset(block.id for block in live),
                ledger,
                recorded,
                made,
                None if missing.hidden_by else counted,
                missing.excused,
            )
        )
        yield from anomalies(writes.judge(), table)
        self.not_judged += [
            *missing.lines(counted=counted is not None),
            *writes.lines(),
            *claims(table, ledger),
        ]

    def _unlisted(self, table: str, rows: Mapping[str, int]) -> Iterator[Anomaly]:
        if not rows:
            return
        tally = UnjudgedTally(table)
        findings = unlisted(rows, self._rows.ledger(table), self._known, tally)
        yield from anomalies(findings, table)
        self.not_judged += tally.lines()


def anomalies(
    findings: Iterable[UnplacedAnomaly], table: str = "", partition: int = -1
) -> Iterator[Anomaly]:
    """Give findings their place, where they do not know it themselves."""
    for finding in findings:
        place = finding.partition if finding.partition >= 0 else partition
        yield Anomaly(finding.kind, place, 0, -1, finding.text, table)
