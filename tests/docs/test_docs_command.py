"""`relay docs`: the list, one document, and what is said where there is none."""

from __future__ import annotations

import configparser
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from relay.cli import docs as command
from relay.cli.docs import ROOT, for_terminal
from relay.cli.docs import docs as docs_command
from relay.errors import ConfigError
from tests.docs import documents

RELAY = Path(sys.executable).parent / "relay"


def test_the_list_has_a_line_for_each_document() -> None:
    result = CliRunner().invoke(docs_command, [])
    lines = result.output.splitlines()
    for path in documents.PATHS:
        name, summary = command.name_of(path), documents.summary_of(documents.text_of(path))
        assert [line for line in lines if line.split() == [name, *summary.split()]], path
    assert json.loads(CliRunner().invoke(docs_command, ["--json"]).output)[1] == {
        "name": "tutorial",
        "group": "Start",
        "path": "relay/docs/tutorial.md",
        "summary": documents.summary_of(documents.text_of("relay/docs/tutorial.md")),
    }


@pytest.mark.parametrize("name", ["parked", "PARKED", "parked.md"])
def test_a_document_is_printed_as_it_is(name: str) -> None:
    assert CliRunner().invoke(docs_command, [name]).output == documents.text_of(
        "loader/docs/parked.md"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dead-leters", "there is no document 'dead-leters'; did you mean dead-letters?"),
        ("xyzzy", "there is no document 'xyzzy'\n"),
    ],
)
def test_a_name_that_is_none_is_met_with_suggestions(name: str, said: str) -> None:
    found = subprocess.run(
        [RELAY, "docs", name], capture_output=True, text=True, timeout=240, check=False
    )
    assert found.returncode == 2
    assert said in found.stderr
    assert "`relay docs` lists all of them" in found.stderr


def test_a_document_that_is_not_installed_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As from a wheel, which has no k8s/ and no tests/; its description is the README."""
    monkeypatch.setattr(command, "ROOT", tmp_path)
    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(docs_command, ["kubernetes"], catch_exceptions=False)
    assert "read k8s/README.md in the source repository" in str(refused.value)
    listed = CliRunner().invoke(docs_command, []).output
    assert "Only in the source repository: tests/bench/RESULTS.md." in listed
    assert "How rows flow" in CliRunner().invoke(docs_command, ["readme"]).output


def test_in_a_terminal_it_is_laid_out() -> None:
    """Headings and tables are drawn, marks and comments gone, links say which command to type."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "90"}
    with subprocess.Popen([RELAY, "docs", "rewind"], stdout=writer, env=environment) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                part = os.read(reader, 65_536)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            shown += part
        assert process.wait(60) == 0
    os.close(reader)
    text = shown.decode()
    assert "\x1b[" in text
    assert "## Rewind" not in text
    assert "───" in text


def test_links_name_the_command_that_prints_their_target() -> None:
    text = (
        "[a](dead-letters.md#reasons) [b](../../k8s/README.md) [c](#here) [d](https://x.org) "
        "![pic](flow.svg)"
    )
    assert for_terminal(text, "relay/docs/faq.md") == (
        "a (`relay docs dead-letters`) b (`relay docs kubernetes`) c [d](https://x.org) "
        "*Picture: pic*"
    )


def test_every_file_beside_the_code_is_part_of_the_package() -> None:
    """What is not Python and not named in package_data is missing from a wheel."""
    assert unshipped(package_data()) == []


def package_data() -> dict[str, list[str]]:
    """Patterns by package, as setup.cfg has them."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = parser["options.package_data"]
    return {package: [one.strip() for one in listed[package].split(",")] for package in listed}


def unshipped(data: dict[str, list[str]]) -> list[str]:
    found = []
    for top in ("relay", "loader"):
        for file in sorted((ROOT / top).rglob("*")):
            if file.is_dir() or file.suffix == ".py" or "__pycache__" in file.parts:
                continue
            package = next(one for one in file.parents if (one / "__init__.py").is_file())
            within = file.relative_to(package)
            patterns = data.get(".".join(package.relative_to(ROOT).parts), [])
            same_depth = [p for p in patterns if p.count("/") == len(within.parts) - 1]
            if not any(within.match(pattern) for pattern in same_depth):
                found.append(file.relative_to(ROOT).as_posix())
    return found


def test_a_file_that_is_not_shipped_is_found() -> None:
    """Negative control."""
    data = package_data()
    data["relay"].remove("docs/*")
    assert "relay/docs/tutorial.md" in unshipped(data)
