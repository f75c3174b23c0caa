"""A password that is changed under clients that live: they take the new one from its file.

The broker asks every connection again for its password after some seconds, so that no client can
live on a connection of before.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from relay.config import kafka_clients
from relay.config.settings import Kafka, Settings
from relay.kafka.admin import Admin, description
from relay.kafka.connection_errors import CREDENTIALS
from relay.kafka.partition_reader import PartitionReader
from relay.kafka.reconnect import LOOK_SECONDS
from relay.kafka.transactional_producer import TransactionalProducer
from relay.program.waiting import RENEWAL_PAUSE_SECONDS
from tests.broker.authorized import Authorized
from tests.broker.authorized import rights as rights_of
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, create_topics, wait_until
from tests.broker.secured import Certificates, secured

AGAIN_SECONDS = 4
"""How long a connection is good; then it has to show its password again."""
APP, TOPIC = "shop", "shop.source"
Server = tuple[Authorized, Certificates]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    more = f"connections.max.reauth.ms={AGAIN_SECONDS * 1000}\n"
    with secured(tmp_path_factory.mktemp("renewed"), {"relay": "first"}, more) as made:
        made[0].grant(list(rights_of(APP).values()))
        create_topics(made[0].admin, NewTopic(TOPIC, 1, 1))
        yield made


def change_password(server: Server, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = [UserScramCredentialUpsertion("relay", info, password.encode())]
    for future in server[0].admin.alter_user_scram_credentials(wanted).values():
        future.result(30)


@pytest.fixture(scope="module")
def bootstrap(server: Server) -> str:
    """Instead of the session's broker: `pipeline` and its judge are super users on this one."""
    return server[0].bootstrap


@pytest.fixture
def held(tmp_path: Path, server: Server) -> Path:
    """The password's file, as a Secret that is mounted."""
    change_password(server, "first")
    path = tmp_path / "kafka"
    path.write_text("first\n", encoding="utf-8")
    config = {**kafka_clients.admin(brokers(server, path)), "error_cb": lambda _: None}

    def is_known() -> bool:
        with contextlib.suppress(KafkaException):
            return bool(AdminClient(config).list_topics(timeout=5).brokers)
        return False

    # The controller answered; the broker takes the password from its log later.
    wait_until(is_known, "the broker to know the password")
    return path


def brokers(server: Server, held: Path) -> Kafka:
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "relay",
        "ssl.ca.location": str(server[1].ca),
    }
    given = {"bootstrap": server[0].sasl, "client": client, "client_files": {"sasl.password": held}}
    return Kafka.model_validate(given)


class Reader:
    """Polls, and keeps whether its password was refused."""

    def __init__(self, kafka: Kafka) -> None:
        self.refused = 0
        config = {**kafka_clients.reader(kafka), "error_cb": self._hear}
        self.client = PartitionReader(config)
        self.client.assign([TopicPartition(TOPIC, 0, 0)])

    def _hear(self, error: Any) -> None:
        self.refused += error.code() in CREDENTIALS

    def poll_for(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            with contextlib.suppress(KafkaException):
                self.client.poll(0.2)


def test_a_reader_takes_the_new_password(server: Server, held: Path) -> None:
    for turn in range(5):
        begun = time.monotonic()
        reader = Reader(brokers(server, held))
        with contextlib.closing(reader.client):
            assert reader.client.list_topics(TOPIC, timeout=WAIT_SECONDS).topics[TOPIC].partitions
            change_password(server, f"next {turn}")
            held.write_text(f"next {turn}\n", encoding="utf-8")
            if time.monotonic() - begun > AGAIN_SECONDS / 2:
                continue  # the broker may ask for it before the reader looks into the file
            reader.poll_for(2 * AGAIN_SECONDS)
            assert reader.refused == 0
            assert reader.client.list_topics(TOPIC, timeout=WAIT_SECONDS).topics[TOPIC].partitions
            return
    raise AssertionError("this machine is too slow for the test")


def test_a_reader_whose_file_stays_is_refused(server: Server, held: Path) -> None:
    """Negative control: the broker does ask again."""
    reader = Reader(brokers(server, held))
    with contextlib.closing(reader.client):
        reader.poll_for(2)
        change_password(server, "second")
        reader.poll_for(4 * AGAIN_SECONDS, lambda: reader.refused > 0)
        assert reader.refused > 0


def test_a_producer_takes_it_also_for_its_successor(server: Server, held: Path) -> None:
    """Where it is replaced, the new client is made of the old configuration."""
    settings = Settings.model_validate(
        {
            "app": APP,
            "kafka": brokers(server, held).model_dump(),
            "source": {"topic": TOPIC},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "relay": {"member": "a"},
            "loader": {"checkpoint": "c"},
        }
    )
    producer = TransactionalProducer(kafka_clients.producer(settings), 20, f"{APP}.relay")
    with contextlib.closing(producer):
        producer.replace()
        change_password(server, "third")
        held.write_text("third\n", encoding="utf-8")
        begun = time.monotonic()

        def served() -> bool:
            producer.serve(0.2)
            return time.monotonic() - begun > LOOK_SECONDS + AGAIN_SECONDS

        wait_until(served, "a connection's time to end", 30)
        producer.replace()


def test_an_admin_client_takes_it(server: Server, held: Path) -> None:
    """Each transaction begins with a question of its own: with the old one, none begins any more.

    Red before: SASL_AUTHENTICATION_FAILED.
    """
    admin = Admin(brokers(server, held))

    def ask() -> None:
        assert admin.answer("describe", description(admin, [TOPIC])[TOPIC], "") is not None

    ask()
    change_password(server, "admin's second")
    held.write_text("admin's second\n", encoding="utf-8")
    begun = time.monotonic()

    def asked() -> bool:
        ask()
        return time.monotonic() - begun > LOOK_SECONDS + 2 * AGAIN_SECONDS

    wait_until(asked, "two connections' time to end", 60)


def relay_config(pipeline: Pipeline, server: Server, secret: str) -> Path:
    """Of a relay that comes in with the password of this table of the configuration."""
    server[0].grant(list(rights_of(pipeline.app).values()))
    client = brokers(server, Path("unused")).client
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in client.items())
    path = pipeline.config(f"[kafka.client]\n{lines}\n{secret}\n")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(server[0].bootstrap, server[0].sasl), encoding="utf-8")
    return path


