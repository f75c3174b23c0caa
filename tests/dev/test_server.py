"""ClickHouse out of chdb's library: what relay and loader need of a server, and who gets in."""

from __future__ import annotations

import contextlib
import socket
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import numpy as np
import psutil
import pyarrow as pa
import pytest
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError
from clickhouse_connect.driver.summary import QuerySummary

from relay.config.server_settings import ClickHouse
from relay.dev.layout import HOST
from relay.dev.stack import Stack
from tests import reach
from tests.broker.pipeline import wait_until

SINGLE_BLOCK = {
    "max_insert_block_size": "10000000",
    "max_insert_threads": "1",
    "input_format_parallel_parsing": "0",
    "async_insert": "0",
    "insert_deduplicate": "1",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
}
ROWS = 200_000


@pytest.fixture
def table(client: Client, database: str) -> str:
    name = f"{database}.t"
    client.command(
        f"CREATE TABLE {name} (a UInt64, b String, _block String) ENGINE MergeTree ORDER BY a "
        "SETTINGS non_replicated_deduplication_window = 2"
    )
    return name


@pytest.fixture
def ledger(client: Client, database: str) -> str:
    name = f"{database}.ledger"
    client.command(
        f"CREATE TABLE {name} (block String, state String) ENGINE MergeTree ORDER BY block"
    )
    return name


def _rows(start: int = 0, count: int = ROWS) -> pa.RecordBatch:
    a = np.arange(start, start + count, dtype=np.uint64)
    return pa.record_batch({"a": pa.array(a), "b": pa.array(a % 97).cast(pa.string())})


def _file_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _count(client: Client, table: str) -> int:
    return int(str(client.command(f"SELECT count() FROM {table}")))


def _parts(client: Client, table: str) -> int:
    sql = (
        "SELECT count() FROM system.parts "
        "WHERE active AND concat(database, '.', table) = {t:String}"
    )
    return int(client.query(sql, parameters={"t": table}).result_rows[0][0])


def _conditional(
    client: Client, table: str, ledger: str, block: str, *, guard: bool = True
) -> None:
    condition = (
        f"(SELECT count() FROM {ledger} WHERE block = {{block:String}} AND state = 'loaded') = 0"
    )
    sql = (
        f"INSERT INTO {table} (a, b, _block) SETTINGS insert_deduplication_token = '{block}' "
        "SELECT a, b, {block:String} FROM input('a Nullable(UInt64), b Nullable(String)') "
        + (f"WHERE {condition} " if guard else "")
        + "FORMAT Arrow"
    )
    data = _file_bytes(_rows())
    client.command(sql, parameters={"block": block}, data=data, settings=SINGLE_BLOCK)


def test_rows_of_many_types_come_back(client: Client, database: str) -> None:
    """client.insert and client.query (Native) agree about values of every basic type."""
    client.command(
        f"CREATE TABLE {database}.v (i Int8, u UInt64, f Float64, s LowCardinality(String), "
        "n Nullable(Int32), d Date, t DateTime64(6, 'UTC'), e Enum8('x' = 1), g UUID, "
        "b Bool) ENGINE MergeTree ORDER BY i"
    )
    sql = f"SELECT * FROM {database}.v ORDER BY i"
    client.command(
        f"INSERT INTO {database}.v VALUES (-1, 18446744073709551615, 0.5, 'é', NULL, '2024-02-29', "
        "'2024-02-29 01:02:03.000004', 'x', '61f0c404-5cb3-11e7-907b-a6006ad3dba0', true)"
    )
    first = client.query(sql).result_rows
    client.insert(f"{database}.v", first, column_names="*")
    assert client.query(sql).result_rows == [*first, *first]
    assert first[0][:5] == (-1, 2**64 - 1, 0.5, "é", None)


def test_arrow_both_ways(client: Client, table: str) -> None:
    """insert_arrow and query_arrow carry a record batch of 200 000 rows unchanged."""
    batch = pa.Table.from_batches([_rows()])
    summary = client.insert_arrow(table, batch)
    assert summary.written_rows == ROWS
    back = client.query_arrow(f"SELECT a, b FROM {table} ORDER BY a", use_strings=True)
    assert back.cast(batch.schema).equals(batch)


