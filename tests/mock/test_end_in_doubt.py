"""A lost answer makes a transaction's end doubtful, however silently librdkafka asked again.

librdkafka reports success then (librdkafka#5423), and a copy of EndTxn still under way could
end a later transaction of the same producer epoch. So commit says "not clean", and nothing
begins before the producer is replaced.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from relay.config.settings import Kafka
from relay.core.events import Failure
from relay.intake.sort_poll import Poll
from relay.kafka.counted_producer import Delivery
from relay.kafka.errors import TransactionFailed
from relay.kafka.transaction_evidence import TransactionEvidence
from tests.broker.pipeline import wait_until
from tests.mock.cluster import DISCONNECT, Api, Cluster
from tests.mock.rig import GROUP_COORDINATOR, QUICK, TRANSACTION_COORDINATOR, Rig

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKET_MS = 300
LATE_MS = 60_000
ROUNDS = 2
TRIES = 20
BURNING = 4
"""Processes that take the processors away."""


@dataclass(frozen=True)
class Fault:
    """Requests of one type that get no answer in time."""

    api: Api
    times: int
    late_from: int | None = None

    def inject(self, cluster: Cluster) -> None:
        if self.late_from is None:
            cluster.fail(self.api, *[DISCONNECT] * self.times)
        else:
            cluster.delay(self.api, [LATE_MS] * self.times, self.late_from)


AT_THE_END = {
    "EndTxn lost": Fault(Api.END_TXN, 1),
    "EndTxn lost twice": Fault(Api.END_TXN, 2),
    "EndTxn answered too late": Fault(Api.END_TXN, 1, TRANSACTION_COORDINATOR),
}
BEFORE_IT = {
    "Produce lost": Fault(Api.PRODUCE, 1),
    "AddPartitionsToTxn lost": Fault(Api.ADD_PARTITIONS_TO_TXN, 1),
    "AddOffsetsToTxn lost": Fault(Api.ADD_OFFSETS_TO_TXN, 1),
    "TxnOffsetCommit lost": Fault(Api.TXN_OFFSET_COMMIT, 1),
    "TxnOffsetCommit answered too late": Fault(Api.TXN_OFFSET_COMMIT, 1, GROUP_COORDINATOR),
}
SETTINGS: dict[str, dict[str, str | float | bool]] = {
    "none": {},
    "closed connections are not logged": {"log.connection.close": False},
    "only critical lines": {"log_level": 2},
    "other debug lines": {"debug": "msg"},
}
"""Of `kafka.client`: none of them may make the relay deaf."""


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig("app") as made:
        yield made


@contextmanager
def rig_for(fault: Fault, **client: str | float | bool) -> Iterator[Rig]:
    """A client that gives up soon, where an answer will be late."""
    soon: dict[str, Any] = {} if fault.late_from is None else {"socket.timeout.ms": SOCKET_MS}
    with Rig("app", **soon, **client) as made:
        yield made


@contextmanager
def burning() -> Iterator[None]:
    """Every processor is busy with something else."""
    with ExitStack() as stack:
        for _ in range(BURNING):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def leaves_doubt(rig: Rig, fault: Fault) -> None:
    """A transaction that suffers the fault commits, but not cleanly; the next needs a new one."""
    rig.producer.replace()
    before = rig.cluster.requests()[fault.api]
    if fault.api is not Api.END_TXN:
        fault.inject(rig.cluster)
    rig.fill()
    if fault.api is Api.END_TXN:
        fault.inject(rig.cluster)

    assert not rig.producer.commit(), "a commit amid a lost answer counts as clean"

    assert rig.cluster.requests()[fault.api] - before > fault.times  # it did go out again
    with pytest.raises(TransactionFailed, match="in doubt") as refused:
        rig.fill()
    assert refused.value.kind is Failure.UNKNOWN
    assert any(is_clean_again(rig) for _ in range(TRIES)), "a new producer does not help"


def is_clean_again(rig: Rig) -> bool:
    """A new producer's transaction; on a busy machine its answers may be late once more."""
    rig.producer.replace()
    rig.fill()
    return rig.producer.commit()


@pytest.mark.parametrize("fault", AT_THE_END)
def test_a_commit_whose_answer_was_lost_is_not_clean(fault: str) -> None:
    with rig_for(AT_THE_END[fault]) as rig:
        for _ in range(ROUNDS):
            leaves_doubt(rig, AT_THE_END[fault])


@pytest.mark.parametrize("fault", BEFORE_IT)
def test_nor_is_one_with_a_lost_answer_before_its_end(fault: str) -> None:
    """A late copy of TxnOffsetCommit could move the offsets of a later transaction."""
    with rig_for(BEFORE_IT[fault]) as rig:
        leaves_doubt(rig, BEFORE_IT[fault])


@pytest.mark.parametrize("fault", AT_THE_END)
def test_the_doubt_does_not_depend_on_the_machines_speed(fault: str) -> None:
    """librdkafka's line about a lost answer is heard before commit returns, on busy processors."""
    with rig_for(AT_THE_END[fault]) as rig, burning():
        for _ in range(ROUNDS):
            leaves_doubt(rig, AT_THE_END[fault])


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_setting_of_the_user_makes_the_relay_deaf(settings: str) -> None:
    for fault in AT_THE_END.values():
        with rig_for(fault, **SETTINGS[settings]) as rig:
            leaves_doubt(rig, fault)


