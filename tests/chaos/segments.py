"""The files of a dead broker without their ends, as a loss of power leaves them.

Receives the data directory of a broker that was killed; cuts the newest segment of every
partition. The brokers' own metadata is left whole: Raft forbids a voter to forget what it has
acknowledged, so a cut there would be a fault that nobody promises to survive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from pathlib import Path

METADATA = "__cluster_metadata-0"
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
"""Say what is safely on the disk: lost with the rest."""


def cut_ends(data: Path, most_bytes: int) -> dict[str, int]:
    """Cut up to so many bytes off the newest segment of each partition; bytes by partition.

    Raises:
        FileNotFoundError: there is no such directory.
    """
    cut: dict[str, int] = {}
    for partition in sorted(path for path in data.iterdir() if path.is_dir()):
        segments = sorted(partition.glob("*.log"))
        if partition.name == METADATA or not segments:
            continue
        size = segments[-1].stat().st_size
        # Half of a small one, so that a batch is torn and not all is gone.
        gone = min(most_bytes, size // 2)
        if gone:
            with segments[-1].open("r+b") as file:
                file.truncate(size - gone)
            cut[partition.name] = gone
    for name in CHECKPOINTS:
        (data / name).unlink(missing_ok=True)
    return cut


def whole(bootstrap: str) -> bool:
    """Whether every partition has a leader and all its replicas in sync; not, if nobody answers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        topics = admin.list_topics(timeout=10).topics.values()
    except KafkaException:
        return False
    return all(
        p.leader >= 0 and set(p.isrs) == set(p.replicas)
        for topic in topics
        for p in topic.partitions.values()
    )
