"""What the proxy is to do with each message; no stream, no thread.

Receives what a test asked for and each request and answer as it comes by, gives a deed for
it. Everything here runs in the proxy's event loop, but for the methods of `Held`.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.proxy_wire import Request


class Deed(Enum):
    """What becomes of a message; its name in lower case is what `Faults.counts` counts."""

    PASSED = auto()
    SWALLOWED = auto()
    """Thrown away, and the connection stays open."""
    REFUSED = auto()
    """Thrown away with its connection."""
    CUT = auto()
    """A random part of it goes on, then the connection is cut."""
    TRUNCATED = auto()
    """Half of it goes on, then the connection is cut."""
    HELD = auto()
    UNANSWERED = auto()
    """It goes on, and the connection is cut when its answer comes, or within that."""
    MUTED = auto()
    """It goes on; neither its answer nor any later one comes to the client."""
    EMPTIED = auto()
    """An answer to Metadata that goes on without its brokers."""
    TURNED_AWAY = auto()
    """A Produce request that does not go on: the proxy answers that another broker leads."""


class Held:
    """A request that the proxy holds back.

    `take`, `settle`, `released` and `settled` are the connection's, in the event loop; the
    other methods may be called from any thread.
    """

    def __init__(self, what: str, loop: asyncio.AbstractEventLoop) -> None:
        self._what = what
        self._loop = loop
        self._is_held = threading.Event()
        self._cut_client: Callable[[], None] = lambda: None
        self._answer: Future[bytes] = Future()
        self.released = asyncio.Event()
        self.settled = asyncio.Event()

    def take(self, cut_client: Callable[[], None]) -> None:
        """The request has come."""
        self._cut_client = cut_client
        self._is_held.set()

    def settle(self, answer: bytes | None) -> None:
        """The server's answer, or None where the server's side ended."""
        if self.settled.is_set():
            return
        self.settled.set()
        if answer is None:
            self._answer.set_exception(ConnectionError(f"{self._what}: the server's side ended"))
        else:
            self._answer.set_result(answer)

    @property
    def is_held(self) -> bool:
        """Whether the request has come."""
        return self._is_held.is_set()

    @property
    def is_settled(self) -> bool:
        """Whether the server has answered, or its side has ended."""
        return self._answer.done()

    def wait_until_held(self, timeout: float) -> None:
        """Wait until the request has come and is held.

        Raises:
            TimeoutError: it did not come.
        """
        if not self._is_held.wait(timeout):
            raise TimeoutError(f"{self._what}: none came within {timeout:g} s")

    def cut_client(self) -> None:
        """Close the connection on the client's side only; the server's side stays open."""
        self._loop.call_soon_threadsafe(self._cut_client)

    def release(self) -> None:
        """Send it on to the server, whether or not the client is still there."""
        self._loop.call_soon_threadsafe(self.released.set)

    def answer(self, timeout: float) -> bytes:
        """What the server answered after the release, as on the wire.

        Raises:
            TimeoutError: nothing.
            ConnectionError: the server's side ended first.
        """
        return self._answer.result(timeout)


@dataclass(slots=True)
class OneOff:
    """A fault of the next `left` requests of an API.

    Attributes:
        held: takes the request, where it is to be held.
        heard: bytes of the answer that still come to the client.
    """

    api: int | str
    client: str
    left: int
    deed: Deed
    held: Held | None = None
    heard: int = 0

    def meets(self, request: Request) -> bool:
        return request.is_for(self.api) and request.client.startswith(self.client)


@dataclass(slots=True)
class Faults:
    """The faults of now. A `client` is a prefix of client ids: the empty one means everybody.

    Attributes:
        delays: seconds by prefix, each way.
        half_open: prefixes of clients whose messages are thrown away in both directions.
        refused: prefixes of clients whose connections are cut at their first message.
        lossy: chance of a cut for each message, by prefix.
        brokerless: prefixes of clients whose answers to Metadata name no broker.
        one_offs: in the order in which they were asked for.
        counts: messages by the deed that befell them.
    """

    delays: dict[str, float] = field(default_factory=dict)
    half_open: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    lossy: dict[str, float] = field(default_factory=dict)
    brokerless: set[str] = field(default_factory=set)
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    one_offs: list[OneOff] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def delay(self, client: str) -> float:
        """Seconds by which a message to or from this client is late."""
        return max((s for c, s in self.delays.items() if client.startswith(c)), default=0.0)

    def of_request(self, request: Request) -> tuple[Deed, OneOff | None]:
        """What becomes of a request; the one-off fault that says so, where one does."""
        deed, found = self._standing(request.client), None
        if deed in {Deed.PASSED, Deed.CUT}:
            found = next((one for one in self.one_offs if one.meets(request)), None)
            if found is not None:
                found.left -= 1
                if not found.left:
                    self.one_offs.remove(found)
                deed = found.deed
        self.counts[deed.name.lower()] += 1
        return deed, found

    def of_answer(self, client: str, *, is_metadata: bool = False) -> Deed:
        """What becomes of an answer to this client, if its request asked for nothing else."""
        deed = self._standing(client)
        if deed is Deed.PASSED and is_metadata and client.startswith(tuple(self.brokerless)):
            deed = Deed.EMPTIED
        self.counts[deed.name.lower()] += 1
        return deed

    def _standing(self, client: str) -> Deed:
        if client.startswith(tuple(self.refused)):
            return Deed.REFUSED
        if client.startswith(tuple(self.half_open)):
            return Deed.SWALLOWED
        chance = max((p for c, p in self.lossy.items() if client.startswith(c)), default=0.0)
        return Deed.CUT if self.dice.random() < chance else Deed.PASSED
