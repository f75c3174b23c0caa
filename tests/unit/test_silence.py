"""What people read of a ClickHouse that gives no answer: real connections, no server."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError

from loader.clickhouse import client
from relay.clickhouse.error_text import answer_line, error_line, note_server, unanswered
from relay.clickhouse.errors import number
from relay.config.server_settings import ClickHouse
from relay.dev.layout import free_ports
from relay.errors import Unavailable
from relay.schema import catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENT = "Received ClickHouse exception, code: 469, server response: "


def error(url: str) -> ClickHouseError:
    """Of a client that asks there."""
    with pytest.raises(ClickHouseError) as caught:
        catalogue.connect(ClickHouse(url=url))
    return caught.value


def read_request(found: socket.socket) -> None:
    """All of it: a connection that is closed with some of it unread is reset."""
    with found.makefile("rb") as request:
        request.readline()
        headers = http.client.parse_headers(request)
        request.read(int(headers.get("Content-Length", 0)))


@contextlib.contextmanager
def answering(give: Callable[[socket.socket], object]) -> Iterator[str]:
    """The URL of a server that does this with each connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                found, _ = server.accept()
                with found:
                    read_request(found)
                    give(found)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(10)


def test_who_refuses_a_connection_is_named_first_and_nothing_of_the_request() -> None:
    """Read before as `Error _Whole(host=...): Max retries exceeded with url: /?...`."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"

    assert unanswered(error(url)) == f"ClickHouse {url}: connection refused"


def test_of_several_replicas_the_one_that_was_asked_is_named() -> None:
    first, second = (f"http://127.0.0.1:{port}" for port in free_ports(2))

    with pytest.raises(ClickHouseError) as caught:
        catalogue.connect(ClickHouse(url=[first, second], insert_quorum=2))

    assert unanswered(caught.value) == f"ClickHouse {second}: connection refused"


def test_a_name_that_is_not_known_is_named() -> None:
    url = "http://no-such-host.invalid:8123"

    assert unanswered(error(url)) == f"ClickHouse {url}: its name cannot be resolved (DNS)"


def test_a_connection_that_was_closed_says_so() -> None:
    with answering(lambda _: None) as url:
        found = unanswered(error(url))

    assert found == f"ClickHouse {url}: the connection was closed without an answer"


def test_an_answer_that_was_cut_short_says_so() -> None:
    with answering(lambda to: to.sendall(b"HTTP/1.1 200 OK\r\n\r\n")) as url:
        found = unanswered(error(url))

    assert found == f"ClickHouse {url}: the connection ended within the head of the answer"


def test_an_answer_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "ANSWER_SECONDS", 1)
    over = threading.Event()
    with answering(lambda _: over.wait(30)) as url:
        found = unanswered(error(url))
        over.set()

    assert found == f"ClickHouse {url}: no answer in time"


def test_what_the_server_says_itself_is_no_silence() -> None:
    refused = ClickHouseError("Code: 60. DB::Exception: Table x.y does not exist")

    assert unanswered(refused) is None
    assert (
        error_line(refused, "INSERT into x.y")
        == "INSERT into x.y: Code: 60. Table x.y does not exist"
    )


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        (
            f"{CLIENT}Code: 469. DB::Exception: `c` is violated\nat row 52. (X) (for url u)",
            "Code: 469. `c` is violated at row 52. (X)",
        ),
        (
            "Code: 279. DB::Exception: All tries failed: Code: 497. DB::Exception: no",
            "Code: 279. All tries failed: Code: 497. DB::Exception: no",
        ),
        (
            "Received ClickHouse exception, code: 5 (for url http://a:1)",
            "Received ClickHouse exception, code: 5",
        ),
        ("Cannot change a readonly setting", "Cannot change a readonly setting"),
    ],
)
def test_an_answer_begins_with_its_code_and_its_cause(text: str, reads: str) -> None:
    """What was put before it hid the cause behind what `relay status` shows of a reason."""
    assert answer_line(text) == reads
    assert number(answer_line(text)) == number(text)


def test_loader_and_relay_say_it_first(capfd: pytest.CaptureFixture[str]) -> None:
    """And neither the client's stack trace nor its connections' tries are on stderr."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    settings = ClickHouse(url=url)

    with pytest.raises(Unavailable) as caught:
        client.connect(settings, 5)
    relay = catalogue.translated(error(url), settings, "read the tables' columns")

    begins = f"ClickHouse {url}: connection refused ("
    assert caught.value.message.startswith(begins)
    assert relay.message.startswith(begins)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("port", "told"), [(9000, True), (9440, True), (8123, False)])
def test_the_port_of_another_protocol_is_named(port: int, *, told: bool) -> None:
    """Read before as "the connection ended within the head of the answer" and nothing more."""
    silent = ReadTimeoutError(HTTPConnectionPool("here", port), "/", "timed out")
    note_server(silent, "http", "here", port)
    said = unanswered(silent)
    assert said is not None
    assert said.startswith(f"ClickHouse http://here:{port}: ")
    assert said.endswith("native protocol; HTTP is mostly 8123, HTTPS 8443") is told
