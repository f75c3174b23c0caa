"""Anomalies posted to a URL: taken, tried again, given up; never in the way of who tells."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from relay.errors import ConfigError
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.webhook import Counts, Patience, Webhook, body
from tests.broker.pipeline import wait_until
from tests.verify.receiver import SECRET, Receiver

ANOMALY = Anomaly(AnomalyKind.GAP, 1, 48, 96, "n=48 after n=46")
QUICK = Patience(attempts=3, backoff_seconds=0.01, end_seconds=20.0)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver(200)
    yield one
    one.close()


def posted(url: str, anomalies: int = 1, patience: Patience = QUICK) -> Counts:
    """Once all were sent, or given up."""
    webhook = Webhook(url, "shop", patience)
    for _ in range(anomalies):
        webhook.tell(ANOMALY)
    webhook.close()
    return webhook.counts


def test_what_is_posted(receiver: Receiver) -> None:
    assert posted(receiver.url) == Counts(1, 0, 0, 0)
    (told,) = receiver.taken
    assert abs(told.pop("at_ms") - time.time() * 1000) < 600_000
    assert told.pop("id")
    assert told == {"app": "shop", **ANOMALY.as_json()}
    assert receiver.headers[0]["Content-Type"] == "application/json"


def test_the_same_anomaly_has_the_same_id_whenever_it_is_told() -> None:
    one, again = body("shop", ANOMALY, 1), body("shop", ANOMALY, 2)
    assert one["id"] == again["id"]
    assert one["id"] != body("other", ANOMALY, 1)["id"]
    assert one["id"] != body("shop", Anomaly(AnomalyKind.GAP, 1, 48, 97, ANOMALY.text), 1)["id"]


@pytest.mark.parametrize(
    ("statuses", "counts", "requests"),
    [
        ((500, 503, 200), Counts(1, 0, 0, 2), 3),
        ((429, 204), Counts(1, 0, 0, 1), 2),
        ((500,), Counts(0, 1, 0, 2), 3),
        ((404,), Counts(0, 1, 0, 0), 1),
        ((301,), Counts(0, 1, 0, 0), 1),
    ],
)
def test_what_may_pass_is_tried_again(
    receiver: Receiver, statuses: tuple[int, ...], counts: Counts, requests: int
) -> None:
    """A redirect is no receipt, and is not followed: it may lead anywhere."""
    receiver.statuses = list(statuses)
    assert posted(receiver.url) == counts
    assert len(receiver.taken) == requests
    assert len({told["id"] for told in receiver.taken}) == 1


def test_nobody_listens(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Failures are logged, and the path of the URL is not: it may be a secret."""
    url = receiver.url.replace("http://", "http://user:word@")
    receiver.close()
    with caplog.at_level(logging.DEBUG):
        assert posted(url) == Counts(0, 1, 0, 2)
    given_up = [
        one for one in caplog.records if one.message == "webhook: gave up posting an anomaly"
    ]
    assert len(given_up) == 1
    said = " ".join(str(vars(record)) for record in caplog.records)
    assert "127.0.0.1" in said
    assert SECRET not in said
    assert "word" not in said


def test_who_tells_is_not_held_up(receiver: Receiver) -> None:
    """While the receiver hangs: what does not fit into the queue is dropped, and counted."""
    receiver.statuses = [0]
    webhook = Webhook(receiver.url, "shop", Patience(timeout_seconds=30.0, waiting=5))
    webhook.tell(ANOMALY)
    wait_until(lambda: len(receiver.taken) == 1, "the first request")
    for _ in range(20):
        webhook.tell(ANOMALY)
    assert webhook.counts == Counts(0, 0, 15, 0), "told at once, though nobody answered"
    receiver.statuses = [200]
    receiver.go.set()
    wait_until(lambda: webhook.counts.delivered == 6, "the rest, and the first again")
    webhook.close()
    assert webhook.counts == Counts(6, 0, 15, 1)


def test_the_end_waits_no_longer_than_it_may(receiver: Receiver) -> None:
    receiver.statuses = [500]
    patience = Patience(attempts=1_000, backoff_seconds=30.0, end_seconds=0.2)
    webhook = Webhook(receiver.url, "shop", patience)
    webhook.tell(ANOMALY)
    wait_until(lambda: len(receiver.taken) >= 1, "the first request")
    webhook.close()
    assert not webhook._thread.is_alive()
    assert webhook.counts.failed == 1


def test_what_fills_the_queue_at_the_end_is_sent(receiver: Receiver) -> None:
    receiver.statuses = [0, 200]
    patience = Patience(timeout_seconds=30.0, waiting=3, end_seconds=30.0)
    webhook = Webhook(receiver.url, "shop", patience)
    webhook.tell(ANOMALY)
    wait_until(lambda: len(receiver.taken) == 1, "the first request")
    for _ in range(3):
        webhook.tell(ANOMALY)
    receiver.go.set()
    webhook.close()
    assert not webhook._thread.is_alive()
    assert webhook.counts.delivered == 4


def test_user_and_password_become_a_header(receiver: Receiver) -> None:
    assert posted(receiver.url.replace("http://", "http://me:word@")).delivered == 1
    assert receiver.headers[0]["Authorization"] == "Basic bWU6d29yZA=="


@pytest.mark.parametrize("url", ["ftp://host/x", "host/x", "https://", "", "http://[", "file:///x"])
def test_what_is_no_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        Webhook(url, "shop")
    assert not url or url not in error.value.message
