"""What judges pass over, and how they tell cases apart; beside tests/doctor/cases.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loader.blocks import insert_statement
from loader.core.table_rules import nature
from relay.clickhouse.quoting import quoted, readable_name
from relay.clickhouse.table_engine import TableEngine
from relay.config.settings import Kafka
from relay.errors import Unavailable
from relay.operate.doctor import examine
from relay.operate.doctor.ask import deduplication
from relay.operate.doctor.ask.group import GroupQuestions
from relay.operate.doctor.facts import (
    ClockOffset,
    KafkaFacts,
    Replica,
    Setting,
    TargetFacts,
    Topic,
    Trial,
)
from relay.operate.doctor.fixes import grant, principal, set_topic, span
from relay.operate.doctor.judge import rights
from relay.operate.doctor.judge.clickhouse import INSERTED_WITH
from relay.operate.doctor.judge.deduplication import window
from relay.operate.doctor.judge.ledger import judge_absence, judge_unmade
from relay.records_pb2 import Block
from tests.doctor.cases import (
    JOURNAL,
    NO_COLUMN,
    NO_WINDOW,
    QUORUM,
    REPLICATED,
    TWO,
    no_ledger,
    view,
)
from tests.doctor.healthy import (
    BLOCKS,
    BROKER,
    OUTAGE,
    clickhouse,
    codes,
    kafka,
    of_clickhouse,
    of_kafka,
    settings,
    table,
    topics,
)

WINDOW = "non_replicated_deduplication_window = 10000"
DEFAULTS = {
    "merge_tree_settings": {"non_replicated_deduplication_window": "5"},
    "replicated_merge_tree_settings": {
        "replicated_deduplication_window": "6",
        "replicated_deduplication_window_seconds": "7",
    },
}


def test_what_could_not_be_asked_is_no_reason_for_other_findings() -> None:
    """No settings, no rights, no clock: nothing is made up."""
    blind = {name: replace(t, settings=None, granted=None) for name, t in topics().items()}
    nothing = kafka(
        brokers={1: None, 2: None, 3: None},
        topics=blind,
        apis=None,
        group_granted=None,
        transactions=None,
        creation=None,
        heads={},
        clock=None,
    )
    assert of_kafka(nothing) == []
    dark = clickhouse(table(partitions=None), settings={}, clock=None, ledger=None)
    assert of_clickhouse(dark) == []
    assert of_kafka(replace(nothing, topics={n: t for n, t in blind.items() if n != "rows"})) == []


def test_a_topic_that_may_not_be_looked_at_is_a_missing_right_only() -> None:
    """Negative control: its zero partitions and replicas are no findings of their own."""
    hidden = {**topics(), "rows": Topic(0, 0, 0, None, frozenset())}
    assert codes(of_kafka(kafka(topics=hidden))) == {"right-topic"}


def test_each_role_is_judged_by_its_own_rights_in_kafka() -> None:
    """What only others need is no finding; without a role the user has the data path's two."""
    app, read = settings(), frozenset({"READ", "DESCRIBE"})
    refused = Trial("TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
    granted = {
        "loader": {"app.journal": read, BLOCKS: read},
        "verifier": dict.fromkeys(topics(), read),
    }
    for role, rights_of in granted.items():
        seen = kafka(
            topics={
                name: replace(one, granted=rights_of.get(name, frozenset()))
                for name, one in topics().items()
            },
            group_granted=frozenset({"DESCRIBE"} if role == "verifier" else ()),
            transactions=refused,
            creation=Trial("TOPIC_AUTHORIZATION_FAILED"),
        )
        assert list(rights.judge_kafka(app, seen, [role])) == []
        assert {one.code for one in rights.judge_kafka(app, seen)} == {
            *("right-topic", "right-group", "right-transactional-id", "right-create")
        }
    nothing = kafka(
        topics={name: replace(one, granted=frozenset()) for name, one in topics().items()},
        group_granted=frozenset(),
    )
    lacking = {role: codes(list(rights.judge_kafka(app, nothing, [role]))) for role in rights.ROLES}
    assert lacking["loader"] == {"right-topic"}
    assert lacking["verifier"] == {"right-topic", "right-group"}


def test_before_the_first_start_only_the_source_is_there() -> None:
    assert of_kafka(kafka(topics={"rows": topics()["rows"]}, heads={})) == []


def test_brokers_that_are_alike_are_named_together() -> None:
    """And one that differs, by itself."""
    short = {**BROKER, "offsets.retention.minutes": "60"}
    found = of_kafka(kafka(brokers={1: short, 2: BROKER, 3: short}))
    assert [f.what.partition(":")[0] for f in found] == ["broker 1, 3"]


def test_a_transaction_that_is_too_long_is_told_once() -> None:
    """By the brokers' setting where that could be asked, else by the trial."""
    refused = Trial("INVALID_TRANSACTION_TIMEOUT", "too long")
    short = {1: {**BROKER, "transaction.max.timeout.ms": "1000"}}
    alone = settings(kafka={"replication": 1})
    told = of_kafka(kafka(brokers=short, transactions=refused), alone)
    assert codes(told) == {"transaction-timeout", "replication-low"}
    told = of_kafka(kafka(brokers={1: None}, transactions=refused), alone)
    assert codes(told) == {"transactions-refused", "replication-low"}


def test_clocks_differ_beyond_what_measuring_may_be_off() -> None:
    assert of_kafka(kafka(clock=ClockOffset(-9.0, 4.5))) == []
    assert codes(of_kafka(kafka(clock=ClockOffset(-9.0, 3.5)))) == {"broker-clock"}
    assert codes(of_kafka(kafka(clock=ClockOffset(-3700.0, 3.5)))) == {"broker-clock"}


def test_a_journal_that_is_gone_is_told_of() -> None:
    head = replace(kafka().heads[0], journal_start=None)
    (found,) = of_kafka(kafka(heads={0: head}))
    assert found.code == "journal-passed"
    assert "app.journal[0] does not exist" in found.what


def test_retention_is_held_against_the_outage_that_was_named() -> None:
    assert "offsets-retention" in codes(examine.judge_kafka(settings(), kafka(), 8 * 86_400.0))
    assert "offsets-retention" not in codes(examine.judge_kafka(settings(), kafka(), OUTAGE))


@pytest.mark.parametrize(
    ("engine", "full", "kept"),
    [
        ("MergeTree", NO_WINDOW, ("non_replicated_deduplication_window", 5, None)),
        (
            "MergeTree",
            f"{NO_WINDOW} SETTINGS a_b = 8192, non_replicated_deduplication_window = 9, c = 'd'",
            ("non_replicated_deduplication_window", 9, None),
        ),
        ("ReplicatedMergeTree", "x", ("replicated_deduplication_window", 6, 7)),
        (
            "SharedReplacingMergeTree",
            "x SETTINGS replicated_deduplication_window_seconds = 0",
            ("replicated_deduplication_window", 6, 0),
        ),
        ("Distributed", "Distributed(c, d, t)", None),
        ("Null", "Null", None),
    ],
)
def test_windows_as_the_doctor_and_the_loader_see_them(
    engine: str, full: str, kept: tuple[str, int, int | None] | None
) -> None:
    found = window(table(engine=engine, engine_full=full), DEFAULTS)
    assert found == kept
    defaults = {name: int(value) for of in DEFAULTS.values() for name, value in of.items()}
    loaders = nature(engine, full, defaults).window
    assert loaders.parts == (kept[1] if kept else 0)
    assert loaders.seconds == (kept[2] if kept else None)
    vanish = nature(engine, full, defaults).vanish
    assert TableEngine(engine).merges_rows == (kept is not None and vanish != "")


def test_settings_of_the_loaders_insert_are_those_that_are_checked() -> None:
    used = insert_statement.settings([Block(id="b")], "claim", 1, 1)
    assert {name: str(used[name]) for name in INSERTED_WITH} == INSERTED_WITH


def test_a_fixed_setting_of_the_right_value_is_fine() -> None:
    facts = clickhouse()
    fixed = {**facts.settings, "async_insert": Setting("0", fixed=True)}
    assert of_clickhouse(replace(facts, settings=fixed)) == []


def test_a_readonly_user_cannot_insert() -> None:
    facts = clickhouse()
    told = of_clickhouse(replace(facts, settings={**facts.settings, "readonly": Setting("1")}))
    assert [f.what for f in told] == ["readonly = 1, but user loader may not change it"]


def test_a_window_that_ends_by_time_is_held_against_the_outage() -> None:
    """Where a block's rows can be counted, none has to last: that decides later on."""
    seconds = (
        "ReplicatedMergeTree ORDER BY id SETTINGS replicated_deduplication_window_seconds = 3600"
    )
    one = {**REPLICATED, "engine_full": seconds, "replica": Replica(False, 1, 1)}
    facts = clickhouse(table(**one, columns=NO_COLUMN), ledger=table(**REPLICATED))
    assert codes(of_clickhouse(facts)) == {"window-short", "block-column-missing"}
    assert of_clickhouse(clickhouse(table(**one), ledger=table(**REPLICATED))) == []
    behind = {**one, "views": (view(),)}
    facts = clickhouse(table(**behind), ledger=table(**REPLICATED))
    assert codes(of_clickhouse(facts)) == {"window-short"}


@pytest.mark.parametrize("does", ["TO DISK 'cold'", "TO VOLUME 'v'", "RECOMPRESS CODEC(ZSTD(9))"])
def test_rows_that_only_move_do_not_expire(does: str) -> None:
    """Negative control of the finding about TTL: such rows can still be counted."""
    full = f"{NO_WINDOW} TTL d + toIntervalYear(1) {does} SETTINGS {WINDOW}"
    assert of_clickhouse(clickhouse(table(engine_full=full))) == []


def test_a_view_that_does_not_vary() -> None:
    """Negative control: names in texts, quoted columns and longer names are no functions."""
    select = "SELECT 'now()', `now`, knowing(id), \"rand()\", nowhere(1) FROM shop.orders"
    assert of_clickhouse(clickhouse(table(views=(view(select),)))) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(604_800, "7 d"), (5400, "1.5 h"), (90, "1.5 min"), (0.25, "0.25 s"), (-7200, "-2 h")],
)
def test_times_as_people_read_them(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_commands_are_what_a_shell_takes() -> None:
    """Names that a shell would read otherwise are quoted."""
    plain = Kafka(bootstrap="b:1")
    assert set_topic(plain, "t", retention_ms=-1) == (
        "kafka-configs --bootstrap-server b:1 --alter --entity-type topics --entity-name t "
        "--add-config retention.ms=-1"
    )
    assert grant(plain, "DescribeConfigs", "cluster", "") == (
        "kafka-acls --bootstrap-server b:1 --add --allow-principal User:ANONYMOUS "
        "--operation DescribeConfigs --cluster"
    )
    named = Kafka(bootstrap="b:1", client={"sasl.username": "the relay"})
    assert "--allow-principal 'User:the relay' " in grant(named, "Read", "topic", "t")
    secure = Kafka(bootstrap="b:1", client={"security.protocol": "ssl"})
    assert principal(secure) == "User:<this client's>"


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ({"columns": NO_COLUMN}, "no column _block"),
        ({"columns": {**NO_COLUMN, "_block": ("String", "ALIAS")}}, "_block is ALIAS"),
        ({"engine": "SummingMergeTree"}, "SummingMergeTree merges rows away"),
        (
            {
                "engine_full": "MergeTree ORDER BY id TTL d SETTINGS "
                "non_replicated_deduplication_window = 10000"
            },
            "TTL d deletes them",
        ),
        ({"views": (view(),)}, "it says nothing about the table behind view shop.v"),
        ({"policies": ("p ON shop.orders",)}, "p ON shop.orders hides them"),
    ],
)
def test_it_is_said_why_a_count_proves_nothing(spoilt: dict[str, Any], why: str) -> None:
    findings = of_clickhouse(clickhouse(table(**spoilt)), decided=True)
    (said,) = [one for one in findings if one.code == "decided-by"]
    assert said.what.endswith(f"a count proves nothing: {why}")
    assert "inside the window of 10,000 parts" in said.what


