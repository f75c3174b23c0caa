"""Remembers the leader epochs of committed floors, which show that a log has lost its end.

Receives what the group holds and where the client stands, gives the leader epoch to commit with a
floor, or to begin there with. Whoever begins at a floor with it learns from the leader whether
that epoch still reaches the floor: an unclean election may have replaced what was read (KIP-320).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.core.offsets import UNKNOWN_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relay.core.offsets import Epochs
    from relay.core.records import PartitionTruth


class LeaderEpochs:
    """Of the partitions that a member owns."""

    def __init__(self) -> None:
        self._of_floors: dict[tuple[int, int], int] = {}

    def remember(self, found: Iterable[PartitionTruth]) -> None:
        """Remember the leader epochs that were committed with floors, for whoever begins there."""
        read = {one.partition: one for one in found}
        kept = {place: e for place, e in self._of_floors.items() if place[0] not in read}
        self._of_floors = kept | {
            (index, one.committed.floor): one.leader_epoch
            for index, one in read.items()
            if one.committed is not None
        }

    def at(self, partition: int, floor: int) -> int:
        """Return the one that stands with just this floor, or UNKNOWN_EPOCH."""
        return self._of_floors.get((partition, floor), UNKNOWN_EPOCH)

    def to_commit(self, floors: Mapping[int, int], polled: Mapping[int, int | None]) -> Epochs:
        """Return them by partition, for these floors.

        Args:
            floors: by partition.
            polled: the epochs under which the last polled messages were written. A message behind
                the floor has an epoch that reaches the floor as well; an older one would not, so
                where the client does not know (right after a seek), there is none.
        """
        found = {}
        for partition, floor in floors.items():
            epoch = polled[partition]
            found[partition] = self.at(partition, floor) if epoch is None else epoch
        return found
