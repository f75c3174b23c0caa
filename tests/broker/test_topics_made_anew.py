"""Topics and group deleted, and the app begun anew under its name: FAULTS C4."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from loader.cli import loader
from relay import names
from relay.config import settings_file
from relay.errors import ContractBroken
from tests.broker.pipeline import WAIT_SECONDS, Pipeline, wait_until
from tests.loader.unsparked import Run

if TYPE_CHECKING:
    from pathlib import Path

    from clickhouse_connect.driver.client import Client


def relayed(pipeline: Pipeline, path: Path, ids: range) -> None:
    """The ids as blocks, by a relay that ends again."""
    pipeline.sent.clear()
    pipeline.send(ids)
    process = pipeline.start("a", path)
    pipeline.until(lambda: pipeline.rows().keys() >= {*ids}, "blocks")
    process.send_signal(signal.SIGTERM)
    process.wait(60)


def loaded(path: Path) -> None:
    run = Run(settings_file.load(path))
    try:
        while run.batch():
            pass
    finally:
        run.close()


def deleted(pipeline: Pipeline) -> None:
    """All topics of the app, its source and its group."""
    admin = AdminClient({"bootstrap.servers": pipeline.bootstrap})
    listed = admin.list_topics(timeout=WAIT_SECONDS).topics
    own = [one for one in listed if one.startswith(pipeline.app)]
    for future in admin.delete_topics(own).values():
        future.result(30)
    group = names.group_id(pipeline.app)

    def empty() -> bool:  # a static member stays for its session's time
        return not admin.describe_consumer_groups([group])[group].result(30).members

    wait_until(empty, "the member's end")
    admin.delete_consumer_groups([group])[group].result(30)
    wait_until(
        lambda: not {*own} & {*admin.list_topics(timeout=WAIT_SECONDS).topics}, "the deletion"
    )


WINDOW = " SETTINGS non_replicated_deduplication_window = 1000"


@pytest.mark.parametrize(
    ("stamp", "settings", "truncated"),
    [
        pytest.param(", _block String", "", True, marks=pytest.mark.long),
        pytest.param(", _block String", "", False, marks=pytest.mark.long),
        pytest.param("", WINDOW, True, marks=pytest.mark.long),
        ("", WINDOW, False),
    ],
)
def test_rows_of_a_journal_made_anew_all_come(
    pipeline: Pipeline, client: Client, stamp: str, settings: str, *, truncated: bool
) -> None:
    """Done as the loader advises, 0 of 150 rows came, with status 0.

    Of a table that nobody emptied, the rows that carry a block's id and the tokens in its window
    are of the deleted journal's blocks.
    """
    table = pipeline.table
    client.command(f"DROP TABLE {table}")
    client.command(
        f"CREATE TABLE {table} (id Int64, v String{stamp}) ENGINE = MergeTree ORDER BY id{settings}"
    )
    path = pipeline.config()
    text = path.read_text("utf-8").replace(
        "[loader]\n", f'[loader]\ndatabase = "{pipeline.database}"\n'
    )
    path.write_text(text, "utf-8")

    relayed(pipeline, path, range(150))
    loaded(path)
    assert client.query(f"SELECT count() FROM {table}").result_rows == [(150,)]
    deleted(pipeline)
    if truncated:
        client.command(f"TRUNCATE TABLE {table}")
    pipeline.create_source()
    relayed(pipeline, path, range(1000, 1150))

    with pytest.raises(ContractBroken, match="created again") as stopped:
        loaded(path)
    advice = re.search(
        r"`loader (ledger clean) CONFIG (--gone \S+ --run)`", stopped.value.next_step
    )
    assert advice is not None, stopped.value.next_step
    command = [*advice[1].split(), str(path), *advice[2].split()]
    shown = CliRunner().invoke(loader, command[:-1])
    assert "nothing was changed" in shown.output
    with pytest.raises(ContractBroken, match="created again"):
        loaded(path)
    done = CliRunner().invoke(loader, command)
    assert done.exit_code == 0, done.output

    loaded(path)
    left = f"SELECT count(), uniqExact(id), countIf(id >= 1000) FROM {table}"
    whole = 150 if truncated else 300
    assert client.query(left).result_rows == [(whole, whole, 150)]
    loaded(path)
    assert client.query(left).result_rows == [(whole, whole, 150)]
