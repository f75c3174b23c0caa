"""A relay that lacks a right says which one and ends; with it granted, it goes on exactly once."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType

from loader.blocks.dead_letters import DeadLetterWriter
from loader.blocks.fetch import Fetcher
from loader.core import plan
from loader.journal import startup
from loader.journal.reader import Row
from loader.journal.source import JournalReader, Start
from relay import names
from relay.cli import cli
from relay.config import kafka_clients, settings_file
from relay.config.settings import Kafka, Settings
from relay.core.events import Failure
from relay.errors import Refused
from relay.kafka.errors import TransactionFailed
from relay.kafka.transactional_producer import TransactionalProducer
from relay.operate.doctor import grants
from relay.program.command import run_main
from relay.records_pb2 import Block, LeftOut
from tests.broker.authorized import PASSWORD, Authorized, Right, authorized, rights
from tests.broker.pipeline import WAIT_SECONDS, create_topics, row_batch, wait_until
from tests.broker.secured import printed_rights
from tests.broker.test_source_grows import grow, width

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    with authorized(tmp_path_factory.mktemp("authorized")) as made:
        yield made


@pytest.fixture(scope="module")
def bootstrap(server: Authorized) -> str:
    """Instead of the session's broker: `pipeline` and its judge are super users on this one."""
    return server.bootstrap


def client(password: str = PASSWORD) -> dict[str, str]:
    """kafka.client of the user."""
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "relay",
        "sasl.password": password,
    }


def config(pipeline: Pipeline, server: Authorized, password: str = PASSWORD) -> Path:
    """Of relays that come in as the user."""
    given = client(password)
    held = pipeline.directory / f"password-{len(list(pipeline.directory.glob('password-*')))}"
    held.write_text(given.pop("sasl.password"), encoding="utf-8")
    settings = "\n".join(f'"{key}" = "{value}"' for key, value in given.items())
    path = pipeline.config(
        f'[kafka.client]\n{settings}\n[kafka.client_files]\n"sasl.password" = "{held}"\n'
    )
    text = path.read_text(encoding="utf-8").replace(server.bootstrap, server.sasl)
    path.write_text(text, encoding="utf-8")
    return path


def send_bad(pipeline: Pipeline) -> None:
    """A message that can only become a dead letter."""
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, b"no table", 1, [])
    assert producer.flush(30) == 0


def send_until_rows_come(pipeline: Pipeline, table: str, numbers: range) -> None:
    """Send rows of the table one by one, until one of these or of higher numbers is in a block."""
    producer, left = Producer({"bootstrap.servers": pipeline.bootstrap}), iter(numbers)

    def arrived() -> bool:
        pipeline.produce(producer, row_batch([next(left)]), 0, [("table", table)])
        assert producer.flush(30) == 0
        return any(row >= numbers.start for row in pipeline.rows())

    pipeline.until(arrived, f"rows of {table}, which has a block topic now")


def refused(pipeline: Pipeline, process: subprocess.Popen[bytes], *named: str) -> None:
    """Ended by itself with status 5, one error and the next step, and tried nothing again."""
    wait_until(lambda: process.poll() is not None, "the end of the relay", 90)
    log = pipeline.log(process)
    assert process.returncode == 5, log
    said, _, step = log.rpartition("\n  next: ")
    assert step.startswith(("grant", "correct")), log
    for name in named:
        assert name in said.rpartition("\nrelay: ")[2] + step, log
    assert "Traceback" not in log
    assert "replacing the producer" not in log
    assert log.count("\n") < 40, log


def stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0


def test_the_listed_rights_are_enough(pipeline: Pipeline, server: Authorized) -> None:
    """To create topics, form blocks, write dead letters and start again; then without Create."""
    wanted = rights(pipeline.app)
    server.grant(wanted.values())
    pipeline.send(range(50))
    send_bad(pipeline)
    first = pipeline.start("a", config(pipeline, server))
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    stopped(first)

    server.revoke(wanted["create"])
    pipeline.send(range(50, 100), partition=1)
    second = pipeline.start("a", config(pipeline, server))
    pipeline.exactly_once()
    stopped(second)


def lettered(
    settings: Settings, block: Block
) -> plan.LettersFound | plan.Impossible | plan.NoAnswer:
    """What a loader is told that makes dead letters of the block's messages."""
    letters = DeadLetterWriter(settings)
    try:
        for answer in (letters.ready(block), letters.look(block, 0)):
            if isinstance(answer, plan.NoAnswer):
                return answer
        return letters.write(block, letters.producers)
    finally:
        letters.close()


