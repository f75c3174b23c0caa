"""relay.config.kafka_clients: what every client gets, and what nobody may set."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from relay.config import kafka_allowlist, kafka_clients, settings_file
from relay.config.settings import Settings

from .test_load import GOOD

CLIENTS: dict[str, tuple[Callable[..., Any], Callable[[Settings], dict[str, Any]]]] = {
    "consumer": (Consumer, kafka_clients.consumer),
    "producer": (Producer, kafka_clients.producer),
    "reader": (Consumer, lambda s: kafka_clients.reader(s.kafka)),
    "plain_producer": (Producer, lambda s: kafka_clients.plain_producer(s.kafka)),
    "admin": (AdminClient, lambda s: kafka_clients.admin(s.kafka)),
}


def settings(more: str = "") -> Settings:
    made, problems = settings_file.check(tomllib.loads(GOOD + '[relay]\nmember = "m-0"\n' + more))
    assert made is not None, problems
    return made


@pytest.mark.parametrize("client", CLIENTS)
def test_librdkafka_takes_each_clients_settings_without_a_warning(
    client: str, capfd: pytest.CaptureFixture[str]
) -> None:
    kind, make = CLIENTS[client]
    of_both_kinds = '[kafka.client]\n"linger.ms" = 7\n"fetch.min.bytes" = 9\n'
    given = make(settings(of_both_kinds))
    kind({k: v for k, v in given.items() if k != "bootstrap.servers"})
    warnings = [line for line in capfd.readouterr().err.splitlines() if "CONFWARN" in line]
    assert [line for line in warnings if "bootstrap.servers" not in line] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_the_documented_way_to_let_a_large_batch_in_is_taken_by_every_client(client: str) -> None:
    """relay/docs/security.md, "Limits on what comes in"."""
    kind, make = CLIENTS[client]
    larger = (
        '[kafka.client]\n"receive.message.max.bytes" = 200_000_000\n'
        '"message.max.bytes" = 200_000_000\n"compression.type" = "zstd"\n'
    )
    given = make(settings(larger))
    kind({k: v for k, v in given.items() if k != "bootstrap.servers"})
    assert given["receive.message.max.bytes"] == 200_000_000
    assert given.get("message.max.bytes", 0) == (200_000_000 if kind is Producer else 0)


def test_a_setting_of_the_other_kind_would_draw_a_warning() -> None:
    """Negative control of the test above: the filter is what keeps clients silent."""
    seen: list[str] = []
    logger = logging.Logger("test")  # noqa: LOG001 - apart from all others
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    producer = Producer({"fetch.min.bytes": 9}, logger=logger)
    producer.poll(0)
    assert any("is a consumer property" in line for line in seen)


@pytest.mark.parametrize("key", sorted({**kafka_allowlist.OWNED, **kafka_allowlist.DENIED}))
def test_what_correctness_owns_or_runs_code_is_refused_by_name(key: str) -> None:
    _, problems = settings_file.check(tomllib.loads(f'{GOOD}\n[kafka.client]\n"{key}" = "1"\n'))
    assert [path for path, _ in problems] == [("kafka", "client", key)]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_key_that_protects_exactly_once_is_owned(client: str) -> None:
    """Nothing in kafka.client displaces a setting on which correctness rests."""
    _, make = CLIENTS[client]
    plain = make(settings())
    protecting = {
        "isolation.level",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "enable.idempotence",
        "acks",
        "transactional.id",
        "transaction.timeout.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "bootstrap.servers",
        "check.crcs",
    }
    kafka = settings().kafka.model_copy(update={"client": dict.fromkeys(protecting, "mine")})
    forced = make(settings().model_copy(update={"kafka": kafka}))
    assert {k: v for k, v in forced.items() if k in plain} == plain
    assert protecting <= kafka_allowlist.OWNED.keys()


def test_what_is_free_passes_through_and_wins_over_defaults() -> None:
    made = settings('[kafka.client]\n"linger.ms" = 7\n"fetch.wait.max.ms" = 8\n"client.id" = "x"')
    assert kafka_clients.producer(made)["linger.ms"] == 7
    assert kafka_clients.consumer(made)["fetch.wait.max.ms"] == 8
    assert kafka_clients.consumer(made)["client.id"] == "x"
    assert "linger.ms" not in kafka_clients.consumer(made)
    assert "fetch.wait.max.ms" not in kafka_clients.producer(made)


def test_identities_are_named_after_app_and_member() -> None:
    assert kafka_clients.consumer(settings())["group.instance.id"] == "shop.m-0"
    assert kafka_clients.consumer(settings())["group.id"] == "shop.relay"
    assert kafka_clients.producer(settings())["transactional.id"] == "shop.relay.m-0"


@pytest.mark.parametrize(("transaction", "session"), [(1, 2), (5, 6), (40, 45), (900, 1800)])
def test_timeouts_stay_in_their_order_at_both_ends_of_their_ranges(
    transaction: int, session: int
) -> None:
    made = settings(
        f"transaction_timeout_seconds = {transaction}\nsession_timeout_seconds = {session}\n"
    )
    consumer, producer = kafka_clients.consumer(made), kafka_clients.producer(made)
    assert producer["transaction.timeout.ms"] == transaction * 1000
    assert producer["socket.timeout.ms"] <= producer["transaction.timeout.ms"] - 100
    assert producer["transaction.timeout.ms"] < consumer["session.timeout.ms"]
    assert consumer["heartbeat.interval.ms"] * 3 <= consumer["session.timeout.ms"]
    assert consumer["session.timeout.ms"] <= consumer["max.poll.interval.ms"]


@pytest.mark.parametrize("value", ["a; touch x", "$(id)", "`id`", 'a"b', "a b", "a\nb"])
def test_kerberos_names_cannot_smuggle_a_command_into_kinit(value: str) -> None:
    for key in ("sasl.kerberos.principal", "sasl.kerberos.keytab", "sasl.kerberos.service.name"):
        assert "shell" in (kafka_allowlist.refusal(key, value) or "")
        assert kafka_allowlist.refusal(key, "relay/host.example@REALM") is None