@pytest.mark.parametrize(
    "type_",
    [
        "LowCardinality(String)",
        "Nullable(String)",
        "LowCardinality(Nullable(String))",
        "SimpleAggregateFunction(anyLast, String)",
        "FixedString(200)",
    ],
)
def test_the_loader_writes_its_ids_into_whatever_holds_them(type_: str) -> None:
    assert of_clickhouse(clickhouse(stamped_as(type_))) == []


@pytest.mark.parametrize("type_", ["UUID", "FixedString(40)", "Array(String)", "Nullable(UInt64)"])
def test_what_does_not_hold_an_id_is_named(type_: str) -> None:
    """Negative control of the above; 40 bytes are too few sooner or later."""
    assert codes(of_clickhouse(clickhouse(stamped_as(type_)))) == {"block-column-type"}


@pytest.mark.parametrize(
    ("type_", "default", "mend"),
    [
        ("String", "MATERIALIZED", "MODIFY COLUMN _block REMOVE MATERIALIZED"),
        ("Nullable(String)", "ALIAS", "MODIFY COLUMN _block REMOVE ALIAS"),
        ("String", "EPHEMERAL", "DROP COLUMN _block, ADD COLUMN _block String"),
        ("UInt64", "MATERIALIZED", "DROP COLUMN _block, ADD COLUMN _block String"),
    ],
)
def test_a_computed_column_is_as_good_as_none(type_: str, default: str, mend: str) -> None:
    """A MODIFY of the type alone would leave it computed: the finding came back for ever."""
    given = stamped_as(type_, default, engine_full=NO_WINDOW)
    computed, window_zero = of_clickhouse(clickhouse(given))
    assert (computed.code, window_zero.code) == ("block-column-computed", "window-zero")
    assert computed.mend.startswith(f"ALTER TABLE shop.orders {mend}")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"q": ("QBit(Float32, 8)", "")}, "column q of shop.orders: type QBit(Float32, 8) is"),
        (
            {"id": ("Int64", "MATERIALIZED")},
            "table shop.orders has no column that rows could fill",
        ),
        ({"wait": ("IntervalSecond", "")}, "column wait of shop.orders: type IntervalSecond is"),
    ],
)
def test_a_table_whose_every_message_is_a_dead_letter(more: dict[str, Any], problem: str) -> None:
    """Without a message of it to look at, as --sample does."""
    (told,) = of_clickhouse(clickhouse(table(columns={**table().columns, **more})))
    assert told.code == "columns-unsupported"
    assert told.what.startswith(problem)


