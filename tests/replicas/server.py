"""One replica: ClickHouse's own server out of chdb's library, until SIGTERM or SIGKILL.

python -m tests.replicas.server DIRECTORY, in which `settings.json` says what it is.

HTTP's listener is started twice: the first time for other replicas, on an address of its own,
while the clients' port is taken; then for clients. What happens in between waits, inside one
list of statements, for a page that is served here.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from relay.clickhouse.replica_log import SEES_LOGS
from tests.replicas.library import Library
from tests.versions.users import STRICT

SETTINGS = "settings.json"
KEEPALIVE = "keepalive"
USER = "tester"
UNSEEING, SEEING = "unseeing", "seeing"
"""Users of USER's password, who may do all but read `system.zookeeper`; SEEING as much of it as
`relay doctor --grants` prints."""
HOST = "127.0.0.1"
ITSELF = "itself"
"""A cluster of this replica alone."""
_LISTEN = "SYSTEM START LISTEN"
_ALL_BUT = ("GRANT ALL ON *.*", "REVOKE SELECT ON system.zookeeper")
_OTHERS = {UNSEEING: _ALL_BUT, SEEING: (*_ALL_BUT, f"GRANT {SEES_LOGS} ON system.zookeeper")}
_STAY = (
    "SELECT sum(sleepEachRow(1)) FROM numbers(4000000000) SETTINGS max_block_size = 1, "
    f"function_sleep_max_microseconds_per_block = 0, log_comment = '{KEEPALIVE}' FORMAT Null"
)
"""While it runs, the server does."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a replica is.

    Attributes:
        name: for the macro {replica}, and as its display name.
        http, tcp: ports for clients on 127.0.0.1.
        interserver: address for other replicas, at the port `http`.
        coordinator: ZooKeeper's port on 127.0.0.1.
        session_ms: of its session with it.
        password: of USER.
        profile: XML of settings for all users.
        merge_tree: XML of settings for its tables.
    """

    name: str
    http: int
    tcp: int
    interserver: str
    coordinator: int
    session_ms: int
    password: str
    profile: str = ""
    merge_tree: str = ""

    def write(self, directory: Path) -> None:
        """Keep it where the process looks for it."""
        (directory / SETTINGS).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> Settings:
        """What `write` kept."""
        return cls(**json.loads((directory / SETTINGS).read_text(encoding="utf-8")))


def configuration(one: Settings, directory: Path) -> str:
    """config.xml, which local mode reads from the working directory.

    Each has a `sessions_path` of its own: local mode has no server UUID, and replicas of one UUID
    would end each other's sessions. A replica that is killed with a part on disk that it had not
    committed yet stays read-only if that is most of the table: here tables are almost empty.
    """
    logs = "".join(
        f"<{name}><database>system</database><table>{name}</table>"
        f"<flush_interval_milliseconds>1000</flush_interval_milliseconds></{name}>"
        for name in ("query_log", "part_log")
    )
    return f"""<clickhouse>
