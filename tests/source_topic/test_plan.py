"""The source topic is made as its brokers allow, left as it is, or refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relay.errors import ConfigError, ContractBroken
from relay.operate.source_topic.plan import Cluster, Decided, Wanted, decide

ASKED = Wanted("rows", "shop", None, None, configured=3)
ALONE = {"cleanup.policy": "delete"}
SAFE = {**ALONE, "min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("asked", "cluster", "made"),
    [
        (ASKED, Cluster(3), Decided(True, 12, 3, SAFE)),
        (ASKED, Cluster(5), Decided(True, 12, 3, SAFE)),
        (replace(ASKED, configured=None), Cluster(5), Decided(True, 12, 3, SAFE)),
        (replace(ASKED, partitions=64, replication=4), Cluster(5), Decided(True, 64, 4, SAFE)),
        (replace(ASKED, anew=True), Cluster(3, journal=7), Decided(True, 7, 3, SAFE)),
        (
            replace(ASKED, anew=True, partitions=8),
            Cluster(3, journal=7),
            Decided(True, 8, 3, SAFE),
        ),
    ],
)
def test_a_missing_topic_is_made(asked: Wanted, cluster: Cluster, made: Decided) -> None:
    assert decide(asked, cluster) == made


@pytest.mark.parametrize(
    ("brokers", "configured", "partitions", "says"),
    [
        (1, 1, 4, "for development"),
        (2, 2, 12, "for development"),
        (2, None, 12, "for development"),
        (3, 1, 12, "3 brokers are up"),
        (3, 2, 12, "kafka.replication = 3"),
    ],
)
def test_too_few_copies_are_said(
    brokers: int, configured: int | None, partitions: int, says: str
) -> None:
    decided = decide(replace(ASKED, configured=configured), Cluster(brokers))
    assert (decided.partitions, decided.replication) == (partitions, configured or brokers)
    assert decided.settings == ALONE
    (note,) = decided.notes
    assert says in note


@pytest.mark.parametrize("asked", [ASKED, replace(ASKED, partitions=6, replication=2, anew=True)])
def test_a_topic_that_is_there_is_left_as_it_is(asked: Wanted) -> None:
    """Also where the app has a journal, and kafka.replication is another."""
    assert decide(asked, Cluster(1, 6, 2, journal=6)) == Decided(False, 6, 2)


@pytest.mark.parametrize(
    ("asked", "cluster", "says", "step"),
    [
        (ASKED, Cluster(2), "kafka.replication is 3, but 2 brokers are up", "start the other"),
        (replace(ASKED, replication=2), Cluster(1), "--replication is 2, but 1 broker is", "to 1"),
        (replace(ASKED, partitions=8), Cluster(3, 6, 3), "6 partitions, but --par", "--alter"),
        (
            replace(ASKED, partitions=4),
            Cluster(3, 6, 3),
            "6 partitions, but --par",
            "cannot remove",
        ),
        (replace(ASKED, replication=3), Cluster(3, 6, 1), "has replication 1", "reassign"),
        (
            replace(ASKED, partitions=4, anew=True),
            Cluster(3, journal=6),
            "the journal of app shop has 6",
            "6 or more",
        ),
    ],
)
def test_what_would_be_wrong_is_refused(
    asked: Wanted, cluster: Cluster, says: str, step: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        decide(asked, cluster)
    assert says in refused.value.message
    assert "nothing was" in refused.value.message
    assert step in refused.value.next_step


def test_an_app_that_has_read_another_topic_is_refused() -> None:
    """Its relays would stop at the new one."""
    with pytest.raises(ContractBroken) as refused:
        decide(ASKED, Cluster(3, journal=6))
    assert "journal has 6 partitions" in refused.value.message
    assert "--anew" in refused.value.next_step
