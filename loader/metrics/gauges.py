"""Gauges of what stands now, made when Prometheus asks; and the facts that health judges.

Receives the recorder and the latest look at ledger and journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client.registry import Collector

from loader.metrics.definitions import CURRENT
from loader.metrics.health import LoaderHealth
from loader.metrics.ledger_watch import LedgerLook
from loader.metrics.recorder import LoaderRecorder
from relay.program.health import Check
from relay.program.metric import Bounded, Samples, families


class LoaderGauges(Collector):
    """Show the present state of one loader; `info` has the values of `loader_info`'s labels."""

    def __init__(
        self,
        info: tuple[str, ...],
        recorder: LoaderRecorder,
        latest: Callable[[], LedgerLook | None],
        checks: Callable[[LoaderHealth], Sequence[Check]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._info = info
        self._recorder = recorder
        self._latest = latest
        self._checks = checks
        self._now_ms = now_ms
        self._table = Bounded()

    def collect(self) -> Iterable[Any]:
        """Collect for prometheus-client."""
        return families(CURRENT, self._samples())

    def describe(self) -> Iterable[Any]:
        """Return nothing: a test checks names, and there is nothing to look at yet."""
        return ()

    def facts(self) -> LoaderHealth:
        """Return the loader's health now."""
        recorder, look = self._recorder, self._latest()
        return LoaderHealth(
            now=recorder.clock(),
            heard_at=recorder.heard_at,
            batch_open=recorder.batch_since is not None,
            away=recorder.away,
            begins=recorder.begins,
            started=recorder.started,
            executors=None if recorder.executors is None else recorder.executors(),
            unseen="not read yet" if look is None else look.failed,
            uncounted="" if look is None else look.uncounted,
            waiting={} if look is None else self._unmoved(look),
        )

    def _unmoved(self, look: LedgerLook) -> dict[int, float]:
        """Return for how many seconds each partition's oldest waiting block was seen to wait.

        Not since it was sealed: that is a relay's wall clock, and this machine's may be set. Not
        until now: it may be loaded since the last look. Nor while a server was waited for.
        """
        answered = self._recorder.answered_at
        return {
            p: max(0.0, look.at - max(answered, look.since.get(p, look.at)))
            for p in look.ends.keys() | look.since.keys()
        }

    def _waiting(self, look: LedgerLook) -> dict[int, float]:
        """Return the age of the oldest waiting block by journal partition, in seconds; 0: none."""
        now_ms = self._now_ms()
        partitions = look.ends.keys() | look.sealed_ms.keys()
        return {p: max(0, now_ms - look.sealed_ms.get(p, now_ms)) / 1000 for p in partitions}

    def _samples(self) -> Samples:
        recorder, now = self._recorder, self._recorder.clock()
        since, look = recorder.batch_since, self._latest()
        samples: Samples = {"loader_info": [(self._info, 1.0)]}

        def add(name: str, value: float) -> None:
            samples[name] = [((), float(value))]

        add("loader_batch_open_seconds", 0.0 if since is None else now - since)
        add("loader_batch_open_blocks", 0 if since is None else recorder.open_blocks)
        add("loader_last_heard_seconds", now - recorder.heard_at)
        add("loader_server_away", bool(recorder.away))
        checks = self._checks(self.facts())
        samples["loader_check"] = [((check.check,), float(check.ok)) for check in checks]
        if look is not None:
            add("loader_look_seconds", now - look.at)
            samples |= self._sample_look(look)
        return samples

    def _sample_look(self, look: LedgerLook) -> Samples:
        waiting = self._waiting(look)
        states = [((self._table(t), state), blocks, rows) for t, state, blocks, rows in look.counts]
        return {
            "loader_ledger_blocks": [(labels, float(blocks)) for labels, blocks, _ in states],
            "loader_ledger_rows": [(labels, float(rows)) for labels, _, rows in states],
            "loader_position": [((str(p),), float(o)) for p, o in sorted(look.positions.items())],
            "loader_journal_end": [((str(p),), float(o)) for p, o in sorted(look.ends.items())],
            "loader_waiting_blocks": [((str(p),), float(look.blocks.get(p, 0))) for p in waiting],
            "loader_waiting_seconds": [((str(p),), age) for p, age in sorted(waiting.items())],
        }