def test_what_rows_do_not_carry_may_be_of_any_type() -> None:
    """Nor is anything said where the columns could not be asked."""
    computed = {**table().columns, "n": ("AggregateFunction(uniq, UInt64)", "MATERIALIZED")}
    assert of_clickhouse(clickhouse(table(columns=computed))) == []
    assert "columns-unsupported" not in codes(of_clickhouse(clickhouse(table(columns={}))))


def stamped_as(type_: str, default: str = "", **changed: Any) -> TargetFacts:
    return table(columns={**NO_COLUMN, "_block": (type_, default)}, **changed)


def test_without_a_window_no_token_is_said_to_decide() -> None:
    findings = of_clickhouse(clickhouse(table(engine_full=NO_WINDOW)), decided=True)
    (said,) = [one for one in findings if one.code == "decided-by"]
    assert "token" not in said.what
    assert said.what.endswith("; then a count that finds none of its rows")
    assert "then a count that finds all its rows by _block, then the server's logs" in said.what


def test_what_an_old_server_lacks_is_no_reason_where_its_version_is_unknown() -> None:
    """Negative control of `version-untested`."""
    for version in ("", "25.8.2.1", "26.10.1.1", "27.1"):
        assert of_clickhouse(clickhouse(version=version)) == []


def test_the_doctor_tries_each_kind_of_engine_with_the_smallest_window() -> None:
    """A window of 0 is a finding of its own, and would double what is tried."""
    defaults = clickhouse().windows
    plain = "MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = "
    tables = [
        table(),
        table(engine_full=f"{plain}7"),
        table(engine="ReplacingMergeTree", engine_full=f"{plain}0"),
        table(**REPLICATED),
        table(engine="Distributed", engine_full="Distributed"),
        None,
    ]
    assert list(deduplication.engines(tables, defaults)) == [
        ("MergeTree", "non_replicated_deduplication_window = 7"),
        ("ReplicatedMergeTree('{path}', 'doctor')", "replicated_deduplication_window = 10000"),
    ]
    only_zero = [table(engine_full=f"{plain}0")]
    assert list(deduplication.engines(only_zero, defaults)) == list(
        deduplication.engines([], defaults)
    )


