"""`relay verify --deep`: block topics, ClickHouse and source topic against the journal.

Reads each topic once, from the oldest record retained; holds the journal's blocks in memory (about
1 kB each).
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property, partial

from relay import names
from relay.blocks.dead_letter import BLOCK
from relay.blocks.placement import place
from relay.config.settings import Settings
from relay.errors import Unavailable
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, UnplacedAnomaly
from relay.operate.verify.judge.beginning import came_later
from relay.operate.verify.judge.contents import (
    BlockTopic,
    LetterJudge,
    LoaderLetter,
    beyond,
    hidden,
)
from relay.operate.verify.judge.ledger_history import lost, waiting_lines
from relay.operate.verify.judge.operator_records import Superseded
from relay.operate.verify.judge.server_records import SKEW_MS
from relay.operate.verify.judge.unlisted_blocks import known as all_known
from relay.operate.verify.landing import Landing, anomalies
from relay.operate.verify.read.topic import (
    DeletedMeanwhile,
    TopicReader,
    header,
    rows_of,
    source_offset_of,
    table_of,
)
from relay.operate.verify.relay_letters import RelayLetterJudge
from relay.operate.verify.source_messages import SourceJudge
from relay.records_pb2 import Block, Commit

_TRIES = 5
"""At a partition whose records are deleted while they are read; a segment at a time goes."""


class Deep:
    """What `--deep` adds to an audit of the journal.

    Args:
        audit: gets all that `judge` finds beside anomalies.
        removed: tables of which a person removed rows.
    """

    def __init__(self, settings: Settings, audit: Audit, removed: Collection[str] = ()) -> None:
        self._settings, self.audit, self._removed = settings, audit, removed
        self._began_ms = time.time_ns() // 1_000_000
        self._commits: dict[int, list[Commit]] = defaultdict(list)
        self._last_offsets: dict[int, int] = {}
        self._topics = TopicReader(settings)
        self._sources = TopicReader(settings, settings.source_kafka)
        self._silent: set[tuple[str, int]] = set()

    def keep(self, partition: int, offset: int, commit: Commit) -> None:
        """Keep a journal record, in order."""
        self._commits[partition].append(commit)
        self._last_offsets[partition] = offset

    def close(self) -> None:
        """Let go of the consumers."""
        self._topics.close()
        self._sources.close()

    def judge(self, progress: Callable[[str], None]) -> Iterator[Anomaly]:
        """Yield everything that the journal names.

        Raises:
            Unavailable: ClickHouse or no broker of a cluster answered.
        """
        blocks = [b for commits in self._commits.values() for c in commits for b in c.blocks]
        chunks: dict[tuple[str, int], list[Block]] = defaultdict(list)
        for block in blocks:
            chunks[place(block)].append(block)
        for topic in sorted({topic for topic, _ in chunks}):
            progress(f"reading {topic}")
            partitions = self._topics.partitions(topic)
            if not partitions:
                self.audit.not_judged.append(f"{topic} is not there, or this user may not see it")
                continue
            for partition in sorted({*partitions, *(p for name, p in chunks if name == topic)}):
                of_partition = chunks[topic, partition]
                judge = partial(self._block_topic, topic, partition, of_partition)
                found = (
                    self._read(self._topics, topic, partition, judge)
                    if partition in partitions
                    else beyond(of_partition, 0, 0)
                )
                yield from anomalies(found, partition=partition)
        progress("asking ClickHouse")
        yield from self._clickhouse(blocks)
        source = self._settings.source.topic
        progress(f"reading {source}")
        for partition in sorted(self._commits):
            judge = partial(self._source, partition)
            yield from anomalies(
                self._read(self._sources, source, partition, judge), partition=partition
            )

    def _read(
        self,
        reader: TopicReader,
        topic: str,
        partition: int,
        judge: Callable[[], Iterator[UnplacedAnomaly]],
    ) -> list[UnplacedAnomaly]:
        """Return what is found in a partition, as far as its leader answers.

        Where retention goes on meanwhile, it is judged once more from its new start.
        """
        findings: list[UnplacedAnomaly] = []
        for tries_left in range(_TRIES, 0, -1):
            findings.clear()
            try:
                findings.extend(judge())
            except Unavailable as error:
                if isinstance(error, DeletedMeanwhile) and tries_left > 1:
                    continue
                self._pass_over(reader, topic, partition, error)
            break
        return findings

    def _pass_over(
        self, reader: TopicReader, topic: str, partition: int, error: Unavailable
    ) -> None:
        """Note that a partition cannot be read: that says nothing of others.

        Raises:
            Unavailable: no broker answers at all.
        """
        reader.partitions(topic)
        self._silent.add((topic, partition))
        self.audit.not_judged.append(error.message)
        self.audit.errors.append(error)

    def _block_topic(
        self, topic: str, partition: int, blocks: list[Block]
    ) -> Iterator[UnplacedAnomaly]:
        start, stable = self._topics.bounds(topic, partition)
        # The journal was read before: what is visible beyond its last block came later.
        end = min(stable, max((block.next_offset for block in blocks), default=0))
        judge = BlockTopic(
            blocks, start, end, whole_until=lambda: self._whole_until_ms, reach=self._reach()
        )
        for message in self._topics.read(topic, partition, start, end):
            name = (message.key() or b"").decode(errors="replace")
            chunk = name, rows_of(message), message.value() or b""
            yield from judge.chunk(message.offset() or 0, *chunk)
        yield from judge.end()
        if any(block.next_offset > stable for block in blocks):
            # The log ends before them, or an open transaction hides them.
            log_end = self._topics.end(topic, partition)
            yield from beyond(blocks, stable, log_end)
            self.audit.not_judged += hidden(blocks, topic, partition, stable, log_end)

    def _reach(self) -> dict[int, tuple[int, int]]:
        """Return when the first and the last record of each journal partition were written."""
        return {
            partition: (
                0 if commits[0].n <= 1 else commits[0].written_at_ms,
                commits[-1].written_at_ms,
            )
            for partition, commits in self._commits.items()
        }

    @cached_property
    def _whole_until_ms(self) -> float:
        """Unix ms before which no journal record is missing, of any source partition.

        Each journal partition was read by itself, while relays may work: of one transaction the
        record of one partition may have been read and that of another not yet, whose marker came
        later, or which an open transaction hides. All of them were in the logs by then, so it can
        be missing only where a log goes on, behind the last record that was read there.
        """
        if any(commits[0].n > 1 for commits in self._commits.values()):
            return 0
        journal = names.journal_topic(self._settings.app)
        until: float = sys.maxsize
        for partition in self._topics.partitions(journal):
            commits = self._commits.get(partition, [])
            # Behind the last record that was read lies its transaction's marker.
            read_to = self._last_offsets[partition] + 2 if commits else 0
            if self._topics.end(journal, partition) > read_to:
                # The clocks of two relays may differ.
                until = min(until, commits[-1].written_at_ms - SKEW_MS if commits else 0)
        return until

    def _clickhouse(self, blocks: list[Block]) -> Iterator[Anomaly]:
        superseded = {p: Superseded(commits) for p, commits in self._commits.items()}
        within = all_known(self._began_ms, self._commits)
        landing = Landing(self._settings, superseded, self._removed, within)
        yield from landing.judge(blocks)
        self.audit.acknowledged += landing.acknowledged
        self.audit.not_judged += landing.not_judged
        self.audit.errors += landing.failed.values()
        for table, waiting in landing.waiting.items():
            self.audit.waiting += waiting_lines(table, waiting)
            places = {place(entry.block) for entry in waiting if entry.block.topic}
            yield from anomalies(lost(waiting, self._logs(places)), table)
        known = {block.id for block in blocks if block.table not in landing.failed}
        topic = names.dead_topic(self._settings.app)
        for partition in sorted(self._commits):
            judge = partial(self._dead_letters, topic, partition, landing, known)
            yield from anomalies(self._read(self._topics, topic, partition, judge))

    def _logs(
        self, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int] | None]:
        """Return where partitions begin and end, but not of unreadable ones; None: no such."""
        logs: dict[tuple[str, int], tuple[int, int] | None] = {}
        for topic, partition in sorted({*places} - self._silent):
            try:
                if partition not in self._topics.partitions(topic):
                    if why := self._topics.not_shown(topic):
                        self._silent.add((topic, partition))
                        self.audit.not_judged.append(
                            f"whether blocks that wait are in {topic}[{partition}]: {why}"
                        )
                    else:
                        logs[topic, partition] = None
                    continue
                begin = self._topics.bounds(topic, partition)[0]
                logs[topic, partition] = begin, self._topics.end(topic, partition)
            except Unavailable as error:
                self._pass_over(self._topics, topic, partition, error)
        return logs

    def _dead_letters(
        self,
        topic: str,
        partition: int,
        landing: Landing,
        known: Collection[str],
    ) -> Iterator[UnplacedAnomaly]:
        """Judge those of relays, and those that loaders wrote; the ledger was read before."""
        commits = self._commits[partition]
        if partition not in self._topics.partitions(topic):
            dead = any(commit.dead for commit in commits) or any(
                refused.state == "dead" and refused.partition == partition
                for refused in landing.refused.values()
            )
            if dead:
                self.audit.not_judged.append(
                    f"{topic}[{partition}] is not there, or this user may not see it: dead letters "
                    "are not judged"
                )
            return
        # Asked for first: what comes between the two questions is no open transaction's.
        log_end = self._topics.end(topic, partition)
        begin, end = self._topics.bounds(topic, partition)
        of_loaders, letters = LetterJudge(partition, begin, known), []
        of_relays = RelayLetterJudge(commits, begin)
        for message in self._topics.read(topic, partition, begin, end):
            offset = source_offset_of(message)
            if block := header(message, BLOCK):
                letters.append(LoaderLetter(block.decode(errors="replace"), offset))
            else:
                table = header(message, names.TABLE_HEADER) or b""
                of_relays.letter(table.decode(errors="replace"), offset)
        yield from of_loaders.judge(letters, landing.refused, landing.refused_by_now)
        self.audit.not_judged += of_loaders.not_judged
        yield from of_relays.judge(end if log_end > end else None)
        self.audit.not_judged += of_relays.not_judged

    @cached_property
    def _compacted(self) -> bool | None:
        """Whether compaction deletes messages of the source."""
        return self._sources.compacted(self._settings.source.topic)

    def _source(self, partition: int) -> Iterator[UnplacedAnomaly]:
        topic = self._settings.source.topic
        start, stable = self._sources.bounds(topic, partition)
        later = came_later(partition, (commits[0] for commits in self._commits.values()))
        commits, compacted = self._commits[partition], self._compacted
        judge = SourceJudge(commits, start, later=later, compacted=compacted)
        for message in self._sources.read(topic, partition, judge.first, min(stable, judge.next)):
            judge.message(message.offset() or 0, table_of(message))
        yield from judge.judge()
        self.audit.not_judged += judge.not_judged(partition)
