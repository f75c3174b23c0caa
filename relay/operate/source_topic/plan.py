"""Decides whether and how to create the source topic; pure.

Receives what a person asked for and what the brokers have; gives the topic to make, or the one
that is there already, or raises where making it would be wrong.
"""

# pure

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from relay.config.topic_settings import BY_TIME, SAFE_COPIES, of_copies
from relay.errors import ConfigError, ContractBroken, ErrorPage
from relay.program.plural import several

FEW_PARTITIONS = 4
"""Of a topic of one broker, which is for development."""
MANY_PARTITIONS = 12
"""Of a topic of several brokers: divides evenly among 1, 2, 3, 4, 6 and 12 relays."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for.

    Attributes:
        topic: its name, source.topic.
        app: whose source it is.
        partitions: None: by the number of brokers, or as many as the app's topics have.
        replication: None: `configured`.
        configured: kafka.replication; None: as many copies as are safe, or can be had.
        anew: whether the app may have read another topic of this name before.
    """

    topic: str
    app: str
    partitions: int | None
    replication: int | None
    configured: int | None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers that are up, and what they have."""

    brokers: int
    partitions: int | None = None
    """The source topic's; None: it is not there."""
    replication: int = 0
    """The source topic's."""
    journal: int | None = None
    """Partitions of the app's journal; None: no relay of this app has run."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The topic; its settings are those beside the brokers' own defaults."""

    made: bool
    """Whether it has to be made; otherwise it is there."""
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def decide(wanted: Wanted, cluster: Cluster) -> Decided:
    """Return the topic to make, or the one that is there.

    Raises:
        ConfigError: it cannot be created as asked, or exists and differs.
        ContractBroken: the app has read another topic of this name.
    """
    if cluster.partitions is not None:
        return _check_existing(wanted, cluster.partitions, cluster.replication)
    replication = wanted.replication or wanted.configured or min(SAFE_COPIES, cluster.brokers)
    if replication > cluster.brokers:
        origin = "--replication" if wanted.replication else "kafka.replication"
        up = several(cluster.brokers, "broker is up", "brokers are up")
        raise ConfigError(
            f"{origin} is {replication}, but {up}: a partition of topic {wanted.topic} cannot have "
            "more replicas than there are brokers; nothing was created",
            f"start the other brokers, or set {origin} to {cluster.brokers}",
        )
    if cluster.journal is not None and not wanted.anew:
        raise ContractBroken(
            f"source topic {wanted.topic} does not exist, but app {wanted.app} has read one: its "
            f"journal has {several(cluster.journal, 'partition')}. A new topic would be another "
            "source, and the app's relays would stop at it; nothing was created",
            "correct source.topic; or set another `app` for another source; if the topic was "
            "deleted on purpose, create it with --anew, then run `relay accept`",
            page=ErrorPage.ACCEPT,
        )
    by_brokers = MANY_PARTITIONS if cluster.brokers > 1 else FEW_PARTITIONS
    partitions = wanted.partitions or cluster.journal or by_brokers
    if cluster.journal is not None and partitions < cluster.journal:
        raise ConfigError(
            f"--partitions is {partitions}, but the journal of app {wanted.app} has "
            f"{cluster.journal}, and relays refuse a source with fewer; nothing was created",
            f"give --partitions {cluster.journal} or more, or set another `app`",
        )
    notes = tuple(_notes(replication, cluster.brokers))
    settings = {**BY_TIME, **of_copies(replication)}
    return Decided(True, partitions, replication, settings, notes)


def _check_existing(wanted: Wanted, partitions: int, replication: int) -> Decided:
    """It is left as it is: what was asked for explicitly has to be so already."""
    if wanted.partitions not in {None, partitions}:
        grows = (wanted.partitions or 0) > partitions
        raise ConfigError(
            f"topic {wanted.topic} has {several(partitions, 'partition')}, but --partitions is "
            f"{wanted.partitions}; nothing was changed",
            "add partitions with kafka-topics --alter: running relays follow within seconds"
            if grows
            else "Kafka cannot remove partitions: leave --partitions out, or name another topic",
        )
    if wanted.replication not in {None, replication}:
        raise ConfigError(
            f"topic {wanted.topic} has replication {replication}, but --replication is "
            f"{wanted.replication}; nothing was changed",
            "leave --replication out, or change it with kafka-reassign-partitions",
        )
    return Decided(False, partitions, replication)


def _notes(replication: int, brokers: int) -> Iterator[str]:
    if replication < SAFE_COPIES <= brokers:
        yield (
            f"replication is {replication}, and {brokers} brokers are up: a broker that is lost "
            "takes acknowledged records with it. In production set kafka.replication = "
            f"{SAFE_COPIES} before you create topics"
        )
    elif replication < SAFE_COPIES:
        yield (
            f"replication is {replication}, which is for development: a broker that is lost takes "
            "acknowledged records with it"
        )
