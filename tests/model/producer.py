"""The transactional producer of a model process: what librdkafka keeps on its side.

Receives the calls of tests.model.member and which fault to suffer; gives events, or lets
the errors of tests.model.kafka through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relay.core import events as ev
from tests.model.copying import shallow
from tests.model.kafka import OFFSETS, GroupMetadata, Kafka, LateEnd, LateOffsets, UnusableError

if TYPE_CHECKING:
    from relay.core import effects as ef
    from tests.model.log import LogKey


@dataclass(slots=True)
class Producer:
    """`added`: partitions that it believes to be in its transaction. `clean`: no transport
    error since begin; `unclean_abort_is_unknown` is the adapter's guard that looks at it."""

    tid: str
    unclean_abort_is_unknown: bool
    epoch: int = -1
    metadata: GroupMetadata | None = None
    added: frozenset[LogKey] = frozenset()
    began: bool = False
    clean: bool = True

    def clone(self) -> Producer:
        return shallow(self)

    def key(self) -> tuple[Any, ...]:
        return (self.tid, self.epoch, self.metadata, self.added, self.began, self.clean)

    def init(self, kafka: Kafka) -> None:
        self.epoch, self.began = kafka.init(self.tid), False

    def begin(self, metadata: GroupMetadata) -> None:
        self.began, self.clean, self.added = True, True, frozenset()
        self.metadata = metadata

    def send(self, kafka: Kafka, key: LogKey, value: Any) -> int:
        """The offset of the value; the first record to a partition adds it."""
        if key not in self.added:
            kafka.add(self.tid, self.epoch, key)
            self.added |= {key}
        return kafka.produce(self.tid, self.epoch, key, [value])[0]

    def send_offsets(
        self, kafka: Kafka, effect: ef.SendOffsets, metadata: GroupMetadata, fault: str
    ) -> ev.Event:
        kafka.add(self.tid, self.epoch, OFFSETS)
        self.added |= {OFFSETS}
        offsets = tuple(sorted(effect.offsets.items()))
        kafka.commit_offsets(self.tid, self.epoch, metadata, offsets)
        if fault == "retried":
            self.clean = False
            kafka.late += (LateOffsets(self.tid, self.epoch, metadata, offsets),)
        return failure(fault) or ev.OffsetsSent()

    def end(self, kafka: Kafka, fault: str, *, commit: bool) -> ev.Event:
        if not self.began:
            raise UnusableError("_STATE: no transaction was begun")
        if fault != "unsent" and self.added:  # else librdkafka sends nothing
            kafka.end(self.tid, self.epoch, commit=commit)
        if fault:
            self.clean = False
            kafka.late += (LateEnd(self.tid, self.epoch, commit),)
        if fault in {"lost", "unsent"}:
            return ev.Failed(ev.Failure.UNKNOWN, f"EndTxn {fault}")
        self.began = False
        if commit:
            return ev.Committed(self.clean)
        if not self.clean and self.unclean_abort_is_unknown:
            return ev.Failed(ev.Failure.UNKNOWN, "transport error inside an aborted transaction")
        return ev.Aborted()


def failure(fault: str) -> ev.Failed | None:
    """What the caller hears of a fault, where the call itself was done or not sent."""
    if fault == "refused":
        return ev.Failed(ev.Failure.ABORT, "refused")
    if fault == "lost":
        return ev.Failed(ev.Failure.UNKNOWN, "answer lost")
    return None
