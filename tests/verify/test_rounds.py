"""`relay verify --once` against the group's offsets: one look at all that is there is enough."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from relay import names
from relay.errors import RelayError, Unavailable
from relay.operate.verify import audit as audit_module
from relay.operate.verify import rounds
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import wait_until
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import ended, place_group
from tests.verify.histories import APP, SOURCE, History, clean
from tests.verify.test_live import RELAY, once, ran, spoken

if TYPE_CHECKING:
    from pathlib import Path

    from relay.operate.verify.read.journal import Reader
    from relay.records_pb2 import Commit
    from tests.broker.pipeline import Pipeline

HISTORY = clean(3, 50)
Offsets = dict[int, tuple[int, str | None] | None]
JOURNAL = names.journal_topic(APP), 0
END = 1_000


def entry(at: int) -> tuple[int, str]:
    offset, commit = HISTORY[at]
    return commit.floor, json.dumps({"n": commit.n, "journal": offset})


class Brokers:
    """A journal that a relay may go on writing, and its group's offsets.

    Args:
        shown: records that are visible, look by look; the last from then on.
        told: the group's offsets, likewise.
        stable: the journal's last stable offset, likewise; an error: there is no answer.
    """

    def __init__(
        self, shown: list[int], told: list[Offsets], stable: Sequence[int | RelayError] = (END,)
    ) -> None:
        self._shown, self._told, self._read = shown, told, 0
        self._stable = list(stable)
        self.silent: dict[tuple[str, int], Unavailable] = {}
        self.foreign: list[tuple[int, int]] = []

    def ends(self) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]:
        stable = self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]
        if isinstance(stable, RelayError):
            raise stable
        return {JOURNAL: stable}, {JOURNAL: END}

    def grow(self) -> None:
        pass

    def committed(self) -> Offsets:
        return self._told.pop(0) if len(self._told) > 1 else self._told[0]

    def records(
        self, _deleted: object, foreign: Callable[[int, int], object]
    ) -> Iterator[tuple[int, int, Commit]]:
        while self.foreign:
            foreign(*self.foreign.pop())
        end = self._shown.pop(0) if len(self._shown) > 1 else self._shown[0]
        found: History = HISTORY[self._read : end]
        self._read = max(end, self._read)
        yield from ((0, offset, commit) for offset, commit in found)


def said(shown: list[int], *told: Offsets, may_lag: bool = False) -> list[tuple[AnomalyKind, str]]:
    audit = Audit(APP, SOURCE, stuck_seconds=10, may_lag=may_lag)
    reader: Reader = Brokers(shown, list(told))  # type: ignore[assignment]
    found: list[tuple[AnomalyKind, str]] = []
    rounds.once(reader, audit, lambda one: found.append((one.kind, one.text)))
    return found


def test_offsets_that_expired_are_said() -> None:
    """A relay stops there at its next start; it was clean."""
    assert said([50], {0: None}) == [
        (
            AnomalyKind.BACKWARD,
            (
                "the group has no committed offset, but the journal is at n=50: it expired or was "
                "deleted"
            ),
        )
    ]


def test_a_message_that_is_no_record_is_foreign_and_the_audit_goes_on() -> None:
    """It ended the verifier as a bug of the product, at every start."""
    brokers = Brokers([50], [{0: entry(49)}])
    brokers.foreign = [(0, 77)]
    audit, reader = Audit(APP, SOURCE, stuck_seconds=10), cast("Reader", brokers)
    found: list[Anomaly] = []
    rounds.once(reader, audit, found.append)
    text = "the message at offset 77 of the journal is no journal record"
    assert found == audit.open() == [Anomaly(AnomalyKind.FOREIGN, 0, 0, 77, text)]
    assert audit.totals.records == 50


@pytest.mark.parametrize("at", [0, 20, 48])
def test_offsets_that_were_set_back_with_their_metadata_are_said(at: int) -> None:
    """As of a backup of the group: they name a record that is there, and not the last."""
    ((kind, text),) = said([50], {0: entry(at)})
    assert kind is AnomalyKind.BACKWARD
    assert f"names n={at + 1}, but the journal was at n=50" in text


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ([50], [{0: entry(49)}]),
        ([30, 40], [{0: entry(29)}]),
        ([30, 40], [{0: entry(34)}]),
        ([30, 40], [{0: entry(39)}]),
        ([30, 30, 40], [{0: entry(29)}, {0: entry(39)}]),
        ([30, 40], [{}]),
        ([0], [{0: None, 1: None}]),
        ([0], [{}]),
    ],
)
def test_a_relay_that_goes_on_or_never_was_is_no_anomaly(
    shown: list[int], told: list[Offsets]
) -> None:
    """The journal's head may be newer than what was read, and older than the offset."""
    assert said(shown, *told) == []


