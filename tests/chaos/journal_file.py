"""The journal of a campaign as a file, so that it can be audited long after its brokers ended.

Receives committed offsets at every pause and the journal's records at the end, gives JSON lines:
`{"committed": {partition: [floor, n, journal offset]}}` for each pause, in order, then
`{"partition": …, "offset": …, "record": base64 of a Commit}` for each record, in order.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from relay.records_pb2 import Commit
from tests.chaos import ends
from tests.chaos.facts import visible

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.chaos.servers import Servers

FILE = "journal.jsonl"

Committed = dict[int, tuple[int, int, int]]
"""(floor, n, journal offset) of source partitions, as the group holds them."""


Record = tuple[int, int, Commit]
"""Partition, offset and content."""


@dataclass(slots=True)
class Kept:
    """A campaign's journal; each partition's records are in order."""

    pauses: list[Committed] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


def pause(servers: Servers, directory: Path) -> None:
    """Everything stands still: where the group stands."""
    _append(directory, [{"committed": ends.committed(servers)}])


def end(servers: Servers, directory: Path) -> None:
    """Nothing runs any more: the whole journal."""
    records = visible(servers, servers.journal)
    _append(directory, (_line(r.partition, r.offset, r.value) for r in records))


def write(directory: Path, kept: Kept) -> None:
    """All of it at once."""
    _append(directory, [{"committed": entry} for entry in kept.pauses])
    _append(directory, (_line(p, at, c.SerializeToString()) for p, at, c in kept.records))


def read(path: Path) -> Kept:
    """The reverse.

    Raises:
        ValueError: a line is neither.
    """
    kept = Kept()
    with path.open(encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "committed" in line:
                entries = line["committed"].items()
                kept.pauses.append({int(p): (at[0], at[1], at[2]) for p, at in entries})
            elif "record" in line:
                commit = Commit.FromString(base64.b64decode(line["record"]))
                kept.records.append((line["partition"], line["offset"], commit))
            else:
                raise ValueError(f"{path}: neither offsets nor a record: {line}")
    return kept


def _line(partition: int, offset: int, value: bytes) -> dict[str, Any]:
    record = base64.b64encode(value).decode()
    return {"partition": partition, "offset": offset, "record": record}


def _append(directory: Path, lines: Iterable[dict[str, Any]]) -> None:
    with (directory / FILE).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
