"""`relay journal tail`: the last records of each journal partition, and each as a line. Pure."""

# pure

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict

from relay.operate.verify.judge.acknowledgements import parts
from relay.program.plural import several
from relay.records_pb2 import Commit


class JournalLine(NamedTuple):
    """A journal record in its place."""

    partition: int
    offset: int
    commit: Commit


def last(entries: Iterable[JournalLine], most: int) -> dict[int, list[JournalLine]]:
    """Return the last so many of each partition, in order."""
    kept: dict[int, deque[JournalLine]] = {}
    for entry in entries:
        kept.setdefault(entry.partition, deque(maxlen=most)).append(entry)
    return {partition: list(kept[partition]) for partition in sorted(kept)}


def enough(found: dict[int, list[JournalLine]], unread: Iterable[int], most: int) -> bool:
    """Return whether at least `most` were found of each partition that has unread ones before."""
    return all(len(found.get(partition, ())) >= most for partition in unread)


def lines(entry: JournalLine) -> Iterator[str]:
    """Say where the partition stands, what a person decided, then what was sealed."""
    commit = entry.commit
    moved = f"{commit.previous_floor:,} → {commit.floor:,}"
    if commit.previous_floor == commit.floor:
        moved = f"{commit.floor:,}"
    yield (
        f"partition {entry.partition}  offset {entry.offset:,}  n {commit.n:,}  "
        f"epoch {commit.epoch}  floor {moved}  position {commit.position:,}"
        f"{'  flush point' if commit.flush_point else ''}  by {commit.member}"
    )
    yield from (f"    {part}" for part in parts(commit))
    if commit.rewound:
        yield "    the rewind has ended: relays continue"
    for mark in commit.marks:
        yield f"    mark {mark.table} {mark.offset:,}"
    for block in commit.blocks:
        yield (
            f"    block {block.id}  {block.rows:,} rows  {block.row_bytes:,} bytes  "
            f"{block.messages:,} messages  {several(block.chunks, 'chunk')}  by {block.reason}"
        )
    for dead in commit.dead:
        yield (
            f"    dead {dead.messages:,} of {dead.table or '(no table)'} from "
            f"{dead.first_source_offset:,} to {dead.next_source_offset:,}: "
            f"{'first reason: ' if dead.messages > 1 else ''}{dead.reason}"
        )


def as_json(entry: JournalLine) -> dict[str, Any]:
    """Return the record as protobuf's own JSON has it, with its place."""
    record = MessageToDict(
        entry.commit, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return {"partition": entry.partition, "offset": entry.offset, "record": record}
