"""`python -m tests.verify.scale`: how long `relay verify --once` takes over a long journal.

With `--deep ROWS`: how fast `--deep` is beside the loader (tests.verify.deepscale).

Starts a broker of its own in a temporary directory, writes a clean journal in the product's
record formats with the offsets that belong to it, and times the command as an operator runs it.
"""

from __future__ import annotations

import json
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.config.server_settings import ClickHouse
from relay.core.offsets import CommittedOffset
from relay.dev import stack as dev
from relay.dev.clickhouse import toml
from relay.errors import NotExactlyOnce, Unavailable
from relay.program.command import run_main
from relay.records_pb2 import Commit
from tests.verify import deepscale
from tests.verify.histories import APP, SOURCE, clean
from tests.verify.laps import laps
from tests.verify.running import timed

HISTORY = 4_000
"""Records made by the core, for each partition; the rest are laps of them."""
SECONDS = 30.0


@click.command()
@click.option(
    "--records", type=click.IntRange(min=1), default=1_000_000, show_default=True, help="In all."
)
@click.option(
    "--partitions", type=click.IntRange(min=1), default=4, show_default=True, help="Of the journal."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Audits.")
@click.option(
    "--deep",
    "rows",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Load so many rows instead, and time --deep beside the loader.",
)
@click.option(
    "--per-message",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="With --deep: rows in a source message.",
)
def scale(records: int, partitions: int, runs: int, rows: int | None, per_message: int) -> None:
    """Write a clean journal, audit it, print seconds and memory.

    Ends with status 1 where the audit finds anything, or misses a record.
    """
    with tempfile.TemporaryDirectory(prefix="block-relay-scale-") as place:
        directory = Path(place)
        if rows is not None:
            found = deepscale.measured(directory, rows, per_message, runs, _progress)
            click.echo(json.dumps(found))
            return
        try:
            stack = dev.up(directory / "servers", progress=_progress)
            config = _config(directory, stack.bootstrap, stack.clickhouse)
            began = time.monotonic()
            _write(stack.bootstrap, records, partitions)
            _progress(f"{records:,} records written in {time.monotonic() - began:.0f} s")
            for _ in range(runs):
                click.echo(json.dumps(_audit(config, records)))
        finally:
            dev.down(directory / "servers")
    click.echo(
        f"{platform.machine()}, {psutil.cpu_count()} cores, Python {platform.python_version()}"
    )


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _config(directory: Path, bootstrap: str, clickhouse: ClickHouse) -> Path:
    path = directory / "relay.toml"
    path.write_text(
        f"""
app = "{APP}"
[kafka]
bootstrap = "{bootstrap}"
[source]
topic = "{SOURCE}"
start = "earliest"
[clickhouse]
{toml(clickhouse)}[loader]
checkpoint = "{directory}/checkpoint"
""",
        encoding="utf-8",
    )
    return path


def _write(bootstrap: str, records: int, partitions: int) -> None:
    """The journal, and the group's offsets at its heads."""
    topic = names.journal_topic(APP)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, partitions, 1) for name in (topic, SOURCE)]
    for made in admin.create_topics(new).values():
        made.result(SECONDS)
    producer = Producer({
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 50,
        "batch.size": 1_000_000,
        "message.timeout.ms": round(SECONDS * 1000),
    })  # fmt: skip
    heads = []
    for partition in range(partitions):
        many = records // partitions + (partition < records % partitions)
        for commit in laps(clean(partition, HISTORY), many):
            commit.partition = partition
            for block in commit.blocks:
                block.partition = partition
                app, table, _, epoch, first = block.id.split(":")
                block.id = f"{app}:{table}:{partition}:{epoch}:{first}"
            _produce(producer, topic, partition, commit)
        entry = CommittedOffset(commit.floor, commit.n, many - 1)
        head = TopicPartition(SOURCE, partition, commit.floor, metadata=entry.metadata)
        heads.append(head)
        _progress(f"partition {partition}: {many:,} records")
    if producer.flush(SECONDS):
        raise Unavailable(
            f"{len(producer)} records were not acknowledged", "look at the broker's log"
        )
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": names.group_id(APP)})
    consumer.commit(offsets=heads, asynchronous=False)
    consumer.close()


def _produce(producer: Producer, topic: str, partition: int, commit: Commit) -> None:
    value = commit.SerializeToString()
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:  # the client's queue is full: let it send
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _audit(config: Path, records: int) -> dict[str, Any]:
    """One run of the command: its own figures, the clock on the wall, the most memory it held."""
    relay = Path(sys.executable).parent / "relay"
    output, wall, most = timed([relay, "verify", config, "--once", "--json"])
    totals = json.loads(output.splitlines()[-1])
    if totals["journal_records"] != records or totals["anomalies"]:
        raise NotExactlyOnce(f"{totals}, {records} records written")
    return {
        "records": records,
        "blocks": totals["blocks"],
        "audit_seconds": round(totals["seconds"], 1),
        "wall_seconds": round(wall, 1),
        "records_per_second": round(records / totals["seconds"]),
        "most_memory_mb": most >> 20,
    }


if __name__ == "__main__":
    # SIGTERM ends it as Ctrl-C does, so that it ends its servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run_main(scale, "python -m tests.verify.scale"))
