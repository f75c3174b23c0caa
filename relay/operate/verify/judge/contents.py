"""Judges what lies in a block topic, and in ClickHouse, against the journal's blocks. Pure.

So are the dead letters that loaders wrote, against the ledger. A block topic is taken in one pass,
record by record, so that its size does not matter.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import google_crc32c

from relay.blocks.placement import key
from relay.names import LEFT_OUT, sealed
from relay.operate.verify.judge.anomaly import (
    AnomalyKind,
    UnplacedAnomaly,
    gap,
    late,
    overlap,
    torn,
)
from relay.operate.verify.judge.ledger_history import NOTHING, History
from relay.operate.verify.judge.missing_rows import Missing
from relay.operate.verify.judge.unlisted_blocks import source_partition
from relay.program.plural import several
from relay.records_pb2 import Block


@dataclass(slots=True)
class _Seen:
    """Chunks under one key so far."""

    first: int
    next: int
    chunks: int
    rows: int
    crc32c: int


class BlockTopic:
    """One partition of a block topic, read from its beginning to `end`.

    Args:
        blocks: the journal's, of this topic and partition.
        start: the log's start; blocks before it are gone, and not judged.
        end: what is beyond it was not read; `beyond` judges the blocks that reach there.
        whole_until: gives the Unix milliseconds before which all that was sealed is listed, of all
            source partitions; asked only where rows of a shared chunk are of no block.
        reach: by source partition, Unix milliseconds of the first and the last journal record that
            was read; 0 for the first where none is gone.
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        start: int,
        end: int,
        *,
        whole_until: Callable[[], float] = lambda: 0,
        reach: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        self._expected: dict[str, list[Block]] = defaultdict(list)
        for block in blocks:
            if block.first_offset >= start and block.next_offset <= end:
                self._expected[key(block)].append(block)
        self._whole_until, self._reach = whole_until, reach or {}
        self._seen: dict[str, _Seen] = {}
        self._last = ""
        self._unlisted: dict[str, int] = {}

    def chunk(self, offset: int, block: str, rows: int, value: bytes) -> Iterator[UnplacedAnomaly]:
        """Judge the next visible record: its key, its rows, its bytes."""
        if block not in self._expected:
            self._unlisted.setdefault(block, offset)
            return
        seen = self._seen.get(block)
        if seen is None:
            seen = self._seen[block] = _Seen(offset, offset, 0, 0, 0)
        elif block != self._last:
            yield torn(
                f"block {block} continues at offset {offset}, after chunks of block {self._last}"
            )
        self._last = block
        seen.next = offset + 1
        seen.chunks += 1
        seen.rows += rows
        seen.crc32c = google_crc32c.extend(seen.crc32c, value)

    def end(self) -> Iterator[UnplacedAnomaly]:
        """Judge what only the end shows, after the last record."""
        sources = {source_partition(name) for name in self._unlisted}
        stretches = {source: self._stretch(source) for source in sources}
        for name, offset in self._unlisted.items():
            if offset in stretches[source_partition(name)]:
                yield torn(f"no journal record lists block {name} at offset {offset}")
        for block in self._listed():
            yield from _as_listed(block, self._seen.get(key(block)))
        for name, blocks in self._expected.items():
            if name in self._seen and blocks[0].HasField("share"):
                yield from self._shares(name, blocks)

    def _stretch(self, source: int) -> range:
        """Return the offsets whose chunks of this source partition the journal that was read lists.

        Each journal partition was read by itself: what is older belongs to records that retention
        took from it, and what is newer came later.
        """
        listed = list(self._listed())
        if own := [block for block in listed if block.partition == source]:
            first = min(block.first_offset for block in own)
            return range(first, max(block.next_offset for block in own))
        since_ms, until_ms = self._reach.get(source, (0, sys.maxsize))
        before = (block.first_offset + 1 for block in listed if block.sealed_at_ms >= since_ms)
        first = min(before, default=sys.maxsize) if since_ms else 0
        after = (block.next_offset for block in listed if block.sealed_at_ms <= until_ms)
        return range(first, max(after, default=0))

    def _listed(self) -> Iterator[Block]:
        for blocks in self._expected.values():
            yield from blocks

    def _shares(self, name: str, blocks: Iterable[Block]) -> Iterator[UnplacedAnomaly]:
        """Judge whose rows a shared chunk has: each row is of one block."""
        done = 0
        for block in sorted(blocks, key=lambda one: one.share.first_row):
            first = block.share.first_row
            if first < done:
                yield overlap(
                    f"block {block.id} has rows from {first} on of chunk {name}, of which "
                    f"another block has those before {done}"
                )
            elif first > done:
                yield from self._of_no_block(name, done, first)
            done = max(done, first + block.rows)
        rows = self._seen[name].rows
        if done > rows:
            yield gap(f"chunk {name} has {rows} rows, but its blocks have {done}")
        elif done < rows:
            yield from self._of_no_block(name, done, rows)

    def _of_no_block(self, name: str, first: int, end: int) -> Iterator[UnplacedAnomaly]:
        """Yield rows that no listed block has, where all blocks of their transaction are listed."""
        if max(block.sealed_at_ms for block in self._expected[name]) < self._whole_until():
            yield gap(f"rows {first} to {end} of chunk {name} are of no block")


