"""Which transactional ids of members that are gone may be ended; pure.

Receives members' names and who is in the group now, gives what would be done with each.
"""

# pure

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from relay import names
from relay.program.plural import several


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


def absent(members: Collection[str], group: Collection[str]) -> Iterator[str]:
    """Yield a line for each member that the group does not name, with those that it names.

    That is so of every member that is gone, and of a misspelled one: Kafka does not say which
    transactional ids there were.

    Args:
        members: names, as a person gave them.
        group: names of its members.
    """
    there = f"it has {several(len(group), 'member')}: {', '.join(sorted(group))}" if group else ""
    for member in dict.fromkeys(members):
        if member not in group:
            yield (
                f"{member}: the group has no such member ({there or 'it has none'}); check that "
                "`relay run --member` was given exactly this name"
            )
