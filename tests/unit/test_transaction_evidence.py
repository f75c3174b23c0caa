"""What librdkafka's lines say about the end of a transaction, line by line."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from relay.kafka.transaction_evidence import TransactionEvidence

ANSWERED = "[thrd:main]: EndTxn returned NO_ERROR in state CommittingTransaction (may_retry=true)"
UP = "Disconnected: connection closed by peer (after 4ms in state UP) (_TRANSPORT)"

LOSSES = {
    "a connection": ("FAIL", f"[thrd:TxnCoordinator]: TxnCoordinator/3: 127.0.0.1:1: {UP}"),
    "one not shown again": ("FAIL", f"[thrd:b/1]: b/1: {UP}: identical: error log suppressed"),
    "one named after its bootstrap address once": ("FAIL", f"[thrd:b/bootstrap]: b/1: {UP}"),
    "one of unknown state": ("FAIL", "[thrd:b/1]: b/1: a text that leaves no room for the state"),
    "an answer in time": ("REQTMOUT", "[thrd:b/1]: b/1: Timed out 1 in-flight, 0 retry-queued"),
    "an answer to EndTxn": ("ENDTXN", "EndTxn returned _TRANSPORT in state CommittingTransaction"),
}
HARMLESS = {
    "not yet connected": ("FAIL", "[thrd:b/2]: b/2: refused (after 0ms in state CONNECT)"),
    "not yet spoken to": ("FAIL", "[thrd:b/2]: b/2: no (after 0ms in state APIVERSION_QUERY)"),
    "not yet let in": ("FAIL", "[thrd:b/2]: b/2: no (after 0ms in state AUTH_REQ)"),
    "known by its bootstrap address": ("FAIL", f"[thrd:b/bootstrap]: b/bootstrap: {UP}"),
    "asked to try again": ("ENDTXN", "EndTxn returned CONCURRENT_TRANSACTIONS in state Committing"),
    "something else": ("TXNSTATE", "Transaction state change BeginCommit -> CommittingTransaction"),
}


def evidence(**config: Any) -> tuple[TransactionEvidence, list[str]]:
    """And the lines that it passed on."""
    shown: list[str] = []
    logger = logging.Logger("test")  # noqa: LOG001 - apart from all others
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    return TransactionEvidence({"logger": logger, **config}), shown


def hear(heard: TransactionEvidence, facility: str, text: str, level: int = logging.DEBUG) -> None:
    heard.log(level, "%s [%s] %s", facility, "client", text)


def test_a_transaction_is_in_doubt_until_its_end_is_answered() -> None:
    heard, _ = evidence()
    assert heard.doubt == ""
    heard.begun()
    assert heard.doubt
    hear(heard, "ENDTXN", ANSWERED)
    assert heard.doubt == ""


def test_an_end_that_needs_no_request_needs_no_answer() -> None:
    heard, _ = evidence()
    heard.begun()
    hear(heard, "TXNABORT", "[thrd:main]: No partitions registered: not sending EndTxn")
    assert heard.doubt == ""


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_inside_a_transaction_stays_in_doubt(loss: str) -> None:
    """Whatever is answered afterwards; another producer or nothing."""
    heard, _ = evidence()
    heard.begun()
    hear(heard, *LOSSES[loss])
    hear(heard, "ENDTXN", ANSWERED)

    assert LOSSES[loss][1] in heard.doubt
    heard.forget()
    assert heard.doubt == ""


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_lost_outside_is_no_doubt(loss: str) -> None:
    heard, _ = evidence()
    hear(heard, *LOSSES[loss])
    heard.suspect("a slow call")
    assert heard.doubt == ""
    heard.begun()
    hear(heard, "ENDTXN", ANSWERED)
    hear(heard, *LOSSES[loss])

    assert heard.doubt == ""


@pytest.mark.parametrize("line", HARMLESS)
def test_what_carried_nothing_of_the_transaction_is_no_doubt(line: str) -> None:
    heard, _ = evidence()
    heard.begun()
    hear(heard, *HARMLESS[line])
    hear(heard, "ENDTXN", ANSWERED)

    assert heard.doubt == ""


def test_the_first_sign_is_the_one_that_people_read() -> None:
    heard, _ = evidence()
    heard.begun()
    heard.suspect("first")
    heard.suspect("second")

    assert heard.doubt == "first"


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({}, ["INFO", "ERROR"]),
        ({"log_level": 3}, ["ERROR"]),
        ({"debug": "msg"}, ["DEBUG", "INFO", "ERROR"]),
        ({"debug": "msg", "log_level": 6}, ["INFO", "ERROR"]),
    ],
)
def test_people_are_shown_what_they_would_have_been_shown(
    config: dict[str, Any], shown: list[str]
) -> None:
    """The debug lines that the relay asks for itself are for the relay."""
    heard, passed_on = evidence(**config)
    for name in ("DEBUG", "INFO", "ERROR"):
        hear(heard, name, "text", logging.getLevelNamesMapping()[name])

    assert [line.partition(" ")[0] for line in passed_on] == shown


def test_the_users_debug_contexts_are_kept() -> None:
    heard, _ = evidence(debug="msg,eos")

    assert sorted(heard.config["debug"].split(",")) == ["broker", "eos", "msg"]
    assert (heard.config["logger"], heard.config["log_level"]) == (heard, 7)
