"""Finds why rows do not arrive though every record is right: who does not run, what hides. Pure.

An anomaly is in no record that nobody wrote: this is what tells a pipeline at rest from one that
nobody runs.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from relay.operate.view.facts import ConsumerGroup, HiddenMessages
from relay.program.plural import several

NO_RELAY, PARTITIONS, NO_LOADER = "no_relay", "partitions_without_relay", "no_loader"
LEDGER, HELD_BACK, SILENT = "ledger_lost", "source_held_back", "partitions_silent"
LOADER_MS = 60_000
"""So long may sealed blocks wait with none settled: a loader that lives takes seconds."""
HIDDEN_MS = 300_000
"""So long may a transaction in the source be open: producers end theirs within a minute by Kafka's
defaults, and stream processors theirs with a checkpoint, after minutes."""
_AT_REST = {"stable", "empty", "dead"}
"""States of a group that is not just about to share its partitions out anew."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One of them; `kind` is for programs."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class UnsettledBlocks:
    """Blocks that are sealed and not settled.

    Attributes:
        blocks: how many; None: ClickHouse does not say.
        since_ms: when the oldest of them was sealed, in Unix milliseconds.
        settled_ms: when any block was settled last; 0: none ever was.
        lost: that the ledger was lost, which says which blocks are settled; empty: it was not.
    """

    blocks: int | None
    since_ms: int = 0
    settled_ms: int = 0
    lost: str = ""


def find_missing_programs(
    now_ms: int,
    group: ConsumerGroup,
    owners: Mapping[int, str],
    unread: int | None,
    waiting: UnsettledBlocks,
) -> Iterator[Trouble]:
    """Yield which programs do not run.

    Args:
        now_ms: Unix milliseconds.
        group: of the relays.
        owners: member by source partition; empty where none has it.
        unread: offsets that no relay has polled; None: not known.
        waiting: blocks that wait for a loader.
    """
    if not group.members:
        left = f"; {several(unread, 'offset waits', 'offsets wait')} to be read" if unread else ""
        yield Trouble(NO_RELAY, f"no relay is in the group{left}")
    elif group.state in _AT_REST and (alone := [p for p, owner in owners.items() if not owner]):
        yield Trouble(PARTITIONS, f"no relay has partition {_few(alone)}")
    if waiting.lost:
        yield Trouble(LEDGER, f"{waiting.lost} (relay docs backup)")
    elif waiting.blocks and now_ms - max(waiting.since_ms, waiting.settled_ms) > LOADER_MS:
        blocks = several(waiting.blocks, "block waits", "blocks wait")
        if waiting.settled_ms:
            since = f"since {_minute(waiting.settled_ms, now_ms)} while {blocks}"
        else:
            since = f"yet, and {blocks}, the oldest since {_minute(waiting.since_ms, now_ms)}"
        yield Trouble(NO_LOADER, f"no loader has settled a block {since}")


def find_held_back(now_ms: int, hidden: Mapping[int, HiddenMessages]) -> Iterator[Trouble]:
    """Yield a trouble where a transaction in the source has been open for longer than HIDDEN_MS."""
    known = {p: h.since_ms for p, h in sorted(hidden.items()) if h.since_ms is not None}
    old = {p: since_ms for p, since_ms in known.items() if now_ms - since_ms > HIDDEN_MS}
    if old:
        offsets = several(sum(hidden[p].offsets for p in old), "offset")
        yield Trouble(
            HELD_BACK,
            f"an open transaction hides {offsets} of source partition {_few([*old])} from relays, "
            f"the oldest since {_minute(min(old.values()), now_ms)}; kafka-transactions.sh "
            "find-hanging names its producer",
        )


def find_silent_partitions(silent: Mapping[tuple[str, int], str]) -> Iterator[Trouble]:
    """Yield a trouble where partitions gave no end, for these reasons."""
    if silent:
        places = [f"{topic}[{partition}]" for topic, partition in sorted(silent)]
        yield Trouble(
            SILENT,
            f"lag and open transactions of {_few(places)} are not known: {min(silent.values())}",
        )


def _few(partitions: Sequence[object], most: int = 10) -> str:
    named = ", ".join(map(str, partitions[:most]))
    return named if len(partitions) <= most else f"{named} and {len(partitions) - most:,} more"


def _minute(ms: int, now_ms: int) -> str:
    """UTC; with the date where it is not today's."""
    try:
        at, now = (datetime.fromtimestamp(unix_ms / 1000, UTC) for unix_ms in (ms, now_ms))
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return at.strftime("%H:%M UTC" if at.date() == now.date() else "%Y-%m-%d %H:%M UTC")
