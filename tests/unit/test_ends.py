"""Every way in which `relay run` and `loader run` can end with a status other than 0, and whose
affair it is. The list is kept in step with the code: a new error, or a new place that makes one,
has to be judged here. What runs for real stands behind it: in tests/broker test_one_table_alone and
test_missing_rights, in tests/loader test_refused_tables and test_asides.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

from relay import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
BEGINS = (
    "relay.process.loop",
    "loader.spark.one_app",
    "loader.spark.job",
    "loader.spark.several_apps",
)
MAKES = {name for name, one in vars(errors).items() if isinstance(one, type)}

APP, SETTING, SERVER, PARTITION = "the app", "a setting", "a server", "a source partition"
CAUGHT = "one table; caught, and made a dead letter or a block that stands aside"
LETTERS = "one block's dead letters; caught, and the block is tried again"
TOPIC_DELETED = "a topic that somebody deleted under way, once; the next start goes on"
ONE_TABLE = "one table, and it still ends the program"
"""What an entry has to say until it is mended; the test below is red meanwhile."""

WAYS = {
    "relay.kafka.block_topics._learn Refused": CAUGHT,
    "relay.kafka.block_topics._see_journal Unavailable": SERVER,
    "relay.process.suitability.brake.error ConfigError": (
        "the app's first start, of a source without a good message"
    ),
    "relay.clickhouse.statement_settings.send_always Refused": SERVER,
    "relay.schema.catalogue.translated Refused": SERVER,
    "relay.schema.catalogue.translated ClickHouseAway": SERVER,
    "relay.core.step._fenced Fenced": APP,
    "relay.core.step._gave_up Unavailable": SERVER,
    "relay.core.step._failed WrongCredentials": APP,
    "relay.core.step._failed Refused": "the app: what is a table's or a record's was learned",
    "relay.core.takeover._first_start ConfigError": SETTING,
    "relay.core.takeover._rewinding Unavailable": PARTITION,
    "relay.core.takeover._stop ContractBroken": PARTITION,
    "relay.kafka.errors.refusal Refused": "the app's topics; a block topic's is caught",
    "relay.kafka.errors.refusal WrongCredentials": APP,
    "relay.kafka.errors.answered Unavailable": SERVER,
    "relay.kafka.errors.ended Fenced": APP,
    "relay.kafka.errors.ended Unavailable": SERVER,
    "relay.intake.fetch_assignment.seek Unavailable": SERVER,
    "relay.process.journal_heads._head ContractBroken": PARTITION,
    "relay.blocks.journal_record.no_record ContractBroken": PARTITION,
    "relay.config.kafka_clients.secret ConfigError": SETTING,
    "relay.schema.registry._end ContractBroken": APP,
    "relay.schema.registry._see_no_blocks ContractBroken": APP,
    "relay.kafka.topics._see_numbers ContractBroken": APP,
    "relay.schema.registry._read_on Unavailable": SERVER,
    "relay.schema.registry._take ContractBroken": APP,
    "relay.schema.registry._translated Refused": APP,
    "relay.schema.registry._translated Unavailable": SERVER,
    "relay.schema.registry._append Unavailable": SERVER,
    "relay.schema.registry._current_after ContractBroken": APP,
    "relay.intake.sample._bounds Refused": SETTING,
    "relay.kafka.partition_reader.begin_once_stable Unavailable": SERVER,
    "relay.kafka.partition_reader.records Unavailable": SERVER,
    "relay.kafka.group_offsets._lost_ends Unavailable": SERVER,
    "relay.program.command._unforeseen ConfigError": "a path that a person has to mend",
    "relay.program.command._unwritten ConfigError": "the output, to which a run prints nothing",
    "relay.program.serving.__init__ ConfigError": SETTING,
    "relay.program.serving.parsed ConfigError": SETTING,
    "relay.kafka.group_offsets.read Unavailable": SERVER,
    "relay.intake.source._as_error Fenced": APP,
    "relay.intake.membership.session_refused Refused": SETTING,
    "relay.intake.source._look_at ContractBroken": PARTITION,
    "relay.kafka.admin.until_listed Unavailable": SERVER,
    "relay.kafka.topics._fitted ConfigError": "the app's topics; a block topic's is caught",
    "relay.kafka.admin.describe Refused": "the app's topics; a block topic's is caught",
    "relay.kafka.topics.source Refused": SETTING,
    "relay.kafka.topics._deleted Refused": TOPIC_DELETED,
    "relay.kafka.topics._narrow Refused": "the app's topics; a block topic's is caught",
    "relay.kafka.topics._narrow Unavailable": SERVER,
    "relay.kafka.connection_errors.name_unresolved_brokers Unavailable": SERVER,
    "relay.kafka.errors.timeout_refused Refused": SETTING,
    "relay.process.truth._check_beginning ContractBroken": PARTITION,
    "relay.process.truth._check_source ConfigError": SETTING,
    "relay.core.takeover._other_topic ConfigError": SETTING,
    "relay.process.truth._committed ContractBroken": PARTITION,
    "relay.process.truth._committed Unavailable": SERVER,
    "relay.process.truth._from Unavailable": SERVER,
    "relay.process.truth._journal_id Unavailable": SERVER,
    "relay.program.command.get_command MissingTool": SETTING,
    "relay.program.java.find MissingTool": SETTING,
    "relay.program.java.require MissingTool": SETTING,
    "loader.journal.checkpoint.alone ConfigError": SETTING,
    "loader.journal.checkpoint.unread ConfigError": SETTING,
    "loader.journal.checkpoint.unread Unavailable": SERVER,
    "loader.journal.checkpoint.used Fenced": "a second process with its checkpoint",
    "loader.journal.startup.ledger_of ConfigError": SETTING,
    "loader.journal.startup.topic_id Unavailable": SERVER,
    "loader.journal.begin_plan._checkpoint ContractBroken": APP,
    "loader.journal.begin_plan._lost ContractBroken": APP,
    "loader.journal.begin_plan.check_column ContractBroken": APP,
    "loader.journal.begin_plan.check_journal ContractBroken": APP,
    "loader.journal.begin_plan.check_rewinds ContractBroken": APP,
    "loader.journal.begin_plan.deleted_unread ContractBroken": APP,
    "loader.journal.begin_plan.lost_end ContractBroken": APP,
    "loader.journal.checkpoint.set_aside Refused": SETTING,
    "loader.clickhouse.client.connect ConfigError": SETTING,
    "loader.clickhouse.client.failure Refused": SERVER,
    "loader.clickhouse.client.failure Unavailable": SERVER,
    "loader.blocks.dead_letters._write Unavailable": LETTERS,
    "loader.blocks.fetch._explain Unavailable": SERVER,
    "loader.blocks.fetch._read Unavailable": SERVER,
    "loader.journal.reader._poll_open Unavailable": SERVER,
    "loader.journal.reader.partitions Unavailable": SERVER,
    "loader.journal.source._first ContractBroken": PARTITION,
    "loader.journal.source._positions ContractBroken": APP,
    "loader.spark.known_blocks.check Unavailable": APP,
    "loader.clickhouse.ledger._failure Refused": APP,
    "loader.clickhouse.ledger._write_again Unavailable": SERVER,
    "loader.clickhouse.ledger.check_seen Refused": APP,
    "loader.clickhouse.ledger_table.add_columns ContractBroken": APP,
    "loader.clickhouse.ledger_table.check_clock ContractBroken": APP,
    "loader.clickhouse.ledger_table.check_engine ContractBroken": APP,
    "loader.spark.one_app._from_spark Unavailable": SERVER,
    "loader.clickhouse.servers.several Refused": SETTING,
    "loader.spark.query_start.run_again Unavailable": "the machine, if a setting ends the wait",
    "loader.spark.session.started MissingTool": SETTING,
    "loader.spark.micro_batch._is_done Refused": "a task was refused: as its places here say",
    "loader.spark.micro_batch._wait Unavailable": SERVER,
    "loader.blocks.transform._source Refused": SETTING,
    "loader.blocks.transform.check ConfigError": SETTING,
    "loader.blocks.transform.load Refused": SETTING,
    "loader.clickhouse.dedup_trial.check ContractBroken": SERVER,
}
"""Module, function and error: whose affair it is."""


def file_of(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def reached() -> dict[str, ast.Module]:
    """The modules that a run may import, by name."""
    found: dict[str, ast.Module] = {}
    left = list(BEGINS)
    while left:
        module = left.pop()
        if module in found or not file_of(module).exists():
            continue
        found[module] = ast.parse(file_of(module).read_text(encoding="utf-8"))
        for node in ast.walk(found[module]):
            if isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return found


def made(module: str, tree: ast.Module) -> Iterator[str]:
    """The errors that its functions make."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                called = node.func if isinstance(node, ast.Call) else None
                if getattr(called, "attr", "") == "printed":  # as Refused.printed(text)
                    called = getattr(called, "value", None)
                name = getattr(called, "id", getattr(called, "attr", ""))
                if name in MAKES:
                    yield f"{module}.{function.name} {name}"


def test_every_place_that_ends_a_run_is_judged() -> None:
    found = {one for module, tree in reached().items() for one in made(module, tree)}
    assert found == WAYS.keys()


def test_none_is_one_tables_or_one_messages_affair() -> None:
    assert [way for way, whose in WAYS.items() if whose == ONE_TABLE] == []


def test_every_status_has_an_error() -> None:
    statuses = {one.exit_code for one in errors.RelayError.__subclasses__()}
    assert statuses == {1, 2, 3, 4, 5, 6, 7}
