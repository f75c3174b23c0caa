"""How to reach the servers, as the TOML file says it: pure values, checked when made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator


class Section(BaseModel):
    """A table of the file: frozen, numbers are finite, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def addresses(value: object) -> tuple[str, ...]:
    """Return the servers in a setting that names one or several: a list, or separated by commas."""
    listed = value if isinstance(value, list) else [value]
    texts = [part for item in listed if isinstance(item, str) for part in item.split(",")]
    return tuple(text.strip() for text in texts if text.strip())


class Address(NamedTuple):
    """Of one server of ClickHouse, however its URL is spelled."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Address:
        """Parse the URL, with ClickHouse's ports where none is named.

        Raises:
            ValueError: its host or its port is none.
        """
        parts = urlsplit(url)
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
        return cls(parts.scheme, parts.hostname or "localhost", port)


NATIVE_PORTS = frozenset({9000, 9440})
"""Of ClickHouse's native protocol, which answers HTTP with words of its own or not at all."""


def native_port(url: str) -> str:
    """Return what is probably wrong with the port of a ClickHouse URL; empty: nothing."""
    port = urlsplit(url).port
    if port not in NATIVE_PORTS:
        return ""
    return f"{port} is a port of ClickHouse's native protocol; HTTP is mostly 8123, HTTPS 8443"


class Brokers(Section):
    """How to reach the brokers of one cluster."""

    bootstrap: str = Field(
        description="addresses of the brokers, as host:port separated by commas",
        examples=["localhost:9092"],
    )
    client: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="librdkafka settings for every Kafka client. Settings that exactly-once "
        "depends on, or that run code, are refused",
        examples=[{"security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512"}],
        repr=False,
    )
    client_files: dict[str, Path] = Field(
        default_factory=dict,
        description="files for the secrets among kafka.client, one for each setting. A file holds "
        "nothing but the value, and is read again for every new client",
        examples=[{"sasl.password": "/run/secrets/kafka"}],
    )


class Kafka(Brokers):
    """How to reach the brokers."""

    replication: Annotated[int, Field(ge=1, le=32767)] | None = Field(
        None,
        description="replication factor of the topics that the relay creates. By default they have "
        "as many copies as the source topic, and `relay topic create` makes that with three, or "
        "with as many as there are brokers",
        examples=[3],
    )


class SourceKafka(Brokers):
    """The source topic's cluster, where it is another one than [kafka]'s; else leave it empty."""

    bootstrap: str = Field(
        "",
        description="addresses of the source topic's brokers, if it is in another cluster than "
        "[kafka]. Rows then cross from that cluster to [kafka] exactly once: the journal in "
        "[kafka] holds the offset to continue from",
    )


class ClickHouse(Section):
    """How to reach ClickHouse over HTTP."""

    url: str = Field(
        description="address of the HTTP interface: http://host:8123 or https://host:8443, without "
        "a path or a query. "
        "Several addresses, as a list or separated by commas, are replicas of one shard: if one "
        "does not answer, the next is asked",
        examples=["http://localhost:8123"],
    )
    insert_quorum: Annotated[int, Field(ge=2)] | Literal["auto"] | None = Field(
        None,
        description="how many replicas must have an INSERT before it counts as done: a number, or "
        '"auto" for more than half. Queries then return only what that many replicas have. '
        "Required if url names several replicas",
        examples=["auto"],
    )
    user: str = Field("default", description="user that inserts rows and reads the tables' columns")
    password: SecretStr = Field(
        SecretStr(""), description="this user's password; better name a password_file"
    )
    password_file: Path | None = Field(
        None,
        description="file that holds nothing but the password; line breaks at its end do not count",
        examples=["/run/secrets/clickhouse"],
    )
    ca_file: Path | None = Field(
        None,
        description="file of CA certificates (PEM) that sign the https server's certificate, "
        "instead of those that come with the client",
        examples=["/run/secrets/ca.pem"],
    )
    certificate_file: Path | None = Field(
        None,
        description="file of the client certificate (PEM), if the server asks for one",
        examples=["/run/secrets/relay.pem"],
    )
    key_file: Path | None = Field(
        None,
        description="file of the client certificate's private key (PEM)",
        examples=["/run/secrets/relay.key"],
    )

    @field_validator("url", mode="before")
    @classmethod
    def _joined(cls, url: object) -> object:
        return ",".join(addresses(url)) if isinstance(url, list) and url else url

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        for address in addresses(url) or ("",):
            if not address.startswith(("http://", "https://")):
                # A user, a password or a query could stand around the address.
                shown = address.partition("?")[0].rpartition("@")[2]
                raise ValueError(f"must begin with http:// or https://, not {shown!r}")
        return url

    @property
    def urls(self) -> tuple[str, ...]:
        """Of the replicas, the first to be asked first."""
        return addresses(self.url)

    def secret(self) -> str:
        """Return the password; from the file where one is named, without its last line break."""
        if self.password_file is not None:
            return self.password_file.read_text(encoding="utf-8-sig").rstrip("\r\n")
        return self.password.get_secret_value()
