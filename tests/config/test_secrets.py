"""Secrets come from files or the environment, and are shown nowhere."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from relay.config import kafka_allowlist, kafka_clients, settings_file
from relay.config.settings import Kafka, Settings
from relay.errors import ConfigError
from tests.config.test_load import GOOD, problems, write

SENTINEL = "s3ntinel-Pa55word"
SASL = (
    '[kafka.client]\n"security.protocol" = "sasl_plaintext"\n"sasl.mechanism" = "SCRAM-SHA-512"\n'
    '"sasl.username" = "relay-user"\n'
)

OAUTH = {
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.client.id": "relay",
    "sasl.oauthbearer.client.secret": SENTINEL,
    "sasl.oauthbearer.scope": "kafka",
}


@pytest.fixture
def held(tmp_path: Path) -> Path:
    path = tmp_path / "held"
    path.write_text(f"{SENTINEL}\n", encoding="utf-8")
    return path


def of_files(held: Path) -> str:
    files = f'[kafka.client_files]\n"sasl.password" = "{held.name}"\n'
    return GOOD.replace("[loader]", f'password_file = "{held.name}"\n{SASL}{files}[loader]')


def of_values(value: str) -> str:
    given = f'password = "{value}"\n{SASL}"sasl.password" = "{value}"\n'
    return GOOD.replace("[loader]", given + "[loader]")


def test_a_secret_in_plain_is_refused_and_not_shown(tmp_path: Path) -> None:
    """Both are named at once, with the two ways to give them."""
    with pytest.raises(ConfigError) as raised:
        settings_file.load(write(tmp_path, of_values(SENTINEL)))
    said = str(raised.value)
    assert "clickhouse.password: this file must not contain a secret" in said
    assert 'kafka.client."sasl.password": this file must not contain a secret' in said
    assert 'kafka.client_files."sasl.password"' in said
    assert "${NAME}" in said
    assert SENTINEL not in said


@pytest.mark.parametrize("key", sorted(kafka_allowlist.SECRETS))
def test_each_of_librdkafkas_secrets_is_refused_in_plain(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="must not contain a secret") as raised:
        settings_file.load(write(tmp_path, f'{GOOD}[kafka.client]\n"{key}" = "{SENTINEL}"\n'))
    assert SENTINEL not in str(raised.value)


def test_what_is_no_secret_stands_in_the_file(tmp_path: Path) -> None:
    """Negative control of the two above; an empty secret is none either."""
    text = GOOD.replace("[loader]", 'password = ""\n[loader]')
    settings_file.load(write(tmp_path, text + '[kafka.client]\n"client.id" = "x"\n'))


def test_a_variable_is_named_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, of_values("${MINE}"))
    with pytest.raises(ConfigError, match="environment variable MINE is not set"):
        settings_file.load(path)
    monkeypatch.setenv("MINE", SENTINEL)
    settings = settings_file.load(path)
    assert settings.clickhouse.secret() == SENTINEL
    assert kafka_clients.consumer(settings)["sasl.password"] == SENTINEL


def test_only_secrets_name_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file could carry whatever the environment holds to wherever it likes."""
    monkeypatch.setenv("MINE", SENTINEL)
    settings = settings_file.load(
        write(tmp_path, GOOD + '[kafka.client]\n"client.id" = "${MINE}"\n')
    )
    assert settings.kafka.client["client.id"] == "${MINE}"


def test_files_are_read_anew_for_each_client(tmp_path: Path, held: Path) -> None:
    """A password that was changed is found by the next client, without a restart."""
    settings = settings_file.load(write(tmp_path, of_files(held)))
    for make in (
        kafka_clients.consumer,
        kafka_clients.producer,
        lambda s: kafka_clients.reader(s.kafka),
        lambda s: kafka_clients.plain_producer(s.kafka),
        lambda s: kafka_clients.admin(s.kafka),
    ):
        assert make(settings)["sasl.password"] == SENTINEL
    held.write_text("the next one", encoding="utf-8")
    assert kafka_clients.producer(settings)["sasl.password"] == "the next one"
    assert settings.clickhouse.secret() == "the next one"
    held.unlink()
    with pytest.raises(ConfigError, match="client_files: cannot read"):
        kafka_clients.producer(settings)


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path, held: Path) -> None:
    """As editors of Windows save them. Blanks are a password's own, line breaks are the file's."""
    held.write_bytes(f"\ufeff {SENTINEL} \r\n".encode())
    settings = settings_file.load(write(tmp_path, "\ufeff" + of_files(held)))
    assert settings.clickhouse.secret() == f" {SENTINEL} "
    assert kafka_clients.admin(settings.kafka)["sasl.password"] == f" {SENTINEL} "


