"""Judges messages of the source topic, table by table, before a relay reads them; pure.

A source of which nothing could become rows is probably another topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from relay.operate.doctor.findings import Finding, report
from relay.schema.dead_reason import DeadKind, DeadReason

MOST = 50
"""Kinds that are kept of one table; further ones count as the last."""
OTHERS = "further kinds"


@dataclass(slots=True)
class SampleProblem:
    """Messages of one table with one kind of problem.

    Attributes:
        kind: of them all; OTHERS where there are more kinds than are kept.
        reason, partition, offset: of the first of them.
    """

    kind: str
    reason: str
    messages: int
    partition: int
    offset: int


@dataclass(slots=True)
class OfTable:
    """What was seen of one table; "" stands for messages that name none."""

    table: str
    good: int = 0
    problems: dict[tuple[DeadKind, str] | None, SampleProblem] = field(default_factory=dict)
    """By kind of reason and field; None: of all others."""

    @property
    def bad(self) -> int:
        """Messages that would be dead letters."""
        return sum(problem.messages for problem in self.problems.values())

    def add(self, partition: int, offset: int, reason: DeadReason | None) -> None:
        """Count a message; no reason: it is good."""
        if reason is None:
            self.good += 1
            return
        new = SampleProblem(reason.kind.value, reason.text, 0, partition, offset)
        group: tuple[DeadKind, str] | None = reason.group
        if group not in self.problems and len(self.problems) >= MOST:
            group, new = None, SampleProblem(OTHERS, OTHERS, 0, partition, offset)
        self.problems.setdefault(group, new).messages += 1

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        problems = [asdict(problem) for problem in self.largest()]
        return {"table": self.table, "good": self.good, "bad": self.bad, "problems": problems}

    def largest(self) -> list[SampleProblem]:
        """Return the problems, the most frequent first."""
        return sorted(self.problems.values(), key=lambda problem: -problem.messages)


def tallied(judged: Iterable[tuple[str, int, int, DeadReason | None]]) -> list[OfTable]:
    """Return what was seen of each table, by name.

    Of each message come table, partition, offset and reason; no reason: it is good.
    """
    tables: dict[str, OfTable] = {}
    for table, partition, offset, reason in judged:
        tables.setdefault(table, OfTable(table)).add(partition, offset, reason)
    return [tables[name] for name in sorted(tables)]


def judge(topic: str, wanted: int, seen: Sequence[OfTable]) -> Iterator[Finding]:
    """Yield every finding about a sample of so many messages of the source topic."""
    good, bad = sum(table.good for table in seen), sum(table.bad for table in seen)
    if not good + bad:
        yield report("sample-empty", f"{topic} holds none of the {wanted:,} messages asked for")
        return
    if not good:
        problems = (problem for table in seen for problem in table.largest())
        first = max(problems, key=lambda problem: problem.messages)
        yield report(
            "sample-all-dead",
            f"{topic}: none of {bad:,} messages can become rows; {_example(topic, first)}",
            "name the right topic in source.topic, correct the producer, or create the table",
        )
        return
    for table in seen:
        if table.bad:
            which = f"of {table.table}" if table.table else "that name no table"
            yield report(
                "sample-dead",
                f"{topic}: {table.bad:,} of {table.good + table.bad:,} messages {which} cannot "
                f"become rows; {_example(topic, table.largest()[0])}",
                "`relay doctor CONFIG --sample N` shows each kind and the place of one message; "
                "correct the producer",
            )


def _example(topic: str, problem: SampleProblem) -> str:
    place = f"{topic}[{problem.partition}], offset {problem.offset}"
    return f"{problem.messages:,} of them: {problem.reason} (for example {place})"
