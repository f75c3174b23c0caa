"""Makes the librdkafka settings of every client, each with its reason beside it.

Receives checked settings, gives the dict a client is made from; makes no client
itself. Of each client's settings the defaults come first, then what the user passes
through (`kafka.client`), then what correctness owns, so that nothing can displace it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from relay import log, names
from relay.config.settings import Brokers, Settings
from relay.errors import ConfigError

ClientSettings = dict[str, Any]
"""librdkafka names to values; callers add their callbacks."""

# Most would only draw a warning from clients of the other kind.
_CONSUMER_ONLY = re.compile(
    r"(fetch|queued|coordinator|consume)\..*|max\.poll\.interval\.ms|heartbeat\.interval\.ms"
    r"|max\.partition\.fetch\.bytes"
)
_PRODUCER_ONLY = re.compile(
    r"(queue\.buffering|batch|compression|partitioner|sticky\.partitioning)(\..*)?|linger\.ms"
    r"|queuing\.strategy|request\.timeout\.ms|msg_order_cmp"
    # A consumer with it is refused unless it fetches at least as much at a time.
    r"|message\.max\.bytes"
)
_NOT_A_MEMBER = re.compile(rf"{_PRODUCER_ONLY.pattern}|max\.poll\.interval\.ms")
"""A reader joins no group: the member's limit would only contradict its default session."""


class FromFile(str):
    """A secret as the file at `path` held it: a client that lives long looks there again."""

    __slots__ = ("path",)
    path: Path

    @classmethod
    def read(cls, path: Path) -> FromFile:
        """Read it; raises as `secret`."""
        made = cls(secret(path))
        made.path = path
        return made


def secret(path: Path) -> str:
    """Return what a file of kafka.client_files holds, without byte order mark and last line break.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the file is not UTF-8"
        raise ConfigError(
            f"kafka.client_files: cannot read {path}: {reason}",
            "name a file that this process can read",
        ) from error


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


_DEFAULTS: ClientSettings = {
    # Load balancers drop idle connections silently; the next request would wait for a timeout.
    "socket.keepalive.enable": True,
    # A broker that came back is found within seconds.
    "reconnect.backoff.max.ms": 5000,
    # librdkafka prints to stderr by itself otherwise, line after line while a broker is away.
    "logger": log.clients(),
}

_OWNED: ClientSettings = {
    # Where brokers create topics, neither a question about one nor a record for one may do it: a
    # typing error would, and a deleted topic would be back, empty and with the cluster's settings,
    # before the relay saw that it was gone. Producers ask so by default, and admin clients are
    # producers; librdkafka's table calls the setting a consumer's, but all heed it (2.16: tried).
    "allow.auto.create.topics": False,
}

_READS: ClientSettings = {
    # Also makes offset reads wait for open transactions of a predecessor (require_stable).
    "isolation.level": "read_committed",
    # A missing or foreign offset is an error; the default (latest) skips rows silently.
    "auto.offset.reset": "error",
    # Offsets move only with send_offsets_to_transaction.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "check.crcs": True,
    "enable.partition.eof": False,
}


def _client(
    kafka: Brokers, left_out: re.Pattern[str], defaults: ClientSettings, owned: ClientSettings
) -> ClientSettings:
    """Settings of one client; `left_out` are the user's that such a client does not know."""
    secrets = {key: FromFile.read(path) for key, path in kafka.client_files.items()}
    given = {k: v for k, v in {**kafka.client, **secrets}.items() if not left_out.fullmatch(k)}
    address = {"bootstrap.servers": kafka.bootstrap}
    return {**_DEFAULTS, **defaults, **given, **_OWNED, **address, **owned}


