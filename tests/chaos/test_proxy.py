"""The proxy between a plain socket and a tiny server that answers whatever it is sent."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.chaos.proxy import Proxy
from tests.chaos.proxy_echo import SECONDS, Client, Echo, until
from tests.chaos.proxy_wire import Api, NotThisProtocol, error_of_end_txn


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    made = Proxy.start(echo.address)
    yield made
    made.stop()


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Client]:
    made = Client(proxy)
    yield made
    made.socket.close()


@contextmanager
def ends_connection() -> Iterator[None]:
    with pytest.raises(ConnectionError):
        yield


def test_without_a_fault_everything_goes_through(echo: Echo, proxy: Proxy, client: Client) -> None:
    """Also what is larger than any buffer on the way."""
    assert [client.ask(Api.PRODUCE, i, bytes(i * 1_000_000)) for i in range(4)] == [0, 1, 2, 3]
    assert echo.received == [(0, i) for i in range(4)]
    assert proxy.counts() == {"passed": 8}
    client.socket.close()
    until(lambda: echo.ended == 1, "the server sees that the client has left")
    until(lambda: proxy.connections() == 0, "the proxy forgets the connection")


def test_delay_is_each_way_and_keeps_the_order(proxy: Proxy, client: Client) -> None:
    proxy.delay(60)
    begun = time.monotonic()
    for i in range(20):
        client.send(Api.FETCH, i)
    assert [client.answer() for _ in range(20)] == list(range(20))
    lasted = time.monotonic() - begun
    assert lasted > 0.12
    proxy.delay(0)
    proxy.delay(10 * 1000 * SECONDS, client="somebody.else")
    assert client.ask(Api.FETCH, 20) == 20


def test_cut_ends_connections_of_now_only(echo: Echo, proxy: Proxy, client: Client) -> None:
    other = Client(proxy, "loader")
    assert (client.ask(1, 1), other.ask(1, 1)) == (1, 1)
    proxy.cut("app.")
    with ends_connection():
        client.answer()
    assert other.ask(1, 2) == 2
    proxy.cut()
    with ends_connection():
        other.answer()
    until(lambda: echo.ended == 2, "the server sees both ends")
    assert Client(proxy).ask(1, 3) == 3


def test_half_open_accepts_and_reads_and_never_answers(
    echo: Echo, proxy: Proxy, client: Client
) -> None:
    """After it a connection that lost something is closed, never continued."""
    assert client.ask(1, 1) == 1
    proxy.half_open(True, client="app.")
    client.send(1, 2)
    fresh = Client(proxy)
    fresh.send(1, 3)
    assert Client(proxy, "loader").ask(1, 4) == 4
    assert client.hears_nothing()
    assert fresh.hears_nothing()
    assert echo.received == [(1, 1), (1, 4)]
    proxy.half_open(False, client="app.")
    for one in (client, fresh):
        with ends_connection():
            one.answer()
    assert Client(proxy).ask(1, 5) == 5


def test_refuse_closes_each_connection(echo: Echo, proxy: Proxy, client: Client) -> None:
    assert client.ask(1, 1) == 1
    proxy.refuse(client="app.")
    for one in (client, Client(proxy)):
        with ends_connection():
            one.ask(1, 2)
    assert Client(proxy, "loader").ask(1, 3) == 3
    proxy.heal()
    assert Client(proxy).ask(1, 4) == 4
    assert (1, 2) not in echo.received


def test_lossy_cuts_inside_messages(echo: Echo, proxy: Proxy) -> None:
    """About as often as asked; by the seed, the same messages of one connection after another."""
    fates = []
    for _ in range(2):
        proxy.lossy(0.2, seed=7)
        fates.append([survives(proxy) for _ in range(60)])
    assert fates[0] == fates[1]
    assert 15 <= fates[0].count(False) <= 35  # 0.36 of 60: a message each way
    assert echo.broken > 0
    proxy.lossy(1.0, seed=1)
    assert not survives(proxy)
    proxy.heal()
    assert survives(proxy)


def survives(proxy: Proxy) -> bool:
    client = Client(proxy)
    try:
        return client.ask(Api.PRODUCE, 1, bytes(100)) == 1
    except ConnectionError:
        return False
    finally:
        client.socket.close()
        until(lambda: proxy.connections() == 0, "the connection's end")


def test_dropped_answers_are_of_requests_that_arrived(echo: Echo, proxy: Proxy) -> None:
    """The connection is cut when the answer comes; only for the API and client aimed at."""
    proxy.drop_answers(Api.END_TXN, 2, "app.a")
    assert Client(proxy, "app.b").ask(Api.END_TXN, 1) == 1
    for i in (2, 3):
        client = Client(proxy)
        assert client.ask(Api.PRODUCE, 0) == 0
        with ends_connection():
            client.ask(Api.END_TXN, i)
    assert Client(proxy).ask(Api.END_TXN, 4) == 4
    assert [c for api, c in echo.received if api == Api.END_TXN] == [1, 2, 3, 4]
    assert proxy.counts()["unanswered"] == 2


def test_an_answer_cut_short(echo: Echo, proxy: Proxy, client: Client) -> None:
    """As much of it comes as asked for, then the end."""
    proxy.drop_answers(Api.END_TXN, heard=8)
    client.send(Api.END_TXN, 1, bytes(100))
    assert struct.unpack(">ii", client.exactly(8))[1] == 1
    with ends_connection():
        client.exactly(1)
    assert echo.received == [(Api.END_TXN, 1)]


def test_answers_dropped_in_silence(echo: Echo, proxy: Proxy, client: Client) -> None:
    """Nothing later comes on that connection either, as where packets are lost."""
    proxy.drop_answers(Api.END_TXN, 1, silent=True)
    client.send(Api.END_TXN, 1)
    client.send(Api.FETCH, 2)
    until(lambda: len(echo.received) == 2, "both requests")
    assert client.hears_nothing()
    assert Client(proxy).ask(Api.END_TXN, 3) == 3


def test_truncate_lets_half_a_request_through(echo: Echo, proxy: Proxy, client: Client) -> None:
    proxy.truncate(Api.PRODUCE)
    assert client.ask(Api.FETCH, 1) == 1
    with ends_connection():
        client.ask(Api.PRODUCE, 2, bytes(100_000))
    until(lambda: echo.broken == 1, "the server sees half a request")
    assert echo.received == [(Api.FETCH, 1)]


def test_a_held_request_outlives_its_client(echo: Echo, proxy: Proxy, client: Client) -> None:
    """It arrives when released, after what the client sent meanwhile on a new connection."""
    held = proxy.hold(Api.END_TXN, "app.a")
    with pytest.raises(TimeoutError, match="END_TXN"):
        held.wait_until_held(0.01)
    assert client.ask(Api.PRODUCE, 1) == 1
    client.send(Api.END_TXN, 2)
    held.wait_until_held(SECONDS)
    held.cut_client()
    with ends_connection():
        client.answer()
    assert Client(proxy).ask(Api.END_TXN, 3) == 3
    proxy.cut()
    proxy.heal()
    assert echo.received == [(Api.PRODUCE, 1), (Api.END_TXN, 3)]
    held.release()
    assert struct.unpack_from(">i", held.answer(SECONDS), 4) == (2,)
    assert echo.received[-1] == (Api.END_TXN, 2)
    until(lambda: proxy.connections() == 0, "the end of the held request's connection")


def test_a_held_request_whose_client_waits_is_answered(proxy: Proxy, client: Client) -> None:
    held = proxy.hold(Api.TXN_OFFSET_COMMIT)
    client.send(Api.TXN_OFFSET_COMMIT, 1)
    client.send(Api.FETCH, 2)
    held.wait_until_held(SECONDS)
    assert client.hears_nothing()
    held.release()
    assert [client.answer(), client.answer()] == [1, 2]


def test_a_held_request_whose_server_ends_says_so(proxy: Proxy, client: Client) -> None:
    held = proxy.hold(Api.END_TXN)
    client.send(Api.END_TXN, 1)
    held.wait_until_held(SECONDS)
    proxy.stop()
    with pytest.raises(ConnectionError):
        held.answer(SECONDS)


def test_a_server_that_is_away(client: Client, proxy: Proxy) -> None:
    """The client's connection is closed; nothing hangs, nothing is an error of the proxy."""
    lonely = Proxy.start(("127.0.0.1", 1))
    with ends_connection():
        Client(lonely).ask(1, 1)
    lonely.stop()
    assert client.ask(1, 1) == 1
    assert proxy.connections() == 1


def test_stop_leaves_no_thread_and_no_port(echo: Echo) -> None:
    before = threading.active_count()
    made = Proxy.start(echo.address)
    clients = [Client(made) for _ in range(5)]
    held = made.hold(1)
    clients[0].send(1, 1)
    held.wait_until_held(SECONDS)
    made.half_open(True)
    made.stop()
    made.stop()
    for one in clients:
        with ends_connection():
            one.answer()
    with pytest.raises(ConnectionRefusedError):
        Client(made)
    until(lambda: echo.ended == 5, "the server sees the ends")
    until(lambda: threading.active_count() <= before, "the end of the threads")


def test_bytes_of_another_protocol_are_an_error(echo: Echo) -> None:
    """Else a proxy before the wrong server would pass for a fault that was survived."""
    made = Proxy.start(echo.address)
    client = Client(made)
    client.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with ends_connection():
        client.answer()
    until(lambda: made.connections() == 0, "the connection's end")
    with pytest.raises(NotThisProtocol):
        made.stop()


def test_the_error_code_of_end_txn() -> None:
    """Size, correlation id, throttle time, error code: as Kafka's protocol guide has it."""
    assert error_of_end_txn(struct.pack(">iiih", 10, 9, 0, 47)) == 47
