"""Which transactional ids of members that are gone may be ended; pure.

Receives members' names, who is in the group now and who is in the journal; gives what would be done
with each, and which of them nobody knows.
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from relay import names
from relay.program.spelling import did_you_mean

_LISTED = 20
"""So many known names are listed; members that are started under ever new names are many."""


@dataclass(frozen=True, slots=True)
class Retirement:
    """A member that will not come back.

    Attributes:
        member: its name.
        transactional_id: whose transactions are to be ended.
        partitions: that the group still assigns to it; None: it is no longer a member.
    """

    member: str
    transactional_id: str
    partitions: tuple[int, ...] | None

    @property
    def obstacle(self) -> str | None:
        """Return why the member must not be retired now; None if it may."""
        if self.partitions is None:
            return None
        held = ", ".join(map(str, self.partitions)) or "none"
        return (
            f"{self.member} is in the group (partitions: {held}): ending its transactions would "
            "fence a relay that works"
        )


def plan(
    app: str, members: Collection[str], group: Mapping[str, tuple[int, ...]]
) -> list[Retirement]:
    """Plan the retirement of each named member once, in the order given.

    Args:
        app: prefix of the ids.
        members: names, as given to `relay run --member`.
        group: partitions by member, as the group's coordinator says.
    """
    return [
        Retirement(member, names.transactional_id(app, member), group.get(member))
        for member in dict.fromkeys(members)
    ]


def unknown(
    members: Collection[str], group: Collection[str], recorded: Collection[str]
) -> Iterator[str]:
    """Yield a line for each member that nobody knows, with the names that are known.

    Kafka does not say which transactional ids there are.

    Args:
        members: names, as a person gave them.
        group: names of its members.
        recorded: names in records of the journal.
    """
    known = sorted({*group, *recorded})
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    names_known = f"they name {', '.join(known[:_LISTED])}{more}" if known else "they name nobody"
    for member in dict.fromkeys(members):
        if member not in known:
            yield (
                f"neither the group nor the journal names a member {member!r}; {names_known}"
                f"{did_you_mean(member, known)}"
            )
