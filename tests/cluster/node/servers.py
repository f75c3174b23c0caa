"""Kafka with TLS, SCRAM and an authorizer, ClickHouse behind TLS: users with the printed rights."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relay.dev.layout import HOST
from tests.broker.secured import over_tls, printed_rights, secured, set_passwords
from tests.cluster.node.namespaces import NODE
from tests.versions.engines import ADMIN, running
from tests.versions.releases import NOW
from tests.versions.users import User

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from tests.broker.authorized import Authorized
    from tests.broker.secured import Certificates
    from tests.versions.engines import Engine

ROLES = ("relay", "loader", "verifier")
TABLE, SOURCE = "shop.orders", "rows-source"
KAFKA_PORT, CLICKHOUSE_PORT = 9093, 8443
"""Those that the NetworkPolicies let pods reach."""
RELAY = Path(sys.executable).parent / "relay"


@dataclass
class Site:
    """The servers, a table and a topic.

    Attributes:
        directory: of the configurations of whoever is not in a pod.
        kafka: the broker.
        certificates: of both servers' authority.
        https: of ClickHouse, as pods reach it.
        clickhouse: the server, which may be killed and started again.
        client: its administrator's.
        passwords: of ROLES, the same in Kafka and in ClickHouse.
    """

    directory: Path
    kafka: Authorized
    certificates: Certificates
    https: str
    clickhouse: Engine
    client: Client
    passwords: dict[str, str]

    def produce(self, first: int, rows: int) -> None:
        """Write rows of a CSV file into the topic."""
        lines = [f"{n},c{n % 9},{n % 100}.25" for n in range(first, first + rows)]
        file = self.directory / "orders.csv"
        file.write_text("\n".join(["id,customer,price", *lines, ""]), encoding="utf-8")
        self._relay("produce", "--table", TABLE, str(file))

    def counted(self) -> tuple[int, int]:
        """(rows, different rows) of the table."""
        rows, different = self.client.query(f"SELECT count(), uniqExact(id) FROM {TABLE}").first_row
        return int(rows), int(different)

    def change_in_kafka(self, role: str) -> str:
        """Give a role another password, and return it: connections that stand go on."""
        new = f"{role}-{secrets.token_hex(8)}"
        set_passwords(self.kafka, {role: new})
        return new

    def make(self) -> None:
        """The topic, the table, and in Kafka the rights of each role."""
        self._relay("topic", "create")
        self.client.command(f"CREATE DATABASE {TABLE.partition('.')[0]}")
        self.client.command(
            f"CREATE TABLE {TABLE} (id UInt64, customer String, price Decimal(9, 2), "
            "_block String) ENGINE = MergeTree ORDER BY id "
            "SETTINGS non_replicated_deduplication_window = 1000"
        )
        for role in self.passwords:
            self.kafka.grant(printed_rights(printed(self.directory, role)))

    def _relay(self, *words: str) -> str:
        """`relay` of an administrator, on loopback, where Kafka takes everybody for one."""
        return relay(self.directory, ADMIN.name, self.kafka.bootstrap, self.clickhouse.url, *words)


def printed(directory: Path, role: str) -> list[str]:
    """What the doctor prints of a role's rights; it asks no server for them."""
    nobody = f"{HOST}:1"
    words = ("doctor", "--grants", "--role", role, "--table", TABLE)
    return relay(directory, role, nobody, f"http://{nobody}", *words).splitlines()


def relay(directory: Path, user: str, kafka: str, clickhouse: str, *words: str) -> str:
    """What `relay` prints, with a configuration for this user."""
    password, config = directory / "password", directory / f"{user}.toml"
    password.write_text(ADMIN.password, encoding="utf-8")
    config.write_text(
        f'app = "rows"\n[kafka]\nbootstrap = "{kafka}"\n'
        f'[kafka.client]\n"sasl.username" = "{user}"\n[source]\ntopic = "{SOURCE}"\n'
        f'[clickhouse]\nurl = "{clickhouse}"\nuser = "{user}"\npassword_file = "{password}"\n'
        '[loader]\ncheckpoint = "c"\n',
        encoding="utf-8",
    )
    done = subprocess.run(
        [RELAY, *words, "--config", config],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def user_of(directory: Path, role: str, password: str) -> User:
    """ClickHouse's, with the printed statements."""
    lines = [line for line in printed(directory, role) if line.startswith("GRANT")]
    return User(role, password, tuple(line.partition(f" TO {role};")[0] for line in lines))


@contextlib.contextmanager
def running_site(directory: Path) -> Iterator[Site]:
    """All of it, as long as the body runs."""
    passwords = {role: f"{role}-{secrets.token_hex(8)}" for role in ROLES}
    parts = [directory / name for name in ("kafka", "clickhouse", "people")]
    for part in parts:
        part.mkdir(parents=True)
    kafka, clickhouse, people = parts
    users = [user_of(people, role, password) for role, password in passwords.items()]
    with (
        secured(kafka, passwords, at=NODE, port=KAFKA_PORT) as (server, made),
        running(NOW, clickhouse, users) as engine,
        over_tls(engine.url, made, NODE, CLICKHOUSE_PORT) as https,
        contextlib.closing(engine.client()) as client,
    ):
        site = Site(people, server, made, https, engine, client, passwords)
        site.make()
        yield site
