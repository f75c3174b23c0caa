"""What follows from a table's definition and from recorded statements; pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from relay.clickhouse.removing_statements import STOPPED_WAITING, removed_by, target
from relay.clickhouse.table_keys import TableKeys
from relay.operate.verify.judge.table_facts import Removal, TableFacts, removal
from relay.operate.verify.read.table_facts import TableAsking


@pytest.mark.parametrize(
    ("facts", "hides"),
    [
        (TableFacts("MergeTree", "MergeTree ORDER BY id"), ""),
        (TableFacts("ReplicatedMergeTree", "…"), ""),
        (TableFacts("SharedSummingMergeTree", "…"), "merges rows"),
        (TableFacts("Memory", "Memory"), "does not keep every row"),
        (TableFacts("MergeTree", "MergeTree", filtered=True), "row policy"),
        (TableFacts("MergeTree", create="CREATE TABLE d.t (`_block` String TTL d + 1)"), "column"),
        (TableFacts("MergeTree", create="CREATE TABLE d.t (`_block` String) ENGINE = M TTL d"), ""),
    ],
)
def test_why_a_row_that_is_not_there_proves_nothing(facts: TableFacts, hides: str) -> None:
    found = list(facts.hides("_block"))
    assert bool(found) == bool(hides)
    assert hides in "".join(found)


@pytest.mark.parametrize(
    ("engine_full", "keeps"),
    [
        ("MergeTree ORDER BY id", True),
        ("SummingMergeTree(v) ORDER BY id", True),
        ("ReplacingMergeTree ORDER BY f(id)", True),
        ("ReplacingMergeTree(version) ORDER BY id", False),
        ("ReplacingMergeTree(`a version`) ORDER BY id", False),
        ("ReplacingMergeTree(version, is_deleted) ORDER BY id", False),
        ("ReplicatedReplacingMergeTree('/p', '{replica}') ORDER BY id", True),
        ("ReplicatedReplacingMergeTree('/p', '{replica}', version) ORDER BY id", False),
    ],
)
def test_a_version_makes_a_repeat_harmless(engine_full: str, keeps: bool) -> None:
    keys = TableKeys("id", "", dict.fromkeys(["id", "version", "a version", "is_deleted"], ""))
    engine = re.split(r"\W", engine_full, maxsplit=1)[0]
    assert TableFacts(engine, engine_full, keys=keys).keeps_repeats == keeps
    made = replace(keys, defaults={**keys.defaults, "id": "generateUUIDv4()"})
    assert TableFacts(engine, engine_full, keys=made).keeps_repeats, "a repeat has other keys"


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("(DELETE WHERE _block IN ('a', 'b'))", {"a", "b"}),
        ("ALTER TABLE t DELETE WHERE `_block` = 'a' SETTINGS mutations_sync = 2", {"a"}),
        ("(DELETE WHERE id = 3)", None),
        ("(UPDATE _row_exists = 0 WHERE id = 4)", None),
        ("ALTER TABLE t DELETE WHERE _block = 'a' OR id = 3", None),
        ("ALTER TABLE t DELETE WHERE id = 1, DELETE WHERE _block = 'a'", None),
        ("ALTER TABLE t DELETE WHERE _block NOT IN ('a')", None),
        ("DELETE WHERE id BETWEEN 0 AND 0", None),
        ("DELETE WHERE NOT 0", None),
        ("DELETE WHERE 0 OR id = 3", None),
        ("ALTER TABLE t DELETE WHERE 0, DELETE WHERE _block = 'a'", {"a"}),
        ("ALTER TABLE t DELETE WHERE 10", None),
        ("ALTER TABLE t UPDATE _block = '' WHERE 1", None),
        ("ALTER TABLE t CLEAR COLUMN _block", None),
        ("TRUNCATE TABLE t", None),
        ("alter table t detach partition 1", None),
        ("ALTER TABLE t MODIFY TTL day + 1", None),
        ("EXCHANGE TABLES t AND u", None),
        ("DELETE FROM t WHERE _block = 'a'", {"a"}),
        ("DELETE FROM `d`.`t` ON CLUSTER c WHERE `_block` IN ('a','b') SETTINGS x = 1", {"a", "b"}),
        ("delete from d.t in partition 3 where (_block == 'a') and id < 5;", {"a"}),
        ("DELETE FROM t WHERE _block = 'a' OR id = 3", None),
        ("DELETE FROM t WHERE NOT _block = 'a'", None),
        ("DELETE FROM t WHERE v IN (SELECT v FROM u WHERE _block = 'a')", None),
        ("(UPDATE _row_exists = 0 WHERE _block = 'a')", {"a"}),
        ("(UPDATE _row_exists = 0 WHERE (_block = 'a') AND (id = 3))", {"a"}),
        ("(DELETE WHERE _block = 'a'), (DELETE WHERE _block = 'b')", {"a", "b"}),
        ("DELETE WHERE _block = 'a', UPDATE v = 1 WHERE v = 'DELETE'", {"a"}),
        ("ALTER TABLE t ADD COLUMN w Int8, DELETE WHERE _block = 'a'", {"a"}),
        ("ALTER TABLE t /* why */ UPDATE v = 1, `_block` = 'z' WHERE _block = 'a'", {"a"}),
        ("UPDATE d.t SET v = 1, _block = '' WHERE _block IN ['a']", {"a"}),
        ("ALTER TABLE t MODIFY TTL day TO DISK 'cold', day + 1 DELETE WHERE v", None),
        ("ALTER TABLE t REMOVE TTL", None),
        ("(MATERIALIZE TTL)", None),
        ("ALTER TABLE t MODIFY COLUMN _block String TTL day + 1", None),
        ("ALTER TABLE t RENAME COLUMN _block TO old", None),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS `_block` String", None),
        ("ALTER TABLE t MOVE PARTITION 1 TO TABLE u", None),
        ("/* DROP it */ DROP TABLE t", None),
        ("RENAME TABLE t TO u, v TO w", None),
        ("CREATE OR REPLACE TABLE t (a Int8, b Int8) ENGINE = MergeTree ORDER BY a", None),
        ("RESTORE TABLE t FROM Disk('b', 'x')", None),
        ("OPTIMIZE TABLE t FINAL DEDUPLICATE BY id, day", None),
    ],
)
def test_a_removal(text: str, blocks: set[str] | None) -> None:
    found = removal(7, text, "_block")
    assert found == Removal(7, text, None if blocks is None else frozenset(blocks))
    assert found.touches("a")
    assert found.touches("c") == (blocks is None)


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t MODIFY COMMENT 'DELETE WHERE 1'",
        "ALTER TABLE t UPDATE v = 1 WHERE 1",
        "ALTER TABLE t DELETE WHERE 0",
        "ALTER TABLE `d`.`t` DELETE WHERE 0 SETTINGS mutations_sync = 2",
        "(DELETE WHERE 0)",
        "DELETE WHERE 0",
        "ALTER TABLE t DELETE WHERE 0, UPDATE v = 1 WHERE 1",
        "ALTER TABLE t ADD COLUMN `DELETE` String",
        "ALTER TABLE t DROP COLUMN v",
        "DETACH TABLE t",
        "OPTIMIZE TABLE t FINAL",
        "OPTIMIZE TABLE deduplicate FINAL",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "(RENAME COLUMN a TO `DELETE WHERE`)",
        "ALTER TABLE t ADD COLUMN ttl UInt32, ADD COLUMN w String AFTER _block",
        "ALTER TABLE t UPDATE v = 1 WHERE ttl < 5",
        "ALTER TABLE t UPDATE v = 1, w = 2 WHERE _block = 'a'",
        "UPDATE t SET v = 1 WHERE _block = 'a'",
        "ALTER TABLE t MODIFY TTL day + INTERVAL 1 DAY TO DISK 'cold', day to volume 'x'",
        "ALTER TABLE t MODIFY TTL day RECOMPRESS CODEC(ZSTD(17)) SETTINGS a = 1, b = 2",
        "ALTER TABLE t MODIFY COLUMN v String TTL day + 1",
        "ALTER TABLE t MODIFY COLUMN _block LowCardinality(String)",
        "ALTER TABLE t MOVE PART 'all_1_1_0' TO VOLUME 'cold'",
        "ALTER TABLE t DROP DETACHED PARTITION 1",
        "ALTER TABLE t UPDATE v = '-- DELETE WHERE 1', w = 'it''s, DELETE WHERE 1' WHERE 1",
        "-- DROP TABLE t\nALTER TABLE t COMMENT COLUMN v 'TRUNCATE'",
        "ALTER TABLE t MODIFY QUERY SELECT a, v FROM u WHERE exchange",
        "RENAME DICTIONARY a TO b",
    ],
)
def test_what_removes_no_rows(text: str) -> None:
    assert removal(7, text, "_block") is None


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS _block String", False),
        ("ALTER TABLE t ADD COLUMN _block String AFTER ttl", False),
        ("ALTER TABLE t RENAME COLUMN IF EXISTS block TO _block", False),
        ("ALTER TABLE t DROP COLUMN _block, ADD COLUMN _block String", True),
        ("ALTER TABLE t RENAME COLUMN _block TO old, RENAME COLUMN block TO _block", True),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS _block String, DELETE WHERE id = 1", True),
        ("ALTER TABLE t MODIFY COLUMN _block String TTL day + 1", True),
    ],
)
def test_what_takes_its_block_from_a_row_that_has_one(text: str, *, takes: bool) -> None:
    """Red before: a migration that finds the column there was taken for a deletion."""
    assert bool(list(removed_by(text, "_block", stamped=True))) == takes


def test_a_ttl_that_only_moves_is_materialized() -> None:
    """MODIFY TTL makes such a mutation by itself."""
    assert removal(7, "(MATERIALIZE TTL)", "_block", "m", ttl_only_moves=True) is None
    assert removal(7, "ALTER TABLE t DROP PART 'a', MATERIALIZE TTL", "_block", ttl_only_moves=True)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("DELETE FROM d.t WHERE 1", ("d", "t")),
        ("delete from t where 1", ("now", "t")),
        ("ALTER TABLE t DELETE WHERE 1", ("now", "t")),
        ("ALTER TABLE IF EXISTS `d` . `a t` DELETE WHERE 1", ("d", "a t")),
        ('/* why */ ALTER TABLE "d.e".t ON CLUSTER c DELETE WHERE 1', ("d.e", "t")),
        ("ALTER TABLE `t\\`u` DELETE WHERE 1", ("now", "t`u")),
        ("UPDATE d.t SET _block = '' WHERE 1", ("d", "t")),
        ("OPTIMIZE TABLE d.t FINAL DEDUPLICATE", ("d", "t")),
        ("ALTER TABLE u DELETE WHERE id IN (SELECT id FROM d.t)", ("now", "u")),
        ("DROP TABLE d.t", ("", "")),
        ("SELECT 'DELETE FROM d.t'", ("", "")),
    ],
)
def test_the_table_that_a_statement_changes(text: str, table: tuple[str, str]) -> None:
    assert target(text, "now") == table


class Logged:
    """A server whose query log has these statements: time, text, whether it finished, database."""

    unanswered: ClassVar[dict[str, str]] = {}

    def __init__(self, *statements: tuple[int, str, int, str]) -> None:
        self._answers: dict[str, list[Any]] = {
            "system.tables": [("MergeTree", "MergeTree ORDER BY id", "", "", [], "id", "")],
            "system.query_log (statements)": list(statements),
        }
        self.asked: dict[str, Any] = {}

    def ask(self, what: str, _: str, **parameters: object) -> list[Any]:
        self.asked[what] = parameters
        return self._answers.get(what, [])


def test_a_delete_that_did_not_end_well_may_have_removed_rows_of_its_table() -> None:
    """It was killed, or its wait ended: of such a one the server logs no tables, only its text."""
    logged = Logged(
        (5, "DELETE FROM shop.orders WHERE id > 3", 0, "default"),
        (6, "ALTER TABLE orders DELETE WHERE 1", 0, "shop"),
        (7, "ALTER TABLE orders DELETE WHERE 1", 0, "other"),
        (8, "DELETE FROM shop.orders_old WHERE id IN (SELECT id FROM shop.orders)", 0, "shop"),
        (9, "ALTER TABLE shop.orders UPDATE v = 1 WHERE 1", 0, "shop"),
        (10, "TRUNCATE TABLE shop.orders", 1, "default"),
    )
    optional: Any = logged
    facts = TableAsking(optional, "_block").facts("shop.orders", 0)
    assert [one.at_ms for one in facts.removals] == [5, 6, 10]
    assert logged.asked["system.query_log (statements)"]["stopped"] == [*STOPPED_WAITING]
