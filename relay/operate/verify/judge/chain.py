"""Judges a source partition's journal, record by record, against the record before.

`check(head, offset, commit) -> (head, anomalies)`: no clock, no client. Transaction markers
take offsets, so counts and the chain of floors decide, never offset arithmetic. After an
anomaly the record found is believed, so that one fault is told once and not for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relay.blocks import placement
from relay.operate.verify.judge import operator_records
from relay.operate.verify.judge.anomaly import (
    Anomaly,
    UnplacedAnomaly,
    backward,
    foreign,
    gap,
    overlap,
    torn,
)
from relay.operate.verify.judge.record import (
    ChainHead,
    JournalPlace,
    by_person,
    count_messages,
    judge_blocks,
    judge_fields,
    judge_place,
    sealed_parts,
)
from relay.records_pb2 import Commit


def check(
    place: JournalPlace, head: ChainHead | None, offset: int, commit: Commit
) -> tuple[ChainHead, list[Anomaly]]:
    """Return the head after `commit`, which lies at `offset`, and what is wrong with it."""
    before = _before_first(commit) if head is None and commit.n == 1 else head
    marks = {mark.table: mark.offset for mark in commit.marks}
    sealed = count_messages(commit)
    person = by_person(commit)
    shortened = before is not None and operator_records.shortens(before, commit, marks)
    anew = shortened or (person and operator_records.counts_anew(commit))
    findings = [*judge_place(place, commit)]
    if before is not None:
        findings += _sequence(before, commit, person=person)
    findings += [*judge_fields(commit), *judge_blocks(commit)]
    if before is not None:
        if before.rewinding or commit.rewound:
            findings += operator_records.in_order(before, commit)
        if person:
            findings += operator_records.judge(before, commit, marks)
        elif shortened:
            findings += operator_records.shortened(before, commit, marks)
        else:
            findings += _marks(before, commit, marks)
            findings += _chunks(before, commit)
        if not anew:
            findings += _counts(before, commit, sealed)
    anomalies = [finding.at(place.partition, commit.n, offset) for finding in findings]
    # Blocks that still count may hold messages that will be counted again.
    covered = None if before is None or before.covered is None or anew else before.covered + sealed
    return _next_head(before, offset, commit, marks, covered), anomalies


def _before_first(commit: Commit) -> ChainHead:
    """Return the state before the first record: its counts can be checked in full."""
    start = commit.previous_floor
    return ChainHead(0, commit.epoch, start, commit.source_topic_id, {}, start, 0, 0, -1, start, {})


def _next_head(
    before: ChainHead | None,
    offset: int,
    commit: Commit,
    marks: Mapping[str, int],
    covered: int | None,
) -> ChainHead:
    ends = before.ends if before is not None else {}
    if commit.blocks:
        ends = {**ends, **{placement.place(block): block.next_offset for block in commit.blocks}}
    rewinding = commit.HasField("rewind")
    return ChainHead(
        n=commit.n,
        epoch=commit.epoch,
        floor=commit.floor,
        topic_id=commit.source_topic_id,
        marks=marks,
        reference=commit.floor if commit.flush_point else commit.reference,
        count=0 if commit.flush_point else commit.count,
        covered=0 if commit.flush_point else covered,
        offset=offset,
        position=commit.position,
        ends=ends,
        rewinding=rewinding,
        before_rewind=(before.floor, before.marks) if rewinding and before is not None else None,
    )


def _sequence(head: ChainHead, commit: Commit, *, person: bool) -> Iterator[UnplacedAnomaly]:
    if commit.source_topic_id != head.topic_id and not person:
        yield foreign(
            f"the record's source topic id is {commit.source_topic_id}, the record before it "
            f"has {head.topic_id}"
        )
    if commit.epoch != head.epoch and not person:
        finding = backward if commit.epoch < head.epoch else torn
        yield finding(
            f"the record's epoch is {commit.epoch}, the record before it has {head.epoch}"
        )
    if commit.n != head.n + 1:
        finding = backward if commit.n <= head.n else gap
        yield finding(f"the record has n={commit.n}, the record before it n={head.n}")
    if commit.previous_floor != head.floor:
        finding = backward if commit.previous_floor < head.floor else gap
        yield finding(
            f"the record's previous floor is {commit.previous_floor}, but the record before "
            f"it has floor {head.floor}"
        )


def _marks(head: ChainHead, commit: Commit, now: Mapping[str, int]) -> Iterator[UnplacedAnomaly]:
    """Judge that each sealed buffer begins where its table's last one ended, and moves the mark.

    A table's messages before max(mark, floor) are in blocks or dead letters already.
    """
    seals = {
        (part.table, part.first_source_offset, part.next_source_offset)
        for part in sealed_parts(commit)
    }
    moved: dict[str, int] = {}
    for table, first, following in seals:
        done = max(head.marks.get(table, 0), head.floor)
        if table in moved:
            yield overlap(f"{table} is sealed twice in one transaction")
        if first < done:
            yield overlap(
                f"{table} is sealed from offset {first}, although it is done up to {done}"
            )
        if not first < following <= commit.position:
            yield torn(
                f"{table} is sealed from offset {first} to {following}, with position "
                f"{commit.position}"
            )
        moved[table] = following
    for table in {*head.marks, *now, *moved}:
        before, after = head.marks.get(table, 0), now.get(table, 0)
        expected = moved.get(table, before)
        if after == (expected if expected > commit.floor else 0):
            continue
        finding = backward if after < expected else gap
        yield finding(f"the mark of {table} is {after or 'none'}, expected {expected}")


def _chunks(head: ChainHead, commit: Commit) -> Iterator[UnplacedAnomaly]:
    """Judge that blocks of a table follow each other in each partition of the block topic."""
    for block in commit.blocks:
        end = head.ends.get(placement.place(block), 0)
        if block.first_offset < end:
            yield overlap(
                f"block {block.id} begins at offset {block.first_offset} of its topic, but the "
                f"block before it ends at {end}"
            )


def _counts(head: ChainHead, commit: Commit, sealed: int) -> Iterator[UnplacedAnomaly]:
    """Judge that what was polled before the floor is in blocks or dead letters.

    At a flush point, where nothing is held, they have exactly that.
    """
    if commit.reference != head.reference:
        finding = backward if commit.reference < head.reference else gap
        yield finding(f"the record's reference is {commit.reference}, expected {head.reference}")
        return
    if commit.count < head.count:
        yield backward(
            f"the record's count is {commit.count}, lower than {head.count} of the record before it"
        )
    if commit.floor == head.floor and commit.count != head.count:
        yield torn(
            f"the count went from {head.count} to {commit.count}, although the floor did not move"
        )
    if head.covered is None:
        return
    covered = head.covered + sealed
    if commit.count > covered:
        yield gap(
            f"the relay counted {commit.count} messages from {commit.reference} to floor "
            f"{commit.floor}, but only {covered} are in blocks and dead letters"
        )
    elif commit.flush_point and commit.count < covered:
        yield overlap(
            f"the relay counted {commit.count} messages from {commit.reference} to the flush "
            f"point {commit.floor}, but {covered} are in blocks and dead letters"
        )
