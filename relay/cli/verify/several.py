"""`relay verify` of several pipelines: audits each by itself, and reports in one order.

Each has a reader and an audit of its own; one whose servers are away holds up no other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Sequence

from relay.cli.output import verify
from relay.cli.verify.follow import Outlets
from relay.cli.verify.follow import follow as follow_one
from relay.cli.verify.once import once
from relay.config.pipelines import Pipeline
from relay.errors import RelayError
from relay.operate.verify.anomaly_order import CommitTimes, DatedAnomaly, Merged
from relay.operate.verify.audit import Audit, audit_of
from relay.operate.verify.judge.anomaly import Anomaly
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.rounds import ROUND_SECONDS
from relay.operate.verify.webhook import Webhook
from relay.program.command import show_error
from relay.program.serving import behind
from relay.program.waiting import stopped_by_signal

AGAIN_SECONDS = 10.0
"""Before the audit of one that ended, as without a journal yet, is begun anew."""


class Following(threading.Thread):
    """The audit of one pipeline beside production, begun anew where it ended with an error.

    A `bug`, an exception that is no RelayError, ends the audits of all pipelines.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        merged: Merged,
        stop: threading.Event,
        outlets: Outlets,
    ) -> None:
        super().__init__(name=pipeline.name)
        self._settings, self._merged, self._ending = pipeline.settings, merged, stop
        self._outlets = outlets
        self.audit = audit_of(self._settings)
        self.bug: Exception | None = None

    def run(self) -> None:
        """Run until stopped."""
        while not self._ending.is_set():
            self.audit = audit_of(self._settings)
            try:
                self._follow()
            except RelayError as error:
                show_error(f"relay: {self.name}", error)
                self._ending.wait(AGAIN_SECONDS)
            except Exception as bug:  # noqa: BLE001 - raised again where it can end the program
                self.bug = bug
                self._ending.set()

    def _follow(self) -> None:
        clock = CommitTimes()

        def say(anomaly: Anomaly) -> None:
            self._merged.add(DatedAnomaly(clock.of(anomaly, _now_ms()), self.name, anomaly))

        with contextlib.closing(Reader(self._settings, lasting=True)) as reader:
            follow_one(
                self._settings,
                reader,
                self.audit,
                say,
                self._outlets,
                self._ending,
                clock.note,
            )


def follow(pipelines: Sequence[Pipeline], outlets: Outlets, *, as_json: bool) -> list[Audit]:
    """Audit all pipelines until SIGTERM or Ctrl-C; return their audits.

    Raises:
        ConfigError: one of `outlets` cannot be used.
    """
    if outlets.webhook_url:
        Webhook(outlets.webhook_url, "").close()  # told before any audit begins
    merged, stop = Merged(), stopped_by_signal()
    following = [
        Following(
            pipeline,
            merged,
            stop,
            outlets._replace(listen=behind(outlets.listen or None, index) or ""),
        )
        for index, pipeline in enumerate(pipelines)
    ]
    began = time.monotonic()
    for thread in following:
        thread.start()
    while not stop.wait(ROUND_SECONDS):
        _tell(merged, as_json=as_json)
    for thread in following:
        thread.join()
    _tell(merged, as_json=as_json)
    for thread in following:
        if thread.bug is not None:
            raise thread.bug
        verify.conclude(thread.audit, time.monotonic() - began, thread.name, as_json=as_json)
    return [thread.audit for thread in following]


def once_each(
    pipelines: Sequence[Pipeline],
    selection: verify.Few,
    *,
    deep: bool,
    removed: Collection[str] = (),
    as_json: bool,
) -> list[Audit]:
    """Audit all that is retained of each pipeline; return the audits, with their errors."""
    merged, audits = Merged(), []
    for name, settings in pipelines:
        audit, clock, began = audit_of(settings), CommitTimes(each=deep), time.monotonic()

        def say(anomaly: Anomaly, name: str = name, clock: CommitTimes = clock) -> None:
            merged.add(DatedAnomaly(clock.of(anomaly, _now_ms()), name, anomaly))

        audits.append(audit)
        try:
            with contextlib.closing(Reader(settings)) as reader:
                once(settings, reader, audit, say, clock.note, deep=deep, removed=removed)
        except RelayError as error:
            show_error(f"relay: {name}", error)
            audit.errors.append(error)
        if audit.totals.records or not audit.errors:
            verify.conclude(audit, time.monotonic() - began, name, as_json=as_json)
    for dated in merged.take():
        if as_json or selection.shows(dated.anomaly):
            verify.tell(dated, as_json=as_json)
    if selection.hidden and not as_json:
        verify.say_hidden(selection.hidden)
    return audits


def _tell(merged: Merged, *, as_json: bool) -> None:
    for dated in merged.take():
        verify.tell(dated, as_json=as_json)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