def test_the_environment_wins_over_a_file(
    tmp_path: Path, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_KAFKA_SASL_PASSWORD", "of the environment")
    settings = settings_file.load(write(tmp_path, of_files(held)))
    assert settings.kafka.client_files == {}
    assert kafka_clients.admin(settings.kafka)["sasl.password"] == "of the environment"
    # Also over one in plain, which an older file may still hold.
    monkeypatch.setenv("RELAY_CLICKHOUSE_PASSWORD", "this too")
    assert settings_file.load(write(tmp_path, of_values("old"))).clickhouse.secret() == "this too"


def test_users_come_from_the_environment_too(
    tmp_path: Path, held: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that programs with users of their own share one file; each keeps its password file."""
    monkeypatch.setenv("RELAY_KAFKA_SASL_USERNAME", "loader")
    monkeypatch.setenv("RELAY_CLICKHOUSE_USER", "loader too")
    settings = settings_file.load(write(tmp_path, of_files(held)))
    assert kafka_clients.admin(settings.kafka)["sasl.username"] == "loader"
    assert settings.clickhouse.user == "loader too"
    assert settings.clickhouse.secret() == SENTINEL


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ('"sasl.password" = "nowhere"', "cannot read"),
        ('"linger.ms" = "held"', "is not a secret of kafka.client"),
        ('"plugin.library.paths" = "held"', "is not a secret of kafka.client"),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    tmp_path: Path, held: Path, files: str, said: str
) -> None:
    path = write(tmp_path, of_files(held).replace('"sasl.password" = "held"', files))
    with pytest.raises(ConfigError, match=r"kafka\.client_files\.") as raised:
        settings_file.load(path)
    assert said in str(raised.value)
    assert SENTINEL not in str(raised.value)


def test_given_twice_is_ambiguous() -> None:
    both = f'{SASL}"sasl.password" = "x"\n[kafka.client_files]\n"sasl.password" = "{__file__}"\n'
    assert problems(GOOD + both) == {
        'kafka.client_files."sasl.password"': "is also set in kafka.client; give only one of them"
    }


def test_paths_of_certificates_count_from_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("[loader]", 'ca_file = "ca.pem"\n[loader]')
    (tmp_path / "ca.pem").write_text("x", encoding="utf-8")
    found = settings_file.load(
        write(tmp_path, text + '[kafka.client]\n"ssl.crl.location" = "probe"\n')
    )
    assert found.clickhouse.ca_file == tmp_path / "ca.pem"
    assert found.kafka.client["ssl.crl.location"] == "probe"
    tls = '[kafka.client]\n"security.protocol" = "ssl"\n"ssl.ca.location" = "none.pem"\n'
    with pytest.raises(ConfigError, match=f"there is no file {tmp_path}/none.pem"):
        settings_file.load(write(tmp_path, GOOD + tls))


def test_a_key_without_its_certificate_is_named(tmp_path: Path, held: Path) -> None:
    text = GOOD.replace("[loader]", f'key_file = "{held}"\n[loader]')
    with pytest.raises(ConfigError, match=r"clickhouse\.key_file: also give clickhouse"):
        settings_file.load(write(tmp_path, text))


def test_oauth_is_reached_by_plain_settings_alone() -> None:
    """By a token endpoint; librdkafka would otherwise wait for a program's callback for ever."""
    given = "\n".join(f'"{key}" = "{value}"' for key, value in OAUTH.items())
    assert problems(f"{GOOD}[kafka.client]\n{given}\n") == {}
    incomplete = given.replace("sasl.oauthbearer.token.endpoint.url", "client.id")
    assert "token.endpoint.url" in problems(f"{GOOD}[kafka.client]\n{incomplete}\n")["kafka.client"]
    other = given.replace('"oidc"', '"default"')
    assert problems(f"{GOOD}[kafka.client]\n{other}\n").keys() == {
        'kafka.client."sasl.oauthbearer.method"'
    }


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What librdkafka logs, of every level."""
    said: list[str] = []
    logger = kafka_clients.log.clients()
    handler = logging.Handler(logging.DEBUG)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    level, filters = logger.level, list(logger.filters)
    logger.setLevel(logging.DEBUG)
    logger.filters.clear()
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.filters.extend(filters)


def heard(given: dict[str, Any], kind: Any) -> None:
    """A client with all of librdkafka's debugging on, that finds no broker."""
    client = kind({**given, "debug": "all", "log_level": 7, "socket.timeout.ms": 1000})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.2)
    client.poll(0)


def test_no_log_shows_a_secret_at_debug_level(tmp_path: Path, held: Path, lines: list[str]) -> None:
    """All contexts of librdkafka's debugging, every kind of client, SCRAM and OAuth."""
    text = of_files(held).replace("localhost:9092", "127.0.0.1:1")
    settings = settings_file.load(write(tmp_path, text))
    heard(kafka_clients.consumer(settings), Consumer)
    heard(kafka_clients.producer(settings), Producer)
    heard(kafka_clients.admin(settings.kafka), AdminClient)
    oauth = kafka_clients.plain_producer(Kafka(bootstrap="127.0.0.1:1", client=OAUTH))
    heard(oauth, Producer)
    said = "\n".join(lines)
    for plain in ("sasl.mechanisms = SCRAM-SHA-512", "sasl.mechanisms = OAUTHBEARER"):
        assert plain in said, "negative control: settings that are no secrets are logged"
    assert SENTINEL not in said


def test_settings_show_no_secret_when_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", SENTINEL)
    settings = settings_file.load(write(tmp_path, of_values("${MINE}")))
    assert SENTINEL not in f"{settings!r} {settings}"
    assert "bootstrap" in repr(settings), "negative control"


def test_workers_read_the_file_themselves(tmp_path: Path, held: Path) -> None:
    """What Spark carries to its executors names the file and not what it holds."""
    carried = pickle.dumps(settings_file.load(write(tmp_path, of_files(held))))
    assert SENTINEL.encode() not in carried
    assert held.name.encode() in carried
    again: Settings = pickle.loads(carried)
    assert kafka_clients.reader(again.kafka)["sasl.password"] == SENTINEL
