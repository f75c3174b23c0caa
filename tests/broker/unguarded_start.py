"""Guards over what a relay finds when it starts, and how it ends; each taken away by the
function of its name."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from relay.core import events, step, takeover
from relay.core.offsets import CommittedOffset
from relay.core.state import Phase
from relay.intake import source
from relay.kafka.topics import TopicFacts, Topics
from relay.process import several, truth

if TYPE_CHECKING:
    from relay.core.records import PartitionTruth
    from relay.core.state import Partition, RelayState
    from relay.errors import RelayError


def source_exists() -> None:
    """A source topic that is not there is one that nobody wrote to yet."""
    look = Topics.describe

    def imagined(self: Topics, topic: str, *rights: Any) -> TopicFacts | None:
        found = look(self, topic, *rights)
        if found is None and topic == self._settings.source.topic:
            return TopicFacts("none", 2)
        return found

    Topics.describe = imagined  # type: ignore[method-assign]
    source.GONE = frozenset()


def topic_identity() -> None:
    """A topic is the same if it has the same name."""
    takeover._made_anew = lambda *_: None  # type: ignore[assignment]


def journal_remembers() -> None:
    """Where the group has no offset, a partition was never read."""
    take_over = takeover.take_over

    def forgetful(found: PartitionTruth, now_ms: int) -> Partition | RelayError:
        return take_over(replace(found, later_records=0, last_record=None), now_ms)

    step.take_over = forgetful  # type: ignore[attr-defined]


def offset_is_the_journals() -> None:
    """The group's offset is believed, whoever wrote it and whatever the journal says."""
    CommittedOffset.parse = staticmethod(  # type: ignore[method-assign, assignment]
        lambda floor, _: CommittedOffset(floor, 0, 0)
    )

    def believing(found: PartitionTruth, now_ms: int) -> Partition | RelayError:
        floor = found.start_offset if found.committed is None else found.committed.floor
        return takeover._first_start(
            replace(found, committed=None, later_records=0, start_offset=floor), now_ms
        )

    step.take_over = believing  # type: ignore[attr-defined]


def gone_is_said() -> None:
    """A journal record that was deleted is waited for."""
    truth.OUT_OF_RANGE = frozenset()  # type: ignore[attr-defined]


def start_is_decided() -> None:
    """Who does not choose where to begin begins at the end, as clients do by themselves."""
    truth.TruthReader._start = lambda *bounds: bounds[-1]  # type: ignore[method-assign,assignment]


def seal_at_stop() -> None:
    """A relay that is told to stop drops what is buffered."""

    def at_once(state: RelayState, _: events.StopRequested) -> step.Step:
        return step._exit(state, None)

    step.TRANSITIONS[Phase.READY, events.StopRequested] = at_once


def end_together() -> None:
    """The command that started several relays passes no signal on."""

    class Deaf(subprocess.Popen[bytes]):
        def send_signal(self, sig: int) -> None:
            """Nothing."""

    several.subprocess.Popen = Deaf  # type: ignore[attr-defined]
