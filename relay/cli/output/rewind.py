"""Prints for `relay rewind` and `relay accept`: lines for people, objects for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from relay.operate.rewind.plan import Course, Note, PartitionPositions, RewindEnding
from relay.operate.rewind.rewind import RewindPlan, RewindResult
from relay.operate.rewind.seals import RecordedRewind
from relay.program.plural import several

Line = str | dict[str, Any]
_SHOWN = 5
"""Blocks of a partition that are named to people."""


def would(
    ready: RewindPlan,
    places: Mapping[int, PartitionPositions],
    members: Sequence[str],
    *,
    as_json: bool,
) -> Iterator[Line]:
    """Yield a dry run."""
    for course in ready.courses:
        if as_json:
            yield {**_object(course), "members": list(members)}
        else:
            yield from _lines(course, places[course.partition])
    if as_json:
        return
    if not ready.courses:
        yield "nothing to re-run: no message from there on is in a block"
        return
    for table, target in sorted(ready.targets.items()):
        if not target.there:
            yield f"table {table} does not exist, so there are no rows to remove"
    if members:
        yield (
            "relays that --run would fence, and that must be started again afterwards: "
            f"{', '.join(members)}"
        )
    yield "nothing was changed; add --run to do it"


def unfinished(
    places: Mapping[int, PartitionPositions],
    repeated: Sequence[RecordedRewind] = (),
    *,
    as_json: bool,
) -> Iterator[Line]:
    """Yield a dry run where one was begun before, or the ledger has no note of one."""
    for one in repeated:
        if as_json:
            yield {**_place(one), "noted": False, "blocks": len(one.blocks)}
        else:
            yield (
                f"source partition {one.partition}: the ledger has no note of the rewind at "
                f"n={one.record.n}; --run settles its {several(len(one.blocks), 'old block')} and "
                "removes their rows, where they are not"
            )
    for partition, place in sorted(places.items()):
        head = place.head
        if as_json:
            yield {"partition": partition, "unfinished": True, "n": head.n, "floor": head.floor}
        else:
            yield (
                f"source partition {partition}: a rewind to offset {head.floor} was begun "
                f"(n={head.n}) and is not finished; --run finishes it and does nothing else"
            )


def done(done: RewindResult, *, as_json: bool) -> Iterator[Line]:
    """Yield what was done."""
    if as_json:
        yield {
            "partitions": {str(p): floor for p, floor in done.partitions.items()},
            "blocks": done.blocks,
            "rows_removed": done.rows,
            "resumed": done.resumed,
            "repeated": [_place(one) for one in done.repeated],
            "shortened": [
                {**_place(one.rewind), "why": one.why, "stay": [block.id for block in one.kept]}
                for one in done.shortened
            ],
        }
        return
    if not done.partitions and not done.repeated:
        yield "nothing to re-run: no message from there on is in a block"
        return
    if done.resumed:
        yield "the rewind that was begun before is now finished; no other was begun"
    for one in done.repeated:
        yield (
            f"source partition {one.partition}: the ledger had no note of the rewind at "
            f"n={one.record.n}; it is now carried out there, so start the loader again"
        )
    yield f"{done.blocks:,} blocks were superseded, and {done.rows:,} of their rows were removed"
    yield from map(_shortened, done.shortened)
    for partition, floor in done.partitions.items():
        yield f"source partition {partition}: relays continue from offset {floor:,}"
    if done.partitions:
        yield "start the fenced relays again, unless a supervisor does"


def notes(found: Sequence[Note], *, accepted: bool, as_json: bool) -> Iterator[Line]:
    """Yield what is, or would be, accepted."""
    for note in found:
        if as_json:
            yield {
                "partition": note.partition,
                "kinds": list(note.kinds),
                "found": note.found,
                "floor_before": note.before,
                "floor": note.floor,
                "accepted": accepted,
            }
            continue
        yield f"source partition {note.partition}: {note.found}"
        yield f"    {'accepted' if accepted else 'would accept'}: {note.meaning}"
    if as_json:
        return
    if not found:
        yield "there is nothing to accept: journal, committed offsets and source topic agree"
    elif not accepted:
        yield "nothing was changed; add --run --why TEXT to accept"


def _shortened(one: RewindEnding) -> str:
    rows = sum(block.rows for block in one.kept)
    return (
        f"source partition {one.rewind.partition}: {one.why}, so "
        f"{several(len(one.kept), 'block')} of {several(rows, 'row')} stay as they are: their "
        "messages cannot be read again"
    )


def _place(one: RecordedRewind) -> dict[str, Any]:
    return {"partition": one.partition, "n": one.record.n, "offset": one.offset}


def _object(course: Course) -> dict[str, Any]:
    blocks = course.blocks
    return {
        "partition": course.partition,
        "epoch": course.epoch,
        "floor_before": course.before,
        "floor": course.floor,
        "tables": course.starts,
        "blocks": [block.id for block in blocks],
        "rows": sum(block.rows for block in blocks),
        "dead_letters": sum(one.dead for one in course.superseded),
        "stay": [one.block.id for one in course.kept if one.block is not None],
    }


def _lines(course: Course, place: PartitionPositions) -> Iterator[str]:
    blocks = course.blocks
    rows = sum(block.rows for block in blocks)
    dead = sum(one.dead for one in course.superseded)
    yield (
        f"source partition {course.partition}: floor {course.before:,} → {course.floor:,}, epoch "
        f"{course.epoch}; the source log starts at {place.log_start:,}"
    )
    for table, start in sorted(course.starts.items()):
        mine = [block for block in blocks if block.table == table]
        of_rows = sum(block.rows for block in mine)
        yield (
            f"    {table or '(no table)'} from {start:,}: {len(mine):,} blocks, {of_rows:,} rows "
            "replaced"
        )
    shown = [block.id for block in blocks[:_SHOWN]]
    more = f" and {len(blocks) - _SHOWN:,} more" if len(blocks) > _SHOWN else ""
    yield f"    in all {len(blocks):,} blocks of {rows:,} rows: {', '.join(shown)}{more}"
    if dead:
        yield (
            f"    {dead:,} dead letters among these messages are read again, and may be written "
            "again"
        )
    for one in course.kept:
        if one.block is not None:
            yield f"    {one.block.id} is kept: the first of its messages cannot be read again"