@pytest.mark.parametrize(("of_source", "brokers"), [(1, 3), (2, 3), (2, 1), (3, 3), (3, 2)])
def test_copies_are_judged_by_the_source_where_nothing_is_configured(
    of_source: int, brokers: int
) -> None:
    source = replace(topics()["rows"], replicas=of_source, in_sync=of_source)
    facts = kafka(
        topics={**topics(), "rows": source},
        brokers=dict.fromkeys(range(1, brokers + 1), BROKER),
    )
    said = {one.code: one for one in of_kafka(facts, settings(kafka={"replication": None}))}
    low, impossible = said.get("replication-low"), said.get("replication-impossible")
    assert (low is not None) == (of_source < 3 and of_source <= brokers)
    assert (impossible is not None) == (of_source > brokers)
    for one in filter(None, (low, impossible)):
        assert "as the source topic has" in one.what


def test_one_broker_is_not_asked_for_three_copies() -> None:
    """What cannot be done there is not named as what mends it."""
    alone = kafka(brokers={1: {**BROKER, "offsets.topic.replication.factor": "1"}})
    spoilt = {name: replace(there, replicas=1, in_sync=1) for name, there in topics().items()}
    findings = of_kafka(replace(alone, topics=spoilt), settings(kafka={"replication": 1}))
    low = [one for one in findings if one.code.endswith("replication") or "-low" in one.code]
    assert {one.code for one in low} == {
        "replication-low",
        "state-replication",
        "topic-replication",
    }
    assert {one.mend.partition(":")[0] for one in low} == {"for development leave it"}
    of_three = replace(alone, brokers=dict.fromkeys((1, 2, 3), BROKER), topics=spoilt)
    (mends,) = {
        one.mend.partition(" ")[0] for one in of_kafka(of_three) if one.code == "topic-replication"
    }
    assert mends == "kafka-reassign-partitions"