def test_a_loader_makes_dead_letters_with_the_printed_rights(
    pipeline: Pipeline, server: Authorized
) -> None:
    """And with no fewer: each is missed by its name, and nothing is written."""
    path = config(pipeline, server)
    text = path.read_text("utf-8").replace("[loader]\n", '[loader]\nrejected = "dead"\n')
    path.write_text(text, "utf-8")
    settings, dead = settings_file.load(path), names.dead_topic(pipeline.app)
    (loader,) = [role for role in grants.roles(settings) if role.name == "loader"]
    kinds = {"topic": ResourceType.TOPIC, "transactional-id": ResourceType.TRANSACTIONAL_ID}
    printed = [
        Right(AclOperation[one.operation.upper()], kinds[one.kind], one.name, one.prefixed)
        for one in loader.kafka
    ]
    server.grant(printed)
    create_topics(server.admin, NewTopic(dead, 1, 1))
    pipeline.send([0])
    asked = server.admin.describe_topics(TopicCollection([pipeline.source]))
    block = Block(
        id=f"{pipeline.app}:{pipeline.table}:0:0:0{names.LEFT_OUT}",
        table=pipeline.table,
        source_topic=pipeline.source,
        source_topic_id=str(asked[pipeline.source].result(30).topic_id),
        left_out=[LeftOut(offset=0, rows=1, reason="no")],
    )
    done = lettered(settings, block)
    assert isinstance(done, plan.LettersFound), done
    for right in printed:
        if right.resource in {pipeline.source, dead, names.left_out_transactional_id(pipeline.app)}:
            server.revoke(right)
            answer = lettered(settings, block)
            assert isinstance(answer, plan.NoAnswer), (right, answer)
            assert right.resource in answer.reason, answer
            assert "grant" in answer.reason
            server.grant([right])
    assert len(pipeline.dead()) == 1


# Right that is missing, what the message names.
AT_START = {
    "transactional id": ("init_transactions of", ".relay.a", "needs Write"),
    "group": (".relay", "needs Read on the consumer group"),
    "source": (".source", "grant Read"),
    "read journal": (".journal", "may not Read", "grant Read and Write"),
    "write journal": (".journal", "may not Write", "grant Read and Write"),
    "dead letters": (".dead", "grant Write"),
    "read schemas": (".schemas", "may not Read", "grant Read and Write"),
    "write schemas": (".schemas", "may not Write", "grant Read and Write"),
    "blocks": (".blocks.", "grant Write"),
    "create": ("create topic", "grant Create"),
}


@pytest.mark.parametrize("missing", AT_START)
def test_a_relay_without_a_right_does_not_start(
    pipeline: Pipeline, server: Authorized, missing: str
) -> None:
    """Status 5, naming the right; no row, no dead letter, and no floor moved."""
    wanted = rights(pipeline.app)
    assert wanted.keys() == AT_START.keys()
    server.grant([right for name, right in wanted.items() if name != missing])
    pipeline.send(range(10))
    send_bad(pipeline)

    process = pipeline.start("a", config(pipeline, server))

    refused(pipeline, process, pipeline.app, *AT_START[missing])
    assert not pipeline.rows()
    assert not pipeline.dead()
    assert pipeline.floor(0) in {-1001, 0}
    pipeline.committed_is_journal_head()


def test_a_right_on_one_tables_topic(
    pipeline: Pipeline, server: Authorized, client: Client
) -> None:
    """Without it that table's messages are dead letters with the reason; with it, blocks again."""
    closed = f"{pipeline.database}.closed"
    client.command(f"CREATE TABLE {closed} AS {pipeline.table}")
    wanted = rights(pipeline.app)
    del wanted["blocks"]
    write, kind = AclOperation.WRITE, ResourceType.TOPIC
    one, other = (
        Right(write, kind, names.blocks_topic(pipeline.app, table))
        for table in (pipeline.table, closed)
    )
    server.grant([*wanted.values(), one])
    pipeline.send(range(10))
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    pipeline.produce(producer, row_batch([20]), 0, [("table", closed)])
    assert producer.flush(30) == 0
    path = config(pipeline, server)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[relay]", "[relay]\nschema_refresh_seconds = 1"), "utf-8")
    relay = pipeline.start("a", path)
    pipeline.exactly_once()
    pipeline.until(lambda: len(pipeline.dead()) == 1, "the dead letter")
    ((_, headers),) = pipeline.dead()
    assert headers["reason"].startswith(f"no block topic for {closed}: ")
    assert "next: grant Write on topic" in headers["reason"]

    server.grant([other])
    send_until_rows_come(pipeline, closed, range(21, 80))
    assert relay.poll() is None