<logger><log>{directory}/server.log</log><errorlog>{directory}/error.log</errorlog>
<level>information</level><size>50M</size><count>2</count></logger>
<listen_host>{HOST}</listen_host><listen_host>{one.interserver}</listen_host>
<listen_try>1</listen_try>
{STRICT}
<http_port>{one.http}</http_port><tcp_port>{one.tcp}</tcp_port>
<users_config>{directory}/users.xml</users_config>
<display_name>{one.name}</display_name>
<remote_servers><{ITSELF}><shard><replica><host>{HOST}</host><port>{one.tcp}</port>
<user>{USER}</user><password>{escape(one.password)}</password></replica></shard></{ITSELF}></remote_servers>
<macros><shard>1</shard><replica>{one.name}</replica></macros>
<zookeeper><node><host>{HOST}</host><port>{one.coordinator}</port></node>
<session_timeout_ms>{one.session_ms}</session_timeout_ms>
<operation_timeout_ms>{one.session_ms}</operation_timeout_ms>
<sessions_path>/clickhouse/sessions/{one.name}</sessions_path></zookeeper>
<merge_tree><replicated_max_ratio_of_wrong_parts>1</replicated_max_ratio_of_wrong_parts>
{one.merge_tree}</merge_tree>
{logs}
</clickhouse>"""


def users(one: Settings) -> str:
    """users.xml: USER, who may all, _OTHERS, and `default`, whom the process itself acts as."""
    every = "<profile>default</profile><quota>default</quota>"
    may = f"{every}<access_management>1</access_management>"
    profile = f"<default>{one.profile}</default>"
    here = f"<password>{escape(one.password)}</password><networks><ip>{HOST}</ip></networks>{every}"
    grants = {
        name: "".join(f"<query>{sql}</query>" for sql in given) for name, given in _OTHERS.items()
    }
    others = "".join(
        f"<{name}>{here}<grants>{given}</grants></{name}>" for name, given in grants.items()
    )
    return f"""<clickhouse><profiles>{profile}</profiles><quotas><default/></quotas><users>
<default><password></password><networks><ip>::1</ip></networks>{may}</default>
<{USER}>{here}<access_management>1</access_management></{USER}>{others}
</users></clickhouse>"""


class _Gate:
    """A page whose answer comes when `open` is set."""

    def __init__(self) -> None:
        self.open = opened = threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                opened.wait()
                self.do_HEAD()
                self.wfile.write(b"open\n")

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", "5")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def statement(self) -> str:
        """SQL that returns when the gate is open."""
        port = self._server.server_address[1]
        return f"SELECT * FROM url('http://{HOST}:{port}/', 'LineAsString', 's String') FORMAT Null"


def _taken(port: int) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, port))
    held.listen(1)
    return held


def serve(one: Settings, directory: Path) -> str:
    """Serve until the keep-alive statement ends; the error, if that is what ended it."""
    library, gate, held = Library(), _Gate(), _taken(one.http)
    library.be_a_replica(one.interserver, one.http)
    library.show_coordinator()
    library.listen_for(replicas=True)

    def change() -> None:
        while not _connects(one.interserver, one.http):
            time.sleep(0.02)  # the condition is above
        library.listen_for(replicas=False)
        held.close()
        gate.open.set()

    threading.Thread(target=change, daemon=True).start()
    listen = (f"{_LISTEN} HTTP", gate.statement(), f"{_LISTEN} HTTP", f"{_LISTEN} TCP")
    result = library.module.query("; ".join((*listen, _STAY)), "TSV", path=f"{directory}/data")
    return str(result.error_message()) if result.has_error() else ""


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def _end(one: Settings) -> None:
    """Ask the server to end in order."""
    sql = f"KILL QUERY WHERE Settings['log_comment'] = '{KEEPALIVE}' ASYNC"
    asked = urllib.parse.urlencode({"query": sql, "user": USER, "password": one.password})
    with urllib.request.urlopen(f"http://{HOST}:{one.http}/?{asked}", b"", timeout=5) as answer:
        answer.read()


def main() -> None:
    """Run as a process of its own, whose working directory is the replica's."""
    directory = Path(sys.argv[1])
    one = Settings.read(directory)
    (directory / "config.xml").write_text(configuration(one, directory), encoding="utf-8")
    (directory / "users.xml").write_text(users(one), encoding="utf-8")
    os.chdir(directory)
    ended: list[str] = []
    # Python handles signals in the main thread, which the library must not keep.
    thread = threading.Thread(target=lambda: ended.append(serve(one, directory)))
    thread.start()
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=_end, args=(one,), daemon=True).start()
    )
    while thread.is_alive():
        thread.join(0.2)
    print("ended:", ended, flush=True)
    os._exit(0 if ended == [""] else 1)  # the library's own threads do not end


if __name__ == "__main__":
    main()
