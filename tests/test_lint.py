"""The tools that keep the code in shape find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

TOOLS = {
    "ruff check": [BIN / "ruff", "check", "."],
    "ruff format": [BIN / "ruff", "format", "--check", "."],
    "mypy": [BIN / "mypy"],
    "import-linter": [BIN / "lint-imports"],
}

SECONDS = 600
"""mypy without its cache takes one minute alone, and four beside a demo."""


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_finds_nothing(tool: str) -> None:
    """Each of the tools exits with 0 on the whole checkout."""
    found = subprocess.run(
        TOOLS[tool], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert found.returncode == 0, f"{tool}:\n{found.stdout}\n{found.stderr}"


def test_the_linter_goes_red_on_an_unused_import(tmp_path: Path) -> None:
    """Negative control: the same configuration finds a planted fault."""
    planted = tmp_path / "planted.py"
    planted.write_text('"""A module."""\n\nimport os\n', encoding="utf-8")

    found = subprocess.run(
        [BIN / "ruff", "check", "--config", ROOT / ".ruff.toml", planted],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert found.returncode == 1
    assert "F401" in found.stdout
