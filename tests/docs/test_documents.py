"""Every document is listed, begins alike, and its links lead somewhere."""

from __future__ import annotations

import re

import pytest

from relay.cli.docs import GROUPS, ROOT, name_of
from tests.docs import documents

MOST_BYTES = 13_000
"""Of README.md: what a person reads before deciding."""
LONGEST_SUMMARY = 100
"""Characters, so that `relay docs` has one line each."""


def test_every_file_is_listed_and_every_listed_file_is_there() -> None:
    found = {
        file.relative_to(ROOT).as_posix()
        for place in ("relay", "loader")
        for file in (ROOT / place / "docs").glob("*.md")
    }
    listed = {path for path in documents.PATHS if path.startswith(("relay/", "loader/"))}
    assert found == listed
    assert [path for path in documents.PATHS if not (ROOT / path).is_file()] == []


def test_names_are_unique() -> None:
    names = [name_of(path) for path in documents.PATHS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("path", documents.PATHS)
def test_a_document_begins_with_its_title_and_one_line(path: str) -> None:
    """The line is what `relay docs` shows: a sentence without links or emphasis."""
    text = documents.text_of(path)
    summary = documents.summary_of(text)
    assert re.match(r"# [^\n]+\n\n", text), path
    assert len(re.findall(r"^# ", documents.prose(text), re.MULTILINE)) == 1, "one title"
    assert "\n" not in summary
    assert summary.endswith(".")
    assert not re.search(r"\*\*|\]\(|<!--", summary)
    assert len(summary) <= LONGEST_SUMMARY or path == "README.md", f"{len(summary)} characters"


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_link_leads_to_a_file_and_a_heading(path: str) -> None:
    assert documents.broken_links(path, documents.text_of(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "[no file](relay/docs/nothing.md)",
        "[no heading](relay/docs/metrics.md#nothing)",
        "[no heading here](#nothing)",
        "![no picture](relay/docs/nothing.svg)",
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str) -> None:
    """Negative control."""
    assert len(documents.broken_links("README.md", f"# T\n\n{text}\n")) == 1


def test_links_in_code_and_to_other_sites_are_not_looked_at() -> None:
    text = "# T\n\n`[a](b)` [site](https://example.org/x)\n\n```sh\n[a](b)\n```\n"
    assert documents.broken_links("README.md", text) == []


def test_anchors_are_those_of_browsers() -> None:
    text = "# Two words\n\n## `relay run`: what, and why?\n\n## Twice\n\n## Twice\n"
    assert documents.anchors(text) == {
        *("two-words", "relay-run-what-and-why", "twice", "twice-1")
    }  # fmt: skip


@pytest.mark.parametrize("path", documents.PATHS)
def test_every_path_of_the_repository_exists(path: str) -> None:
    """What stands between backticks and looks like a path in relay/, loader/, tests/ or k8s/."""
    assert missing_paths(documents.text_of(path)) == []


def missing_paths(text: str) -> list[str]:
    """Paths that do not exist; those of tests may begin in tests/ and need no `.py`."""
    found = []
    for code in documents.code(text):
        path = code.partition("::")[0]
        test = re.fullmatch(r"(?!tests/)([a-z]+/test_\w+)", path)
        if test:
            path = f"tests/{test[1]}.py"
        elif not re.fullmatch(r"(relay|loader|tests|k8s)/[\w./-]*", path):
            continue
        if not (ROOT / path).exists():
            found.append(code)
    return found


def test_a_path_that_is_gone_is_found() -> None:
    """Negative control."""
    assert missing_paths("`relay/core` `tests/nothing.py` `relay/x y`") == ["tests/nothing.py"]
    assert missing_paths("`loader/test_work::test_a` `loader/test_wrk`") == ["loader/test_wrk"]


# ---- README ----------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= MOST_BYTES


def test_the_readme_leads_to_every_document() -> None:
    linked = {link.partition("#")[0] for link in documents.links(documents.text_of("README.md"))}
    assert sorted({path for path in documents.PATHS if path != "README.md"} - linked) == []


def test_the_commands_at_the_top_are_single_lines() -> None:
    """Both marked commands begin with the environment and need nothing but Python."""
    readme = documents.text_of("README.md")
    for mark in ("<!-- demo command -->", "<!-- test command -->"):
        block = readme.split(mark)[1].split("```")[1]
        assert block.startswith("sh\npython3 -m venv .venv && ")
        assert len(block.strip().splitlines()) == 2


def test_the_shelf_has_no_empty_group() -> None:
    assert all(GROUPS.values())
