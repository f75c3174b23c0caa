"""ClickHouse of a stack: starts its server, waits for it, says how it is reached.

Receives a directory and its layout. Gives the [clickhouse] settings that reach the
server: a user with all rights and a random password, which stands in a file of the
directory that its owner alone can read. The server itself is relay.dev.clickhouse_server.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from relay.config.server_settings import ClickHouse
from relay.dev import layout, process
from relay.dev.layout import Layout
from relay.errors import MissingTool, Unavailable, install

NAME = "clickhouse"
USER = "dev"
"""Not `default`: the engine takes that name, without a password, for a session of its own."""

_PACKAGE = "chdb-core"
_OLDEST = (26, 7)
_INSTALL = install("demo")
_READY_SECONDS = 180.0


def require() -> None:
    """Raise MissingTool unless chdb-core is installed, and as new as the server in it."""
    try:
        installed = version(_PACKAGE)
    except PackageNotFoundError as error:
        raise MissingTool(f"{_PACKAGE}, which holds ClickHouse, is not installed", _INSTALL) from (
            error
        )
    if tuple(int(part) for part in re.findall(r"\d+", installed)[:2]) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise MissingTool(
            f"{_PACKAGE} {installed} is installed, which has no ClickHouse server in it; "
            f"{oldest} and later have one",
            f"{_INSTALL}, or pip install '{_PACKAGE}>={oldest}'",
        )


def password_file(directory: Path) -> Path:
    """Return where the password of a stack stands."""
    return directory / f"{NAME}.password"


def reach(directory: Path, plan: Layout) -> ClickHouse:
    """Return the [clickhouse] settings that reach the server of a stack."""
    return ClickHouse(
        url=plan.clickhouse_url, user=USER, password_file=password_file(directory.resolve())
    )


def toml(reached: ClickHouse) -> str:
    """Return the lines under [clickhouse] of a configuration file that reach this server."""
    keys = {"url": reached.url, "user": reached.user, "password_file": str(reached.password_file)}
    # A string of JSON is one of TOML, backslashes and quotes included.
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def launch(directory: Path, plan: Layout) -> int:
    """Start the server without waiting; return its pid. Raises Unavailable if a port is taken."""
    for port, option in (
        (plan.clickhouse_port, "--clickhouse-port"),
        (plan.clickhouse_tcp_port, "--clickhouse-tcp-port"),
    ):
        if not layout.is_free(port):
            raise Unavailable(
                f"port {port} of {NAME} is in use by another process",
                f"end that process, or choose another with {option}",
            )
    _make_password(password_file(directory))
    command = [sys.executable, "-m", "relay.dev.clickhouse_server", "--directory", str(directory)]
    command += ["--http-port", str(plan.clickhouse_port)]
    command += ["--tcp-port", str(plan.clickhouse_tcp_port)]
    return process.spawn(directory, NAME, command)


def await_ready(directory: Path, plan: Layout) -> None:
    """Wait until the server answers; raise as process.await_ready does."""
    process.await_ready(directory, NAME, lambda: _answers_ping(plan.clickhouse_url), _READY_SECONDS)


def _make_password(path: Path) -> None:
    """Make a password at the first start; later ones keep it: configurations stay right."""
    if not path.exists():
        partial = path.with_suffix(".part")
        write_private(partial, secrets.token_urlsafe(24) + "\n")
        partial.rename(path)


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read."""
    path.unlink(missing_ok=True)  # the mode counts only where the file is made
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _answers_ping(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/ping", timeout=2) as answer:  # noqa: S310 - our own http address
            return bool(answer.status == 200)
    except OSError:
        return False  # not yet; await_ready has the deadline
