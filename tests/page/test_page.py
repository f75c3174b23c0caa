"""What the page is made of, and what the browser is answered, without a browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from relay.errors import Unavailable
from relay.operate.page.plots import (
    BLOCKS,
    STEP_SECONDS,
    WINDOW_SECONDS,
    Point,
    Samples,
    Trail,
    point,
)
from relay.operate.page.refresh import ScreenRefresher
from relay.operate.page.routes import content_security_policy, html
from relay.operate.verify.progress import AuditProgress
from relay.operate.view.facts import ConsumerGroup, LedgerFacts, StatusFacts
from relay.operate.view.journal_state import JournalState
from relay.operate.view.status import Screen, assemble
from tests.broker.pipeline import wait_until
from tests.page.built import ANOMALY, LATEST, Built, built
from tests.view.records import block, commit

NOW_MS = 1_700_000_000_000


@pytest.fixture
def made() -> Built:
    return built(NOW_MS)


def asked(address: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body."""
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_rates_are_rows_per_second_of_each_step_that_has_ended() -> None:
    trail = Trail()
    step = STEP_SECONDS * 1_000
    for at_ms, rows in ((NOW_MS - step, 10), (NOW_MS - step + 1, 20), (NOW_MS, 99)):
        trail.add(0, 0, commit(1, block(rows=rows), at_ms=at_ms))
    rates = dict(trail.rates(NOW_MS))
    assert len(rates) == WINDOW_SECONDS // STEP_SECONDS
    assert rates[NOW_MS - step] == 30 / STEP_SECONDS
    assert NOW_MS not in rates, "its step has not ended"
    assert sum(rates.values()) == 30 / STEP_SECONDS


def test_the_trail_keeps_the_latest_and_no_more() -> None:
    trail = Trail()
    for n in range(10 * WINDOW_SECONDS):
        trail.add(0, n, commit(n, block(n), at_ms=NOW_MS + n * 1_000))
    assert [one["id"] for one in trail.blocks()][-1] == block(10 * WINDOW_SECONDS - 1).id
    assert len(trail.blocks()) == BLOCKS
    assert len(trail._rows) <= 4 * WINDOW_SECONDS // STEP_SECONDS + 1
    assert all(rate == 10 for _, rate in trail.rates(NOW_MS + 10 * WINDOW_SECONDS * 1_000))
    assert trail.journal_offset(block(10 * WINDOW_SECONDS - 5).id) == 10 * WINDOW_SECONDS - 5
    assert trail.journal_offset("none") == 0


def test_a_point_is_unknown_where_any_part_is(made: Built) -> None:
    screen = made.screen(lag=7, lag_seconds=2.5)
    assert point(screen) == Point(NOW_MS, 7, 2.5)
    screen["partitions"][0]["lag_seconds"] = 90.0
    assert point(screen) == Point(NOW_MS, 7, 90.0), "nobody polled it, so nothing is sealed"
    screen["partitions"][0]["held_seconds"] = 120.0
    assert point(screen) == Point(NOW_MS, 7, 120.0), "polled, and not sealed"
    screen["partitions"][0]["lag_seconds"] = None
    screen["partitions"][0]["lag"] = None
    screen["tables"][0]["lag_seconds"] = None
    assert point(screen) == Point(NOW_MS, None, None)
    assert point({"at_ms": 1, "partitions": [], "tables": []}) == Point(1, None, None)


class Screens:
    """Looks that answer one after the other; the last goes on for ever."""

    def __init__(self, *answers: Screen | Exception) -> None:
        self._answers = list(answers)
        self.closed = threading.Event()

    def screen(self) -> Screen:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("error", [Unavailable("away", "wait"), KeyError("a bug")])
