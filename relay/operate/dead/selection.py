"""Selects dead letters, and counts them by table and kind. Pure: the time of now is an argument."""

# pure

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.schema.dead_reason import DeadKind

_AGE = re.compile(r"(\d+)([smhd])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Selection:
    """What has to hold of a dead letter, all of it; a default holds of every one.

    Attributes:
        places: of dead letters; empty: all.
        table: exactly; "" is the table of those whose header names none.
        kinds: of the reason; empty: all.
        reason: found anywhere in the reason.
        since_ms, until_ms: when it became a dead letter; the second is excluded.
        partition: of the source, which is that of the dead letter.
    """

    places: frozenset[RecordPlace] = frozenset()
    table: str | None = None
    kinds: frozenset[DeadKind] = frozenset()
    reason: re.Pattern[str] | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    partition: int | None = None

    def means(self, letter: DeadLetter) -> bool:
        """Return whether this dead letter is one of those."""
        return (
            (not self.places or letter.place in self.places)
            and self.table in {None, letter.table}
            and (not self.kinds or letter.reason.kind in self.kinds)
            and (self.reason is None or self.reason.search(letter.reason.text) is not None)
            and (self.since_ms is None or letter.when_ms >= self.since_ms)
            and (self.until_ms is None or letter.when_ms < self.until_ms)
            and self.partition in {None, letter.source.partition}
        )


def instant_ms(text: str, now_ms: int) -> int:
    """Return Unix milliseconds of an ISO 8601 time (UTC where it names no zone) or of an age.

    Args:
        text: as `2026-08-01`, `2026-08-01T12:30`, or `90s`, `30m`, `2h`, `7d` ago.
        now_ms: Unix milliseconds of now.

    Raises:
        ValueError: neither.
    """
    age = _AGE.fullmatch(text)
    if age is not None:
        return now_ms - int(age[1]) * _UNIT_MS[age[2]]
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither an ISO 8601 time nor an age like 2h or 7d") from None
    return round((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(slots=True)
class LetterGroup:
    """Dead letters of one table, one kind of reason, and one field."""

    table: str
    kind: DeadKind
    about: str
    """The field, or empty."""
    count: int = 0
    replayed: int = 0
    bytes: int = 0
    first_ms: int = 0
    last_ms: int = 0
    example: RecordPlace = field(default=RecordPlace(0, 0))
    """The last of them."""
    reason: str = ""
    """Of the last of them."""


def summary(letters: Iterable[tuple[DeadLetter, bool]]) -> list[LetterGroup]:
    """Return groups by table, kind of reason and field, the largest first.

    Each letter comes with whether it was replayed.
    """
    groups: dict[tuple[str, DeadKind, str], LetterGroup] = {}
    for letter, replayed in letters:
        key = (letter.table, *letter.reason.group)
        group = groups.setdefault(key, LetterGroup(*key, first_ms=letter.when_ms))
        group.count += 1
        group.replayed += replayed
        group.bytes += letter.size
        group.first_ms = min(group.first_ms, letter.when_ms)
        if letter.when_ms >= group.last_ms:
            group.last_ms, group.example = letter.when_ms, letter.place
            group.reason = letter.reason.text
    return sorted(
        groups.values(), key=lambda group: (-group.count, group.table, group.kind, group.about)
    )