def test_an_insert_says_what_it_wrote(client: Client, table: str) -> None:
    """As of a server, whose answer to an INSERT has no format, which would make it a result."""
    told = client.command(f"INSERT INTO {table} (a) SELECT number FROM numbers(7)")

    assert isinstance(told, QuerySummary)
    assert told.written_rows == 7
    assert client.command(f"SELECT count() FROM {table}") == 7


@pytest.mark.parametrize("compression", [None, "lz4", "zstd", "gzip"])
def test_raw_insert_compressed(client: Client, table: str, compression: str | None) -> None:
    """raw_insert goes in whatever way its body is compressed, binary line breaks included."""
    data = b'1,"x\ny"\n2,z\n'
    codec = {"lz4": "lz4", "zstd": "zstd", "gzip": "gzip"}.get(compression or "")
    if codec:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        data = sink.getvalue().to_pybytes()
    client.raw_insert(table, ["a", "b"], data, fmt="CSV", compression=compression)
    assert client.query(f"SELECT a, b FROM {table} ORDER BY a").result_rows == [
        (1, "x\ny"),
        (2, "z"),
    ]


@pytest.mark.parametrize("form", [False, True])
def test_bound_parameters(connect: Callable[..., Client], form: bool) -> None:
    """Bound text comes back as it is, from the URL and from a multipart form."""
    client = connect(form_encode_query_params=form)
    text = 'it\'s \\ "a"\n\t{x:String} ; DROP ü €'
    rows = client.query("SELECT {t:String}, {n:Int64}", parameters={"t": text, "n": -5}).result_rows
    assert rows == [(text, -5)]
    assert client.raw_query("SELECT {t:String}", parameters={"t": "ü"}, fmt="TSV") == "ü\n".encode()
    client.close()


def test_settings_are_of_one_query(client: Client) -> None:
    """A setting in the URL holds for its query and not for the next one."""
    sql = "SELECT getSetting('max_block_size')"
    before = client.query(sql).result_rows
    assert client.query(sql, settings={"max_block_size": 7}).result_rows == [(7,)]
    assert client.query(sql).result_rows == before != [(7,)]


@pytest.mark.parametrize(
    ("sql", "code", "status"),
    [
        ("SELECT 1 FROM nowhere.nothing", 81, 404),
        ("SELECT nothing", 47, 404),
        ("SELECT FROM WHERE", 62, 400),
        ("SELECT throwIf(1)", 395, 500),
    ],
)
def test_errors_have_code_and_status(
    client: Client, clickhouse: ClickHouse, sql: str, code: int, status: int
) -> None:
    """An error carries ClickHouse's code in header and text."""
    request = urllib.request.Request(clickhouse.url, sql.encode(), reach.headers(clickhouse))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    assert (caught.value.code, caught.value.headers["X-ClickHouse-Exception-Code"]) == (
        status,
        str(code),
    )
    with pytest.raises(DatabaseError, match=rf"(?i)code:? {code}\b"):
        client.query(sql)


def test_token_makes_one_copy_within_the_window(client: Client, table: str) -> None:
    """The same token twice is one copy and one part; behind the window it is two (the control)."""
    batch = pa.Table.from_batches([_rows()])

    def insert(token: str) -> None:
        client.insert_arrow(
            table, batch, settings={**SINGLE_BLOCK, "insert_deduplication_token": token}
        )

    insert("one")
    insert("one")
    assert (_count(client, table), _parts(client, table)) == (ROWS, 1)
    insert("two")
    insert("three")  # the window of 2 has lost "one"
    insert("one")
    assert _count(client, table) == 4 * ROWS


def test_conditional_insert_asks_the_ledger(client: Client, table: str, ledger: str) -> None:
    """A loaded block inserts nothing, also outside the window; without the condition it does."""
    _conditional(client, table, ledger, "b1")
    assert (_count(client, table), _parts(client, table)) == (ROWS, 1)
    _conditional(client, table, ledger, "b1")
    assert _count(client, table) == ROWS, "the token within the window"
    client.command(f"INSERT INTO {ledger} VALUES ('b1', 'loaded')")
    for other in ("b2", "b3"):
        _conditional(client, table, ledger, other)
    _conditional(client, table, ledger, "b1")
    of_b1 = f"SELECT count() FROM {table} WHERE _block = 'b1'"
    assert client.query(of_b1).result_rows == [(ROWS,)]
    _conditional(client, table, ledger, "b1", guard=False)
    assert client.query(of_b1).result_rows == [(2 * ROWS,)], "control: the ledger was the guard"


