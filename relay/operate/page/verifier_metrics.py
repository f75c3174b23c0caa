"""The verifier's metrics and health, read from where they stand when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from relay.operate.page.plots import Samples as ScreenSamples
from relay.operate.verify.audit import AuditTotals
from relay.operate.verify.progress import SILENT_SECONDS, AuditProgress
from relay.operate.verify.read.journal import Reader
from relay.operate.verify.webhook import Webhook
from relay.program.health import Check, answer
from relay.program.metric import Samples, counter, exposition, families, gauge
from relay.program.serving import Answer

METRICS = (
    counter(
        "verifier_anomalies_total",
        "anomalies",
        "How many anomalies did the verifier find? Each needs a person.",
        "kind",
    ),
    gauge(
        "verifier_anomalies_open",
        "anomalies",
        "How many anomalies are still open: not accepted (`relay accept`), and their transaction "
        "has not ended?",
        "kind",
    ),
    counter(
        "verifier_acknowledged_total",
        "records",
        "How many rewinds and acknowledgements (`relay accept`) of people are in the journal?",
        *("kind", "partition"),
    ),
    gauge(
        "verifier_audited_n",
        "",
        "What is the number of the last commit audited in each partition?",
        "partition",
    ),
    gauge(
        "verifier_audited_floor",
        "offset",
        "Below which source offset is every message in a block or a dead letter?",
        "partition",
    ),
    gauge(
        "verifier_audited_commit_timestamp_seconds",
        "Unix time",
        "When was the last audited commit written?",
        "partition",
    ),
    gauge(
        "verifier_journal_lag_offsets",
        "offsets",
        "How many visible offsets of the journal are not audited yet?",
        "partition",
    ),
    gauge("verifier_group_members", "members", "How many relays are in the group?"),
    gauge(
        "verifier_partitions_unowned",
        "partitions",
        "How many source partitions does no relay have?",
    ),
    gauge(
        "verifier_round_timestamp_seconds",
        "Unix time",
        "When did the verifier's last round end (before the first: when did it start)?",
    ),
    gauge(
        "verifier_screen_timestamp_seconds",
        "Unix time",
        "When was the app's state read last from Kafka and ClickHouse, as `relay status` shows it "
        "(0: not yet)?",
    ),
    counter(
        "verifier_rounds_total",
        "rounds",
        "How many rounds did the verifier make (about five a second)?",
    ),
    counter(
        "verifier_rounds_waiting_total", "rounds", "In how many rounds did a server not answer?"
    ),
    counter("verifier_records_total", "records", "How many journal records were audited?"),
    counter(
        "verifier_blocks_total", "blocks", "How many blocks do the audited journal records list?"
    ),
    counter("verifier_rows_total", "rows", "How many rows do the audited blocks have?"),
    counter(
        "verifier_messages_total",
        "messages",
        "How many source messages do the audited journal records account for?",
    ),
    counter(
        "verifier_dead_letters_total", "messages", "How many audited messages are dead letters?"
    ),
    counter(
        "verifier_flush_points_total",
        "records",
        "How many flush points, at which counts can be compared, were audited?",
    ),
    counter(
        "verifier_webhook_total",
        "anomalies",
        "How many anomalies had which outcome at the webhook? The outcome `retries` counts "
        "requests.",
        "outcome",
    ),
)


class VerifierMetrics(Collector):
    """METRICS of the audit under way, and those of its process."""

    def __init__(
        self,
        progress: AuditProgress,
        totals: AuditTotals,
        reader: Reader,
        webhook: Webhook | None,
        app: str,
        samples: ScreenSamples,
    ) -> None:
        self._progress, self._totals = progress, totals
        self._reader, self._webhook = reader, webhook
        self._app, self._screens = app, samples
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposition(self) -> Answer:
        """Return the metrics as Prometheus reads them."""
        return exposition(self._registry, self._app)

    def health(self, now: float) -> Answer:
        """Answer 200, or 503 where the audit hangs; `now` is monotonic, in seconds.

        Neither an anomaly nor a server that is away is repaired by a restart.
        """
        silent, away = self._progress.silent_seconds(now), self._progress.problem
        why = f"the last record or round was {silent:.1f} s ago, limit {SILENT_SECONDS:g} s"
        return answer((
            Check("round", silent <= SILENT_SECONDS, f"{why}; waiting: {away}" if away else why),
        ))  # fmt: skip

    def collect(self) -> Iterable[Any]:
        """Read the samples; called by `exposition`."""
        return families(METRICS, self._samples())

    def _samples(self) -> Samples:
        totals, progress, last = self._totals, self._progress, self._progress.last()
        alone = {
            "round_timestamp_seconds": progress.turned_at,
            "rounds_total": progress.rounds,
            "rounds_waiting_total": progress.waited,
            "records_total": totals.records,
            "blocks_total": totals.blocks,
            "rows_total": totals.rows,
            "messages_total": totals.messages,
            "dead_letters_total": totals.dead_letters,
            "flush_points_total": totals.flush_points,
        }
        labelled: dict[str, Mapping[Any, float]] = {
            "anomalies_total": {kind.value: n for kind, n in progress.kinds().items()},
            "anomalies_open": {
                kind.value: max(n - totals.settled[kind], 0) for kind, n in progress.kinds().items()
            },
            "audited_n": {p: end.n for p, end in last.items()},
            "audited_floor": {p: end.floor for p, end in last.items()},
            "audited_commit_timestamp_seconds": {p: end.at_ms / 1000 for p, end in last.items()},
            "journal_lag_offsets": self._reader.behind,
        }
        if self._webhook is not None:
            labelled["webhook_total"] = asdict(self._webhook.counts)
        samples: Samples = {f"verifier_{name}": [((), value)] for name, value in alone.items()}
        for name, values in labelled.items():
            samples[f"verifier_{name}"] = [((str(key),), n) for key, n in sorted(values.items())]
        samples["verifier_acknowledged_total"] = [
            ((kind, str(partition)), n)
            for (kind, partition), n in sorted(dict(totals.by_person).items())
        ]
        return samples | self._group()

    def _group(self) -> Samples:
        """Return what the last screen said, and when one was whole; without a screen, only that."""
        screen, problem = self._screens.latest()
        read_at = self._screens.whole_at_ms() / 1000
        samples: Samples = {"verifier_screen_timestamp_seconds": [((), read_at)]}
        if screen is None or problem:
            return samples
        unowned = sum(not row["member"] for row in screen["partitions"])
        return samples | {
            "verifier_group_members": [((), float(len(screen["group"]["members"])))],
            "verifier_partitions_unowned": [((), float(unowned))],
        }
