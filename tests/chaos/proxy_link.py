"""One connection through the proxy: a client's stream and the server's, and what befalls it.

Receives both streams and asks `Faults` about every message; passes it on, late, in part, or
not at all. Everything here runs in the proxy's event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.chaos.proxy_faults import Deed
from tests.chaos.proxy_metadata import without_brokers
from tests.chaos.proxy_produce import not_the_leader
from tests.chaos.proxy_wire import Api

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

    from tests.chaos.proxy_faults import Faults, Held, OneOff
    from tests.chaos.proxy_wire import Request, Wire

WAITING_MESSAGES = 64
"""On their way in one direction while they are delayed; more make the sender wait."""
CLOSE_SECONDS = 5.0

ENDS = (OSError, asyncio.IncompleteReadError)
"""How a connection may end by itself."""


class _Outlet:
    """Writes messages to one side in order, each at its time."""

    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer
        self._waiting: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(WAITING_MESSAGES)
        self._ended = asyncio.Event()

    async def put(self, data: bytes | None, delay_seconds: float) -> None:
        """Queue a message; None closes the side behind it. Nothing where the side is gone."""
        if not self._ended.is_set():
            await self._waiting.put((asyncio.get_running_loop().time() + delay_seconds, data))

    async def finish(self, data: bytes, delay_seconds: float) -> None:
        """Write this as the last, close the side, and return when that is done."""
        if data:
            await self.put(data, delay_seconds)
        await self.put(None, delay_seconds)
        await self._ended.wait()

    async def run(self) -> None:
        """Until it is closed. Raises OSError: the side is gone."""
        try:
            while True:
                due, data = await self._waiting.get()
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                if data is None:
                    self._writer.close()  # what is written still goes out, unlike at an abort
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._writer.wait_closed()
                    return
                self._writer.write(data)
                await self._writer.drain()
        finally:
            self._ended.set()
            while not self._waiting.empty():  # lets go of a putter that waits for room
                self._waiting.get_nowait()


class Link:
    """One client's connection and the server's that belongs to it.

    Attributes:
        client: Kafka's client id, as its requests say; empty before the first.
        swallowed: messages were thrown away, so that the connection is of no more use.
    """

    def __init__(
        self,
        wire: Wire,
        faults: Faults,
        client: tuple[StreamReader, StreamWriter],
        server: tuple[StreamReader, StreamWriter],
    ) -> None:
        self._wire, self._faults = wire, faults
        self._from_client, self._client = client
        self._from_server, self._server = server
        self._to_client, self._to_server = _Outlet(self._client), _Outlet(self._server)
        self._unanswered: dict[int, OneOff] = {}
        self._metadata: dict[int, int] = {}  # versions of requests under way
        self._held: dict[int, Held] = {}
        self._turned_away: list[bytes] = []
        self._muted = False
        self.client = ""
        self.swallowed = False

    async def run(self) -> None:
        """Until either side ends or a fault cuts it; a held request outlives its client.

        Raises:
            NotThisProtocol: the bytes are of another protocol than the proxy was told.
        """
        requests = asyncio.create_task(self._requests())
        halves = [asyncio.create_task(half) for half in (self._answers(), self._to_server.run())]
        # Not waited for: where the client is gone, `requests` ends too, when it may.
        tasks = [requests, *halves, asyncio.create_task(self._to_client.run())]
        try:
            await asyncio.wait([requests, *halves], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for held in self._held.values():
                held.settle(None)
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for writer in (self._client, self._server):
                writer.transport.abort()
        for error in ended:
            if isinstance(error, Exception) and not isinstance(error, ENDS):
                raise error

    def cut_client(self) -> None:
        """Close the client's side at once."""
        self._client.transport.abort()

    def cut(self) -> None:
        """Close the connection at once, but keep a held request's way to the server."""
        self.cut_client()
        if not any(not held.settled.is_set() for held in self._held.values()):
            self._server.transport.abort()

    async def _requests(self) -> None:
        """From client to server."""
        number = 0
        while True:
            try:
                request = await self._wire.request(self._from_client, number)
            except ENDS:
                for one in self._held.values():
                    await one.settled.wait()
                await self._to_server.finish(b"", self._delay)  # what the client sent still arrives
                raise
            number += 1
            self.client = request.client
            deed, one_off = self._faults.of_request(request)
            if deed is Deed.REFUSED:
                return
            if deed is Deed.SWALLOWED:
                self.swallowed = True
                continue
            if deed in {Deed.CUT, Deed.TRUNCATED}:
                await self._to_server.finish(self._part(request.data, deed), self._delay)
                return
            if deed is Deed.TURNED_AWAY:
                self._turned_away.append(not_the_leader(request.data, request.version))
                continue
            if request.is_for(Api.PRODUCE):
                await self._answer_turned_away()
            if one_off is not None and one_off.held is not None:
                await self._hold(request, one_off.held)
            elif one_off is not None:
                self._unanswered[request.key] = one_off
            if request.is_for(Api.METADATA):
                self._metadata[request.key] = request.version
            await self._to_server.put(request.data, self._delay)

    async def _answer_turned_away(self) -> None:
        """Once a later request has come: else the client repeats these before it sends that."""
        while self._turned_away:
            await self._to_client.put(self._turned_away.pop(0), self._delay)

    async def _hold(self, request: Request, held: Held) -> None:
        self._held[request.key] = held
        held.take(self.cut_client)
        await held.released.wait()

    async def _answers(self) -> None:
        """From server to client."""
        number = 0
        while True:
            try:
                answer = await self._wire.answer(self._from_server, number)
            except ENDS:
                await self._to_client.finish(b"", self._delay)
                raise
            number += 1
            if answer.key in self._held:
                self._held[answer.key].settle(answer.data)
            one_off = self._unanswered.pop(answer.key, None)
            if one_off is not None and one_off.deed is Deed.UNANSWERED:
                await self._to_client.finish(answer.data[: one_off.heard], self._delay)
                return
            self._muted |= one_off is not None
            version = self._metadata.pop(answer.key, None)
            deed = self._faults.of_answer(self.client, is_metadata=version is not None)
            if deed is Deed.REFUSED:
                return
            if self._muted or deed is Deed.SWALLOWED:
                self.swallowed = True
            elif deed is Deed.CUT:
                await self._to_client.finish(self._part(answer.data, deed), self._delay)
                return
            elif deed is Deed.EMPTIED and version is not None:
                await self._to_client.put(without_brokers(answer.data, version), self._delay)
            else:
                await self._to_client.put(answer.data, self._delay)

    @property
    def _delay(self) -> float:
        return self._faults.delay(self.client)

    def _part(self, data: bytes, deed: Deed) -> bytes:
        """What still goes out of a message within which the connection is cut."""
        if deed is Deed.TRUNCATED:
            return data[: len(data) // 2]
        return data[: self._faults.dice.randint(0, len(data))]