def test_damaged_data_leaves_nothing(client: Client, table: str, ledger: str) -> None:
    """An INSERT whose data ends early is an error, and no row of it stays."""
    data = _file_bytes(_rows())
    with pytest.raises(DatabaseError):
        client.raw_insert(table, ["a", "b"], data[: len(data) // 2], fmt="Arrow")
    assert _count(client, table) == 0
    with pytest.raises(DatabaseError):
        client.command(
            f"INSERT INTO {table} (a) SELECT a FROM input('a UInt64') FORMAT Arrow", data=data[:999]
        )
    assert _count(client, table) == 0
    assert _count(client, ledger) == 0


def test_queries_run_side_by_side(connect: Callable[..., Client]) -> None:
    """Four slow queries run at once, until somebody ends them."""
    sql = "SELECT sum(sleepEachRow(0.1)) FROM numbers(600) SETTINGS max_block_size = 1"
    admin = connect()

    def ask(client: Client) -> None:
        with contextlib.suppress(DatabaseError):
            client.query(sql, settings={"log_comment": "side by side"})

    these = "Settings['log_comment'] = 'side by side' AND query_kind = 'Select'"
    running = f"SELECT count() FROM system.processes WHERE {these}"
    threads = [threading.Thread(target=ask, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: admin.query(running).result_rows == [(4,)], "all four run")
    finally:
        admin.command(f"KILL QUERY WHERE {these} SYNC")
        for thread in threads:
            thread.join()


def test_concurrent_inserts_keep_every_row(connect: Callable[..., Client], table: str) -> None:
    """Eight clients inserting and counting at once lose and double nothing."""
    failures: list[Exception] = []

    def insert(index: int) -> None:
        client = connect()
        try:
            for turn in range(10):
                start = (index * 10 + turn) * 1000
                client.insert_arrow(table, pa.Table.from_batches([_rows(start, 1000)]))
                client.query(f"SELECT count() FROM {table}")
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)
        client.close()

    threads = [threading.Thread(target=insert, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = connect().query(f"SELECT count(), uniqExact(a), max(a) FROM {table}").result_rows
    assert rows == [(80_000, 80_000, 79_999)]


def test_merges_give_way(client: Client) -> None:
    """The server has read its configuration: it says so itself."""
    asked = "SELECT toInt8(value) FROM system.server_settings WHERE name = {name:String}"
    name = {"name": "os_threads_nice_value_merge_mutate"}
    assert client.query(asked, parameters=name).result_rows == [(10,)]


def _asked(clickhouse: ClickHouse, path: str, body: bytes | None, **headers: str) -> int:
    """The status of one request, sent to the letter as a page in a browser would send it."""
    url = urlsplit(clickhouse.url)
    connection = HTTPConnection(url.hostname or "", url.port, timeout=30)
    try:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request("GET" if body is None else "POST", path, body, named)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


DROP = "DROP TABLE {table}"
WRITE = "INSERT INTO FUNCTION file('{file}', 'LineAsString', 's String') SELECT 'from a page'"
READ = "SELECT * FROM file('/etc/passwd', 'LineAsString')"
STOP = "SYSTEM STOP LISTEN HTTP"
KILL = "KILL QUERY WHERE 1"
PAGE = {"Origin": "http://page.example"}
REBOUND = {"Host": "page.example", "Origin": "http://page.example"}
FORM = {**PAGE, "Content_Type": "text/plain"}
"""What a browser sends to a foreign address without asking it first."""


@pytest.mark.parametrize("statement", ["SELECT 1", DROP, WRITE, READ, STOP, KILL])
@pytest.mark.parametrize("headers", [PAGE, REBOUND, FORM], ids=["page", "rebound", "form"])
@pytest.mark.parametrize("who", ["", "user=default", "user=dev", "user=dev&password=guessed"])
def test_a_page_in_a_browser_gets_nowhere(
    client: Client,
    clickhouse: ClickHouse,
    database: str,
    tmp_path: Path,
    who: str,
    headers: dict[str, str],
    statement: str,
) -> None:
    """Without the password each request is refused, by GET and by POST, and changes nothing.

    The name `default`, which the engine's own session has, is refused too: no setting in the
    address raises its number of sessions.
    """
    client.command(f"CREATE TABLE {database}.t (a UInt8) ENGINE Memory")
    written = tmp_path / "written"
    sql = statement.format(table=f"{database}.t", file=written)
    query = urlencode({"query": sql, "max_sessions_for_user": "9"})
    for path, body in ((f"/?{who}&{query}", None), (f"/?{who}", sql.encode())):
        assert _asked(clickhouse, path, body, **headers) in {403, 500}
    assert not written.exists()
    assert client.command(f"EXISTS {database}.t") == 1


def test_the_password_opens(clickhouse: ClickHouse, tmp_path: Path) -> None:
    """Negative control of the test above: the same requests with the password do what they say."""
    written = tmp_path / "written"
    query = urlencode({"query": READ, "user": clickhouse.user, "password": clickhouse.secret()})
    assert _asked(clickhouse, f"/?{query}", None, **REBOUND) == 200
    reach.sql(clickhouse, WRITE.format(file=written))
    assert written.read_text() == "from a page\n"


def test_the_native_protocol_wants_the_password_too(stack: Stack) -> None:
    """A hello as `default`, and as the user with a wrong password, is answered by an exception;
    with the right one by the server's name."""

    def hello(user: str, password: str) -> bytes:
        texts = (b"test", b"", user.encode(), password.encode())
        name, *rest = (bytes([len(text)]) + text for text in texts)
        with socket.create_connection((HOST, stack.clickhouse_tcp_port), timeout=30) as peer:
            # Client hello, version 1.1, revision 54058.
            peer.sendall(b"\0" + name + b"\1\1" + b"\xaa\xa6\3" + b"".join(rest))
            return peer.recv(4096)

    exception, server = 2, 0
    assert hello("default", "")[0] == exception
    assert hello(stack.clickhouse.user, "guessed")[0] == exception
    right = hello(stack.clickhouse.user, stack.clickhouse.secret())
    assert (right[0], b"ClickHouse" in right) == (server, True)


def test_it_listens_on_loopback_alone(stack: Stack) -> None:
    """Both ports, and no other one of its process."""
    server = psutil.Process(stack.clickhouse_pid)
    listening = {c.laddr for c in server.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    port = urlsplit(stack.clickhouse.url).port
    assert listening == {(HOST, port), (HOST, stack.clickhouse_tcp_port)}


def test_secrets_are_for_their_owner_alone(stack: Stack) -> None:
    """The files that hold the password or its digest have mode 0600."""
    place = stack.directory / "clickhouse-server"
    files = [stack.clickhouse.password_file, place / "users.xml", place / "config.xml"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in files if file] == [0o600] * 3
    assert stack.clickhouse.secret() not in (place / "users.xml").read_text()


def test_it_records_statements_and_parts(client: Client, table: str) -> None:
    """query_log and part_log name an INSERT by its comment within seconds: evidence for the
    loader. Rows of both end after days, so that neither grows without bound."""
    comment = f"comment of {table}"
    client.command(f"INSERT INTO {table} (a) VALUES (1), (2)", settings={"log_comment": comment})
    asked = (
        "SELECT q.written_rows, p.rows FROM system.query_log q JOIN system.part_log p "
        "ON p.query_id = q.query_id WHERE q.type = 'QueryFinish' AND p.event_type = 'NewPart' "
        "AND q.log_comment = {comment:String}"
    )
    rows: list[tuple[int, int]] = []

    def recorded() -> bool:
        rows[:] = client.query(asked, parameters={"comment": comment}).result_rows
        return bool(rows)

    wait_until(recorded, "query_log and part_log", 20)
    assert rows == [(2, 2)]
    kept = "SELECT name, engine_full FROM system.tables WHERE database = 'system' AND name IN "
    logs = dict(client.query(f"{kept} ('query_log', 'part_log')").result_rows)
    assert len(logs) == 2
    assert all("TTL event_date + toIntervalDay(3)" in engine for engine in logs.values())