@pytest.mark.parametrize("fault", AT_THE_END)
def test_an_abort_whose_answer_was_lost_is_of_unknown_outcome(fault: str) -> None:
    with rig_for(AT_THE_END[fault]) as rig:
        rig.producer.replace()
        rig.fill()
        AT_THE_END[fault].inject(rig.cluster)

        with pytest.raises(TransactionFailed, match="in doubt") as failed:
            rig.producer.abort()

        assert failed.value.kind is Failure.UNKNOWN
        with pytest.raises(TransactionFailed, match="in doubt"):
            rig.fill()


def test_a_loss_that_librdkafka_does_not_log_again_is_heard(rig: Rig) -> None:
    """It shows the same loss of one connection twice, and again only after half a minute."""
    rig.producer.replace()
    for _ in range(10):
        rig.fill()
        rig.cluster.fail(Api.END_TXN, DISCONNECT, DISCONNECT)
        rig.lines.clear()
        assert not rig.producer.commit()
        if any("error log suppressed" in line for line in rig.lines):
            return
        rig.producer._evidence.forget()  # as if this were another producer
    pytest.fail("every loss was logged")


def test_ordinary_transactions_are_beyond_doubt(rig: Rig) -> None:
    """One request each, one answer each, and the producer stays."""
    rig.producer.replace()
    for _ in range(10):
        rig.fill()
        assert rig.producer.commit()
        rig.fill()
        rig.producer.abort()

    assert rig.cluster.requests()[Api.END_TXN] == 20
    assert rig.cluster.requests()[Api.INIT_PRODUCER_ID] == 1


def test_what_is_said_between_transactions_is_heard_at_each_poll(rig: Rig) -> None:
    """An idle relay's producer is polled as well: its lines would fill the memory else."""
    rig.producer.replace()
    rig.lines.clear()
    rig.cluster.take_down()

    def heard() -> bool:
        rig.performer.polled(Poll())
        return any("in state UP" in line for line in rig.lines)

    wait_until(heard, "the loss of a connection")


def test_an_abort_of_nothing_is_beyond_doubt(rig: Rig) -> None:
    """Begun or not: without any partition no EndTxn goes out, and none is waited for."""
    rig.producer.replace()
    rig.producer.abort()
    rig.producer.begin(object())
    rig.producer.abort()

    rig.fill()
    assert rig.producer.commit()


def test_what_went_wrong_before_a_transaction_is_no_doubt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow start and brokers that are away cost no second producer: nothing was open."""
    monkeypatch.setattr("relay.kafka.transactional_producer.SLICE_SECONDS", 0.2)
    one_of_two = [*rig.cluster.bootstrap.split(",")[:1], "127.0.0.1:9"]
    rig.producer._config["bootstrap.servers"] = ",".join(one_of_two)
    rig.cluster.delay(Api.INIT_PRODUCER_ID, [300], TRANSACTION_COORDINATOR)
    for _ in range(30):
        rig.producer.replace()
        monkeypatch.setattr("relay.kafka.transactional_producer.SLICE_SECONDS", 5.0)
        rig.fill()
        assert rig.producer.commit()
        if any("Connection refused" in line for line in rig.lines):
            return
    pytest.fail("no producer tried the broker that is away")


@pytest.mark.parametrize(("fault", "clients"), [(None, 1), *((name, 2) for name in AT_THE_END)])
def test_a_program_that_writes_rows_in_transactions_is_as_careful(
    fault: str | None, clients: int
) -> None:
    """relay.produce.row_producer: the transaction after a doubtful one is a new client's."""
    with Cluster() as cluster:
        cluster.create_topic("rows")
        cluster.set_transaction_coordinator("rows-1", TRANSACTION_COORDINATOR)
        soon = {"socket.timeout.ms": SOCKET_MS} if fault and AT_THE_END[fault].late_from else {}
        kafka = Kafka(bootstrap=cluster.bootstrap, client=QUICK | soon)
        delivery = Delivery(kafka, "rows", "rows-1", timeout_seconds=30.0)
        for number in range(3):
            delivery.begin()
            delivery.send("d.t", b"value", 1)
            delivery.flush()
            if fault is not None and number == 0:
                AT_THE_END[fault].inject(cluster)
            delivery.commit()
        delivery.close()

        assert delivery.delivered == {"d.t": 3}
        assert cluster.requests()[Api.INIT_PRODUCER_ID] >= clients
        if fault is None:
            assert cluster.requests()[Api.INIT_PRODUCER_ID] == 1


@pytest.mark.parametrize("fault", AT_THE_END)
def test_without_the_evidence_the_tests_above_are_red(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the guard taken away, a doubtful commit counts as clean."""
    monkeypatch.setattr(TransactionEvidence, "doubt", "")

    with (
        rig_for(AT_THE_END[fault]) as rig,
        pytest.raises(AssertionError, match="counts as clean"),
    ):
        leaves_doubt(rig, AT_THE_END[fault])


def test_a_client_that_words_its_lines_otherwise_leaves_every_end_in_doubt(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evidence is positive: not hearing anything is no reason to go on."""
    monkeypatch.setattr("relay.kafka.transaction_evidence._ANSWERED", "EndTxn was answered")
    rig.producer.replace()
    rig.fill()

    assert not rig.producer.commit()
