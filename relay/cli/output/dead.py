"""Prints for `relay dead`: tables and lines for people, objects for programs."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.names import shown_header
from relay.operate.dead import inspect
from relay.operate.dead.replay_plan import ReplayMark, ReplayTally
from relay.operate.dead.selection import LetterGroup
from relay.program.text_table import Column, laid_out

_REASON_CHARACTERS = 200
_NO_TABLE = "(none)"


_LETTER = (
    Column("place", right=False),
    Column("when (UTC)", right=False, optional=2),
    Column("table", right=False),
    Column("source", right=False, optional=1),
    Column("bytes", optional=3),
    Column("replayed as", right=False),
    Column("kind", right=False),
    Column("reason", right=False, words=True),
)
_GROUP = (
    Column("table", right=False),
    Column("count"),
    Column("replayed"),
    Column("kind of reason", right=False),
    Column("field", right=False),
    Column("first (UTC)", right=False, optional=3),
    Column("last (UTC)", right=False, optional=2),
    Column("as", right=False),
    Column("which says", right=False, optional=1, words=True),
)


def letter_table(
    letters: Sequence[DeadLetter], marks: Mapping[RecordPlace, ReplayMark], width: int
) -> Iterator[Table | str]:
    """Yield one line each, or more where reasons are long."""
    rows = [
        (
            str(letter.place),
            _time(letter.when_ms),
            letter.table or _NO_TABLE,
            str(letter.source),
            f"{letter.size:,}",
            str(marks[letter.place].replayed) if letter.place in marks else "",
            letter.reason.kind.value,
            letter.reason.text[:_REASON_CHARACTERS],
        )
        for letter in letters
    ]
    yield from laid_out(_LETTER, rows, width)


def group_table(groups: Sequence[LetterGroup], width: int) -> Iterator[Table | str]:
    """Yield one line per table, kind of reason and field, with the last dead letter of each."""
    rows = [
        (
            group.table or _NO_TABLE,
            f"{group.count:,}",
            f"{group.replayed:,}",
            group.kind.value,
            group.about,
            _time(group.first_ms),
            _time(group.last_ms),
            str(group.example),
            group.reason[:_REASON_CHARACTERS],
        )
        for group in groups
    ]
    yield from laid_out(_GROUP, rows, width)


def group_as_json(group: LetterGroup) -> dict[str, Any]:
    """Return the group as JSON has it."""
    return {
        "table": group.table,
        "kind": group.kind.value,
        "field": group.about,
        "count": group.count,
        "replayed": group.replayed,
        "bytes": group.bytes,
        "first": _iso(group.first_ms),
        "last": _iso(group.last_ms),
        "example": str(group.example),
        "reason": group.reason,
    }


def as_json(letter: DeadLetter, mark: ReplayMark | None) -> dict[str, Any]:
    """Return one dead letter without its value."""
    return {
        "place": str(letter.place),
        "when": _iso(letter.when_ms),
        "table": letter.table,
        "kind": letter.reason.kind.value,
        "field": letter.reason.field,
        "reason": letter.reason.text,
        "source_topic": letter.source_topic,
        "source_partition": letter.source.partition,
        "source_offset": letter.source.offset,
        "block": letter.block or None,
        "bytes": letter.size,
        "replayed": None
        if mark is None
        else {
            "source_partition": mark.replayed.partition,
            "source_offset": mark.replayed.offset,
            "table": mark.table,
            "at": _iso(mark.at_ms),
        },
    }


def letter_as_json(
    letter: DeadLetter, mark: ReplayMark | None, rows: inspect.Rows
) -> dict[str, Any]:
    """Return one dead letter with everything; bytes in base64."""
    origin = letter.origin
    return {
        **as_json(letter, mark),
        "key_base64": None if origin is None else _base64(origin.key),
        "headers": None
        if origin is None
        else [
            {"name": shown_header(name), "value_base64": _base64(raw)}
            for name, raw in origin.headers
        ],
        "value_base64": _base64(letter.value),
        "rows": [asdict(row) for row in rows.rows],
        "problem": rows.problem,
    }


def describe_letter(
    letter: DeadLetter, mark: ReplayMark | None, rows: inspect.Rows, limit: int
) -> Iterator[str]:
    """Yield one dead letter with everything, for people."""
    yield f"dead letter  {letter.place}, {_time(letter.when_ms)} UTC"
    yield f"reason       {letter.reason.text}"
    yield f"kind         {letter.reason.kind.value}; next: {letter.reason.kind.next_step}"
    yield f"table        {letter.table or _NO_TABLE}"
    yield f"source       {letter.source_topic} {letter.source}"
    if letter.block:
        yield f"block        {letter.block}"
    yield f"replayed     {_replayed(mark)}"
    if letter.origin is None:
        yield "key and headers were not kept (an earlier release wrote this dead letter)"
    else:
        yield f"key          {_shown(letter.origin.key)}"
        yield f"headers      {len(letter.origin.headers)}"
        for name, raw in letter.origin.headers:
            yield f"  {shown_header(name)}: {_shown(raw)}"
    size = "null" if letter.value is None else f"{letter.size:,} bytes"
    yield f"value        {size if letter.whole else 'only in the source topic'}"
    for line in inspect.hexdump(letter.value or b"", limit):
        yield f"  {line}"
    yield f"rows         {len(rows.rows)}{'; ' if rows.problem else ''}{rows.problem}"
    for number, row in enumerate(rows.rows, 1):
        yield f"  {number}: {row.text}"
        if row.unknown:
            yield f"     fields that the table does not know: {', '.join(map(str, row.unknown))}"
        if row.problem:
            yield f"     ! {row.problem}"


def describe_tally(tally: ReplayTally, source_topic: str, *, done: bool) -> Iterator[str]:
    """Yield what a replay did, or would do."""
    verb = "sent" if done else "would send"
    yield f"{verb} {tally.sent:,} messages ({tally.bytes:,} bytes) to {source_topic}"
    for table, count in sorted(tally.tables.items()):
        yield f"  {count:,} of {table}"
    for why, count in tally.left.items():
        yield f"not sent, {count:,}: {why.value}"
    if tally.sent and not done:
        yield "nothing was sent; add --run to send them"


def tally_as_json(tally: ReplayTally, source_topic: str, *, done: bool) -> dict[str, Any]:
    """Return the same for programs; `sent` says whether it was done."""
    return {
        "topic": source_topic,
        "sent": done,
        "messages": tally.sent,
        "bytes": tally.bytes,
        "tables": tally.tables,
        "left": {why.value: count for why, count in tally.left.items()},
        "too_large": [
            {"place": str(place), "bytes": size} for place, size in tally.too_large.items()
        ],
    }


def _replayed(mark: ReplayMark | None) -> str:
    if mark is None:
        return "no"
    return f"{_time(mark.at_ms)} UTC as {mark.replayed}, table {mark.table}"


def _shown(raw: bytes | None) -> str:
    """Bytes as text where they are some."""
    if raw is None:
        return "null"
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return repr(raw)
    return text if text.isprintable() else repr(raw)


def _base64(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