def test_a_look_that_fails_is_a_gap_and_the_next_one_is_shown(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.operate.page.refresh.EVERY_SECONDS", 0.01)
    facts = StatusFacts("shop", "rows", NOW_MS, True, ConsumerGroup("empty"), {}, LedgerFacts(), 0)
    looks, samples = Screens(error, assemble(JournalState(), facts)), Samples()
    assert samples.latest() == (None, "not read yet")
    looking = ScreenRefresher(lambda: looks, samples)
    wait_until(lambda: len(samples.points()) > 1, "two looks")
    looking.close()
    wait_until(looks.closed.is_set, "the end")
    screen, problem = samples.latest()
    assert screen is not None
    assert (screen["app"], problem) == ("shop", "")
    assert samples.points()[0][1:] == (None, None)


def test_a_problem_is_said_beside_what_was_seen_last(made: Built) -> None:
    made.samples.fail(NOW_MS, "ClickHouse is away")
    with made.served() as address:
        data = json.loads(asked(address, "/data")[2])
    assert data["problem"] == "ClickHouse is away"
    assert data["status"]["app"] == "shop"


def test_data_is_what_is_known(made: Built) -> None:
    made.standing.anomaly(ANOMALY, NOW_MS)
    made.audit.acknowledged.append("partition 0, n=7: accepted retention")
    with made.served() as address:
        status, headers, body = asked(address, "/data")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    data: dict[str, Any] = json.loads(body)
    assert data["status"] == json.loads(json.dumps(made.samples.latest()[0]))
    assert data["verifier"]["records"] == 200
    assert data["verifier"]["anomalies"] == data["verifier"]["by_kind"]["gap"] == 1
    assert data["verifier"]["told"] == [{**ANOMALY.as_json(), "at_ms": NOW_MS, "settled": False}]
    assert data["verifier"]["acknowledged"] == ["partition 0, n=7: accepted retention"]
    assert data["verifier"]["acknowledged_in_all"] == 1
    assert data["blocks"][-1]["id"] == LATEST
    assert data["plots"]["lag"][-1] == [NOW_MS, 120]
    assert [None] in [one[1:] for one in data["plots"]["queryable"]]


def test_data_has_no_round_before_the_first_has_ended() -> None:
    made = Built(NOW_MS, AuditProgress(0.0, NOW_MS / 1_000))
    with made.served() as address:
        before = json.loads(asked(address, "/data")[2])
        made.standing.turned(1.0, NOW_MS / 1_000 + 1)
        after = json.loads(asked(address, "/data")[2])
    assert before["verifier"]["turned_at_ms"] is None
    assert after["verifier"]["turned_at_ms"] == NOW_MS + 1_000


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        (LATEST, 200, '"state":"loaded"'),
        ("shop:shop.orders:0:0:404", 404, "nobody knows block"),
        ("shop:shop.orders:0:0:502", 502, "the brokers did not answer"),
        ("no block", 404, "not a block id"),
        ("shop:shop.orders:0:x:1", 404, "not a block id"),
    ],
)
def test_a_block_is_told_of_or_why_not(made: Built, name: str, status: int, says: str) -> None:
    with made.served() as address:
        found, _, body = asked(address, f"/block?id={name.replace(' ', '%20')}")
    assert (found, says in body.decode()) == (status, True), body
    if status == 200:
        assert made.asked == [(LATEST, 398)], "it begins at the record that lists it"


def test_blocks_are_told_of_one_at_a_time(made: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.operate.page.routes._BUSY_SECONDS", 0.01)
    page = made.page()
    again: list[int] = []
    story: Callable[..., Any] = made.story

    def within(name: str, offset: int) -> Any:
        again.append(page._block({"id": LATEST})[0])
        return story(name, offset)

    page._story = within
    assert page._block({"id": LATEST})[0] == 200
    assert again == [503]
    page._story = story
    assert page._block({"id": LATEST})[0] == 200, "the next one has its turn"


def test_the_page_loads_nothing_but_itself() -> None:
    """No address but its own data, no style or script but the one of each that is hashed."""
    page = html()
    assert re.findall(r"https?:|//[a-z]+\.|@import|url\(", page) == []
    assert re.findall(r"<(?:link|img|iframe|object|embed|base)\b", page) == []
    assert re.findall(r"\s(?:on[a-z]+|style)\s*=\s*[\"']", page) == []
    assert page.count("<style") == page.count("<style>") == 1
    assert page.count("<script") == page.count("<script>") == 1
    assert "innerHTML" not in page
    assert "insertAdjacentHTML" not in page
    assert "document.write" not in page


def test_the_policy_forbids_all_else(made: Built) -> None:
    with made.served() as address:
        _, headers, _ = asked(address, "/")
    policy = headers["Content-Security-Policy"]
    assert policy == content_security_policy(html())
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert policy != content_security_policy(html().replace("use strict", "use  strict"))
