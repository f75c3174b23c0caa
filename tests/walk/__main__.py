"""Follow one row through a real relay and loader: `python -m tests.walk`.

Prints the product's files in the order in which a row's way first touches them, how many there are,
and how often that way comes back to a room which it had left: first all files that are gone through
while the row is under way, then those that the row's bytes pass, from the poll to the INSERT
(tests.walk.recorder). The row is the second of its table: what a program looks up once, at a
table's first row, is not a row's way.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from clickhouse_connect.driver.client import Client
from confluent_kafka import Producer

from relay.dev import stack as dev_stack
from relay.dev.stack import Stack
from tests import reach
from tests.broker.pipeline import Pipeline, length_prefixed, wait_until
from tests.walk import recorder

ROOT = Path(__file__).resolve().parents[2]
STAGES = [stage for stage, *_ in recorder.STAGES.values()]
LEAVES = [last for stage, _, (last, _) in recorder.STAGES.values() if stage in {"relay", "worker"}]
"""The files from which the bytes leave the programs. They are on the way, or the row was lost."""
DEADLINE = 180.0


@contextmanager
def servers(directory: Path) -> Iterator[Stack]:
    """A broker and a ClickHouse server of its own."""
    try:
        yield dev_stack.up(directory, progress=print)
    finally:
        dev_stack.down(directory)


def recorded(into: Path) -> dict[str, list[str]]:
    """The last way through each stage that some process has noted."""
    ways = {}
    for file in sorted(into.glob("*.jsonl"), key=lambda file: file.stat().st_mtime):
        for line in file.read_text(encoding="utf-8").splitlines():
            noted = json.loads(line)
            ways[noted["stage"]] = noted["way"]
    return ways


def passed(into: Path) -> list[str]:
    """The files that the bytes passed, in the order in which the processes had them."""
    noted = [
        json.loads(line)
        for file in into.glob("*.bytes")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return list(dict.fromkeys(one["file"] for one in sorted(noted, key=lambda one: one["at"])))


def walk(directory: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Send two rows, one after the other; return the second one's ways, and its bytes' way."""
    into = directory / "ways"
    into.mkdir()
    with servers(directory / "stack") as stack:
        app = f"w{uuid.uuid4().hex[:8]}"
        pipeline = Pipeline(stack.bootstrap, stack.clickhouse, app, app, directory)
        pipeline.create_source()
        client = reach.client(stack.clickhouse)
        client.command(f"CREATE DATABASE {app}")
        client.command(
            f"CREATE TABLE {pipeline.table} (id Int64, v String, _block String) "
            "ENGINE = MergeTree ORDER BY id "
            "SETTINGS non_replicated_deduplication_window = 1000"
        )
        loader = None
        try:
            with profiled(directory, into):
                config = pipeline.config()
                pipeline.start("a", config)
                command = [Path(sys.executable).parent / "loader", "run", config]
                loader = subprocess.Popen(command)
            for row in (1, 2):
                text = secrets.token_hex(12)
                if row > 1:
                    (into / recorder.MARKER).write_text(text, encoding="utf-8")
                send(pipeline, row, text)
                wait_until(partial(holds, client, pipeline.table, row), f"row {row}", DEADLINE)
        finally:
            if loader is not None:
                loader.terminate()
                loader.wait(60)
            pipeline.stop_all()
    return recorded(into), passed(into)


def send(pipeline: Pipeline, row: int, text: str) -> None:
    """Send a row with this text to the source."""
    producer = Producer({"bootstrap.servers": pipeline.source_bootstrap, "acks": "all"})
    fields = b"\x08" + bytes([row]) + b"\x12" + length_prefixed(text.encode())
    pipeline.produce(producer, b"\x0a" + length_prefixed(fields), 0)
    assert producer.flush(30) == 0


def holds(client: Client, table: str, rows: int) -> bool:
    """Whether the table has so many rows."""
    return bool(client.query(f"SELECT count() = {rows} FROM {table}").result_rows[0][0])


@contextmanager
def profiled(directory: Path, into: Path) -> Iterator[None]:
    """Have every Python process that is started meanwhile note its ways."""
    site = directory / "site"
    site.mkdir()
    begin = f"from {recorder.__name__} import begin\n\nbegin()\n"
    (site / "sitecustomize.py").write_text(begin, encoding="utf-8")
    before = dict(os.environ)
    path = os.pathsep.join([str(site), str(ROOT)])  # this checkout, whichever is installed
    os.environ.update(PYTHONPATH=path, WALK_ROOT=str(ROOT), WALK_INTO=str(into))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def first_touches(ways: dict[str, list[str]]) -> list[str]:
    """Every file once, in the order of the stages."""
    return list(dict.fromkeys(file for stage in STAGES for file in ways[stage]))


def returns(files: list[str]) -> list[str]:
    """The files at which the order of first touches comes back to a room that it had left."""
    found, left, here = [], set[str](), ""
    for file in files:
        room = str(Path(file).parent)
        if room != here:
            left.add(here)
            if room in left:
                found.append(file)
            here = room
    return found


def show(files: list[str]) -> None:
    """Print them with their numbers, and where they come back."""
    back = returns(files)
    for number, file in enumerate(files, 1):
        print(f"{number:3d} {file}{'  <- back' if file in back else ''}")


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        ways, bytes_way = walk(Path(directory))
    if missing := [file for file in LEAVES if file not in bytes_way]:
        print(f"the row's bytes were lost: they were not seen in {', '.join(missing)}")
        return 1
    files = first_touches(ways)
    show(files)
    for stage in STAGES:
        print(f"{stage}: {len(set(ways[stage]))} files, {len(ways[stage])} changes of file")
    print(f"{len(files)} files; back in a room {len(returns(files))} times")
    print("\nof these, the row's bytes pass:")
    show(bytes_way)
    print(f"{len(bytes_way)} files; back in a room {len(returns(bytes_way))} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