def _as_listed(block: Block, seen: _Seen | None) -> Iterator[UnplacedAnomaly]:
    """Judge a block's chunks; which rows of a shared one are its own, `_shares` judges."""
    if seen is None:
        yield gap(f"block {block.id}: none of its {block.chunks} chunks is in the block topic")
        return
    rows = seen.rows if block.HasField("share") else block.rows
    found = (seen.chunks, seen.rows, seen.crc32c, seen.first, seen.next)
    journal = (block.chunks, rows, block.crc32c, block.first_offset, block.next_offset)
    if found != journal:
        finding = gap if found[:2] < journal[:2] else torn
        yield finding(
            f"block {block.id}: (chunks, rows, CRC-32C, first offset, next offset) are {found}, "
            f"but the journal says {journal}"
        )


def beyond(blocks: Iterable[Block], stable: int, log_end: int) -> Iterator[UnplacedAnomaly]:
    """Yield blocks of one partition of a block topic that its log does not reach any more.

    The journal was read before the log was looked at, so all that it lists had been written. The
    log's end includes what is in open transactions.
    """
    for block in blocks:
        if block.next_offset > max(stable, log_end):
            yield gap(
                f"block {block.id}: its chunks are before offset {block.next_offset} of the block "
                f"topic, which ends at {log_end}: they are lost, or the topic was made anew",
                block.partition,
            )


def hidden(
    blocks: Iterable[Block], topic: str, partition: int, stable: int, log_end: int
) -> Iterator[str]:
    """Say how many of them are behind an open transaction, and not read; arguments as `beyond`."""
    if behind := [block for block in blocks if stable < block.next_offset <= log_end]:
        yield (
            f"{topic}[{partition}]: an open transaction at offset {stable} hides the chunks of "
            f"{several(len(behind), 'block')} (the first is {behind[0].id})"
        )


def landed(
    blocks: Iterable[Block],
    counted: Mapping[str, int] | None,
    ledger: Mapping[str, History],
    now_ms: int,
    late_seconds: float,
    made: Mapping[str, int] | None = None,
    missing: Missing | None = None,
) -> Iterator[UnplacedAnomaly]:
    """Yield blocks of one table against the ledger, and the rows that carry their ids.

    Rows that carry other ids are relay.operate.verify.judge.unlisted_blocks's.

    Args:
        blocks: the journal's.
        counted: rows in ClickHouse by block id; None where the table has no block-id column.
        ledger: of the blocks.
        now_ms: Unix time.
        late_seconds: how long a sealed block may take to be loaded.
        made: rows by block id, of blocks whose rows went through loader.transform.
        missing: decides what rows prove that are not there; default: that they are lost.
    """
    extra = missing is None or missing.judges_extra
    for block in blocks:
        state = ledger.get(block.id, NOTHING).state
        rows = 0 if counted is None else counted.get(block.id, 0)
        whole = (made or {}).get(block.id, block.rows)
        if rows > whole and extra:
            text = f"block {block.id}: the table has {rows} of its rows, but the block has {whole}"
            yield overlap(text, block.partition)
        elif state == "loaded" and counted is not None and rows < whole:
            if missing is None or not missing.explained(block, rows, whole):
                but = "" if missing is None else f"; {missing.unexplained(block)}"
                text = (
                    f"block {block.id} is loaded, but the table has {rows} of its {whole} rows{but}"
                )
                yield gap(text, block.partition)
        elif (
            state not in {"loaded", "parked", "aside", "discarded", "dead"}
            and now_ms - block.sealed_at_ms > late_seconds * 1e3
        ):
            yield late(
                f"block {block.id} was sealed {(now_ms - block.sealed_at_ms) / 1e3:.0f} s ago and "
                f"is {state or 'not touched'}",
                block.partition,
            )


def left_out(blocks: Iterable[Block], rows: Mapping[str, int]) -> Iterator[Block]:
    """Yield blocks that messages make which a loader left out of others: judged as any other.

    Blocks are the journal's, of one table; rows are those of each such block in the ledger, by id.
    """
    for block in blocks:
        name = f"{block.id}{LEFT_OUT}"
        if name in rows:
            copy = Block()
            copy.CopyFrom(block)
            copy.id, copy.rows = name, rows[name]
            yield copy


