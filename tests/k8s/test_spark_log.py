"""What a loader's pod prints of Spark: with the log's configuration that the base mounts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.k8s.built import config_map, overlay

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.servers

PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
jvm = spark.sparkContext._jvm
error = jvm.java.lang.IllegalStateException("Timed out waiting for the driver's pod")
for name in ("org.apache.spark.util.Utils", "org.apache.spark.Other"):
    jvm.org.apache.logging.log4j.LogManager.getLogger(name).error("Uncaught", error)
spark.stop()
"""


@pytest.mark.long  # 25 s, with Spark
def test_the_driver_that_is_not_ready_yet_is_one_line(tmp_path: Path) -> None:
    """Negative control: of other classes the stack is there. INFO is not, from the start."""
    text = config_map(overlay("small"), "log4j2.properties")
    (tmp_path / "log4j2.properties").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    lines = done.stderr.splitlines()
    said = [line.split(" ", 1)[1] for line in lines if " ERROR " in line]
    assert said == [
        "ERROR Utils: Uncaught: Timed out waiting for the driver's pod",
        "ERROR Other: Uncaught",
    ]
    first = next(at for at, line in enumerate(lines) if "\tat " in line)
    assert first > next(at for at, line in enumerate(lines) if "Other" in line)
    assert " INFO " not in done.stderr
