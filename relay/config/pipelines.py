"""Reads several pipelines from one file, and checks what they must not share; pure.

Receives a file's raw data, gives for each table under `pipelines` what the file says of it: its
own settings over those that all share. Each is an app of its own, so two never meet in a
topic, a group, a transactional id, a block id or the ledger, whatever clusters they share.
"""

# pure

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from itertools import permutations, product
from typing import NamedTuple

from relay import names
from relay.config.secrets import CLUSTERS, KeyPath, Problem, Table, drop, holder, value_at
from relay.config.server_settings import Address, addresses
from relay.config.settings import Settings

PIPELINES = "pipelines"


class Pipeline(NamedTuple):
    """One of the file's pipelines, checked; `name` is empty where the file has only one app."""

    name: str
    settings: Settings


class PipelineTable(NamedTuple):
    """One of the file's pipelines, as raw data."""

    name: str
    data: Table
    """All that holds for it."""
    own: Table
    """What stands in its own table."""
    app: str | None
    """None where the file gives none that can be used."""

    def key(self, path: KeyPath) -> KeyPath:
        """Return where in the file this setting of the pipeline stands, or is missing."""
        shared = path[:1] == ("app",) or _has(self.data, path)
        if not self.name or (shared and not _has(self.own, path)):
            return path
        return (PIPELINES, self.name, *path)


def split(data: Table) -> tuple[list[PipelineTable], list[Problem]]:
    """Return the pipelines of a file, and what is wrong with the tables themselves.

    A file without `pipelines` is one pipeline without a name.
    """
    if PIPELINES not in data:
        return [PipelineTable("", data, data, None)], []
    shared = {key: value for key, value in data.items() if key != PIPELINES}
    tables = data[PIPELINES]
    if not isinstance(tables, dict) or not tables:
        return [], [
            ((PIPELINES,), "should contain one table for each pipeline, as in [pipelines.east]")
        ]
    parts: list[PipelineTable] = []
    problems: list[Problem] = []
    for name, own in tables.items():
        if not isinstance(own, dict):
            reason = f"should be a table, not a single value ({type(own).__name__})"
            problems.append(((PIPELINES, name), reason))
            continue
        merged = _merge(shared, own)
        app, of_name = _derive(name, merged, own)
        parts.append(PipelineTable(name, merged, own, app))
        problems += [((PIPELINES, name, *path), reason) for path, reason in of_name]
    return parts, problems


def _merge(shared: Table, own: Table) -> Table:
    """A copy of what all share, with a pipeline's own values in it.

    A secret and the file that holds it are alternatives: the one of a pipeline clears the other.
    """
    merged = copy.deepcopy(shared)
    for mine, other in permutations(("password", "password_file")):
        if _has(own, ("clickhouse", mine)):
            drop(merged, ("clickhouse", other))
    for cluster, (mine, other) in product(CLUSTERS, permutations(("client", "client_files"))):
        for key in holder(own, (*cluster, mine, "")) or ():
            drop(merged, (*cluster, other, key))
    _overlay(merged, own)
    return merged


def _overlay(under: Table, over: Table) -> None:
    for key, value in over.items():
        below = under.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            _overlay(below, value)
        else:
            under[key] = copy.deepcopy(value)


def _derive(name: str, merged: Table, own: Table) -> tuple[str | None, list[Problem]]:
    """Fill in what follows from a pipeline's name; return its app, and problems in its table."""
    problems: list[Problem] = []
    if not names.is_app_name(name):
        problems.append(
            ((), f"a pipeline's name has up to 40 letters, digits, _ and -; {name!r} does not")
        )
    app = merged.get("app")
    usable = isinstance(app, str) and names.is_app_name(app) and not problems
    if usable and "app" not in own:
        app = f"{app}-{name}"
        usable = names.is_app_name(app)
        if usable:
            merged["app"] = app
        else:
            reason = (
                f"the app of this pipeline would be {app!r}, which is longer than 40 characters: "
                "shorten the pipeline's name, or give the pipeline an `app` of its own"
            )
            problems.append(((), reason))
    if _has(own, ("loader", "master")):
        reason = (
            "one Spark session loads all pipelines: set loader.master at the top of the file, "
            "not for one pipeline"
        )
        problems.append((("loader", "master"), reason))
    loader = merged.get("loader")
    if isinstance(loader, dict) and not _has(own, ("loader", "checkpoint")):
        checkpoint = loader.get("checkpoint")
        if isinstance(checkpoint, str):
            loader["checkpoint"] = f"{checkpoint.rstrip('/')}/{name}"
    return (app if usable else None), problems


# ---- what only shows between two


def conflicts(parts: list[PipelineTable]) -> Iterator[Problem]:
    """Yield what two pipelines must not share, with the key of the later one."""
    for index, late in enumerate(parts):
        for early in parts[:index]:
            for path, reason in _conflict(early, late):
                yield (PIPELINES, late.name, *path), reason


def _conflict(early: PipelineTable, late: PipelineTable) -> Iterator[Problem]:
    # Spark's names and many a file system know no case.
    if early.app and late.app and early.app.casefold() == late.app.casefold():
        reason = (
            f"app {late.app!r} is also the app of pipeline {early.name}: the two would share "
            "topics, consumer group, transactional ids, block ids and ledger entries. Give this "
            "pipeline another app"
        )
        yield ("app",) if "app" in late.own else (), reason
    checkpoints = [value_at(part.data, ("loader", "checkpoint")) for part in (early, late)]
    if checkpoints[0] is not None and checkpoints[0] == checkpoints[1]:
        yield (
            ("loader", "checkpoint"),
            f"pipeline {early.name} has the same checkpoint; give each pipeline its own",
        )
    topics = [value_at(part.data, ("source", "topic")) for part in (early, late)]
    beside = bool(_source_brokers(early) & _source_brokers(late))
    if beside and topics[0] == topics[1] and _databases(early) & _databases(late):
        reason = (
            f"pipeline {early.name} also reads {topics[1]!r} from the same brokers into the same "
            "ClickHouse, so every row would be loaded twice; name another topic or other servers"
        )
        yield ("source", "topic"), reason
    for reader, writer in ((early, late), (late, early)):
        topic = value_at(reader.data, ("source", "topic"))
        if not _source_brokers(reader) & _brokers(writer, "kafka"):
            continue
        if writer.app and isinstance(topic, str) and names.is_written(topic, writer.app):
            reason = (
                f"pipeline {reader.name} reads {topic!r}, which pipeline {writer.name} writes; "
                "read another topic, or change the app"
            )
            yield ("source", "topic") if reader is late else (), reason


def _databases(part: PipelineTable) -> set[Address]:
    """The servers that its rows go into."""
    servers = set()
    for url in addresses(value_at(part.data, ("clickhouse", "url"))):
        with contextlib.suppress(ValueError):  # reported as what it is
            servers.add(Address.of(url))
    return servers


def _brokers(part: PipelineTable, *cluster: str) -> set[str]:
    """The brokers of one of its clusters, as the addresses are written."""
    return {
        address.casefold() for address in addresses(value_at(part.data, (*cluster, "bootstrap")))
    }


def _source_brokers(part: PipelineTable) -> set[str]:
    """The brokers that have its source topic."""
    return _brokers(part, "source", "kafka") or _brokers(part, "kafka")


def _has(data: Table, path: KeyPath) -> bool:
    return not path or path[-1] in (holder(data, path) or {})