def test_a_ledger_that_is_elsewhere_or_whose_journal_was_cut_was_lost() -> None:
    """Each says what tells it, and what to do about it."""
    (other,) = no_ledger("", "", elsewhere=("relay_old",)).findings()
    assert other.code == "ledger-lost"
    assert "relay_old.ledger has entries of app app" in other.what
    assert other.mend.startswith('set loader.database = "relay_old" if that is it; else ')
    (cut,) = no_ledger("", "", journal={0: (5, 9)}).findings()
    assert cut.code == "ledger-lost"
    assert "begins at offset 5: the ledger was lost, or no loader loaded" in cut.what


def test_on_replicas_people_make_the_ledger_and_may_have_lost_it() -> None:
    """Behind one address they are known by their answers; with blocks both are said."""
    behind = clickhouse(ledger=None, elsewhere=(), servers=("r1 on a", "r2 on b"))
    (unmade,) = judge_unmade(settings(clickhouse=QUORUM), behind)
    assert unmade.code == "ledger-unmade"
    (missing,) = judge_absence(settings(), kafka(journal=JOURNAL), behind, {})
    assert missing.code == "ledger-missing"
    assert missing.mend.startswith(unmade.mend)
    assert "--ledger-lost" in missing.mend
    assert list(judge_unmade(settings(), clickhouse(ledger=None, elsewhere=()))) == []
    assert list(judge_unmade(settings(clickhouse=TWO), clickhouse())) == []


@pytest.mark.parametrize(
    ("there", "seen"),
    [
        (kafka(journal={}), {}),
        (kafka(journal={0: (0, 0)}), {}),
        (kafka(journal=JOURNAL, topics={"rows": topics()["rows"]}), {}),
        (kafka(journal=JOURNAL), {"ledger": table()}),
        (kafka(journal=JOURNAL), {"elsewhere": None}),
    ],
    ids=["not asked", "no record", "no block", "a ledger", "a user who may not see it"],
)
def test_no_ledger_is_missed_where_none_has_to_be(there: KafkaFacts, seen: dict[str, Any]) -> None:
    facts = clickhouse(**{"ledger": None, "elsewhere": (), **seen})
    assert list(judge_absence(settings(), there, facts, {0: 7})) == []


def test_a_coordinator_that_starts_is_no_broker_that_is_away() -> None:
    """What others have answered counts; the question about the group is told as unanswered."""
    asked: list[tuple[str, object, str]] = []

    class Silent:
        """Answers nothing."""

        def answer(self, what: str, _: object) -> object:
            raise Unavailable(f"{what}: timed out")

        def cannot(self, what: str, reason: object, mend: str = "") -> None:
            asked.append((what, reason, mend))

    silent: Any = Silent()
    questions = GroupQuestions(settings(), silent, silent)
    assert questions.group_granted() is None
    assert questions.heads(topics(), ()) == {}
    assert [what for what, _, _ in asked] == [
        "rights on group app.relay",
        "where group app.relay stands",
    ]
    assert all("coordinator" in mend for _, _, mend in asked)


@pytest.mark.parametrize("column", ["block-id", "block id", "a`b", "null"])
def test_statements_quote_the_block_column_where_it_needs_quotes(column: str) -> None:
    """Red before: MODIFY COLUMN block-id REMOVE TTL is no statement."""
    given, shown = settings(loader={"block_column": column}), quoted(column)
    index = readable_name(f"{column}_index")
    create = f"CREATE TABLE shop.orders ({shown} String TTL day, `id` Int64) ENGINE = MergeTree"
    mended = {
        f"ALTER TABLE shop.orders ADD COLUMN {shown} String, ADD INDEX {index} {shown} "
        "TYPE bloom_filter GRANULARITY 1": table(),
        f"ALTER TABLE shop.orders MODIFY COLUMN {shown} String": table(
            columns={column: ("UInt64", "")}
        ),
        f"ALTER TABLE shop.orders MODIFY COLUMN {shown} REMOVE TTL": table(
            columns={column: ("String", "")}, create=create
        ),
    }
    for mend, one in mended.items():
        assert mend in {found.mend for found in of_clickhouse(clickhouse(one), given)}
