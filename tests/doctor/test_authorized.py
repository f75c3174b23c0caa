"""`relay doctor` as a user with few rights, on a broker that is set against the relay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from relay import names
from relay.config.settings import Settings
from relay.operate.doctor import examine, grants
from relay.operate.doctor.examine import ExaminationScope
from relay.operate.doctor.findings import exit_status
from relay.operate.doctor.judge.rights import DATA_PATH
from tests.broker.authorized import PASSWORD, Authorized, Right, authorized, rights
from tests.broker.pipeline import create_topics
from tests.broker.secured import printed_rights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relay.operate.doctor.findings import Finding

STRICT = """
transaction.max.timeout.ms=3000
offsets.retention.minutes=60
offset.metadata.max.bytes=50
group.min.session.timeout.ms=50000
auto.create.topics.enable=true
"""
SET_AGAINST = {
    "transaction-timeout",
    "offsets-retention",
    "offset-metadata",
    "session-timeout",
    "auto-create",
}
RIGHTS = {"right-topic", "right-group", "right-transactional-id", "right-create"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    directory = tmp_path_factory.mktemp("doctored")
    (directory / "broker-0.extra.properties").write_text(STRICT, encoding="utf-8")
    with authorized(directory) as made:
        yield made


def settings(app: str, bootstrap: str, password: str | None = None) -> Settings:
    """As the user, where there is a password; else as a super user."""
    client = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "relay",
        "sasl.password": password,
    }
    return Settings.model_validate(
        {
            "app": app,
            "kafka": {"bootstrap": bootstrap, "client": client if password else {}},
            "source": {"topic": f"{app}.source"},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "c"},
        }
    )


def examined(given: Settings, *roles: str, probe: bool = False) -> list[Finding]:
    """Findings about Kafka; of ClickHouse there is none here."""
    scope = ExaminationScope(72 * 3600.0, probe=probe, roles=roles or DATA_PATH)
    found = examine.examine(given, scope)
    assert exit_status(found) == 4
    return [finding for finding in found if finding.code != "clickhouse-away"]


def make_topics(server: Authorized, app: str) -> None:
    topics = [
        f"{app}.source",
        names.journal_topic(app),
        names.dead_topic(app),
        names.schemas_topic(app),
        names.blocks_topic(app, "a.b"),
    ]
    create_topics(server.admin, *(NewTopic(topic, 2, 1) for topic in topics))


def of(findings: list[Finding], *kinds: str) -> set[str]:
    return {finding.mend for finding in findings if finding.code in kinds}


@pytest.mark.long  # 11 s, on a broker of its own
def test_a_broker_set_against_the_relay(server: Authorized, app: str) -> None:
    """Each of its settings is named, with the value that is needed; and once."""
    found = examined(settings(app, server.bootstrap))
    codes = [finding.code for finding in found]
    assert set(codes) >= SET_AGAINST
    assert all(codes.count(code) == 1 for code in SET_AGAINST)
    assert "transactions-refused" not in codes
    what = {finding.code: finding.what for finding in found}
    assert "transaction.max.timeout.ms = 3000" in what["transaction-timeout"]
    assert not RIGHTS & set(codes)


def test_each_missing_right_is_named_with_what_grants_it(server: Authorized, app: str) -> None:
    """Without any; with Describe only; with all that a relay needs and to read settings."""
    make_topics(server, app)
    user = settings(app, server.sasl, PASSWORD)
    tool = f"kafka-acls --bootstrap-server {server.sasl} --add --allow-principal User:relay"
    prefixed = "--resource-pattern-type prefixed"

    found = examined(user)
    assert of(found, *RIGHTS) == {
        f"{tool} --operation Read --topic {app}.source",
        f"{tool} --operation Read --topic {app}. {prefixed}",
        f"{tool} --operation Write --topic {app}. {prefixed}",
        f"{tool} --operation Read --group {app}.relay",
        f"{tool} --operation Write --transactional-id {app}.relay. {prefixed}",
        f"{tool} --operation Create --topic {app}. {prefixed}",
    }
    assert f"{tool} --operation DescribeConfigs --cluster" in of(found, "unasked")

    topic = ResourceType.TOPIC
    server.grant([Right(AclOperation.DESCRIBE, topic, f"{app}.", prefixed=True)])
    found = examined(user)
    lacking = [f.what.partition(", and")[0] for f in found if f.code == "right-topic"]
    assert sorted(lacking) == sorted(
        [
            f"topic {app}.source: this user may not Read",
            f"topic {app}.journal: this user may not Read",
            f"topic {app}.journal: this user may not Write",
            f"topic {app}.dead: this user may not Write",
            f"topic {app}.schemas: this user may not Read",
            f"topic {app}.schemas: this user may not Write",
            f"topic {app}.blocks.a.b: this user may not Read",
            f"topic {app}.blocks.a.b: this user may not Write",
        ]
    )

    settings_right = AclOperation.DESCRIBE_CONFIGS
    server.grant(
        [
            *rights(app).values(),
            Right(AclOperation.READ, topic, f"{app}.", prefixed=True),
            Right(settings_right, topic, f"{app}.", prefixed=True),
            Right(settings_right, ResourceType.BROKER, "kafka-cluster"),
        ]
    )
    found = examined(user)
    assert of(found, *RIGHTS) == set()
    assert [f.what for f in found if f.code == "unasked"] == [
        "the brokers' clock: no request of Kafka's protocol returns it"
    ]


def test_with_the_printed_rights_the_settings_are_judged(server: Authorized, app: str) -> None:
    """Red before: each was a note that this user may not ask, and the status was 0."""
    make_topics(server, app)
    user = settings(app, server.sasl, PASSWORD)
    (role,) = [one for one in grants.roles(user) if one.name == "relay"]
    server.grant(printed_rights(list(grants.as_text(user, role))))
    found = examined(user, "relay")
    assert of(found, *RIGHTS) == set()
    assert {one.code for one in found} >= SET_AGAINST
    assert [one.what for one in found if one.code == "unasked"] == [
        "the brokers' clock: no request of Kafka's protocol returns it"
    ]


def test_a_wrong_password(server: Authorized, app: str) -> None:
    """Not a broker that is away; and not what the password was."""
    (found,) = examined(settings(app, server.sasl, "not this one"))
    assert found.code == "kafka-refused"
    assert "correct user, password" in found.mend
    assert "not this one" not in str(found)


def clock(found: list[Finding]) -> list[tuple[str, str]]:
    """What could not be asked about the brokers' clock, and how that is mended."""
    return [
        (finding.what, finding.mend)
        for finding in found
        if finding.code == "unasked" and ("clock" in finding.what or ".doctor" in finding.what)
    ]


def test_a_probe_that_is_not_allowed(server: Authorized, app: str) -> None:
    """To make its topic; to write to it and delete it; to make one that is there already."""
    user = settings(app, server.sasl, PASSWORD)
    ((what, mend),) = clock(examined(user, probe=True))
    assert what.startswith(f"the brokers' clock: create topic {app}.doctor: ")
    assert "TOPIC_AUTHORIZATION_FAILED" in what
    assert mend == ""

    topic = ResourceType.TOPIC
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE):
        server.grant([Right(operation, topic, f"{app}.", prefixed=True)])
    deletion = f"kafka-topics --bootstrap-server {server.sasl} --delete --topic {app}.doctor"
    told, left = clock(examined(user, probe=True))
    assert told[0].startswith(f"the brokers' clock: write to {app}.doctor: ")
    assert "AUTHORIZATION_FAILED" in told[0]
    assert left[0].startswith(f"deleting topic {app}.doctor: ")
    assert left[1] == deletion

    ((what, mend),) = clock(examined(user, probe=True))
    assert "TOPIC_ALREADY_EXISTS" in what
    assert mend == deletion
