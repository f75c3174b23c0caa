"""`relay docs`: lists the documents and prints one.

Documents are Markdown files beside the code that they describe; all of them are installed with the
package.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import click

from relay.errors import ConfigError
from relay.program import shared_files
from relay.program.console import console_of
from relay.program.json_output import print_json
from relay.program.spelling import did_you_mean

ROOT = shared_files.ROOT

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Start": (
        "README.md",
        "relay/docs/tutorial.md",
        "relay/docs/messages.md",
        "relay/docs/topics.md",
        "relay/docs/faq.md",
        "relay/docs/glossary.md",
        "relay/docs/limits.md",
    ),
    "Set up": (
        "relay/docs/configuration.md",
        "relay/docs/security.md",
        "relay/docs/clusters.md",
        "relay/docs/clickhouse-versions.md",
        "relay/docs/sizing.md",
        "loader/docs/spark.md",
        "loader/docs/transforms.md",
        "loader/docs/dataframe.md",
        "relay/docs/api.md",
        "k8s/README.md",
    ),
    "Operate": (
        "relay/docs/operations.md",
        "relay/docs/commands.md",
        "relay/docs/doctor.md",
        "relay/docs/health.md",
        "relay/docs/metrics.md",
        "relay/docs/troubleshooting.md",
        "relay/docs/verify.md",
        "relay/docs/detection.md",
        "relay/docs/dead-letters.md",
        "loader/docs/evidence.md",
        "loader/docs/parked.md",
        "relay/docs/rewind.md",
        "loader/docs/backup.md",
        "relay/docs/upgrade.md",
    ),
    "Change the code": (
        "relay/docs/contributing.md",
        "relay/docs/design.md",
        "tests/README.md",
        "tests/bench/RESULTS.md",
        "tests/chaos/RESULTS.md",
    ),
}
"""Every document, by its path from ROOT, in the order in which a newcomer reads them."""

_NAMES = {
    "k8s/README.md": "kubernetes",
    "tests/README.md": "tests",
    "tests/bench/RESULTS.md": "speed",
    "tests/chaos/RESULTS.md": "reliability",
}
"""Names of documents whose files are called otherwise."""

_CHANGES = "CHANGELOG.md"
"""No document of what is: it names what was, too."""

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
_HEADING = re.compile(r"(#{1,6}) (.+)")
_PICTURE = re.compile(r"!\[([^\]]+)\]\([^)\s]+\)")
_WIDTH = 100
"""Columns, where no terminal says how many there are."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document; its path is from ROOT, its group a key of GROUPS.

    The text is None if only the repository has the file, and the installed package has not.
    """

    name: str
    path: str
    group: str
    text: str | None

    @property
    def summary(self) -> str:
        """Return the paragraph under the title, or where the document is."""
        if self.text is None:
            return f"Only in the source repository: {self.path}."
        return " ".join(self.text.split("\n\n", 2)[1].split())


def name_of(path: str) -> str:
    """Return what `relay docs` calls the document at this path from ROOT."""
    return _NAMES.get(path, Path(path).stem.lower())


def documents() -> list[Document]:
    """Return every document, in the order of GROUPS, and the change log behind them."""
    paths = [(group, path) for group in GROUPS for path in GROUPS[group]]
    last_group, _ = paths[-1]
    paths.append((last_group, _CHANGES))
    return [Document(name_of(path), path, group, _text(path)) for group, path in paths]


def _text(path: str) -> str | None:
    """Return a document's Markdown; None where it is not installed."""
    file = shared_files.path_of(path, ROOT)
    if file is not None:
        return file.read_text(encoding="utf-8")
    if path == "README.md":  # an installed package carries it as its description
        return str(importlib.metadata.metadata("block-relay").json["description"])
    return None


def _complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [document.name for document in documents() if document.name.startswith(incomplete)]


