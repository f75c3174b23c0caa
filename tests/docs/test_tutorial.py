"""The commands of the tutorial and of README's "Start" are run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import documents
from tests.docs.reader import reading

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def blocks(text: str) -> list[tuple[str, str]]:
    """Fenced blocks of Python and shell, in order."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_tutorial_works(tmp_path: Path) -> None:
    """Four rows arrive, the bad message is a dead letter, the verifier finds nothing."""
    text = documents.text_of("relay/docs/tutorial.md")
    steps = re.split(r"^## \d\. ", text.split("## On your own servers")[0], flags=re.MULTILINE)[1:]
    assert len(steps) == 9
    with reading(tmp_path) as reader:
        for step in steps:
            for language, block in blocks(step):
                if "pip install" in block:
                    continue
                if "relay dev down" in block:
                    assert reader.stops() == [0, 0]
                reader.types(block.replace("mkdir shop && cd shop\n", ""), language)
                if "loader run" in block:
                    rows = "relay dev sql 'SELECT count(), uniqExact(id) FROM shop.orders' --json"
                    reader.waits(rows, '{"count()":4,"uniqExact(id)":4}')
                if "producer.produce" in block:
                    assert '"place"' in reader.types("relay dead ls --json")


def test_readmes_start_works(tmp_path: Path) -> None:
    """Both rows arrive; the verifier's status is 0."""
    start = documents.text_of("README.md").split("\n## Start\n")[1].split("\n## ")[0]
    ((_, block),) = blocks(start)
    block = re.sub(r"^(pip install|kill %1).*$", "", block, flags=re.MULTILINE)
    with reading(tmp_path) as reader:
        printed = reader.types(block)
        assert "Ada" in printed
        assert "Grace" in printed
        assert reader.stops() == [0]
