"""Campaigns that measure: memory and open files over an hour, the time to progress after a kill,
and what becomes of a producer that aborts right after it produced."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from relay import names
from relay.config import kafka_clients, settings_file
from relay.core.events import Failure
from relay.kafka.transactional_producer import TransactionalProducer, TransactionFailed
from tests.chaos import ends, schedule
from tests.chaos.faults import perform
from tests.chaos.pauses import pause
from tests.chaos.servers import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.campaign import Campaign

SAMPLE_SECONDS = 10.0
FLAT_BYTES_PER_HOUR = 40_000_000
"""Of one program: allocators keep some of a peak; a leak of a record per transaction shows."""
FLAT_FILES = 25
"""Between the least and the most that a program had open in the second half."""


# ---- soak -----------------------------------------------------------------------------------

Sample = tuple[float, int, int]
"""Seconds, resident bytes, open files."""


def slope(samples: Sequence[Sample]) -> float:
    """Bytes per hour of the least-squares line through the second half of the samples."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    line = np.polyfit([s[0] for s in half], [s[1] for s in half], 1)
    return float(line[0]) * 3600


def growth(samples: dict[str, list[Sample]]) -> list[str]:
    """Programs whose memory or files grew; the bounds stand above."""
    found = []
    for name, of_program in samples.items():
        half = of_program[len(of_program) // 2 :]
        if not half:
            continue
        if (per_hour := slope(of_program)) > FLAT_BYTES_PER_HOUR:
            found.append(f"{name}: resident memory grows by {per_hour / 1e6:.1f} MB an hour")
        files = [s[2] for s in half]
        if files[-1] - min(files) > FLAT_FILES:
            found.append(f"{name}: open files went from {min(files)} to {files[-1]}")
    return found


def soak(campaign: Campaign, seconds: float) -> dict[str, Any]:
    """A low rate and members that come and go, no kills: what grows, grows by itself."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    begun = time.monotonic()
    due = begun

    def sample() -> bool:
        nonlocal due
        if time.monotonic() >= due:
            due += SAMPLE_SECONDS
            for program in [*campaign.members, *campaign.loaders]:
                if (found := program.memory_and_files()) is not None:
                    samples[program.name].append((time.monotonic() - begun, *found))
        return time.monotonic() - begun >= seconds

    number = 0
    while not sample():
        seed = campaign.options.seed * 1000 + number
        length = min(300.0, seconds - (time.monotonic() - begun))
        plan = [f for f in schedule.plan(seed, length, ["join"], 45.0) if f.detail == "leave"]
        campaign.round(plan, perform, length, sample)
        pause(campaign)
        number += 1
    if seconds >= 600:  # in less, every allocator is still warming up
        for what in growth(samples):
            campaign.anomaly(what)
    return {
        name: {
            "mb_per_hour": round(slope(s) / 1e6, 2),
            "mb_first": round(s[0][1] / 1e6, 1),
            "mb_last": round(s[-1][1] / 1e6, 1),
            "files_least": min(x[2] for x in s),
            "files_most": max(x[2] for x in s),
            "samples": len(s),
        }
        for name, s in samples.items()
    }


# ---- recovery -------------------------------------------------------------------------------


def recovery(campaign: Campaign, count: int) -> dict[str, Any]:
    """Seconds from a SIGKILL until every partition has had a further transaction."""
    chance = random.Random(f"recovery {campaign.options.seed}")
    taken: dict[str, list[float]] = {"static_restart": [], "other_member": []}
    campaign.round((), perform, 8.0)
    for number in range(count):
        how = ("static_restart", "other_member")[number % 2]
        seconds = _recovered(campaign, chance, restart=how == "static_restart")
        if seconds is not None:
            taken[how].append(seconds)
            campaign.history.write("recovered", how=how, seconds=seconds)
    pause(campaign)
    return {
        how: {
            "count": len(seconds),
            "p50_seconds": round(float(np.percentile(seconds, 50)), 2),
            "p99_seconds": round(float(np.percentile(seconds, 99)), 2),
        }
        for how, seconds in taken.items()
        if seconds
    }


def _recovered(campaign: Campaign, chance: random.Random, *, restart: bool) -> float | None:
    victim = chance.choice(campaign.members)
    campaign.settled = False
    campaign.source.resume()
    pause_until = time.monotonic() + chance.uniform(2.0, 4.0)
    while time.monotonic() < pause_until:
        campaign.turn()
    victim.wanted = restart
    victim.kill()
    begun = time.monotonic()
    before = ends.committed(campaign.servers)

    def all_went_on() -> bool:
        """Each partition has had a further transaction; where its floor is depends on the
        age of the quietest table's block, which is a setting."""
        found = ends.committed(campaign.servers)
        return all(found[p][1] > n for p, (_, n, _) in before.items())

    good = campaign.until(all_went_on, 120.0, "progress after a kill")
    seconds = time.monotonic() - begun
    victim.wanted = True
    return seconds if good else None


# ---- abort right after a produce ------------------------------------------------------------


def aborts(campaign: Campaign, count: int) -> dict[str, Any]:
    """librdkafka#4849: the relay's own producer aborts while its first request is under way.

    Every abort must leave a producer that goes on or says that it wants to be replaced, and a
    commit after it must succeed.
    """
    chance = random.Random(f"aborts {campaign.options.seed}")
    settings = settings_file.load(campaign.directory / "relay.toml", {"relay.member": "aborter"})
    producer = TransactionalProducer(*_arguments(settings))
    group = Consumer(
        {"bootstrap.servers": campaign.servers.bootstrap, "group.id": names.group_id(settings.app)}
    )
    ended: Counter[str] = Counter()
    producer.replace()
    for number in range(count):
        try:
            producer.begin(group.consumer_group_metadata())
            for _ in range(chance.randint(1, 3)):
                place = TopicPartition(campaign.servers.journal, chance.randrange(PARTITIONS))
                producer.produce(place, b"aborted", b"", [], lambda _: None)
            if chance.random() < 0.5:  # with its first request at the broker, or not yet sent
                time.sleep(chance.uniform(0, 0.01))
            producer.abort()
            ended["aborted"] += 1
        except TransactionFailed as failed:
            ended[failed.kind.name] += 1
            if failed.kind not in {Failure.UNKNOWN, Failure.ABORT}:
                campaign.anomaly(f"abort {number}: {failed.kind.name}: {failed.why}")
            producer.replace()
        campaign.tend()
    producer.close()
    campaign.performed["abort_after_produce"] += count
    return {"aborts": dict(ended)}


def _arguments(settings: Any) -> tuple[Any, ...]:
    """What relay.process.perform makes its producer of."""
    deadline = 2 * settings.relay.transaction_timeout_seconds
    return kafka_clients.producer(settings), deadline, names.group_id(settings.app)
