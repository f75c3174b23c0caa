"""librdkafka's statistics, as it gives them every interval, read when Prometheus asks.

The client calls back with its JSON while it is polled. Nothing is computed between two scrapes but
the parsing of one JSON text per client and interval.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from relay.operate.metrics import client_definitions as listed
from relay.program.metric import Samples

INTERVAL_MS = 10_000
"""Between two statistics; `statistics.interval.ms` in kafka.client overrides it."""
CONSUMER, PRODUCER = "consumer", "producer"
OLD = 3
"""So many intervals without statistics, and what they said of connections holds no more."""

_Given = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Readable:
    """A source partition as the consumer sees it.

    Attributes:
        end: the last stable offset; -1 where it is not known.
        drained: everything before `end` was given to the program; what is left are markers.
        waiting_since: when messages were first seen to wait, with their leader connected all
            the time since; None: none wait, or they cannot be reached.
    """

    end: int
    drained: bool
    waiting_since: float | None


class Statistics:
    """The latest of each client, and how far each partition of the source topic could be read."""

    def __init__(self, topic: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._clock = clock
        self._latest: dict[str, tuple[float, _Given]] = {}
        self._interval: dict[str, float] = {}
        self._readable: dict[int, Readable] = {}

    def settings(self, client: str) -> dict[str, Any]:
        """Return what a client is made with, so that it calls back."""
        return {
            "statistics.interval.ms": INTERVAL_MS,
            "stats_cb": lambda text: self.take(client, text),
        }

    def take(self, client: str, text: str) -> None:
        """Take one statistics text of a client."""
        statistics, now = json.loads(text), self._clock()
        before = self._latest.get(client)
        if before is not None:  # kafka.client may have set another
            self._interval[client] = max(now - before[0], INTERVAL_MS / 1000)
        self._latest[client] = (now, statistics)
        if client == CONSUMER:
            self._readable = self._find_readable(statistics)

    def connected(self) -> bool | None:
        """Return whether any client reaches any broker; None before the first statistics.

        A client that is not polled, as the consumer inside a transaction, goes on saying what it
        said last: only those that were heard of lately count, where there are any.
        """
        if not self._latest:
            return None
        new = [client for client in self._latest if not self._is_old(client)]
        latest = [self._latest[client][1] for client in new or self._latest]
        return any(_up(broker) for statistics in latest for broker in _brokers(statistics))

    def _is_old(self, client: str) -> bool:
        age = self._clock() - self._latest[client][0]
        return age > OLD * self._interval.get(client, INTERVAL_MS / 1000)

    def readable(self) -> dict[int, Readable]:
        """Return each assigned source partition."""
        return self._readable

    def _find_readable(self, given: _Given) -> dict[int, Readable]:
        up = {broker["nodeid"] for broker in _brokers(given) if _up(broker)}
        readable = {}
        for number, partition in self._partitions(given):
            end = partition.get("ls_offset", -1)
            drained = partition.get("next_offset", -1) >= end and not partition.get("fetchq_cnt")
            since = None
            if not drained and partition.get("leader") in up:
                before = self._readable.get(number)
                since = before.waiting_since if before is not None else None
                since = self._clock() if since is None else since
            readable[number] = Readable(end, drained, since)
        return readable

    def samples(self) -> Samples:
        """Return the samples of all clients."""
        samples: Samples = {}
        for client, (heard_at, statistics) in list(self._latest.items()):
            age, old = self._clock() - heard_at, self._is_old(client)
            samples.setdefault("relay_kafka_statistics_seconds", []).append(((client,), age))
            for shown, labels, value in self._values(statistics):
                if old and shown in listed.WELL:
                    value = False  # noqa: PLW2901 - nobody knows, and it should not read as well
                values = samples.setdefault(shown.metric.name, [])
                values.append(((client, *labels), float(value) * shown.scale))
        return samples

    def _values(self, given: _Given) -> Iterator[tuple[listed.ClientMetric, tuple[str, ...], Any]]:
        yield from _plain(listed.CLIENT, given)
        for broker in _brokers(given):
            node = str(broker["nodeid"])
            yield listed.BROKER_UP, (node,), _up(broker)
            yield from _plain(listed.BROKER, broker, node)
            for shown in listed.BROKER_WINDOWS:
                window = broker.get(shown.key, {})
                yield from ((shown, (node, of), window[of]) for of in listed.WINDOW if of in window)
        for number, partition in self._partitions(given):
            yield listed.FETCHING, (str(number),), partition.get("fetch_state") == "active"
            yield from _plain(listed.PARTITION, partition, str(number))
        if given.get("type") == PRODUCER:
            yield from _batches(given)
        if group := given.get("cgrp"):
            yield listed.GROUP_UP, (), group.get("state") == "up"
            yield listed.GROUP_STEADY, (), group.get("join_state") == "steady"
            yield from _plain(listed.GROUP, group)
        if transactional := given.get("eos"):
            yield from _plain(listed.TRANSACTIONAL, transactional)

    def _partitions(self, given: _Given) -> Iterator[tuple[int, _Given]]:
        """Yield the source topic's partitions that the consumer reads; -1 is librdkafka's own."""
        if given.get("type") != CONSUMER:
            return
        topic = given.get("topics", {}).get(self._topic, {})
        for partition in topic.get("partitions", {}).values():
            if partition.get("partition", -1) >= 0 and partition.get("desired"):
                yield partition["partition"], partition


def _plain(
    shown: tuple[listed.ClientMetric, ...], given: _Given, *labels: str
) -> Iterator[tuple[listed.ClientMetric, tuple[str, ...], Any]]:
    """Return the metrics that this version of librdkafka has."""
    return ((metric, labels, given[metric.key]) for metric in shown if metric.key in given)


def _brokers(given: _Given) -> list[_Given]:
    """Return brokers known by their id; others are bootstrap addresses and coordinators."""
    brokers = given.get("brokers", {}).values()
    known = (broker for broker in brokers if broker.get("nodeid", -1) >= 0)
    return [broker for broker in known if broker.get("source") != "logical"]


def _up(broker: _Given) -> bool:
    return bool(broker.get("state") == "UP")


def _batches(given: _Given) -> Iterator[tuple[listed.ClientMetric, tuple[str, ...], Any]]:
    """Sum over all topics: librdkafka keeps them by topic, of which there is one per table."""
    for shown in listed.BATCHES:
        topics = given.get("topics", {}).values()
        windows = [topic[shown.key] for topic in topics if shown.key in topic]
        count = sum(window["cnt"] for window in windows)
        yield shown, ("avg",), sum(window["sum"] for window in windows) / max(count, 1)
        yield shown, ("max",), max((window["max"] for window in windows), default=0)
