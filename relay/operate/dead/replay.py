"""Sends dead letters' messages to the source topic again, each exactly once.

Each batch of messages, with a mark for each message, is one transaction. A replay that dies leaves
whole batches: sent and marked, or neither.

Two replays at once: the transactional id is one for the whole app, so the second one's start ends
what the first has open and refuses it all else. The marks are read after that start, and see every
batch that the first one committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from confluent_kafka import TopicPartition

from relay import names
from relay.blocks.dead_letter import DeadLetter, RecordPlace
from relay.config import kafka_clients
from relay.config.settings import Settings
from relay.core.events import Failure
from relay.errors import RelayError
from relay.failpoints import reached
from relay.kafka.errors import TOO_LARGE, TransactionFailed, ended
from relay.kafka.topics import Topics
from relay.kafka.transactional_producer import TransactionalProducer
from relay.operate.dead.reader import DeadReader
from relay.operate.dead.replay_plan import ReplayMark, ReplayMessage, Why, mark_key

LeftOut = Callable[[Sequence[DeadLetter]], Mapping[RecordPlace, Why]]

_NO_GROUP = "no consumer group"
"""Where the producer wants a member's metadata: a replay sends no offsets."""


class Replay:
    """The one replay of an app.

    Args:
        left_out: those of these letters that rewinds forbid to send, as of now, each with why.

    Raises (every method):
        Unavailable: the brokers did not answer; what was sent is marked, so run it again.
        Refused: they answered no.
        Fenced: another replay of this app was started.

    Attributes:
        marks: of all dead letters replayed so far, by this replay or before it.
    """

    def __init__(
        self, settings: Settings, reader: DeadReader, left_out: LeftOut = lambda _: {}
    ) -> None:
        self._left_out = left_out
        self._source = settings.source.topic
        self._replayed = names.replayed_topic(settings.app)
        self._reader = reader
        Topics(settings).ensure_by_key(self._replayed)
        identity = names.replay_transactional_id(settings.app)
        client = kafka_clients.producer_under(settings, identity)
        deadline_seconds = 2 * settings.relay.transaction_timeout_seconds
        self._producer = TransactionalProducer(client, deadline_seconds, _NO_GROUP)
        self.marks: dict[RecordPlace, ReplayMark] = {}

    def start(self) -> None:
        """Fence whatever replay ran before, then read what it has marked."""
        try:
            self._producer.replace()
        except TransactionFailed as failed:
            raise _error(failed) from failed
        reached("replay_started")
        self.marks.clear()  # callers hold it
        self.marks.update(self._reader.marks())

    def send(self, batch: Sequence[ReplayMessage]) -> list[tuple[ReplayMessage, Why]]:
        """Send those of the batch that may still be sent, and their marks, in one transaction.

        A batch takes long to fill where few of many letters are meant: somebody may have begun a
        rewind since. Where the source topic refuses something for its size, which may also be that
        of several messages together, each half is sent in a transaction of its own.

        Returns:
            What was not sent, each with why.
        """
        reasons = {m.letter.place: Why.DONE for m in batch if m.letter.place in self.marks}
        reasons = {**self._left_out([message.letter for message in batch]), **reasons}
        not_sent = [(m, reasons[m.letter.place]) for m in batch if m.letter.place in reasons]
        batch = [message for message in batch if message.letter.place not in reasons]
        if not batch or self._send(batch):
            return not_sent
        if len(batch) == 1:
            return [*not_sent, (batch[0], Why.TOO_LARGE)]
        half = len(batch) // 2
        return [*not_sent, *self.send(batch[:half]), *self.send(batch[half:])]

    def _send(self, batch: Sequence[ReplayMessage]) -> bool:
        """Return whether all was sent; if not, nothing was, since it is too large."""
        try:
            marks = self._write(batch)
            clean = self._producer.commit()
        except TransactionFailed as failed:
            self._abort()
            if not self._is_too_large(failed):
                raise _error(failed) from failed
            self.start()  # what lost a record is of no more use
            return False
        except KeyboardInterrupt:
            self._abort()
            raise
        reached("replay_committed")
        self.marks.update({mark.dead: mark for mark in marks})
        if not clean:
            # This producer begins no other transaction; a new one has to look anew, because
            # another replay may have run between the two.
            self.start()
        return True

    def _is_too_large(self, failed: TransactionFailed) -> bool:
        refused = {lost.topic for lost in failed.lost if lost.error.code() in TOO_LARGE}
        return failed.kind is Failure.REFUSED and self._source in refused

    def close(self) -> None:
        """Let go of the producer."""
        self._producer.close()

    def _write(self, batch: Sequence[ReplayMessage]) -> list[ReplayMark]:
        self._producer.begin(_NO_GROUP)
        reached("replay_begun")
        sent: dict[RecordPlace, int] = {}
        for message in batch:
            letter = message.letter
            self._producer.produce(
                TopicPartition(self._source, letter.source.partition),
                letter.value,
                message.key,
                list(message.headers),
                partial(sent.__setitem__, letter.place),
            )
        self._producer.flush()
        reached("replay_messages_written")
        marks = [self._mark(message, sent[message.letter.place]) for message in batch]
        for mark in marks:
            key = mark_key(self._reader.topic_id, mark.dead)
            place = TopicPartition(self._replayed, 0)
            self._producer.produce(place, mark.encode(), key, [], lambda _: None)
        self._producer.flush()
        reached("replay_marks_written")
        return marks

    @staticmethod
    def _mark(message: ReplayMessage, offset: int) -> ReplayMark:
        letter = message.letter
        now_ms = time.time_ns() // 1_000_000
        replayed = RecordPlace(letter.source.partition, offset)
        return ReplayMark(
            letter.place, letter.source, replayed, message.table, now_ms, letter.table
        )

    def _abort(self) -> None:
        """Abort, so that readers of the source topic need not wait for the transaction's timeout.

        Where that fails as well, the timeout or the next replay's start ends it.
        """
        with contextlib.suppress(TransactionFailed):
            self._producer.abort()


def _error(failed: TransactionFailed) -> RelayError:
    return ended(
        failed,
        fenced="another replay of this app was started; wait until it is done",
        refused="grant Write on source topic, marks topic and transactional id",
        unknown="run it again: messages that were sent are marked, and are not sent twice",
    )
