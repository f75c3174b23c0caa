"""Generated tables are what the code makes now."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from loader.metrics import health as of_loader
from relay.cli.config import example
from relay.config.settings import Block, Settings
from relay.core.sealing import RULES
from relay.core.state import SealingLimits, SealReason
from relay.errors import RelayError
from relay.operate.doctor import grants
from relay.program import health as of_relay
from relay.program.metric import COUNTER, GAUGE, HISTOGRAM
from relay.schema.types import column_type as types
from relay.schema.types import scalar as scalars
from relay.schema.types.column_type import parse_type
from tests.docs import documents
from tests.docs.tables import METRICS, TABLES, every
from tests.docs.types import IN_SPARK, TYPES, parsed, split


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return every()


@pytest.mark.parametrize("path", documents.PATHS)
def test_no_table_is_out_of_date(path: str, tables: dict[str, str]) -> None:
    """If this fails, run `python -m tests.docs`."""
    text = documents.text_of(path)
    assert documents.filled(text, tables) == text


def test_every_table_is_in_one_document() -> None:
    found = [
        name for text in documents.every().values() for name in documents.names_of_tables(text)
    ]
    assert sorted(found) == sorted(TABLES)


def test_a_table_that_fell_behind_is_found(tables: dict[str, str]) -> None:
    """Negative control: one cell changed, in a document that has text around its table."""
    text = "# T\n\nBefore.\n\n<!-- table: anomalies -->\n<!-- end of table -->\n\nBehind.\n"
    current = documents.filled(text, tables)
    assert current != text
    assert documents.filled(current, tables) == current
    older = current.replace("`gap`", "`hole`")
    assert older != current
    assert documents.filled(older, tables) == current
    assert "Behind." in current


def test_the_command_says_what_is_out_of_date() -> None:
    """`--check` changes nothing and ends with 0 where all is as it should be."""
    found = subprocess.run(
        [sys.executable, "-m", "tests.docs", "--check"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stderr


def test_a_mark_that_nothing_makes_is_an_error(tables: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="nothing"):
        documents.filled("<!-- table: nothing -->\n<!-- end of table -->", tables)


# ---- what a table must hold ------------------------------------------------------------------


def test_every_setting_is_there(tables: dict[str, str]) -> None:
    """Each key that `relay config init` prints has a row."""
    section = ""
    for line in example().splitlines():
        if found := re.match(r"(?:# )?\[([a-z_.]+)\]$", line):
            section = f"{found[1]}."
            if line.startswith("#"):  # a table of its own, as block.tables
                assert f"| `{found[1]}` |" in tables["settings"] or found[1] == "pipelines"
                section = ""
        elif found := re.match(r"(?:# )?([a-z_]+) = ", line):
            assert f"| `{section}{found[1]}` |" in tables["settings"], line


def test_every_exit_status_of_an_error_is_there(tables: dict[str, str]) -> None:
    statuses = {error.exit_code for error in RelayError.__subclasses__()} | {0, 70}
    assert [s for s in statuses if f"\n| {s} | " not in tables["exit-statuses"]] == []


def test_every_type_is_there() -> None:
    """No type that the code knows is missing, here or in Spark's table."""
    known = {*scalars.MAKERS, *types.COMPOSED}
    assert {name.split("(")[0] for row in TYPES for name in row.names} == known
    assert {name.split("(")[0] for names, _ in IN_SPARK for name in split(names)} == known


def test_a_type_says_dead_letter_just_where_the_code_refuses_values() -> None:
    for row in TYPES:
        for name in row.names:
            if name.split("(")[0] in scalars.MAKERS:
                # That a String is UTF-8 is protobuf's own to check.
                refuses = parse_type(parsed(name)).kind.check is not None or name == "String"
                assert ("dead letter" in row.outside) == refuses, name


def test_metrics_have_one_name_each_and_a_unit() -> None:
    """At least a hundred."""
    metrics = [one for listed in METRICS.values() for one in listed]
    names = [one.name for one in metrics]
    assert len(names) == len(set(names)) > 100
    for one in metrics:
        assert one.question.endswith((".", "?")), one.name
        assert one.name.endswith("_total") == (one.kind == COUNTER), one.name
        assert one.kind in {COUNTER, GAUGE, HISTOGRAM}
        if one.kind == HISTOGRAM or one.unit == "seconds":
            assert one.name.endswith(("_seconds", "_seconds_total")) == (one.unit == "seconds")


def test_every_check_of_health_is_explained() -> None:
    """By its name, in the rows of its program."""
    document = documents.text_of("relay/docs/health.md")
    checks = (
        *of_relay.liveness(
            of_relay.RelayHealth(0.0, 0.0), of_relay.RelayHealthLimits(1.0, 1.0, 1.0)
        ),
        *of_relay.readiness(of_relay.RelayHealth(0.0, 0.0)),
        *of_loader.liveness(
            of_loader.LoaderHealth(0.0, 0.0), of_loader.LoaderHealthLimits(1.0, 1.0, 1.0)
        ),
        *of_loader.readiness(of_loader.LoaderHealth(0.0, 0.0)),
    )
    assert [one.check for one in checks if f"| `{one.check}` |" not in document] == []


def test_every_role_and_right_is_explained() -> None:
    """Security names each role, its commands and each system table that a role reads."""
    document = documents.text_of("relay/docs/security.md")
    settings = Settings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "k:9092"},
            "source": {"topic": "rows"},
            "clickhouse": {"url": "http://c:8123"},
            "loader": {"checkpoint": "checkpoint"},
        }
    )
    for role in grants.roles(settings):
        assert role.name in document, role.name
        for right in role.clickhouse:
            if right.place.startswith("system."):
                assert f"`{right.place}`" in document, right
            for privilege in right.privileges.split(", "):
                assert privilege in document, right
        for right in role.kafka:
            assert f"`{right.name.replace('shop.', '<app>.')}" in document or right.name == "rows"


def test_every_reason_for_a_block_has_one_rule() -> None:
    assert sorted(rule.reason.value for rule in RULES) == sorted(one.value for one in SealReason)


def test_the_rules_for_sealing_name_every_setting_that_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all that the core gets; but for those that decide when it looks, and what it writes."""
    named = {name for rule in RULES for name in re.findall(r"\{([a-z_.]+)\}", rule.when)}
    assert {name.split(".")[1].removesuffix("_seconds") for name in named} == {
        one.name.removesuffix("_ms")
        for one in fields(SealingLimits)
        if one.name not in {"app", "table_max_age_ms", "max_buffers"}
    } - {"commit_interval", "keepalive", "transaction_timeout"}
    plain = TABLES["sealing"]()
    assert "`block.max_rows` (1,000,000) rows" in plain
    monkeypatch.setattr(Block.model_fields["max_rows"], "default", 7)
    assert "`block.max_rows` (7) rows" in TABLES["sealing"](), "a changed default shows"
