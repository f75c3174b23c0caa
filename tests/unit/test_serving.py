"""The HTTP server that all programs share."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping

import pytest

from relay.errors import ConfigError
from relay.program.serving import TEXT, Answer, Serving, parsed


def _echo(query: Mapping[str, str]) -> Answer:
    return 200, TEXT, repr(sorted(query.items())).encode()


def _ill(_: Mapping[str, str]) -> Answer:
    return 503, "application/json", b"{}"


def _broken(_: Mapping[str, str]) -> Answer:
    raise KeyError("sentinel-of-the-inside")


ROUTES = {"/": _echo, "/echo": _echo, "/ill": _ill, "/broken": _broken}


@pytest.fixture
def address() -> Iterator[str]:
    with Serving("127.0.0.1:0", ROUTES) as serving:
        yield serving.address


def asked(address: str, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_a_route_gets_the_querys_parameters_and_its_answer_comes_back(address: str) -> None:
    """Status, content type and body are those of the route."""
    assert asked(address, "/echo?a=1&b=&c=%C3%A4") == (
        200,
        TEXT,
        "[('a', '1'), ('b', ''), ('c', 'ä')]".encode(),
    )
    assert asked(address, "/ill") == (503, "application/json", b"{}")
    assert asked(address, "/")[0] == 200


def test_a_slash_at_the_end_makes_no_difference(address: str) -> None:
    """`/echo/` is `/echo`."""
    assert asked(address, "/echo/") == asked(address, "/echo")


def test_what_is_not_there_is_answered_with_what_is(address: str) -> None:
    """404 lists the paths."""
    status, _, body = asked(address, "/nothing")
    assert (status, body) == (404, b"there is /, /broken, /echo, /ill\n")


def test_it_is_read_only(address: str) -> None:
    """Other methods than GET and HEAD are refused; HEAD has no body."""
    assert [asked(address, "/echo", method)[0] for method in ("POST", "PUT", "DELETE")] == [405] * 3
    assert asked(address, "/echo", "HEAD") == (200, TEXT, b"")


def test_a_fault_of_a_page_is_a_500_that_tells_nothing_and_ends_nothing(address: str) -> None:
    """The trace stands in the log, not in the answer; the next page is served."""
    status, _, body = asked(address, "/broken")
    assert (status, body) == (500, b"see the log\n")
    assert asked(address, "/echo")[0] == 200


def test_a_reader_who_hangs_holds_up_no_other() -> None:
    """A connection that sends nothing, and a page that never ends, leave the rest served."""
    go_on = threading.Event()

    def slow(_: Mapping[str, str]) -> Answer:
        assert go_on.wait(60)
        return 200, TEXT, b""

    with Serving("127.0.0.1:0", {**ROUTES, "/slow": slow}) as serving:
        host, port = parsed(serving.address)
        with socket.create_connection((host, port), timeout=30):
            hanging = threading.Thread(target=asked, args=(serving.address, "/slow"))
            hanging.start()
            assert asked(serving.address, "/echo")[0] == 200
            go_on.set()
            hanging.join(60)
            assert not hanging.is_alive()


def test_the_port_is_free_after_the_end() -> None:
    """It can be taken again at once, and what is taken is an error with a next step."""
    with Serving("127.0.0.1:0", ROUTES) as serving:
        address = serving.address
        with pytest.raises(ConfigError, match="cannot listen on"):
            Serving(address, ROUTES)
    with Serving(address, ROUTES) as serving:
        assert serving.address == address
        assert asked(address, "/echo")[0] == 200


@pytest.mark.parametrize("listen", ["", "9464", "host", "host:", "host:x", "::1:9", "h:70000"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    """A typing error is told at once."""
    with pytest.raises(ConfigError, match="not an address"):
        parsed(listen)


@pytest.mark.parametrize(
    ("listen", "found"), [(":9464", ("", 9464)), ("[::1]:80", ("::1", 80)), ("a.b:0", ("a.b", 0))]
)
def test_addresses_of_every_kind_are_understood(listen: str, found: tuple[str, int]) -> None:
    """Every address of this machine, IPv6, a name."""
    assert parsed(listen) == found
