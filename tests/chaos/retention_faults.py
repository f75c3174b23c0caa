"""Performs what retention does to block topics and journal; see tests.chaos.faults.

A loader that is stopped may find everything deleted that it was done with: the document `topics`
says that nobody but readers of history needs it then. What that is comes from the ledger; whether
the ledger was right is the judges' matter, who compare rows with the source.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError

from relay.names import LEFT_OUT
from relay.records_pb2 import Commit
from tests.chaos import ends, facts
from tests.chaos.lost import Deleted
from tests.chaos.program_faults import when
from tests.chaos.server_faults import all_brokers_run
from tests.chaos.servers import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from relay.records_pb2 import Block
    from tests.chaos.campaign import Campaign, Task
    from tests.chaos.schedule import Fault
    from tests.chaos.servers import Servers

_STOP_SECONDS = 60.0
"""For a loader to end, on a busy machine."""
_LOOKS = 10
"""For the ends of transactions: relays commit ten times a second."""
Place = tuple[str, int]


def retention(campaign: Campaign, fault: Fault) -> Sequence[Task]:
    """The loader is stopped, all that it was done with is deleted, and it starts after a while."""
    loader = campaign.loaders[0]
    others = any(p.name.startswith("loader") for p in campaign.extra)
    if others or not loader.runs() or not all_brokers_run(campaign):
        return ()
    loader.wanted, ends = False, len(loader.ends)
    loader.ask_to_end()

    def again() -> None:
        loader.wanted = True

    def delete() -> Sequence[Task]:
        # Killed meanwhile, it may not have noted how far it was.
        if [status for status, _ in loader.ends[ends:]] == [0] and all_brokers_run(campaign):
            _passes(campaign)
        return [(fault.seconds, "undo stop", again)]

    looking = when(lambda: loader.pid is None, delete, time.monotonic() + _STOP_SECONDS)
    return [*looking, (_STOP_SECONDS, "undo stop", again)]


def _passes(campaign: Campaign) -> None:
    servers = campaign.servers
    try:
        if not _seen_whole(servers):
            campaign.history.write("not deleted", error="transactions are open in the journal")
            return
        records = list(facts.visible(servers, servers.journal))
        kept = [(r.partition, r.offset, Commit.FromString(r.value)) for r in records]
        asked = deletable(kept, _settled(servers), _positions(servers), servers.journal)
        deleted = {place: _delete(servers, place, before) for place, before in asked.items()}
    except (ClickHouseError, KafkaError, KafkaException, OSError) as error:
        campaign.history.write("not deleted", error=repr(error))
        return
    campaign.performed["retention_passed"] += 1
    campaign.performed["records_deleted"] += sum(deleted.values())
    campaign.history.write(
        "deleted", before={f"{topic}[{p}]": before for (topic, p), before in asked.items()}
    )


def _seen_whole(servers: Servers) -> bool:
    """Wait until all transactions in the journal that there are now have ended; whether they did.

    Else its partitions may show one that has ended in some and hide it in others, where the marker
    is still to come: the others' blocks would not count, though they share a chunk.
    """
    now = {(s.topic, s.partition): s.high for s in ends.stables(servers)}

    def ended() -> bool:
        there = (s for s in ends.stables(servers) if s.topic == servers.journal)
        return all(s.stable >= now.get((s.topic, s.partition), 0) for s in there)

    return any(ended() for _ in range(_LOOKS))


def deletable(
    journal: Iterable[tuple[int, int, Commit]],
    done: AbstractSet[str],
    positions: Mapping[int, int],
    topic: str,
) -> Mapping[Place, int]:
    """Before which offset of each partition a loader has done with everything. Pure.

    A chunk may be of blocks of several journals: it goes when all of them are settled.

    Args:
        journal: partition, offset and content of each record; those of a partition in order.
        done: blocks that the loader has settled.
        positions: before which offset of the journal it has noted that all is settled.
        topic: the journal's.
    """
    before: dict[Place, int] = {}
    settled: dict[Place, list[int]] = defaultdict(list)
    needed: dict[Place, int] = {}  # from where on, by blocks that are not settled
    closed: set[int] = set()
    for partition, offset, commit in journal:
        # The last record stays, which a relay reads: what comes behind it moves the bound on.
        if partition not in closed:
            before[topic, partition] = offset
        for block in commit.blocks:
            place = block.topic, _partition(block)
            if block.id in done:
                settled[place].append(block.next_offset)
            else:
                closed.add(partition)
                needed[place] = min(needed.get(place, block.first_offset), block.first_offset)
    # Only now: a journal that comes later may name a chunk that one before it names as well.
    for place, ends_there in settled.items():
        most = needed.get(place, max(ends_there))
        before[place] = max((end for end in ends_there if end <= most), default=0)
    for partition in {partition for name, partition in before if name == topic}:
        before[topic, partition] = min(before[topic, partition], positions.get(partition, 0))
    return {place: at for place, at in before.items() if at}


def _partition(block: Block) -> int:
    """Return the block topic's partition that its chunks are in."""
    return block.share.partition if block.HasField("share") else block.partition


def _settled(servers: Servers) -> set[str]:
    """Blocks that were loaded whole; not those whose left out messages still wait."""
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            "SELECT block, countIf(state IN ('loaded', 'discarded')) "
            f"FROM {LEDGER}.ledger WHERE state != 'position' GROUP BY block"
        ).result_rows
    waits = {str(block).removesuffix(LEFT_OUT) for block, settled in found if not settled}
    return {str(block) for block, settled in found if settled} - waits


def _positions(servers: Servers) -> dict[int, int]:
    """Next journal offset by partition, as the loader noted it."""
    with contextlib.closing(servers.clickhouse()) as client:
        found = client.query(
            "SELECT toInt32(splitByChar(':', block)[-1]), max(attempt) "
            f"FROM {LEDGER}.ledger WHERE state = 'position' AND position(block, '#') = 0 GROUP BY 1"
        ).result_rows
    return {int(partition): int(offset) for partition, offset in found}


def _delete(servers: Servers, place: Place, before: int) -> int:
    """DeleteRecords, of what was read before; how many the judges keep of it."""
    topic, partition = place
    known = servers.deleted.get(place, Deleted())
    if before <= known.before:
        return 0
    read = [r for r in facts.visible(servers, topic, [partition]) if r.offset < before]
    # Noted first: an answer that is lost says nothing of what is gone.
    servers.deleted[place] = Deleted(read, before)
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    asked = TopicPartition(topic, partition, before)
    [done] = admin.delete_records([asked], request_timeout=20).values()
    done.result(25)
    return len(read) - len(known.records)
