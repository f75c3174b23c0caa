"""Carries an accept out: look, fence, look again, record.

Receives hands (the servers) and what the person says; gives what was taken note of. One
transaction moves the group's offsets and records why: an accept has happened or it has not.
"""

# pure

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay.errors import ConfigError
from relay.operate.rewind import records
from relay.operate.rewind.accept import Note, note
from relay.operate.rewind.plan import PartitionPositions, RewindRefusal, as_error
from relay.operate.rewind.ports import Hands
from relay.operate.rewind.records import RewindAuthor


def accept(
    hands: Hands,
    begins: Mapping[int, int],
    only: int | None,
    author: Callable[[], RewindAuthor] | None,
) -> list[Note]:
    """Take note of all that relays stop at.

    Args:
        hands: the servers.
        begins: by partition, where the person says to go on.
        only: this partition; None: every one.
        author: of the records; None: change nothing, give what would be accepted.

    Raises:
        ContractBroken: something cannot be accepted; nothing was changed.
        RelayError: as the hands raise it; run again.
    """
    notes = _notes(hands, begins, only)[1]
    if author is None or not notes:
        return notes
    with hands.fenced([one.partition for one in notes]):
        places, notes = _notes(hands, begins, only)
        letters = hands.next_letters([one.partition for one in notes])
        hands.write(
            [
                records.accepted(
                    places[one.partition].head,
                    (one.floor, one.marks),
                    places[one.partition].topic_id,
                    (one.kinds, one.found),
                    letters[one.partition],
                    author(),
                )
                for one in notes
            ]
        )
    return notes


def _notes(
    hands: Hands, begins: Mapping[int, int], only: int | None
) -> tuple[Mapping[int, PartitionPositions], list[Note]]:
    places = hands.look({})
    if only is not None and only not in places:
        raise ConfigError(f"there is no source partition {only}", "choose another --partition")
    asked = sorted(places) if only is None else [only]
    found = [note(places[p], begins.get(p)) for p in asked]
    refused = [one for one in found if isinstance(one, RewindRefusal)]
    if refused:
        raise as_error(refused)
    return places, [one for one in found if isinstance(one, Note)]
