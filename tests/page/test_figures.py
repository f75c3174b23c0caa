"""The verifier's metrics and health, without servers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from relay.operate.page.verifier_metrics import METRICS, VerifierMetrics
from relay.operate.verify.judge.anomaly import AnomalyKind
from relay.operate.verify.progress import SILENT_SECONDS, AuditProgress
from relay.operate.verify.webhook import Counts
from relay.records_pb2 import Accept, Commit, Rewind
from tests.page.built import ANOMALY, Built, built

NOW_MS = 1_700_000_000_000


def figures(made: Built, webhook: Any = None) -> VerifierMetrics:
    reader: Any = SimpleNamespace(behind={0: 7, 1: 0})
    return VerifierMetrics(made.standing, made.audit.totals, reader, webhook, "shop", made.samples)


def samples(made: Built, webhook: Any = None) -> dict[tuple[str, str], float]:
    """Values by name and label, as Prometheus reads them."""
    status, _, body = figures(made, webhook).exposition()
    assert status == 200
    return {
        (sample.name, *(value for name, value in sample.labels.items() if name != "app")): (
            sample.value
        )
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_every_metric_is_there_and_says_what_is_known() -> None:
    made = built(NOW_MS)
    made.standing.anomaly(ANOMALY, NOW_MS)
    for why in ("one", "another"):
        made.audit.totals.add(Commit(partition=3, rewind=Rewind(why=why)))
    made.audit.totals.add(Commit(partition=0, accept=Accept(kinds=["topic", "retention", "?"])))
    made.standing.turned(1.0, 2.0, "the brokers did not answer")
    webhook: Any = SimpleNamespace(counts=Counts(3, 2, 1, 9))
    found = samples(made, webhook)
    assert {one.name for one in METRICS} <= {name for name, *_ in found}
    assert {kind: found["verifier_anomalies_total", kind.value] for kind in AnomalyKind} == {
        **dict.fromkeys(AnomalyKind, 0),
        AnomalyKind.GAP: 1,
    }
    assert found["verifier_audited_n", "0"] == 200
    assert found["verifier_audited_floor", "0"] == 1_000
    assert found["verifier_audited_commit_timestamp_seconds", "0"] == NOW_MS / 1_000 - 3
    assert found["verifier_journal_lag_offsets", "0"] == 7
    assert found[("verifier_records_total",)] == 203
    acknowledged = {key[1:]: n for key, n in found.items() if "acknowledged" in key[0]}
    assert acknowledged == {
        ("rewind", "3"): 2, ("retention", "0"): 1, ("topic", "0"): 1, ("other", "0"): 1
    }  # fmt: skip
    assert found[("verifier_rounds_waiting_total",)] == 1
    assert found[("verifier_screen_timestamp_seconds",)] == NOW_MS / 1_000
    assert found["verifier_webhook_total", "dropped"] == 1
    assert found[("process_open_fds",)] > 0


def test_without_a_webhook_nothing_is_said_of_it() -> None:
    assert not [name for name, *_ in samples(built(NOW_MS)) if "webhook" in name]


def test_only_an_audit_that_hangs_is_ill() -> None:
    """An anomaly, or a server that is away, is nothing that a restart mends."""
    made = built(NOW_MS)
    made.standing.anomaly(ANOMALY, NOW_MS)
    made.standing.turned(500.0, 1.0, "the brokers did not answer")
    status, _, body = figures(made).health(500.0 + SILENT_SECONDS)
    assert status == 200
    assert "the brokers did not answer" in json.loads(body)["checks"][0]["why"]
    assert figures(made).health(501.0 + SILENT_SECONDS)[0] == 503


def test_what_is_settled_is_open_no_more() -> None:
    """It stays counted: `increase` of the total tells that it was."""
    made = built(NOW_MS)
    for _ in range(4):
        made.standing.anomaly(ANOMALY, NOW_MS)
    made.audit.totals.settled[AnomalyKind.GAP] += 3
    found = samples(made)
    assert found["verifier_anomalies_total", "gap"] == 4
    assert found["verifier_anomalies_open", "gap"] == 1
    assert found["verifier_anomalies_open", "stuck"] == 0


def test_a_partition_that_no_relay_has_is_counted_as_the_last_screen_said() -> None:
    made = built(NOW_MS)
    found = samples(made)
    assert found[("verifier_group_members",)] == 1
    assert found[("verifier_partitions_unowned",)] == 0
    screen = made.screen()
    screen["group"]["members"] = []
    for row in screen["partitions"]:
        row["member"] = ""
    made.samples.add(screen)
    assert samples(made)[("verifier_partitions_unowned",)] == 2
    made.samples.fail(NOW_MS + 9_000, "the brokers did not answer")
    found = samples(made)
    assert ("verifier_partitions_unowned",) not in found, "not known, and not told"
    assert found[("verifier_screen_timestamp_seconds",)] == NOW_MS / 1_000, "an alert goes by it"


def test_a_screen_without_clickhouse_is_not_one_of_the_whole_state() -> None:
    """The alert stayed silent while every look at the ledger failed."""
    made = built(NOW_MS)
    screen = made.screen()
    later = {**screen, "at_ms": screen["at_ms"] + 9_000}
    made.samples.add({**later, "clickhouse": "Code: 241: memory limit exceeded"})
    found = samples(made)
    assert found[("verifier_screen_timestamp_seconds",)] == NOW_MS / 1_000
    assert found[("verifier_group_members",)] == 1, "what Kafka says is of now"
    made.samples.add(later)
    assert samples(made)[("verifier_screen_timestamp_seconds",)] == NOW_MS / 1_000 + 9


def test_before_the_first_round_the_time_is_that_of_the_start() -> None:
    """With 0 the alert fired five minutes after each start whose first round takes longer."""
    begun = NOW_MS / 1_000
    made = Built(NOW_MS, AuditProgress(0.0, begun))
    assert samples(made)[("verifier_round_timestamp_seconds",)] == begun
    made.standing.turned(1.0, begun + 1, "the brokers did not answer")
    assert samples(made)[("verifier_round_timestamp_seconds",)] == begun
    made.standing.turned(9.0, begun + 9)
    assert samples(made)[("verifier_round_timestamp_seconds",)] == begun + 9