def test_block_topics_need_not_grow_with_the_source(
    pipeline: Pipeline, server: Authorized, client: Client
) -> None:
    """Without the right to grow topics they are made as wide as the source is. One that a person
    made narrow will do, and so will all where the source grows."""
    app, narrow = pipeline.app, f"{pipeline.database}.narrow"
    client.command(f"CREATE TABLE {narrow} AS {pipeline.table}")
    made = NewTopic(names.blocks_topic(app, narrow), 1, 1)
    create_topics(server.admin, made)
    server.grant(rights(app).values())
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})
    relay = pipeline.start("a", config(pipeline, server))
    pipeline.send(range(10))
    last = pipeline.partitions - 1
    pipeline.produce(producer, row_batch([900]), last, [("table", narrow)])
    assert producer.flush(30) == 0
    pipeline.until(lambda: pipeline.rows() == pipeline.sent + Counter([900]), "rows before")
    assert width(pipeline, names.blocks_topic(app, pipeline.table)) == pipeline.partitions

    wide = pipeline.partitions + 1
    for topic in (names.journal_topic(app), names.dead_topic(app), pipeline.source):
        grow(pipeline, topic, wide)
    pipeline.send(range(100, 110), partition=wide - 1)
    producer = Producer({"bootstrap.servers": pipeline.bootstrap})  # it knows the new partition
    pipeline.produce(producer, row_batch([901]), wide - 1, [("table", narrow)])
    assert producer.flush(30) == 0
    pipeline.until(lambda: pipeline.rows() == pipeline.sent + Counter([900, 901]), "rows behind")
    assert pipeline.dead() == []
    assert relay.poll() is None, pipeline.log(relay)


def test_with_all_printed_rights_topics_grow(pipeline: Pipeline, server: Authorized) -> None:
    """Red before: block topics were as wide as the source, and a relay ended as that grew."""
    app, path = pipeline.app, config(pipeline, server)
    settings = settings_file.load(path)
    (role,) = [one for one in grants.roles(settings) if one.name == "relay"]
    server.grant(printed_rights(list(grants.as_text(settings, role))))
    relay = pipeline.start("a", path)
    pipeline.send(range(10))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")
    assert width(pipeline, names.blocks_topic(app, pipeline.table)) == 1

    wide = pipeline.partitions + 1
    grow(pipeline, pipeline.source, wide)
    pipeline.send(range(100, 110), partition=wide - 1)
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows behind")
    pipeline.until(
        lambda: (
            {width(pipeline, of(app)) for of in (names.journal_topic, names.dead_topic)} == {wide}
        ),
        "the growth of journal and dead letters",
    )
    assert relay.poll() is None, pipeline.log(relay)


# Right that is revoked while the relay runs, what the message names.
MEANWHILE = {
    "transactional id": ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "needs Write"),
    "group": (".relay", "GROUP_AUTHORIZATION_FAILED", "needs Read"),
    "source": (".source", "TOPIC_AUTHORIZATION_FAILED", "Read (source topic)"),
    "blocks": (".blocks.", "TOPIC_AUTHORIZATION_FAILED", "needs Write"),
}


@pytest.mark.parametrize(
    "taken",
    ["source", *(pytest.param(n, marks=pytest.mark.long) for n in MEANWHILE if n != "source")],
)
def test_a_right_revoked_while_it_runs(pipeline: Pipeline, server: Authorized, taken: str) -> None:
    """Status 5, naming it; after the grant a restart goes on where the relay was."""
    wanted = rights(pipeline.app)
    server.grant(wanted.values())
    process = pipeline.start("a", config(pipeline, server))
    pipeline.send(range(20))
    pipeline.exactly_once()

    revoked: Right = wanted[taken]
    server.revoke(revoked)
    pipeline.send(range(20, 40))
    refused(pipeline, process, *MEANWHILE[taken])
    assert pipeline.rows().keys() <= pipeline.sent.keys()
    assert max(pipeline.rows().values()) == 1

    server.grant([revoked])
    pipeline.start("a", config(pipeline, server))
    pipeline.send(range(40, 60), partition=1)
    pipeline.exactly_once()


def test_a_wrong_password(pipeline: Pipeline, server: Authorized) -> None:
    """Said at once, not taken for a broker that is away; and not what the password was."""
    server.grant(rights(pipeline.app).values())

    process = pipeline.start("a", config(pipeline, server, password="not this one"))

    refused(pipeline, process, "_AUTHENTICATION", "correct user, password")
    assert "not this one" not in pipeline.log(process)


