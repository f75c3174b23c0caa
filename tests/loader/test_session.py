"""What a Spark master is taken for, and which errors of ClickHouse pass; no servers."""

from __future__ import annotations

import sys

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError

from loader.clickhouse.client import is_permanent
from loader.spark.session import python, with_retries


@pytest.mark.parametrize(
    ("master", "taken_for"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2, 1]", "local[2, 1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
        ("k8s://https://host", "k8s://https://host"),
    ],
)
def test_a_task_is_tried_again_on_one_machine_too(master: str, taken_for: str) -> None:
    """Unless the user has said how often."""
    assert with_retries(master) == taken_for


def test_executors_of_a_cluster_may_have_python_elsewhere() -> None:
    """Where nobody says so, and on this machine, it is this interpreter."""
    elsewhere = {"PYSPARK_PYTHON": "/opt/relay/bin/python"}
    assert python("spark://host:7077", elsewhere) == "/opt/relay/bin/python"
    assert python("spark://host:7077", {}) == sys.executable
    assert python("local[2,4]", elsewhere) == sys.executable


@pytest.mark.parametrize(
    ("text", "permanent"),
    [
        ("Code: 243. DB::Exception: Cannot reserve 1.00 MiB, not enough space.", False),
        ("Code: 75. DB::Exception: Cannot write to file x: No space left on device.", False),
        ("Code: 60. DB::Exception: Table d.t does not exist.", True),
    ],
)
def test_a_full_disk_passes(text: str, permanent: bool) -> None:
    """However far the server came before it had no room; a missing table stays missing."""
    assert is_permanent(DatabaseError(text)) == permanent