@click.command()
@click.argument("name", required=False, shell_complete=_complete)
@click.option("--json", "as_json", is_flag=True, help="Print the list or the document as JSON.")
def docs(name: str | None, *, as_json: bool) -> None:
    """List the documents, or print the one called NAME, or one section of it (NAME#SECTION).

    In a terminal a document is laid out; elsewhere it is printed as the Markdown that it is.

    \b
    relay docs
    relay docs tutorial
    relay docs metrics | grep lag
    relay docs troubleshooting#rows-do-not-arrive
    """
    listed = documents()
    if name is not None:
        title, _, anchor = name.partition("#")
        document = _find(listed, title)
        _print(_section(document, anchor) if anchor else document, as_json=as_json)
    elif as_json:
        fields = ("name", "group", "path", "summary")
        print_json([{key: getattr(entry, key) for key in fields} for entry in listed], indent=2)
    else:
        width = max(len(entry.name) for entry in listed)
        for number, (group, members) in enumerate(groupby(listed, attrgetter("group"))):
            click.echo(f"\n{group}" if number else group)
            for entry in members:
                click.echo(f"  {entry.name:{width}}  {entry.summary}")


def _find(listed: list[Document], name: str) -> Document:
    """Return the document of this name, of those that the package has."""
    by_name = {document.name: document for document in listed}
    document = by_name.get(name.lower().removesuffix(".md"))
    if document is None:
        hint = did_you_mean(name.lower(), by_name)
        raise ConfigError(f"there is no document {name!r}{hint}", "`relay docs` lists all of them")
    if document.text is None:
        raise ConfigError(
            f"the document {document.name!r} is not part of the installed package",
            f"read {document.path} in the source repository",
        )
    return document


def _section(document: Document, anchor: str) -> Document:
    """Return the document cut to one section, with those below it."""
    headings = list(headings_of(document.text or ""))
    for number, (line, level, title) in enumerate(headings):
        if anchor_of(title) == anchor.lower():
            ends = (end for end, above, _ in headings[number + 1 :] if above <= level)
            lines = (document.text or "").splitlines(keepends=True)
            return replace(document, text="".join(lines[line : next(ends, None)]))
    anchors = ", ".join(anchor_of(title) for _, level, title in headings if level > 1)
    raise ConfigError(
        f"the document {document.name!r} has no section {anchor!r}", f"name one of {anchors}"
    )


def headings_of(text: str) -> Iterator[tuple[int, int, str]]:
    """Return the line (from 0), level and title of each heading of a Markdown text."""
    fenced = False
    for number, line in enumerate(text.splitlines()):
        fenced ^= line.startswith("```")
        if not fenced and (heading := _HEADING.match(line)):
            yield number, len(heading[1]), heading[2]


def anchor_of(title: str) -> str:
    """Return what links call a heading, as browsers of repositories make it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
    return re.sub(r"[^\w -]", "", plain.lower()).replace(" ", "-")


def _print(document: Document, *, as_json: bool) -> None:
    """Print a document: laid out in a terminal, else as it is."""
    text = document.text or ""
    if as_json:
        print_json({"name": document.name, "path": document.path, "text": text})
    elif sys.stdout.isatty():
        from rich.markdown import Markdown  # noqa: PLC0415 - slow to import

        console_of(_WIDTH).print(Markdown(for_terminal(text, document.path)))
    else:
        click.echo(text, nl=False)


def for_terminal(text: str, path: str) -> str:
    """Return Markdown whose links between documents name the command that prints the target.

    Links count from the document, which is at `path` from ROOT.
    """
    names = {ROOT / target: name_of(target) for group in GROUPS.values() for target in group}

    def name_command(link: re.Match[str]) -> str:
        if "://" in link[2]:
            return link[0]
        target = link[2].partition("#")[0]
        name = names.get(((ROOT / path).parent / target).resolve()) if target else None
        return f"{link[1]} (`relay docs {name}`)" if name else link[1]

    return _LINK.sub(name_command, _PICTURE.sub(r"*Picture: \1*", text))