@pytest.mark.parametrize(
    "command",
    [
        "schema ls --config",
        "schema proto shop.t --config",
        "verify",
        "verify --follow",
        "status",
        "blocks ls",
        "journal tail",
        "dead ls --config",
        "rewind --table shop.t --to-offset earliest",
        "retire --member a",
    ],
)
def test_a_wrong_password_is_told_by_every_command(
    pipeline: Pipeline, server: Authorized, command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Theirs are other clients than a relay's; they do not take it for brokers away."""
    file = str(config(pipeline, server, password="not this one"))

    assert run_main(cli, "relay", [*command.split(), file]) == Refused.exit_code

    said = capfd.readouterr().err
    assert "_AUTHENTICATION" in said
    assert "correct user, password or certificate in kafka.client" in said
    assert "not this one" not in said


def test_a_password_that_became_wrong_ends_the_waiting_for_a_producer(
    pipeline: Pipeline, server: Authorized
) -> None:
    """A producer that replaces another would otherwise wait for its brokers for ever."""
    kafka = Kafka(bootstrap=server.sasl, client=client("not this one"))
    producer_settings = {
        **kafka_clients.plain_producer(kafka),
        "transactional.id": f"{pipeline.app}.t",
    }
    producer = TransactionalProducer(producer_settings, 60.0, "group")

    with pytest.raises(TransactionFailed, match="wrong user, password") as failed:
        producer.replace()

    assert failed.value.kind is Failure.CREDENTIALS
    producer.close()


def loader_settings(pipeline: Pipeline, server: Authorized, password: str = PASSWORD) -> Settings:
    return settings_file.load(config(pipeline, server, password))


def journal_and_blocks(pipeline: Pipeline, *granted: AclOperation) -> list[Right]:
    """Rights on all topics whose names begin with the app's."""
    return [
        Right(operation, ResourceType.TOPIC, f"{pipeline.app}.", prefixed=True)
        for operation in granted
    ]


def test_the_loader_needs_only_read(pipeline: Pipeline, server: Authorized) -> None:
    """On journal and block topics; no right on any group."""
    pipeline.start("a")
    pipeline.send(range(10))
    pipeline.exactly_once()
    server.grant(journal_and_blocks(pipeline, AclOperation.READ))
    allowed = loader_settings(pipeline, server)

    journal = startup.topic_id(allowed, f"{pipeline.app}.journal")
    rows = read_journal(allowed, journal)
    blocks = [Block.FromString(block) for _, _, block in rows if block is not None]
    fetcher = Fetcher(allowed.kafka)
    assert sum(fetcher.fetch(block).num_rows for block in blocks) == 10
    fetcher.close()


def test_a_loader_that_may_not_read_says_so(pipeline: Pipeline, server: Authorized) -> None:
    """With Describe alone the topics are there: neither empty nor away, but refused."""
    pipeline.start("a")
    pipeline.send(range(10))
    pipeline.exactly_once()
    server.grant(journal_and_blocks(pipeline, AclOperation.DESCRIBE))
    lacking = loader_settings(pipeline, server)
    block = next(b for commits in pipeline.journal().values() for c in commits for b in c.blocks)

    with pytest.raises(Refused, match="may not Read"):
        startup.topic_id(lacking, f"{pipeline.app}.journal")
    with pytest.raises(Refused, match=f"{pipeline.app}.journal.*TOPIC_AUTHORIZATION_FAILED"):
        read_journal(lacking, "any")
    fetcher = Fetcher(lacking.kafka)
    with pytest.raises(Refused, match=f"{block.topic}.*TOPIC_AUTHORIZATION_FAILED"):
        fetcher.fetch(block)
    fetcher.close()


def test_a_loader_with_a_wrong_password_says_so(pipeline: Pipeline, server: Authorized) -> None:
    """By default it waits for brokers for ever; this is no broker that is away."""
    denied = loader_settings(pipeline, server, password="not this one")

    with pytest.raises(Refused, match="_AUTHENTICATION") as error:
        startup.topic_id(denied, f"{pipeline.app}.journal")

    assert error.value.next_step.startswith("correct user, password")


def read_journal(allowed: Settings, journal: str) -> list[Row]:
    """What is sealed now, as Spark's process reads it."""
    reader = JournalReader(Start(allowed, journal, {}))
    reader.prepareForTriggerAvailableNow()
    rows, _ = reader.read(reader.initialOffset())
    return list(rows)
