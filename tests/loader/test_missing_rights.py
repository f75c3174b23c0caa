"""ClickHouse says no: what a server with users answers, which the stack's user never hears.

The server here is one that only refuses, in the words of a real one.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from loader import cli
from loader.clickhouse import client
from relay.config.settings import ClickHouse
from relay.errors import Refused, Unavailable
from relay.schema.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Code, HTTP status (both that servers use for a no), text.
REFUSALS = {
    "wrong password": (516, 403, "eve: Authentication failed. (AUTHENTICATION_FAILED)"),
    "no such user": (192, 403, "There is no user `eve`. (UNKNOWN_USER)"),
    "missing grant": (497, 500, "eve: Not enough privileges. (ACCESS_DENIED)"),
}
BUSY = (202, 500, "Too many. (TOO_MANY_SIMULTANEOUS_QUERIES)")


class Refusing(ThreadingHTTPServer):
    """Answers every request with one error, and counts them."""

    error: tuple[int, int, str] = BUSY
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Refusing

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked += 1
        code, status, text = self.server.error
        body = f"Code: {code}. DB::Exception: {text}".encode()
        self.send_response(status)
        self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it overrides
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Refusing]:
    with Refusing(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def settings(server: Refusing) -> ClickHouse:
    return ClickHouse(
        url=f"http://127.0.0.1:{server.server_port}", user="eve", password="opensesame"
    )


@pytest.mark.parametrize("kind", REFUSALS)
def test_the_loader_ends_with_status_5(
    server: Refusing,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    """With ClickHouse's own words and the next step; asked once, and the password is not shown."""
    server.error = REFUSALS[kind]
    path = tmp_path / "relay.toml"
    (tmp_path / "held").write_text("opensesame\n", encoding="utf-8")
    path.write_text(
        'app = "shop"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[source]\ntopic = "rows"\n'
        f'[clickhouse]\nurl = "{settings(server).url}"\nuser = "eve"\npassword_file = "held"\n'
        '[loader]\ncheckpoint = "checkpoint"\n'
    )

    with pytest.raises(SystemExit) as ended:
        cli.main(["run", str(path), "--once"])

    said = capsys.readouterr().err
    assert ended.value.code == 5, said
    assert server.error[2] in said
    assert "next: Give the loader's user the rights that `relay doctor CONFIG --grants" in said
    assert "Traceback" not in said
    assert "opensesame" not in said
    assert "next try" not in said
    assert server.asked == 1


@pytest.mark.parametrize("kind", REFUSALS)
def test_the_relay_is_refused(server: Refusing, kind: str) -> None:
    """The same for the tables' columns; the message names server and user."""
    server.error = REFUSALS[kind]
    catalogue = Catalogue(settings(server))

    with pytest.raises(Refused) as error:
        catalogue.read(["a.b"])

    assert f"{settings(server).url} (user eve)" in error.value.message
    assert "clickhouse.user, its password and its rights" in error.value.next_step
    assert "opensesame" not in str(error.value)


def test_a_busy_server_is_none_that_refuses(server: Refusing) -> None:
    """Negative control: what passes by itself is Unavailable, over the same way."""
    with pytest.raises(Unavailable):
        client.connect(settings(server), 5)
    with pytest.raises(Unavailable):
        Catalogue(settings(server)).read(["a.b"])