@pytest.mark.long  # 29 s; readers and producers renew theirs in the tests above
def test_a_relay_waits_for_the_file(pipeline: Pipeline, server: Server, held: Path) -> None:
    """It is refused long before the new password is in the file, and lives; then it goes on."""
    secret = f'[kafka.client_files]\n"sasl.password" = "{held}"'
    relay = pipeline.start("a", relay_config(pipeline, server, secret))
    pipeline.send(range(10))
    pipeline.until(lambda: len(pipeline.rows()) == 10, "rows under the first password")
    change_password(server, "fourth")
    waits = "waiting until their files hold others"
    pipeline.until(lambda: pipeline.log(relay).count(waits) > 1, "a second refusal")
    pipeline.send(range(10, 20))
    held.write_text("fourth\n", encoding="utf-8")
    pipeline.exactly_once()
    assert relay.poll() is None
    refused = pipeline.log(relay).count(waits)
    written = time.monotonic()
    wait_until(lambda: time.monotonic() - written > RENEWAL_PAUSE_SECONDS, "another try's time", 60)
    assert pipeline.log(relay).count(waits) == refused


def test_a_relay_without_a_file_ends(
    pipeline: Pipeline, server: Server, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: nobody can give it another password."""
    monkeypatch.setenv("RELAY_KAFKA_SASL_PASSWORD", held.read_text(encoding="utf-8").strip())
    relay = pipeline.start("a", relay_config(pipeline, server, ""))
    pipeline.send(range(10))
    pipeline.until(lambda: len(pipeline.rows()) == 10, "rows under the first password")
    change_password(server, "fifth")
    wait_until(lambda: relay.poll() is not None, "the end of the relay", 60)
    assert relay.returncode == 5, pipeline.log(relay)


def test_a_relay_that_begins_with_a_wrong_one_ends(
    pipeline: Pipeline, server: Server, held: Path
) -> None:
    """At once: it is a mistake, and nobody's work stops."""
    held.write_text("never\n", encoding="utf-8")
    secret = f'[kafka.client_files]\n"sasl.password" = "{held}"'
    relay = pipeline.start("a", relay_config(pipeline, server, secret))
    wait_until(lambda: relay.poll() is not None, "the end of the relay", 60)
    assert relay.returncode == 5, pipeline.log(relay)
    assert "AUTHENTICATION" in pipeline.log(relay)


@pytest.mark.long  # 19 s
def test_a_relay_that_is_told_to_stop_while_it_waits(
    pipeline: Pipeline, server: Server, held: Path
) -> None:
    """Ends with status 0, also where the file brought another wrong password meanwhile."""
    secret = f'[kafka.client_files]\n"sasl.password" = "{held}"'
    relay = pipeline.start("a", relay_config(pipeline, server, secret))
    pipeline.send(range(10))
    pipeline.until(lambda: len(pipeline.rows()) == 10, "rows under the first password")
    change_password(server, "sixth")
    waits = "waiting until their files hold others"
    pipeline.until(lambda: waits in pipeline.log(relay), "a refusal")
    held.write_text("never\n", encoding="utf-8")
    before = pipeline.log(relay).count(waits)
    pipeline.until(lambda: pipeline.log(relay).count(waits) > before + 1, "two more refusals")
    assert relay.poll() is None
    relay.send_signal(signal.SIGTERM)
    wait_until(lambda: relay.poll() is not None, "the end of the relay", 30)
    assert relay.returncode == 0, pipeline.log(relay)