def consumer(settings: Settings) -> ClientSettings:
    """Return settings of the relay's consumer of the source topic."""
    session = _milliseconds(settings.relay.session_timeout_seconds)
    defaults = {
        "client.id": names.transactional_id(settings.app, settings.relay.member),
        # A member learns of a rebalance by its next heartbeat, and all wait until each has: at
        # librdkafka's default of 3 s a relay that joined another idled for as long. Three of them
        # fit into a session.
        "heartbeat.interval.ms": min(500, session // 3),
        # Longer than several of the longest transactions; never below the session.
        "max.poll.interval.ms": max(300_000, session),
        # Memory: librdkafka prefetches up to this much on top of the relay's own buffers.
        "queued.max.messages.kbytes": 65_536,
        # A broker cuts a partition's answer off here, within a record batch, and the client throws
        # the piece away: of batches of 1 MB 29 % of all that was sent at the default of 1 MiB.
        "max.partition.fetch.bytes": 4 << 20,
        # Of all partitions. What was fetched of one whose turn is over is thrown away: with 64
        # partitions, of which a few are read at a time, librdkafka's 50 MiB cost a sixth.
        "fetch.max.bytes": 8 << 20,
        # When the prefetch queue was full: at the default of 1000 ms the relay runs dry.
        "fetch.queue.backoff.ms": 20,
        # Partitions that are added to the source are taken so soon: librdkafka's five minutes are
        # long for those who wait for their rows.
        "topic.metadata.refresh.interval.ms": 5_000,
        # How long a broker may sit on a fetch that finds nothing; data is answered at once.
        "fetch.wait.max.ms": 100,
    }
    owned = {
        "group.id": names.group_id(settings.app),
        # Static membership: a restart within the session keeps its partitions.
        "group.instance.id": names.instance_id(settings.app, settings.relay.member),
        # Under the newer protocol a restarted static member is fenced by its own predecessor.
        "group.protocol": "classic",
        # Eager: each rebalance revokes everything and floors are read again, no partial paths.
        # Dealt out one by one, the lowest partitions of n members are the first n, and block topics
        # need no others. Earlier versions know only `range`, and a group takes what all know.
        "partition.assignment.strategy": "roundrobin,range",
        "session.timeout.ms": session,
        **_READS,
        # Markers of transactions and aborted records take offsets, and nothing else tells that they
        # are all that is left.
        "enable.partition.eof": True,
    }
    return _client(settings.source_kafka, _PRODUCER_ONLY, defaults, owned)


def producer(settings: Settings) -> ClientSettings:
    """Return settings of the relay's transactional producer."""
    transaction = _milliseconds(settings.relay.transaction_timeout_seconds)
    defaults = {
        "client.id": names.transactional_id(settings.app, settings.relay.member),
        # A lost connection must show well before the transaction times out (librdkafka: 60 s).
        "socket.timeout.ms": min(15_000, transaction // 2),
        # Bootstrapping anew forgets the transaction's coordinator and never asks for it again
        # (librdkafka 2.16): one lost connection would stall the relay past all its timeouts.
        "metadata.recovery.strategy": "none",
        # Chunks of a transaction share requests; flush() does not wait for it.
        "linger.ms": 20,
        # Below the broker's default message.max.bytes (1048588), and for topics that take less no
        # more than the chunk chosen for them: else the transaction fails, and fewer records share
        # a batch from then on.
        "batch.size": min(1_000_000, settings.block.chunk_bytes),
        # The topic's limit decides: a dead letter is as large as its source message was, which
        # librdkafka inflates to as much; the brokers' socket.request.max.bytes is a little more.
        "message.max.bytes": 100_000_000,
        # Chunks are compressed inside already.
        "compression.type": "none",
        # Bounds memory; a full queue makes produce() wait, it drops nothing.
        "queue.buffering.max.kbytes": 262_144,
    }
    owned = {
        # Stable over restarts, so that a successor fences its predecessor.
        "transactional.id": names.transactional_id(settings.app, settings.relay.member),
        # Below the session timeout: a stalled relay's transaction ends before its
        # partitions move on.
        "transaction.timeout.ms": transaction,
        # Implied by transactions; written out so that a change of defaults cannot undo it.
        "enable.idempotence": True,
        "acks": "all",
        # Each delivery is counted; commit only if all produced records are acknowledged.
        "delivery.report.only.error": False,
    }
    return _client(settings.kafka, _CONSUMER_ONLY, defaults, owned)


def producer_under(settings: Settings, identity: str) -> ClientSettings:
    """Return settings of another program's transactional producer."""
    return {**producer(settings), "client.id": identity, "transactional.id": identity}


def reader(kafka: Brokers) -> ClientSettings:
    """Return settings of a bounded reader that assigns partitions itself and never commits.

    At the end of a partition it reports no event: ask the watermarks first.
    """
    defaults = {
        # A bounded read waits this long at its end; at the default 500 ms every block would.
        "fetch.wait.max.ms": 10,
        "fetch.queue.backoff.ms": 20,
        "queued.max.messages.kbytes": 65_536,
    }
    owned = {
        # Demanded by the client library, never joined and never committed to.
        "group.id": "block-relay-reader",
        **_READS,
    }
    return _client(kafka, _NOT_A_MEMBER, defaults, owned)


def prober(kafka: Brokers) -> ClientSettings:
    """Return settings of a reader that learns whether logs reach an offset, and reads no further.

    Brokers send a first batch, however little is asked for. Aborted records are as good as others:
    of those alone may be many.
    """
    return {
        **reader(kafka),
        "enable.partition.eof": True,
        "max.partition.fetch.bytes": 1,
        "isolation.level": "read_uncommitted",
    }


def plain_producer(kafka: Brokers) -> ClientSettings:
    """Return settings of a producer outside transactions: source rows, schema records."""
    defaults = {
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "message.max.bytes": 64 << 20,
        "compression.type": "lz4",
        # A key goes to the partition where Java producers put it.
        "partitioner": "murmur2_random",
    }
    owned = {
        "enable.idempotence": True,
        "acks": "all",
        "delivery.report.only.error": False,
    }
    return _client(kafka, _CONSUMER_ONLY, defaults, owned)


def admin(kafka: Brokers) -> ClientSettings:
    """Return settings of the AdminClient."""
    either = re.compile(f"{_CONSUMER_ONLY.pattern}|{_PRODUCER_ONLY.pattern}")
    return _client(kafka, either, {}, {})