@pytest.mark.parametrize("told", [None, entry(3)])
def test_a_group_that_is_only_told_may_still_lag(told: tuple[int, str] | None) -> None:
    assert said([50], {0: told}, may_lag=True) == []


def test_an_audit_of_all_keeps_no_record_to_compare_later() -> None:
    """A journal has millions; only what an offset names is kept."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    reader: Reader = Brokers([50], [{0: None}])  # type: ignore[assignment]
    most = 0

    def keep(_partition: int, _offset: int, _commit: Commit) -> None:
        nonlocal most
        most = max(most, sum(map(len, audit._recent.values())))

    rounds.once(reader, audit, lambda _: None, keep)
    assert most <= 1


AWAY = Unavailable("the brokers did not answer", "wait")


@pytest.mark.parametrize(
    ("stable", "said"),
    [
        ([990], [f"{JOURNAL[0]}[0]: an open transaction at offset 990 hides 10 offsets"]),
        ([AWAY], ["whether open transactions hide records: the brokers did not answer"]),
        ([990, END], []),
        ([980, 990], []),  # of relays at work, one after the other
        ([END], []),
    ],
)
def test_what_an_open_transaction_hides_is_not_judged(
    stable: list[int | RelayError], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert on `stuck` led to an audit that ended with status 0 and did not name it."""
    monkeypatch.setattr(rounds, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    reader: Reader = Brokers([50], [{0: entry(49)}], stable)  # type: ignore[assignment]
    rounds.once(reader, audit, pytest.fail)
    assert audit.not_judged == said


NAMED = HISTORY[49][0]
"""Where the journal has the last record, which `entry(49)` names."""


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(rounds, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("stable", [NAMED, NAMED - 1])
def test_a_record_that_an_open_transaction_hides_is_not_missing(stable: int) -> None:
    """A marker that came late was a `gap`, and status 1."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    reader: Reader = Brokers([49], [{0: entry(49)}], [stable])  # type: ignore[assignment]
    rounds.once(reader, audit, pytest.fail)
    assert audit.not_judged == [
        f"{JOURNAL[0]}[0]: an open transaction at offset {stable} hides {END - stable} offsets"
    ]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("stable", [[END], [NAMED + 1], [NAMED, NAMED, END]])
def test_a_record_that_no_transaction_hides_is_missing(stable: list[int]) -> None:
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    reader: Reader = Brokers([49], [{0: entry(49)}], stable)  # type: ignore[assignment]
    found: list[Anomaly] = []
    rounds.once(reader, audit, found.append)
    assert [one.text for one in found] == [
        "the committed offset names n=50, but the journal ends at n=49"
    ]
    assert audit.open() == found


@pytest.mark.usefixtures("hurried")
def test_a_record_is_missing_where_the_journal_took_long_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time to wait for it was over by then, and nothing was said."""
    audit, brokers = Audit(APP, SOURCE, stuck_seconds=10), Brokers([49], [{0: entry(49)}])
    monkeypatch.setattr(brokers, "grow", lambda: time.sleep(1.1))  # the read takes so long
    found: list[Anomaly] = []
    rounds.once(cast("Reader", brokers), audit, found.append)
    assert [one.kind for one in found] == [AnomalyKind.GAP]


def test_a_partition_that_gives_no_end_is_not_judged() -> None:
    """Its leader is away: the others' ends say nothing of it."""
    audit = Audit(APP, SOURCE, stuck_seconds=10)
    brokers = Brokers([50], [{0: entry(49)}])
    brokers.silent = {("blocks", 1): Unavailable("nobody leads it", "wait")}
    reader: Reader = brokers  # type: ignore[assignment]
    rounds.once(reader, audit, pytest.fail)
    assert audit.not_judged == [
        "blocks[1]: whether an open transaction hides records: nobody leads it"
    ]


# ---- on a real broker


def delete_offsets(pipeline: Pipeline, _config: Path) -> str:  # noqa: F811
    group = names.group_id(pipeline.app)
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})

    def empty() -> bool:  # a static member stays for its session's time
        return not admin.describe_consumer_groups([group])[group].result(30).members

    wait_until(empty, "the member's end")
    admin.delete_consumer_groups([group])[group].result(30)
    return "the group has no committed offset, but the journal is at n="


