"""The document `detection` against the code: each name exists, and none of the code is left out."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from relay.operate.doctor import findings
from relay.operate.verify.judge.anomaly import AnomalyKind
from tests.docs import documents

PATH = "relay/docs/detection.md"
CODES = findings.KINDS.keys()
KINDS = {kind.value for kind in AnomalyKind}
FAULTS = {
    "A1": "rows expire (TTL)",
    "A2": "rows are hidden",
    "A3": "a view behind a table fails",
    "A4": "rows that a person deleted",
    "A5": "a deduplication token is forgotten",
    "A6": "an INSERT writes nothing",
    "A7": "look like a loss",
    "A8": "an engine that merges",
    "B1": "the server drops no repeats",
    "B2": "more partitions than the server lets in",
    "B3": "some partitions or replicas",
    "B4": "a rewind superseded",
    "B5": "a right is missing",
    "B6": "longer than the server takes",
    "B7": "rolled back",
    "B8": "taken for one of another kind",
    "B9": "stands in the way of others",
    "C1": "partitions are added",
    "C2": "deleted before they were used",
    "C3": "restored from a backup",
    "C4": "deleted and made anew",
    "C5": "the ledger is emptied",
    "C6": "a clock steps",
    "C7": "collide",
    "C8": "the ledger's own table",
    "C9": "another program on this machine",
    "D1": "a local time that comes twice",
    "D2": "a column that is named twice",
    "D3": "only the INSERT finds bad",
    "D4": "another message's value",
    "D5": "larger than a topic takes",
    "D6": "a virtual column",
    "D7": "advertises a name",
    "D8": "calls a parked block absent",
    "D10": "does not say for what",
}
"""A fault that was seen, by its number in the tracker, and words of the row that is about it."""


class Row(NamedTuple):
    """What may go wrong, and the cells beside it."""

    what: str
    before: str
    after: str
    nothing: str


def rows_of(text: str) -> list[Row]:
    """The rows of all tables."""
    found = [
        Row(*(cell.strip() for cell in line.strip("|").split(" |")))
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return [row for row in found if row.before != "before"]


def named(cell: str) -> set[str]:
    return {name for name in re.findall(r"`([^`]+)`", cell) if not name.startswith("--")}


def wrong(text: str) -> list[str]:
    """What does not fit the code."""
    rows = rows_of(text)
    said = [f"{row.what}: nothing finds it, and no word why" for row in rows if not any(row[1:])]
    for row in rows:
        said += [f"no finding {name}" for name in sorted(named(row.before) - CODES)]
        said += [f"no anomaly {name}" for name in sorted(named(row.after) - KINDS)]
    for fault, words in FAULTS.items():
        if sum(words in row.what for row in rows) != 1:
            said.append(f"{fault} is not in one row")
    of_none = named(text.partition("## Findings about no loss")[2])
    in_rows = {name for row in rows for name in named(row.before)}
    said += [f"{name} is nowhere" for name in sorted(CODES - in_rows - of_none)]
    said += [f"{name} is about a loss, and about none" for name in sorted(in_rows & of_none)]
    said += [f"no finding {name}" for name in sorted(of_none - CODES)]
    return said + [f"{name} is nowhere" for name in sorted(KINDS - named(text))]


def test_every_fault_is_found_or_said_why_not() -> None:
    assert wrong(documents.text_of(PATH)) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("`partitions-fewer`", "`partitions-gone`", "no finding partitions-gone"),
        ("`partitions-fewer`", "", "partitions-fewer is nowhere"),
        ("| `gap` | |", "| `hole` | |", "no anomaly hole"),
        ("they cannot: names are escaped, and a name", "", "C7"),
        ("a clock steps", "time stands still", "C6 is not in one row"),
        ("`unasked`", "`unasked`, `ttl`", "ttl is about a loss, and about none"),
    ],
)
def test_what_does_not_fit_is_found(old: str, new: str, said: str) -> None:
    """Negative control."""
    text = documents.text_of(PATH)
    assert old in text
    if said == "C7":
        line = next(one for one in text.splitlines() if old in one)
        text = text.replace(line, "| names of two tables collide in Kafka | | | |")
        said = "names of two tables collide in Kafka: nothing finds it, and no word why"
    assert said in wrong(text.replace(old, new))