def given_up(
    blocks: Iterable[Block], counted: Mapping[str, int] | None, reasons: Mapping[str, str]
) -> Iterator[str]:
    """Yield blocks of one table that a person discarded: no anomaly, and not to be forgotten.

    Rows are `counted` as for `landed`; `reasons` are those of the discarded blocks, by id.
    """
    for block in blocks:
        if block.id in reasons:
            rows = "not counted" if counted is None else f"{counted.get(block.id, 0)}"
            yield (
                f"block {block.id} of {block.rows} rows was discarded, rows in the table: {rows}; "
                f"{reasons[block.id]}"
            )


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RefusedMessages:
    """A block of left out messages, by the ledger.

    Attributes:
        state: of the block.
        partition: of the source.
        messages: their source offsets.
        since: where their dead letters can begin; -1: no loader was about to write any.
        rows: in the table that carry the block's id; None where they are not counted.
    """

    state: str
    partition: int
    messages: frozenset[int]
    since: int = -1
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class LoaderLetter:
    """A dead letter that a loader wrote: of which block, and the source offset of its message."""

    block: str
    message: int


class LetterJudge:
    """The dead letters of one source partition against the ledger.

    Args:
        begin: of the topic's partition: retention took what was before.
        known: blocks that the journal retains, by id; of others the ledger need not have anything.
    """

    def __init__(self, partition: int, begin: int, known: Collection[str]) -> None:
        self._partition, self._begin, self._known = partition, begin, known
        self.not_judged: list[str] = []
        """What cannot be known, and why; complete after `judge`."""

    def judge(
        self,
        letters: Iterable[LoaderLetter],
        ledger: Mapping[str, RefusedMessages],
        again: Callable[[Collection[str]], Mapping[str, RefusedMessages]],
    ) -> Iterator[UnplacedAnomaly]:
        """Yield what is wrong; the ledger was read before the letters were.

        It is asked `again` about blocks that it did not know: what a loader leaves out of a block
        is in the ledger before its letters are in the topic.
        """
        by_block: dict[str, Counter[int]] = defaultdict(Counter)
        for letter in letters:
            by_block[letter.block][letter.message] += 1
        mine = {b: refused for b, refused in ledger.items() if refused.partition == self._partition}
        unknown = [b for b in by_block if b not in mine and sealed(b) in self._known]
        later = again(unknown) if unknown else {}
        known = {
            b: refused for b, refused in later.items() if refused.partition == self._partition
        } | mine
        for block, messages in by_block.items():
            yield from self._of(block, messages, known.get(block))
        for block, refused in mine.items():
            if refused.state == "dead":
                yield from self._whole(block, refused, by_block.get(block, Counter()))

    def _of(
        self, block: str, messages: Counter[int], refused: RefusedMessages | None
    ) -> Iterator[UnplacedAnomaly]:
        if twice := sorted(message for message, count in messages.items() if count > 1):
            yield self._finding(
                AnomalyKind.OVERLAP, block, twice, "are dead letters more than once"
            )
        if refused is None:
            if sealed(block) in self._known:
                text = "are dead letters, and the ledger knows no such block"
                yield self._finding(AnomalyKind.FOREIGN, block, sorted(messages), text)
            return
        if others := sorted(set(messages) - refused.messages):
            text = "are dead letters, and were not left out of it by the ledger"
            yield self._finding(AnomalyKind.TORN, block, others, text)
        if refused.state == "loaded" or refused.rows:
            text = f"are dead letters, and rows as well: the block is {refused.state}"
            yield self._finding(AnomalyKind.OVERLAP, block, sorted(messages), text)

    def _whole(
        self, block: str, refused: RefusedMessages, messages: Counter[int]
    ) -> Iterator[UnplacedAnomaly]:
        if not (missing := sorted(refused.messages - set(messages))):
            return
        if self._begin > max(refused.since, 0):
            self.not_judged.append(
                f"block {block}: {len(missing)} of its {len(refused.messages)} dead letters may "
                f"have gone by retention: the topic begins at {self._begin}"
            )
            return
        yield self._finding(
            AnomalyKind.GAP, block, missing, "are no dead letters, as the ledger says"
        )

    def _finding(
        self, kind: AnomalyKind, block: str, messages: list[int], what: str
    ) -> UnplacedAnomaly:
        first = ", ".join(map(str, messages[:_SHOWN]))
        more = f" and {len(messages) - _SHOWN} more" if len(messages) > _SHOWN else ""
        text = f"block {block}: messages {first}{more} {what}"
        return UnplacedAnomaly(kind, text, self._partition)