def set_back(pipeline: Pipeline, config: Path) -> str:  # noqa: F811
    """To what it was before another relay went on, with the metadata."""
    places = pipeline.committed()
    relay = pipeline.start("a", config)
    pipeline.send(range(300, 350))
    pipeline.send(range(350, 400), partition=1)
    pipeline.exactly_once()
    relay.terminate()
    assert pipeline.end_of(relay) == 0
    place_group(pipeline, places)
    return "but the journal was at n="


@pytest.mark.parametrize("lose", [delete_offsets, pytest.param(set_back, marks=pytest.mark.long)])
def test_offsets_at_which_a_relay_would_stop_are_said(
    pipeline: Pipeline,  # noqa: F811
    lose: Callable[[Pipeline, Path], str],
) -> None:
    """Status 1 while a start ends with status 6; 0 before, and after a person took note of it."""
    config = ran(pipeline)
    assert once(config)[::2] == (0, [])
    text = lose(pipeline, config)
    status, _, anomalies = once(config)
    assert status == 1
    assert [one["partition"] for one in anomalies] == [0, 1]
    assert all(one["kind"] == "backward" and text in one["text"] for one in anomalies)
    assert ended(pipeline, pipeline.start("a", config))[0] == 6
    accept = ["accept", config, "--run", "--why", "lost by a test"]
    subprocess.run([RELAY, *accept], check=True, timeout=240)
    assert once(config)[::2] == (0, [])


def test_a_record_behind_an_open_transaction_is_not_missing(pipeline: Pipeline) -> None:  # noqa: F811
    """The group's offset names it at once, and the journal shows it once that one has ended."""
    config = pipeline.config(
        flush_point_interval_seconds=1.0,
        session_timeout_seconds=12.0,
        transaction_timeout_seconds=10.0,  # `stuck` after twice that
    )
    relay = pipeline.start("a", config)
    pipeline.send(range(50))
    pipeline.exactly_once()
    open_one = Producer(
        {
            "bootstrap.servers": pipeline.bootstrap,
            "transactional.id": f"{pipeline.app}-open",
            "transaction.timeout.ms": 300_000,  # the test ends it, not the broker
        }
    )
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(names.journal_topic(pipeline.app), b"never committed", partition=0)
    open_one.flush(30)
    before = pipeline.committed()[0].offset
    pipeline.send(range(50, 100))
    wait_until(lambda: pipeline.committed()[0].offset > before, "the next record")
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    status, said = spoken(config)
    assert status == 0, said
    assert f"{names.journal_topic(pipeline.app)}[0]: an open transaction at offset" in said
    open_one.abort_transaction(30)
    pipeline.await_markers()
    assert once(config)[::2] == (0, [])
