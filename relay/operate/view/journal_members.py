"""Which relays have written into the journal, by the names of members in its records."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from relay import names
from relay.config.settings import Settings
from relay.kafka.topics import READ, Topics
from relay.operate.verify.judge.operator_records import by_person
from relay.operate.verify.read.journal import Reader, from_the_start
from relay.operate.view import start

_NEWEST = 10_000
"""Offsets of each journal partition that are read first: minutes of the busiest relay."""


def journal_members(settings: Settings, wanted: Collection[str]) -> set[str]:
    """Return the members that records in the journal name.

    Reads all that is retained, unless the newest records already name everyone who is wanted.

    Raises:
        ConfigError: the app has no journal.
        Unavailable: the brokers did not answer.
        Refused: they answered no.
    """
    Topics(settings).describe(names.journal_topic(settings.app), (READ,))  # names a missing right
    found: set[str] = set()
    for begin in (start.last(_NEWEST), from_the_start):
        with contextlib.closing(Reader(settings, begin)) as reader:
            reader.grow()
            found |= {commit.member for _, _, commit in reader.records() if not by_person(commit)}
        if found.issuperset(wanted):
            break
    return found
