"""`[source.kafka]`: a cluster of its own for the source topic and the relay's group."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.config import kafka_clients, settings_file
from relay.errors import ConfigError

from .test_cli import relay
from .test_load import GOOD, write
from .test_pipelines import wrong

ACROSS = '[source.kafka]\nbootstrap = "other:9092"\n'
SASL = '"security.protocol" = "sasl_ssl"\n"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n'
CLIENT = f"[source.kafka.client]\n{SASL}"


def test_what_reads_the_source_and_what_writes_go_to_their_clusters(tmp_path: Path) -> None:
    settings = settings_file.load(
        write(tmp_path, GOOD + ACROSS + '[source.kafka.client]\n"linger.ms" = 7')
    )
    assert settings.crosses
    consumer, producer = kafka_clients.consumer(settings), kafka_clients.producer(settings)
    assert consumer["bootstrap.servers"] == "other:9092"
    assert producer["bootstrap.servers"] == settings.kafka.bootstrap != "other:9092"
    assert producer["linger.ms"] == 20
    assert kafka_clients.plain_producer(settings.source_kafka)["linger.ms"] == 7
    assert settings.kafka_of("rows") == settings.source_kafka
    assert settings.kafka_of("shop.journal") == settings.kafka


def test_without_it_there_is_one_cluster(tmp_path: Path) -> None:
    settings = settings_file.load(write(tmp_path, GOOD))
    assert not settings.crosses
    assert settings.source_kafka == settings.kafka


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ('[source.kafka]\nbootstrap = "other"', "source.kafka.bootstrap", "host:port"),
        (
            CLIENT,
            "source.kafka.bootstrap",
            "missing, although other settings of [source.kafka] are given",
        ),
        (
            f'{ACROSS}{CLIENT}"sasl.password" = "x"',
            'source.kafka.client."sasl.password"',
            'name a file in source.kafka.client_files."sasl.password"',
        ),
        (
            f'{ACROSS}[source.kafka.client]\n"plugin.library.paths" = "x.so"',
            'source.kafka.client."plugin.library.paths"',
            "",
        ),
        (
            f'{ACROSS}[source.kafka.client_files]\n"sasl.password" = "missing"',
            'source.kafka.client_files."sasl.password"',
            "cannot read",
        ),
        (f"{ACROSS}replication = 3", "source.kafka.replication", "unknown key"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(
    tmp_path: Path, text: str, key: str, reason: str
) -> None:
    found = wrong(tmp_path, GOOD + text)
    assert found.keys() == {key}
    assert reason in found[key]


def test_its_secrets_come_from_variables_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_SOURCE_KAFKA_SASL_PASSWORD", "of the source")
    settings = settings_file.load(write(tmp_path, GOOD + ACROSS + CLIENT))
    assert settings.source_kafka.client["sasl.password"] == "of the source"
    assert "of the source" not in repr(settings)
    assert not settings.kafka.client


def test_a_file_without_it_does_not_hear_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipelines of one cluster and of two share an environment."""
    monkeypatch.setenv("RELAY_SOURCE_KAFKA_SASL_PASSWORD", "of the source")
    assert not settings_file.load(write(tmp_path, GOOD)).crosses


def test_its_files_count_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("of the source\n", encoding="utf-8")
    text = f'{ACROSS}{CLIENT}[source.kafka.client_files]\n"sasl.password" = "held"\n'
    settings = settings_file.load(write(tmp_path, GOOD + text))
    assert kafka_clients.consumer(settings)["sasl.password"] == "of the source"


def test_pipelines_that_read_one_topic_of_one_source_cluster_collide(tmp_path: Path) -> None:
    """Though their targets are two clusters."""
    two = """
[pipelines.east]
kafka.bootstrap = "east:9092"
source.kafka.bootstrap = "other:9092"
[pipelines.west]
kafka.bootstrap = "west:9092"
source.kafka.bootstrap = "other:9092"
"""
    found = wrong(tmp_path, GOOD + two)
    assert "every row would be loaded twice" in found["pipelines.west.source.topic"]


def test_a_pipeline_may_read_in_one_cluster_what_another_writes_in_another(tmp_path: Path) -> None:
    """The names are the same, the topics are not."""
    two = """
[pipelines.east]
kafka.bootstrap = "east:9092"
[pipelines.west]
kafka.bootstrap = "east:9092"
source.topic = "shop-east.journal"
"""
    with pytest.raises(ConfigError, match="which pipeline east writes"):
        settings_file.pipelines(write(tmp_path, GOOD + two))
    settings_file.pipelines(write(tmp_path, GOOD + two + 'source.kafka.bootstrap = "other:9092"\n'))


@pytest.mark.parametrize(
    "arguments",
    [
        ("rewind", "FILE", "--all", "--to-offset", "0", "--run"),
        ("accept", "FILE"),
        ("retire", "FILE", "--member", "a", "--run"),
        ("dead", "replay", "--config", "FILE", "--run"),
    ],
)
def test_what_would_need_one_transaction_over_both_is_refused_before_any_server_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    file = write(tmp_path, GOOD + ACROSS)
    given = [file if word == "FILE" else word for word in arguments]
    assert relay(monkeypatch, *given) == 2
    said = capsys.readouterr().err
    assert "source.kafka names another cluster" in said
    assert "next: " in said
