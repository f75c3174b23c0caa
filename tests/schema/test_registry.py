"""The schema registry topic: who wins, and what readers see."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from relay import names
from relay.config.settings import Kafka
from relay.errors import ContractBroken, Refused, Unavailable
from relay.kafka.errors import PASSING
from relay.kafka.partition_ends import TopicEnds
from relay.records_pb2 import TableSchema
from relay.schema.evolution import ColumnDef, evolve
from relay.schema.registry import Registry
from tests.broker.pipeline import delete_topic, wait_until
from tests.schema.rows import TABLE, versions_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def record(version: int, uuid: str = "", table: str = TABLE) -> TableSchema:
    return TableSchema(table=table, version=version, based_on=version - 1, uuid=uuid)


def test_the_first_of_two_wins() -> None:
    """Of two records for one version the first counts, and who builds on the loser loses."""
    winner, loser = record(2, "winner"), record(2, "loser")
    versions = versions_of([record(1), winner, loser, record(3), record(3, "late")])
    assert versions == {TABLE: {1: record(1), 2: winner, 3: record(3)}}


def test_a_record_that_skips_a_version_does_not_count() -> None:
    """A version must follow the one it is based on."""
    jump = TableSchema(table=TABLE, version=3, based_on=1)
    assert versions_of([record(1), jump]) == {TABLE: {1: record(1)}}
    assert versions_of([record(2)]) == {}


def test_control_compaction_by_table_would_let_the_loser_win() -> None:
    """Control: were the key the table, compaction would keep the last record, which lost."""
    written = [record(1), record(2, "winner"), record(2, "loser")]
    compacted = list({one.table: one for one in written}.values())
    assert versions_of(compacted) != versions_of(written)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.integers(1, 4),
            st.integers(0, 3),
            st.text("xyz", max_size=2),
        )
    )
)
def test_versions_have_no_holes(raw: list[tuple[str, int, int, str]]) -> None:
    """Whatever is in the topic, each version that counts is based on the one before."""
    records = [TableSchema(table=f"d.{t}", version=v, based_on=b, uuid=u) for t, v, b, u in raw]
    for versions in versions_of(records).values():
        assert sorted(versions) == list(range(1, len(versions) + 1))
        assert all(schema.based_on == number - 1 for number, schema in versions.items())


@pytest.fixture
def kafka(bootstrap: str) -> Kafka:
    return Kafka(bootstrap=bootstrap)


@pytest.fixture
def topic(kafka: Kafka, app: str) -> Iterator[str]:
    with made(kafka, names.schemas_topic(app), "compact") as name:
        yield name


@contextmanager
def made(kafka: Kafka, name: str, policy: str) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    new = NewTopic(name, 1, 1, config={"cleanup.policy": policy})
    admin.create_topics([new])[name].result(30)
    wait_until(lambda: has_leader(admin, name), f"a leader of {name}")
    yield name
    delete_topic(admin, name)


def has_leader(admin: AdminClient, topic: str) -> bool:
    """A broker says that a topic is made before it knows that it leads it."""
    try:
        TopicEnds(admin, topic, deadline_seconds=30.0).bounds([0])
    except KafkaException as error:
        # _NOENT is the client's own word for it: none of the brokers told of a leader.
        none_yet = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT}
        if error.args[0].code() not in PASSING | none_yet:
            raise
        return False
    return True


@pytest.fixture
def registry(kafka: Kafka, app: str, topic: str) -> Iterator[Registry]:  # noqa: ARG001 - must exist
    registry = Registry(kafka, app)
    yield registry
    registry.close()


def first(*columns: str) -> TableSchema:
    schema = evolve(None, TABLE, "u", [ColumnDef(name, "String") for name in columns])
    assert schema is not None
    return schema


def test_a_topic_whose_leader_is_not_known_yet_is_asked_again(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it was just made. Red before: a command ended with status 4."""
    really, asked = registry._read_on, list[float]()

    def not_leader_once(deadline: float) -> None:
        asked.append(deadline)
        if len(asked) == 1:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        really(deadline)

    monkeypatch.setattr(registry, "_read_on", not_leader_once)
    registry.catch_up()
    assert len(asked) == 2


def test_proposed_read_back_and_seen_by_others(kafka: Kafka, app: str, registry: Registry) -> None:
    """What one relay proposed, it and every other reader has as current, and as that version."""
    registry.catch_up()
    assert registry.current(TABLE) is None
    (mine,) = registry.propose(first("a"))
    assert mine.columns[0].name == "a"
    assert mine.written_at_ms > 0
    other = Registry(kafka, app)
    other.catch_up()
    assert (other.current(TABLE), other.version(TABLE, 1), other.tables()) == (mine, mine, [TABLE])
    other.close()


def test_one_that_was_read_fetches_nothing_until_the_next_time(registry: Registry) -> None:
    """A fetch under way kept the relay waiting for up to a second when it asked for the end."""
    registry.propose(first("a"))
    registry.catch_up()
    assert registry._consumer is not None
    assert registry._consumer.assignment() == []


