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
_NOTHING = "nothing to re-run: no message from there on is in a block"


def describe_plan(
    plan: RewindPlan,
    positions: Mapping[int, PartitionPositions],
    members: Sequence[str],
    *,
    as_json: bool,
) -> Iterator[Line]:
    """Yield what a rewind would do."""
    if as_json:
        yield from ({**_object(course), "members": list(members)} for course in plan.courses)
        return
    for course in plan.courses:
        yield from _lines(course, positions[course.partition])
    if not plan.courses:
        yield _NOTHING
        return
    for table, target in sorted(plan.targets.items()):
        if not target.there:
            yield f"table {table} does not exist, so there are no rows to remove"
    if members:
        yield (
            "relays that --run would fence, and that must be started again afterwards: "
            f"{', '.join(members)}"
        )
    yield "nothing was changed; add --run to do it"


def describe_unfinished(
    positions: Mapping[int, PartitionPositions],
    repeated: Sequence[RecordedRewind] = (),
    *,
    as_json: bool,
) -> Iterator[Line]:
    """Yield the rewinds that did not finish, or of which the ledger has no note."""
    for rewind in repeated:
        if as_json:
            yield {**_place(rewind), "noted": False, "blocks": len(rewind.blocks)}
        else:
            yield (
                f"source partition {rewind.partition}: the ledger has no note of the rewind at "
                f"n={rewind.record.n}; --run settles its "
                f"{several(len(rewind.blocks), 'old block')} and removes their rows, where they "
                "are not"
            )
    for partition, position in sorted(positions.items()):
        head = position.head
        if as_json:
            yield {"partition": partition, "unfinished": True, "n": head.n, "floor": head.floor}
        else:
            yield (
                f"source partition {partition}: a rewind to offset {head.floor} was begun "
                f"(n={head.n}) and is not finished; --run finishes it and does nothing else"
            )


def describe_result(result: RewindResult, *, as_json: bool) -> Iterator[Line]:
    """Yield what a rewind did."""
    if as_json:
        yield {
            "partitions": {str(p): floor for p, floor in result.partitions.items()},
            "blocks": result.blocks,
            "rows_removed": result.rows,
            "resumed": result.resumed,
            "repeated": [_place(rewind) for rewind in result.repeated],
            "shortened": [
                {**_place(end.rewind), "why": end.why, "stay": [block.id for block in end.kept]}
                for end in result.shortened
            ],
        }
        return
    if not result.partitions and not result.repeated:
        yield _NOTHING
        return
    if result.resumed:
        yield "the rewind that was begun before is now finished; no other was begun"
    for rewind in result.repeated:
        yield (
            f"source partition {rewind.partition}: the ledger had no note of the rewind at "
            f"n={rewind.record.n}; it is now carried out there, so start the loader again"
        )
    yield (
        f"{result.blocks:,} blocks were superseded, and {result.rows:,} of their rows were removed"
    )
    yield from map(_shortened, result.shortened)
    for partition, floor in result.partitions.items():
        yield f"source partition {partition}: relays continue from offset {floor:,}"
    if result.partitions:
        yield "start the fenced relays again, unless a supervisor does"


def describe_notes(notes: Sequence[Note], *, accepted: bool, as_json: bool) -> Iterator[Line]:
    """Yield what is, or would be, accepted."""
    for note in notes:
        if as_json:
            yield {
                "partition": note.partition,
                "kinds": list(note.kinds),
                "found": note.found,
                "floor_before": note.before,
                "floor": note.floor,
                "accepted": accepted,
            }
        else:
            yield f"source partition {note.partition}: {note.found}"
            yield f"    {'accepted' if accepted else 'would accept'}: {note.meaning}"
    if as_json:
        return
    if not notes:
        yield "there is nothing to accept: journal, committed offsets and source topic agree"
    elif not accepted:
        yield "nothing was changed; add --run --why TEXT to accept"


def _shortened(end: RewindEnding) -> str:
    rows = sum(block.rows for block in end.kept)
    return (
        f"source partition {end.rewind.partition}: {end.why}, so "
        f"{several(len(end.kept), 'block')} of {several(rows, 'row')} stay as they are: their "
        "messages cannot be read again"
    )


def _place(rewind: RecordedRewind) -> dict[str, Any]:
    return {"partition": rewind.partition, "n": rewind.record.n, "offset": rewind.offset}


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
        "dead_letters": sum(stretch.dead for stretch in course.superseded),
        "stay": [stretch.block.id for stretch in course.kept if stretch.block is not None],
    }


def _lines(course: Course, position: PartitionPositions) -> Iterator[str]:
    blocks = course.blocks
    rows = sum(block.rows for block in blocks)
    dead = sum(stretch.dead for stretch in course.superseded)
    yield (
        f"source partition {course.partition}: floor {course.before:,} → {course.floor:,}, epoch "
        f"{course.epoch}; the source log starts at {position.log_start:,}"
    )
    for table, start in sorted(course.starts.items()):
        mine = [block for block in blocks if block.table == table]
        of_rows = sum(block.rows for block in mine)
        yield (
            f"    {table or '(no table)'} from {start:,}: {len(mine):,} blocks, {of_rows:,} rows "
            "replaced"
        )
    ids = [block.id for block in blocks[:_SHOWN]]
    more = f" and {len(blocks) - _SHOWN:,} more" if len(blocks) > _SHOWN else ""
    yield f"    in all {len(blocks):,} blocks of {rows:,} rows: {', '.join(ids)}{more}"
    if dead:
        yield (
            f"    {dead:,} dead letters among these messages are read again, and may be written "
            "again"
        )
    for stretch in course.kept:
        if stretch.block is not None:
            yield f"    {stretch.block.id} is kept: the first of its messages cannot be read again"
