"""Several replicas behind one client: which is asked, what is never sent twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from urllib3.exceptions import HTTPError

from relay.clickhouse.http_pool import Trust
from relay.clickhouse.replicas import ReplicaPool, is_shared, reading, writing
from relay.config.server_settings import ClickHouse


class Replica:
    """Answers each request with its own name; `answers`: says what it does next."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.answers = True
        self.code = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.paths.append(self.path)
                if not outer.answers:
                    self.connection.close()  # after it took the statement: its outcome is unknown
                    return
                self.send_response(500 if outer.code else 200)
                if outer.code:
                    self.send_header("X-ClickHouse-Exception-Code", outer.code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.server.shutdown()
            self._thread.join()
            self.server.server_close()


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    made = [Replica(), Replica(), Replica()]
    yield made
    for one in made:
        one.stop()


def turn(replicas: list[Replica]) -> ReplicaPool:
    return ReplicaPool(tuple(one.url for one in replicas), Trust())


def send(pool: ReplicaPool, replicas: list[Replica], path: str) -> int:
    """As clickhouse-connect does: to the first replica's address, without retries."""
    answer = pool.request("POST", f"{replicas[0].url}{path}", body=b"x", retries=0, timeout=20)
    return answer.status


def test_one_is_asked_until_it_fails_then_the_next(replicas: list[Replica]) -> None:
    """A statement that got no answer is not sent again: only what comes after it goes on."""
    pool = turn(replicas)
    assert send(pool, replicas, "/?query=1") == 200
    replicas[0].answers = False
    with pytest.raises(HTTPError):
        send(pool, replicas, "/?query=2")
    assert send(pool, replicas, "/?query=3") == 200
    replicas[0].answers = True  # it stays where it is well
    assert send(pool, replicas, "/?query=4") == 200
    asked = [one.paths for one in replicas]
    assert asked == [["/?query=1", "/?query=2"], ["/?query=3", "/?query=4"], []]


def test_nobody_there_is_a_failure_and_the_round_goes_on(replicas: list[Replica]) -> None:
    replicas[0].stop()
    replicas[1].stop()
    pool = turn(replicas)
    for _ in range(2):
        with pytest.raises(HTTPError):
            send(pool, replicas, "/")
    assert send(pool, replicas, "/") == 200
    replicas[2].answers = False
    for _ in range(3):
        with pytest.raises(HTTPError):
            send(pool, replicas, "/")
    replicas[2].answers = True
    assert send(pool, replicas, "/") == 200


@pytest.mark.parametrize(
    ("code", "next_"), [("242", 1), ("289", 1), ("225", 1), ("999", 1), ("62", 0), ("252", 0)]
)
def test_a_replicas_own_error_moves_on_and_any_other_stays(
    replicas: list[Replica], code: str, next_: int
) -> None:
    """Read-only, behind the quorum or without Keeper; a wrong statement is wrong everywhere."""
    replicas[0].code = code
    pool = turn(replicas)
    assert send(pool, replicas, "/a") == 500
    replicas[0].code = ""
    assert send(pool, replicas, "/b") == 200
    assert "/b" in replicas[next_].paths


def test_threads_that_fail_together_move_on_once(replicas: list[Replica]) -> None:
    """Else two failures at the first would pass over the second."""
    pool = turn(replicas)
    pool._leave(0)
    pool._leave(0)
    assert send(pool, replicas, "/") == 200
    assert replicas[1].paths == ["/"]


def test_settings_of_a_quorum() -> None:
    """None without; sequential reads need quorums one after the other."""
    alone = ClickHouse(url="http://a:1")
    assert (reading(alone), writing(alone, 300)) == ({}, {})
    several = ClickHouse(url="http://a:1,http://b:1", insert_quorum="auto")
    assert reading(several) == {"select_sequential_consistency": 1}
    assert writing(several, 300) == {
        "insert_quorum": "auto",
        "insert_quorum_timeout": 300_000,
        "insert_quorum_parallel": 0,
        "select_sequential_consistency": 1,
    }


@pytest.mark.parametrize(
    ("engine", "shared"),
    [("ReplicatedMergeTree", True), ("SharedMergeTree", True), ("MergeTree", False), ("", False)],
)
def test_which_tables_are_on_every_replica(engine: str, shared: bool) -> None:
    assert is_shared(engine) == shared
