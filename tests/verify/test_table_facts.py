"""What follows from a table's definition and from recorded statements; pure."""

from __future__ import annotations

import re

import pytest

from relay.operate.verify.judge.table_facts import Removal, TableFacts, removal


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
        ("ReplacingMergeTree(version, is_deleted) ORDER BY id", False),
        ("ReplicatedReplacingMergeTree('/p', '{replica}') ORDER BY id", True),
        ("ReplicatedReplacingMergeTree('/p', '{replica}', version) ORDER BY id", False),
    ],
)
def test_a_version_makes_a_repeat_harmless(engine_full: str, keeps: bool) -> None:
    facts = TableFacts(re.split(r"\W", engine_full, maxsplit=1)[0], engine_full)
    assert facts.keeps_repeats == keeps


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
        ("ALTER TABLE t UPDATE _block = '' WHERE 1", None),
        ("ALTER TABLE t CLEAR COLUMN _block", None),
        ("TRUNCATE TABLE t", None),
        ("alter table t detach partition 1", None),
        ("ALTER TABLE t MODIFY TTL day + 1", None),
        ("EXCHANGE TABLES t AND u", None),
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
        "ALTER TABLE t ADD COLUMN `DELETE` String",
        "ALTER TABLE t DROP COLUMN v",
        "DETACH TABLE t",
        "OPTIMIZE TABLE t FINAL",
    ],
)
def test_what_removes_no_rows(text: str) -> None:
    assert removal(7, text, "_block") is None