def test_the_loser_gets_the_winners_schema(kafka: Kafka, app: str, registry: Registry) -> None:
    """A proposal based on a version that is no longer current is answered with the current one,
    and evolving from that one succeeds."""
    registry.catch_up()
    other = Registry(kafka, app)
    other.catch_up()
    (won,) = other.propose(first("a"))
    (answer,) = registry.propose(first("b"))
    assert answer == won
    again = evolve(answer, TABLE, "u", [ColumnDef("b", "String")])
    assert again is not None
    (agreed,) = registry.propose(again)
    other.catch_up()
    assert other.current(TABLE) == agreed
    assert agreed.version == 2
    assert [(c.name, c.number, c.dropped) for c in agreed.columns] == [
        ("a", 1, True),
        ("b", 2, False),
    ]
    other.close()


def test_of_several_proposed_together_each_wins_or_loses_alone(
    kafka: Kafka, app: str, registry: Registry
) -> None:
    """What another registered meanwhile is the answer for its table, and for no other."""
    registry.catch_up()
    other = Registry(kafka, app)
    (won,) = other.propose(first("theirs"))
    mine = [first("ours") for _ in range(3)]
    mine[0].table, mine[2].table = "d.a", "d.z"
    before, lost, behind = registry.propose(*mine)
    assert lost == won
    assert [(one.table, one.columns[0].name) for one in (before, behind)] == [
        ("d.a", "ours"),
        ("d.z", "ours"),
    ]
    other.catch_up()
    assert other.tables() == sorted(["d.a", TABLE, "d.z"])
    assert other.current("d.z") == behind
    other.close()


def test_many_at_once_never_give_a_number_twice(kafka: Kafka, app: str, registry: Registry) -> None:
    """Proposers that race each get their column in, and no number means two columns."""
    registry.propose(first("first"))

    def add(name: str) -> None:
        mine = Registry(kafka, app)
        mine.catch_up()
        while True:
            current = mine.current(TABLE)
            assert current is not None
            alive = {column.name for column in current.columns}
            if name in alive:
                break
            columns = [ColumnDef(one, "String") for one in (*alive, name)]
            proposal = evolve(current, TABLE, "u", columns)
            assert proposal is not None
            mine.propose(proposal)
        mine.close()

    threads = [threading.Thread(target=add, args=(f"c{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    registry.catch_up()
    current = registry.current(TABLE)
    assert current is not None
    assert {c.name for c in current.columns} == {"first", "c0", "c1", "c2", "c3"}
    assert sorted(c.number for c in current.columns) == [1, 2, 3, 4, 5]
    assert current.version == 5


def test_a_missing_topic_is_refused(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the topic, reading and writing say which topic and how to get it."""
    monkeypatch.setattr("relay.schema.registry.NEW_TOPIC_SECONDS", 0.3)
    registry = Registry(kafka, "no-such-app")
    with pytest.raises(Refused, match=r"no-such-app\.schemas does not exist"):
        registry.catch_up()
    with pytest.raises(Refused, match=r"no-such-app\.schemas does not exist"):
        registry.propose(first("a"))
    registry.close()


def test_a_foreign_record_stops_everything(kafka: Kafka, topic: str, registry: Registry) -> None:
    """A record that is no schema is named with its offset."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, key=b"x", value=b"\xff\xff no schema")
    assert producer.flush(30) == 0
    with pytest.raises(ContractBroken, match="offset 0: the record is not a schema record"):
        registry.catch_up()


def test_deleted_records_stop_everything(kafka: Kafka, app: str) -> None:
    """Where records at the beginning are gone, numbers could be given twice: nobody goes on."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # The broker refuses to delete records of a topic that is compacted only.
    with made(kafka, names.schemas_topic(app), "delete") as topic:
        early = Registry(kafka, app)
        early.propose(first("a"))
        place = TopicPartition(topic, 0, 1)
        admin.delete_records([place])[place].result(30)
        late = Registry(kafka, app)
        for registry in (early, late):
            with pytest.raises(ContractBroken, match="must begin at 0"):
                registry.catch_up()
            registry.close()


def test_a_topic_made_anew_stops_everything(kafka: Kafka, app: str) -> None:
    """A topic that was deleted and created again is noticed by who had read the old one."""
    registry = Registry(kafka, app)
    with made(kafka, names.schemas_topic(app), "compact"):
        registry.propose(first("a"))
    with made(kafka, names.schemas_topic(app), "compact"), pytest.raises(ContractBroken):
        registry.catch_up()
    registry.close()


def test_no_broker_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nobody at the address, reading ends with the next step after the wait allowed."""
    monkeypatch.setattr("relay.schema.registry._END_SECONDS", 1.0)
    registry = Registry(Kafka(bootstrap="127.0.0.1:1"), "app")
    began = time.monotonic()
    with pytest.raises(Unavailable) as away:
        registry.catch_up()
    assert "kafka.bootstrap" in away.value.next_step
    assert time.monotonic() - began < 20
    registry.close()
