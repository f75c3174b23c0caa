"""What a rewind or an accept needs of servers: the seam between its steps and the adapters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from relay.operate.rewind.plan import PartitionPositions
from relay.operate.rewind.records import NextLetter
from relay.operate.rewind.removal import CountedRows, Replays, RerunTable
from relay.operate.rewind.seals import RecordedRewind
from relay.records_pb2 import Commit


class RewindPort(Protocol):
    """What a rewind does to servers; every method may fail, and then all is begun anew."""

    def look(self, beyond: Mapping[int, int]) -> Mapping[int, PartitionPositions]:
        """Return all source partitions; seals are kept beyond these offsets, of others none."""

    def fenced(self, partitions: Collection[int]) -> AbstractContextManager[None]:
        """Keep these partitions from everybody else meanwhile, or `write` fails."""

    def write(self, records: Sequence[Commit]) -> None:
        """Journal records and the offsets that name them, in one transaction."""

    def supersede(self, rewind: RecordedRewind) -> int:
        """Settle its blocks in the ledger, remove their rows, and note that behind it.

        Returns:
            Rows removed by this call.
        """

    def noted(self, rewinds: Collection[RecordedRewind]) -> Collection[tuple[int, int]]:
        """Return those of which the ledger has the note, as (partition, offset)."""

    def targets(self, tables: Collection[str]) -> Mapping[str, RerunTable]:
        """Return the tables as they are."""

    def counted(self, blocks: Mapping[str, Collection[str]]) -> Mapping[str, CountedRows]:
        """Return rows by block id, by table; `blocks` are ids by table. A table may lack."""

    def removed(self, blocks: Mapping[str, Collection[str]]) -> Collection[str]:
        """Return those of these ids, given by table, whose rows are gone or never come."""

    def replays(self) -> Replays:
        """Return what is known of dead letters that were replayed."""

    def next_letters(self, partitions: Collection[int]) -> Mapping[int, NextLetter]:
        """Return the place that the next dead letter of each source partition gets."""
