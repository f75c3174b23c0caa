"""ClickHouse's own server out of chdb's library, with the logs and users that a test wants.

Receives a directory; gives a server with query, part and view logs, all rights for `default`, and
users with fewer.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from relay.dev.layout import free_ports

LOGS = ("query_log", "part_log", "query_views_log")
CLERK = "clerk"
"""May read the tables of `OFFICE` and ledgers, and nothing of the system's."""
AUDITOR = "auditor"
"""May read everything, but of the table `hidden` in `OFFICE` only rows with `id >= 5`."""
ONLOOKER = "onlooker"
"""May read everything and set nothing: `readonly = 1` in the profile."""
OFFICE = "office"

_CONFIG = """<clickhouse>
<listen_host>127.0.0.1</listen_host><http_port>{port}</http_port>
<logger><log>server.log</log><errorlog>err.log</errorlog><level>information</level></logger>
<users_config>{users}</users_config>{logs}</clickhouse>"""
_LOG = """<{name}><database>system</database><table>{name}</table>
<flush_interval_milliseconds>{flush_ms}</flush_interval_milliseconds></{name}>"""
_USERS = """<clickhouse><profiles><default/>
<reading><readonly>1</readonly></reading></profiles><quotas><default/></quotas><users>
<default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
<quota>default</quota><access_management>1</access_management></default>
<{clerk}><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
<quota>default</quota><default_database>{database}</default_database>
<grants><query>GRANT SELECT ON {database}.*</query><query>GRANT SELECT ON lt*.*</query></grants>
</{clerk}>
<{auditor}><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile>
<quota>default</quota><default_database>{database}</default_database>
<grants><query>GRANT SELECT ON *.*</query></grants>
<databases><{database}><hidden><filter>id >= 5</filter></hidden></{database}></databases>
</{auditor}>
<{onlooker}><password></password><networks><ip>127.0.0.1</ip></networks><profile>reading</profile>
<quota>default</quota><default_database>{database}</default_database>
</{onlooker}></users></clickhouse>"""
_PROGRAM = """
import os, sys
from chdb import _chdb
os.chdir(sys.argv[1])
_chdb.query(
    "SYSTEM START LISTEN HTTP; SELECT sum(sleepEachRow(1)) FROM numbers(4000000000) SETTINGS "
    "max_block_size=1, function_sleep_max_microseconds_per_block=0 FORMAT Null",
    "TSV", path=os.path.join(sys.argv[1], "data"))
"""
_SECONDS = 60.0


def client(port: int, user: str = "default") -> Client:
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=port, username=user, autogenerate_session_id=False
    )


def log_seconds(port: int) -> float:
    """How old the younger of the logs of statements and parts is; both have a record then."""
    with contextlib.closing(client(port)) as asked:
        asked.command(
            "CREATE TABLE IF NOT EXISTS default.first (n Int8) ENGINE = MergeTree ORDER BY n"
        )
        asked.command("INSERT INTO default.first VALUES (1)")
        asked.command("SYSTEM FLUSH LOGS")
        ages = [
            asked.query(f"SELECT now64(3) - min(event_time_microseconds) FROM system.{log}")
            for log in ("query_log", "part_log")
        ]
        return min(float(age.result_rows[0][0]) for age in ages)


@contextlib.contextmanager
def running(directory: Path, flush_ms: int = 7_500) -> Iterator[int]:
    """The server's HTTP port; it writes its logs every `flush_ms`, of itself."""
    (port,) = free_ports(1)
    users = directory / "users.xml"
    named = {"clerk": CLERK, "auditor": AUDITOR, "onlooker": ONLOOKER, "database": OFFICE}
    users.write_text(_USERS.format(**named))
    logs = "".join(_LOG.format(name=name, flush_ms=flush_ms) for name in LOGS)
    (directory / "config.xml").write_text(_CONFIG.format(port=port, users=users, logs=logs))
    with (directory / "out.log").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(directory)], stdout=out, stderr=out
        )
    try:
        _answers(process, port)
        yield port
    finally:
        process.kill()
        process.wait()


def _answers(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=10).close()
        except OSError:
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.1)  # the condition is in the next question
        else:
            return
