"""What a program does not need is not loaded: it takes memory and time, or is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("relay.cli", "pyarrow"),
        ("relay.cli.status", "numba"),
        ("relay.cli.run", "numba"),
        ("relay.producer", "numba"),
        ("relay.cli.run", "pyspark"),
        ("loader.cli", "pyspark"),
        ("loader.cli.status", "pyspark"),
        ("loader.cli.parked", "pyspark"),
        ("loader.blocks.worker", "numba"),
        ("loader.spark.workers", "pyarrow"),
    ],
)
def test_a_program_loads_what_it_needs(module: str, absent: str) -> None:
    """Red before, as an import for a type alone: `loader status` needed Spark."""
    assert absent not in loaded_by(module)


def test_what_is_loaded_is_found() -> None:
    """Negative control."""
    assert "numba" in loaded_by("relay.rows.flat_kernel")


def loaded_by(module: str) -> set[str]:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    return set(done.stdout.split())
