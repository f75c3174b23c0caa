"""Servers and names that tests share: one stack per test run, fresh names per test."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client
from hypothesis import settings

from relay.config.server_settings import ClickHouse
from relay.dev import jars, layout, process
from relay.dev import stack as dev_stack
from relay.dev.stack import Stack
from relay.errors import MissingTool
from tests import reach
from tests.jvms import live_shortly, prepare_spark
from tests.memory_files import keep_files_in_memory
from tests.profiles import LONG, MANY
from tests.shared import shared

# How long an example takes says how busy the machine is. The long profile has twenty times as many,
# others in each run; it is the first, as what is registered inherits from what is loaded.
settings.register_profile(
    LONG, max_examples=MANY, stateful_step_count=100, deadline=None, derandomize=False
)
# The same examples in each run: it judges the change, and not the draw.
settings.register_profile("default", deadline=None, max_examples=50, derandomize=True)

STARTING = frozenset(
    {
        *("stack", "running_rig", "behind_proxy", "logged_port", "engine", "server"),
        *("own", "hasty", "elsewhere", "east", "chrome"),
    }
)
"""Fixtures that start a server, or a browser. Whatever test uses one, however indirectly, gets the
mark `servers`; a test that starts one itself carries the mark."""


WORKERS = 16
"""Processes of one run that never choose the same port; those that crashed have successors."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need servers, so that -m "not servers" answers a newcomer quickly."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        elsewhere = any(map(item.get_closest_marker, ("long", "cluster")))
        if elsewhere or not STARTING.isdisjoint(fixtures):
            item.add_marker(pytest.mark.servers)


@pytest.fixture(autouse=True)
def _no_server_without_the_mark(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.node.get_closest_marker("servers") is None:

        def refuse(*_: object, **__: object) -> None:
            pytest.fail("this test starts a server: give it the mark `servers`")

        monkeypatch.setattr(process, "spawn", refuse)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later look for garbage."""
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Ends as Ctrl-C does on SIGTERM, so that fixtures end their servers; these start quickly.

    A shell starts what it puts behind an & with SIGINT ignored, and what this run starts would
    inherit that.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    keep_files_in_memory()
    live_shortly()
    if "PYTEST_XDIST_WORKER" not in os.environ and "not servers" not in config.option.markexpr:
        threading.Thread(target=_fetch_jars, daemon=True).start()
    _choose_ports_of_its_own()
    gc.set_threshold(50_000)  # searches of models allocate little else than states that they keep


def _fetch_jars() -> None:
    """The first time they come over the network for a minute: while tests are collected."""
    with contextlib.suppress(MissingTool):  # which `stack` will say, where a test needs them
        jars.classpath(lambda _: None)


def _choose_ports_of_its_own() -> None:
    """A broker that a test has ended for a while would find its port taken by another's stack."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    layout.PORTS = layout.PORTS[int(worker.removeprefix("gw")) % WORKERS :: WORKERS]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A program that runs inside a test sets up logging for itself, on that test's stderr."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    """A command that runs inside a test listens to SIGTERM and Ctrl-C, and the process goes on."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One broker and a ClickHouse server for all processes of the run; the last one ends them.

    Four pairs that wait for work took a tenth of the machine.
    """
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent
    directory /= "stack"
    prepare_spark()
    with shared(directory.with_suffix(".users"), lambda: dev_stack.down(directory)):
        yield dev_stack.up(directory, progress=print)


@pytest.fixture(scope="session")
def bootstrap(stack: Stack) -> str:
    return stack.bootstrap


@pytest.fixture(scope="session")
def clickhouse(stack: Stack) -> ClickHouse:
    """The settings that reach the server: address, user, file of the password."""
    return stack.clickhouse


@pytest.fixture
def app() -> str:
    """A name no other test uses: topics, groups and transactional ids begin with it."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def connect(clickhouse: ClickHouse) -> Callable[..., Client]:
    """Makes clients; one per thread, as clickhouse-connect wants it."""

    def make(**options: Any) -> Client:
        return reach.client(clickhouse, autogenerate_session_id=False, **options)

    return make


@pytest.fixture
def client(connect: Callable[..., Client]) -> Iterator[Client]:
    made = connect()
    yield made
    made.close()


@pytest.fixture
def database(client: Client) -> Iterator[str]:
    """A fresh database, dropped afterwards."""
    name = f"d{uuid.uuid4().hex[:12]}"
    client.command(f"CREATE DATABASE {name}")
    yield name
    client.command(f"DROP DATABASE {name} SYNC")
