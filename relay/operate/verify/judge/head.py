"""The state of the audit of one source partition's journal, record after record. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChainHead:
    """What the journal has said of one source partition so far.

    Attributes:
        n, epoch, floor, topic_id: of the last record.
        position: of the last record; it may go back, to the floor, when a relay takes over.
        marks: above the floor.
        reference: the last forced flush point.
        count: messages before the floor since the reference, as the relay counted its polls.
        covered: the same messages and those beyond the floor, as blocks and dead letters
            hold them; None until a flush point is seen, where history was cut by retention.
        ends: by block topic and its partition, one past the last chunk.
        offset: of the last record in the journal.
        rewinding: a rewind was begun and has not ended.
        before_rewind: floor and marks of the record before the one that began it, where known.
    """

    n: int
    epoch: int
    floor: int
    topic_id: str
    marks: Mapping[str, int]
    reference: int
    count: int
    covered: int | None
    offset: int
    position: int
    ends: Mapping[tuple[str, int], int]
    rewinding: bool = False
    before_rewind: tuple[int, Mapping[str, int]] | None = None
