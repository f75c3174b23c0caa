"""The loader before two replicas: what is sent to which. Engines that replicate are not to be had
here: both are one endpoint, the first of them closed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
import urllib3
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from loader.clickhouse import client as clickhouse_client
from loader.clickhouse import ledger_table
from loader.clickhouse.tables import Tables
from loader.journal import startup
from relay.config.server_settings import ClickHouse
from relay.errors import ConfigError, Refused
from relay.schema import catalogue
from tests import reach
from tests.loader.blocks import Journal

NOBODY = "http://127.0.0.1:1"
QUORUM = {
    "insert_quorum": "auto",
    "insert_quorum_parallel": "0",
    "insert_quorum_timeout": "60000",
    "select_sequential_consistency": "1",
}


class Recorded:
    """Hands on to the endpoint what comes, and notes each statement's settings."""

    def __init__(self, server: ClickHouse) -> None:
        self.statements: list[tuple[str, dict[str, str]]] = []
        outer, behind = self, urllib3.PoolManager()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                given = {k: v[-1] for k, v in parse_qs(urlsplit(self.path).query).items()}
                outer.statements.append((given.pop("query", body.decode("latin-1")), given))
                headers = {k: v for k, v in self.headers.items() if k != "Host"}
                answer = behind.request(
                    self.command, server.url + self.path, body=body, headers=headers, timeout=60
                )
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.startswith(("X-", "Content-Type")):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.data)))
                self.end_headers()
                self.wfile.write(answer.data)

            do_GET = do_POST  # noqa: N815 - the name is the library's

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.reached = reach.elsewhere(server, f"http://127.0.0.1:{self._server.server_address[1]}")
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def settings_of(self, beginning: str) -> dict[str, str]:
        """Of the last statement that begins so."""
        return [given for sql, given in self.statements if sql.startswith(beginning)][-1]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def second(clickhouse: ClickHouse) -> Iterator[Recorded]:
    made = Recorded(clickhouse)
    yield made
    made.stop()


def test_the_next_replica_gets_the_quorum_with_every_statement(
    second: Recorded, database: str
) -> None:
    """Inserts and questions, from the first contact on, though the first replica is away."""
    replicas = second.reached.model_copy(
        update={"url": f"{NOBODY},{second.reached.url}", "insert_quorum": "auto"}
    )
    client = clickhouse_client.connect(replicas, 60)
    client.command(f"CREATE TABLE {database}.t (id Int64) ENGINE MergeTree ORDER BY id")
    client.command(f"INSERT INTO {database}.t VALUES (1)", settings={"async_insert": 0})
    assert client.query(f"SELECT id FROM {database}.t").result_rows == [(1,)]
    for beginning in ("INSERT", "SELECT id"):
        assert second.settings_of(beginning).items() >= QUORUM.items()
    client.close()
    # What reads alone asks no quorum of anybody, and a lagging replica not at all.
    reader = catalogue.connect(replicas)
    assert reader.query(f"SELECT id + 1 FROM {database}.t").result_rows == [(2,)]
    given = second.settings_of("SELECT id + 1")
    assert given["select_sequential_consistency"] == "1"
    assert "insert_quorum" not in given
    reader.close()


def test_one_server_is_told_of_no_quorum(second: Recorded) -> None:
    """Negative control: without the setting nothing is sent."""
    client = clickhouse_client.connect(second.reached, 60)
    client.query("SELECT 40 + 2")
    assert not second.settings_of("SELECT 40").keys() & QUORUM.keys()
    client.close()


def test_where_no_replica_answers_it_says_so() -> None:
    nobody = ClickHouse(url=f"{NOBODY},http://127.0.0.1:2", insert_quorum=2)
    with pytest.raises(
        clickhouse_client.Unavailable, match=r"127\.0\.0\.1:1,http://127\.0\.0\.1:2"
    ):
        clickhouse_client.connect(nobody, 5)
    with pytest.raises(ClickHouseError):
        catalogue.connect(nobody)


def test_what_is_on_one_replica_alone_is_refused(
    journal: Journal, second: Recorded, database: str, client: Client
) -> None:
    """Else what an INSERT left on one would be looked for, in vain, on another."""
    client.command(f"CREATE TABLE {database}.t (id Int64) ENGINE MergeTree ORDER BY id")
    table = f"{database}.t"
    assert table in Tables(clickhouse_client.connect(second.reached, 60), "_block").look({table})
    alone = journal.settings()
    replicas = {"url": f"{second.reached.url},{NOBODY}", "insert_quorum": 2}
    several = alone.model_copy(update={"clickhouse": second.reached.model_copy(update=replicas)})
    connected = clickhouse_client.connect(several.clickhouse, 60)
    with pytest.raises(Refused, match="is not replicated: it is a MergeTree"):
        Tables(connected, "_block", several=True).look({table})
    with pytest.raises(ConfigError, match="ledger is not replicated") as unmade:
        startup.ledger_of(several, make=True)
    statements = "; ".join(ledger_table.create_replicated(several.loader.database))
    assert f"Run this on each of them: {statements}. " in unmade.value.next_step
    assert not client.command(f"EXISTS DATABASE {several.loader.database}")
    startup.ledger_of(alone, make=True)
    with pytest.raises(ConfigError, match="ledger is not replicated") as local:
        startup.ledger_of(several)
    assert f"{statements}. Then on that server: INSERT INTO" in local.value.next_step
    client.command(f"DROP DATABASE {several.loader.database}")
