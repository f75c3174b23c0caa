"""A broker that asks an authorizer, and the rights of its user `relay`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from relay.dev import broker, layout
from tests.broker.pipeline import wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

USER = "User:relay"
PASSWORD = "relay's own"

PROPERTIES = """
listeners=PLAINTEXT://{host}:{client},CONTROLLER://{host}:{controller},SASL://{host}:{sasl}
advertised.listeners=PLAINTEXT://{host}:{client},SASL://{host}:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
"""


@dataclass(frozen=True)
class Right:
    """One operation on one resource of an app, or on all that begin with its name."""

    operation: AclOperation
    kind: ResourceType
    resource: str
    prefixed: bool = False
    principal: str = USER

    def binding(self) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        allow = AclPermissionType.ALLOW
        return AclBinding(
            self.kind, self.resource, pattern, self.principal, "*", self.operation, allow
        )

    def filter(self) -> AclBindingFilter:
        made = self.binding()
        return AclBindingFilter(
            made.restype,
            made.name,
            made.resource_pattern_type,
            made.principal,
            made.host,
            made.operation,
            made.permission_type,
        )


def rights(app: str) -> dict[str, Right]:
    """Exactly what a relay needs, by name; with one less it ends."""
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    read, write, create = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
    transactional = ResourceType.TRANSACTIONAL_ID
    return {
        "transactional id": Right(write, transactional, f"{app}.relay.", prefixed=True),
        "group": Right(read, group, f"{app}.relay"),
        "source": Right(read, topic, f"{app}.source"),
        "read journal": Right(read, topic, f"{app}.journal"),
        "write journal": Right(write, topic, f"{app}.journal"),
        "dead letters": Right(write, topic, f"{app}.dead"),
        "read schemas": Right(read, topic, f"{app}.schemas"),
        "write schemas": Right(write, topic, f"{app}.schemas"),
        "blocks": Right(write, topic, f"{app}.blocks.", prefixed=True),
        "create": Right(create, topic, f"{app}.", prefixed=True),
    }


@dataclass(frozen=True)
class Authorized:
    """The broker.

    Attributes:
        bootstrap: where everyone is a super user.
        sasl: where only `relay` comes in, with PASSWORD, and may do what was granted.
        admin: a super user's.
    """

    bootstrap: str
    sasl: str
    admin: AdminClient

    def grant(self, granted: Collection[Right]) -> None:
        """Grant, and wait until the broker knows."""
        for future in self.admin.create_acls([right.binding() for right in granted]).values():
            future.result(30)
        wait_until(lambda: all(map(self._holds, granted)), "the grant")

    def revoke(self, right: Right) -> None:
        """Revoke, and wait until the broker knows."""
        for future in self.admin.delete_acls([right.filter()]).values():
            assert len(future.result(30)) == 1
        wait_until(lambda: not self._holds(right), "the revocation")

    def _holds(self, right: Right) -> bool:
        return bool(self.admin.describe_acls(right.filter()).result(30))


@contextlib.contextmanager
def authorized(
    directory: Path, properties: str = PROPERTIES, at: str = layout.HOST, port: int = 0
) -> Iterator[Authorized]:
    """The broker, as long as the body runs; of other properties where they are given.

    `at`, `port`: of the listener at which users come in; 0: a free one.
    """
    plan, _ = layout.decide(directory, 1, 0, 0)
    layout.write(directory, plan)
    # No ClickHouse is started here: its port is free for the second listener.
    sasl = port or plan.clickhouse_port
    properties = properties.format(
        host=layout.HOST,
        client=plan.kafka_ports[0],
        controller=plan.controller_ports[0],
        sasl=sasl,
        password=PASSWORD,
    )
    (directory / "extra.properties").write_text(properties, encoding="utf-8")
    try:
        broker.start(directory, 0)
        admin = AdminClient({"bootstrap.servers": plan.bootstrap})
        yield Authorized(plan.bootstrap, f"{at}:{sasl}", admin)
    finally:
        broker.stop(directory, 0)
