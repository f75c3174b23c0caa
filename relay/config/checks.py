"""Checks a configuration beyond types and ranges: names, addresses, refused settings.

Receives the file's raw data (it may be wrong in other ways too) or finished settings,
gives (key, reason) pairs. Asks no server.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaException, Producer

from relay import names
from relay.config import kafka_allowlist, kafka_clients
from relay.config.secrets import CLUSTERS, Problem, Table, holder, value_at
from relay.config.server_settings import addresses
from relay.config.settings import Settings

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CLICKHOUSE_FILES = ("password", "ca", "certificate", "key")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")

CLIENT_PATHS = frozenset({
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
    "https.ca.location",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.jwt.template.file",
})  # fmt: skip
"""Settings of `kafka.client` that name a file."""
PROBE = "probe"
"""For ssl.ca.location: look where operating systems keep certificates."""

# A trial client's warnings (no brokers configured) are of no interest.
_SILENT = logging.getLogger("relay.trial")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def find(data: Table) -> Iterator[Problem]:
    """Yield every problem that the values show by themselves."""
    for path, problem in (
        (("kafka", "bootstrap"), _bootstrap),
        (("source", "kafka", "bootstrap"), lambda given: _bootstrap(given) if given else None),
        (("source", "topic"), lambda topic: _topic(topic, data.get("app"))),
        *((("clickhouse", f"{kind}_file"), _readable) for kind in _CLICKHOUSE_FILES),
        (("loader", "database"), _identifier),
        (("loader", "block_column"), _identifier),
    ):
        value = value_at(data, path)
        if isinstance(value, str) and (reason := problem(value)) is not None:
            yield path, reason
    yield from _clickhouse(holder(data, ("clickhouse", "")) or {})
    for cluster in CLUSTERS:
        brokers = holder(data, (*cluster, "bootstrap")) or {}
        for within, reason in (*_client(brokers), *_client_files(brokers)):
            yield (*cluster, *within), reason
    of_source = holder(data, ("source", "kafka", "bootstrap")) or {}
    if not of_source.get("bootstrap") and any(of_source.values()):
        yield (
            ("source", "kafka", "bootstrap"),
            "missing, although other settings of [source.kafka] are given",
        )


def _bootstrap(value: str) -> str | None:
    for broker in value.split(","):
        match = _HOST_PORT.fullmatch(broker.strip())
        if match is None or not 0 < int(match[2]) < 65536:
            return f"should be host:port, separated by commas; {broker.strip()!r} is not one"
    return None


def _topic(topic: str, app: object) -> str | None:
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        return f"not a topic name: {topic!r}"
    if isinstance(app, str) and names.is_written(topic, app):
        return f"{topic!r} is a topic that the relay writes; it would read its own output"
    return None


def _clickhouse(section: Table) -> Iterator[Problem]:
    """Its addresses, and what makes sense only beside something else."""
    urls = addresses(section.get("url"))
    for url in urls:
        if (reason := _url(url)) is not None:
            yield ("clickhouse", "url"), reason
    if len(urls) > 1 and section.get("insert_quorum") is None:
        reason = (
            "names several replicas: also set clickhouse.insert_quorum. Without a quorum, if the "
            "answer to an INSERT is lost, the replica that is asked may not have the rows yet"
        )
        yield ("clickhouse", "url"), reason
    if {"password", "password_file"} <= section.keys():
        yield (
            ("clickhouse", "password_file"),
            "clickhouse.password is also set; give only one of them",
        )
    if "key_file" in section and "certificate_file" not in section:
        yield (
            ("clickhouse", "key_file"),
            "also give clickhouse.certificate_file, the certificate that this key belongs to",
        )


def _url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as wrong:
        return f"not a URL: {wrong}"
    if parts.username is not None or parts.password is not None:
        return (
            "contains a user or a password, which logs would show; use clickhouse.user and "
            "clickhouse.password_file"
        )
    if parts.scheme not in {"http", "https"}:
        return None  # reported already
    address = f"{parts.scheme}://{parts.netloc}"
    more = {"path": parts.path.strip("/"), "query": parts.query, "fragment": parts.fragment}
    for part, value in more.items():
        if value:  # what a proxy or another client understands, and what may hold a password
            return f"names only a server, which is asked at /; write no {part}: {address!r}"
    if not parts.hostname or port == 0:
        return f"must contain a host, and a port above 0: {address!r}"
    return None


def _readable(path: str) -> str | None:
    try:
        Path(path).read_text(encoding="utf-8")
    except OSError as refused:
        return f"cannot read {path}: {refused.strerror}"
    except UnicodeDecodeError:
        return f"{path} is not UTF-8"
    return None


def _identifier(name: str) -> str | None:
    if names.is_table_name(f"x.{name}"):
        return None
    return f"should be letters, digits and _, not beginning with a digit, not {name!r}"


def _client(brokers: Table) -> Iterator[Problem]:
    """Settings passed through to librdkafka: refused, unknown, or of a wrong value."""
    client = brokers.get("client")
    if not isinstance(client, dict):
        return
    for key, value in client.items():
        if not isinstance(value, str | int | float):
            continue  # the type is reported already
        reason = kafka_allowlist.refusal(key, value)
        if reason is None and key in CLIENT_PATHS and value != PROBE:
            reason = None if Path(str(value)).exists() else f"there is no file {value}"
        reason = reason or _complaint(Producer, {key: value})
        # What makes sense only together with others is for try_clients.
        if reason is not None and not reason.startswith("Failed to create"):
            yield ("client", key), reason
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism == "OAUTHBEARER" and client.get("sasl.oauthbearer.method") != "oidc":
        yield (
            ("client", "sasl.oauthbearer.method"),
            'must be "oidc": any other method waits for a token that only a program can set',
        )


def _client_files(brokers: Table) -> Iterator[Problem]:
    """Files that hold secrets for librdkafka: of no secret, doubled, or unreadable."""
    files, client = brokers.get("client_files"), brokers.get("client")
    if not isinstance(files, dict):
        return
    for key, path in files.items():
        if key not in kafka_allowlist.SECRETS:
            # Of another setting librdkafka's objection could show what the file holds.
            reason: str | None = "is not a secret of kafka.client: write its value there"
        elif isinstance(client, dict) and key in client:
            reason = "is also set in kafka.client; give only one of them"
        else:
            reason = _readable(path) if isinstance(path, str) else None
        if reason is not None:
            yield ("client_files", key), reason


_NOT_TRIED = {"bootstrap.servers", "logger"}


def try_clients(settings: Settings) -> Iterator[Problem]:
    """Yield what librdkafka says to the settings all together; connects to nothing."""
    source = CLUSTERS[settings.crosses]
    refused = set()
    for cluster, kind, client in (
        (source, Consumer, kafka_clients.consumer(settings)),
        (CLUSTERS[0], Producer, kafka_clients.producer(settings)),
        (CLUSTERS[0], Consumer, kafka_clients.reader(settings.kafka)),
        (source, Producer, kafka_clients.plain_producer(settings.source_kafka)),
    ):
        reason = _complaint(kind, {k: v for k, v in client.items() if k not in _NOT_TRIED})
        if reason is not None and cluster not in refused:
            refused.add(cluster)
            yield (*cluster, "client"), reason


def _complaint(kind: Callable[..., object], client: dict[str, Any]) -> str | None:
    """The objection of librdkafka; a client without brokers connects to nothing."""
    try:
        kind(client, logger=_SILENT)
    except KafkaException as refused:
        return str(refused.args[0].str()).strip()
    except (TypeError, ValueError, AttributeError) as wrong:
        return str(wrong)
    return None
