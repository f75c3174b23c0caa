"""A TCP proxy that misbehaves on demand, in a thread of its own.

    client ──► Proxy ──► server

Receives, from any thread, the faults a test wants; a call returns when the fault is in force.
Faults can be aimed at the clients whose Kafka client id begins with `client` and at one API:
a Kafka API key (tests.chaos.proxy_wire.Api), or a piece of an HTTP request's text.

For Kafka the clients must reach the broker through the proxy alone: its advertised listener
is the proxy's address (tests.chaos.proxied).
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from tests.chaos.proxy_faults import Deed, Faults, Held, OneOff
from tests.chaos.proxy_link import ENDS, Link
from tests.chaos.proxy_wire import KAFKA, Api, Wire

HOST = "127.0.0.1"
CALL_SECONDS = 30.0
CONNECT_SECONDS = 5.0
LINE_BYTES = 1 << 20
"""Longest line or head of an HTTP message: statements travel in the URL."""

T = TypeVar("T")


class Proxy:
    """Between clients and one server; `start` makes one, `stop` ends it.

    Attributes:
        port: where clients connect.
        address: the same as host:port.
    """

    def __init__(self, upstream: tuple[str, int], port: int, wire: Wire) -> None:
        self._upstream = upstream
        self._wire = wire
        self._faults = Faults()
        self._links: dict[asyncio.Task[None], Link | None] = {}
        self._failures: list[BaseException] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"proxy of {upstream[1]}"
        )
        self._thread.daemon = True  # a test that dies before stop() must not keep pytest alive
        self._thread.start()
        try:
            self._server = self._await(
                asyncio.start_server(self._accepted, HOST, port, limit=LINE_BYTES)
            )
        except BaseException:
            self._stop_loop()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.address = f"{HOST}:{self.port}"

    @classmethod
    def start(cls, upstream: tuple[str, int], port: int = 0, wire: Wire = KAFKA) -> Self:
        """A proxy before a server that need not be up yet.

        Args:
            upstream: the server's host and port.
            port: to listen on; 0: a free one.
            wire: the protocol, KAFKA or HTTP of tests.chaos.proxy_wire.

        Raises:
            OSError: the port is taken.
        """
        return cls(upstream, port, wire)

    def delay(self, ms: float, client: str = "") -> None:
        """Every message is `ms` late, each way: a round trip takes twice that longer."""
        self._do(lambda: self._faults.delays.update({client: ms / 1000}))

    def cut(self, client: str = "") -> None:
        """Close all connections of now; new ones are welcome."""
        self._do(lambda: self._cut(client))

    def half_open(self, on: bool = True, client: str = "") -> None:  # noqa: FBT002 - as a switch reads
        """Connections are accepted and read, and nothing goes through in either direction."""
        self._do(lambda: self._switch(self._faults.half_open, client, on))

    def refuse(self, on: bool = True, client: str = "") -> None:  # noqa: FBT002 - as a switch reads
        """Close all connections, and every new one at its first message."""
        self._do(lambda: self._switch(self._faults.refused, client, on))
        if on:
            self.cut(client)

    def lossy(self, p: float, seed: int, client: str = "") -> None:
        """Each message, either way, cuts its connection with chance `p`, somewhere inside it."""

        def begin() -> None:
            self._faults.dice = random.Random(seed)
            self._faults.lossy[client] = p

        self._do(begin)

    def name_no_broker(self, on: bool = True, client: str = "") -> None:  # noqa: FBT002 - as above
        """Answers to Kafka's Metadata come without brokers, their topics whole."""
        self._do(lambda: self._switch(self._faults.brokerless, client, on))

    def drop_answers(
        self,
        api: int | str,
        n: int = 1,
        client: str = "",
        *,
        silent: bool = False,
        heard: int = 0,
    ) -> None:
        """The next `n` requests of an API reach the server, their answers not the client.

        Args:
            api: of the requests.
            n: how many.
            client: prefix of their client ids.
            silent: the client hears nothing more on the connection and has to time out;
                else the connection is cut when the answer comes.
            heard: bytes of the answer that still come through before the cut.
        """
        deed = Deed.MUTED if silent else Deed.UNANSWERED
        self._expect(OneOff(api, client, n, deed, heard=heard))

    def truncate(self, api: int | str, n: int = 1, client: str = "") -> None:
        """Of the next `n` requests of an API half goes through, then the connection is cut."""
        self._expect(OneOff(api, client, n, Deed.TRUNCATED))

    def turn_away(self, n: int, client: str = "") -> None:
        """The next `n` Produce requests reach nobody; the answer is that another broker leads.

        It goes out when the connection's next Produce request has come, which is passed on.
        """
        self._expect(OneOff(Api.PRODUCE, client, n, Deed.TURNED_AWAY))

    def hold(self, api: int | str, client: str = "") -> Held:
        """Hold the next request of an API, and what its connection sends after it."""
        held = Held(f"a request of {api!r} by {client or 'anybody'}", self._loop)
        self._expect(OneOff(api, client, 1, Deed.HELD, held))
        return held

    def heal(self) -> None:
        """Everything goes through again, but for a request that is held already.

        Connections that lost something are cut, and faults not met yet are forgotten.
        """

        def end() -> None:
            faults = self._faults
            for standing in (faults.delays, faults.half_open, faults.refused, faults.lossy):
                standing.clear()
            faults.brokerless.clear()
            faults.one_offs.clear()
            self._cut_useless()

        self._do(end)

    def counts(self) -> Counter[str]:
        """Messages so far by what befell them (tests.chaos.proxy_faults.Deed, in lower case)."""
        return self._do(lambda: Counter(self._faults.counts))

    def connections(self) -> int:
        """How many are open now."""
        return self._do(lambda: len(self._links))

    def stop(self) -> None:
        """Close every connection, the port and the thread.

        Raises:
            NotThisProtocol, or whatever else went wrong in a connection by no fault of either side.
        """
        if self._loop.is_closed():
            return
        self._await(self._shut())
        self._stop_loop()
        if self._failures:
            raise self._failures[0]

    # ---- in the event loop --------------------------------------------------------------

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                server = await asyncio.open_connection(*self._upstream, limit=LINE_BYTES)
            link = Link(self._wire, self._faults, (reader, writer), server)
            self._links[task] = link
            await link.run()
        except ENDS:
            pass  # the server is away: the client sees its connection closed
        except asyncio.CancelledError:
            pass  # by stop(); asyncio's own callback calls a task that ends cancelled an error
        except Exception as error:  # noqa: BLE001 - stop() raises it
            self._failures.append(error)
        finally:
            del self._links[task]
            writer.transport.abort()

    def _cut(self, client: str) -> None:
        for link in self._links.values():
            if link is not None and link.client.startswith(client):
                link.cut()

    def _cut_useless(self) -> None:
        for link in self._links.values():
            if link is not None and link.swallowed:
                link.cut()

    def _switch(self, prefixes: set[str], client: str, on: bool) -> None:
        if on:
            prefixes.add(client)
        else:
            prefixes.discard(client)
            self._cut_useless()

    async def _shut(self) -> None:
        self._server.close()
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    # ---- from other threads -------------------------------------------------------------

    def _expect(self, one_off: OneOff) -> None:
        self._do(lambda: self._faults.one_offs.append(one_off))

    def _do(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()

        return self._await(run())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()
