"""The peer in Go: a loader as a user of clickhouse-go would write it, over the native protocol.

Receives servers and a topic, gives a contender; its program is built where Go and its modules are.
It reads the product's own messages and commits their offsets behind what it has inserted: rows come
at least once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.dev.layout import HOST
from relay.errors import MissingTool
from tests.bench import rows
from tests.bench.contenders import Contender

if TYPE_CHECKING:
    from relay.dev.stack import Stack

NAME = "loader in Go, native protocol"
COLUMNS = rows.USUAL
"""Its rows have so many, as they would in a user's program."""
SOURCE = Path(__file__).parent / "peer" / "native"
CACHE = Path.home() / ".cache" / "block-relay" / "bench"
# Tried with 4 million rows beside other work, which made rates useless: core-seconds. Of the
# program alone, 1 table, two rounds: 1.7 and 1.8 as it is (1.7, 1.8 and 2.2 in three other ones),
# 2.1 both times with LZ4, 2.0 and 2.2 with GOGC=100 in place of 400, 1.9 and 1.7 with fetches of
# 1 MiB; once 2.0 with dictionaries that clickhouse-go makes. Of all programs, for a million rows,
# without merges: 1.4 to 1.8 with 100 000 rows, 1.2 to 2.0 with 300 000, 1.6 and 2.7 with a million;
# with 4 tables 1.6 to 1.8, 1.7 and 2.2, 2.0 and 2.3.
SETTINGS = {"rows": 100_000, "seconds": 1.0, "lz4": False}
"""A load is inserted as soon as one table has so many rows, or so long after its first row."""
_PLACES = ("go", "/usr/local/go/bin/go")
_WITHOUT = "run it with --no-go"


def build(progress: Callable[[str], None]) -> Path:
    """Return the program, built anew where its source has changed: a minute or two.

    Raises:
        MissingTool: Go is not there, is too old, or does not get the modules.
    """
    program = CACHE / f"native-{_digest()}"
    if program.exists():
        return program
    go = _go()
    version = _answer(go, "version").removeprefix("go version ")
    progress(f"building the {NAME}, with {version}")
    fetched = _run(go, "mod", "download")
    if fetched.returncode:
        raise MissingTool(
            f"Go does not get the modules of {SOURCE}: {fetched.stderr.strip()[-500:]}",
            f"Look at the proxy that `go env GOPROXY` names, or {_WITHOUT}.",
        )
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(".part")
    _run(go, "build", "-trimpath", "-o", str(partial), ".", check=True)
    partial.rename(program)
    return program


def contender(
    program: Path, stack: Stack, topic: str, tables: Sequence[str], log: Path
) -> Contender:
    """Return how it is started for these tables, from the topic's first message on."""
    order = {
        "bootstrap": stack.bootstrap,
        "topic": topic,
        "group": group(topic),
        "member": "bench",
        "clickhouse": f"{HOST}:{stack.clickhouse_tcp_port}",
        "user": stack.clickhouse.user,
        "password_file": str(stack.clickhouse.password_file),
        "tables": list(tables),
        **SETTINGS,
    }
    return Contender([str(program), json.dumps(order)], "", group(topic), [], log)


def group(topic: str) -> str:
    """Return its consumer group."""
    return f"{topic}.native"


def _digest() -> str:
    """Of all files of the program, so that none runs that was built from others."""
    digest = hashlib.sha256()
    for file in sorted(path for path in SOURCE.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(SOURCE)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _go() -> str:
    found = next(filter(None, map(shutil.which, _PLACES)), None)
    if found is None:
        raise MissingTool("there is no Go here", f"Install Go 1.26 or newer, or {_WITHOUT}.")
    return found


def _answer(go: str, *arguments: str) -> str:
    return _run(go, *arguments, check=True).stdout.strip()


def _run(go: str, *arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = {"capture_output": True, "text": True}
    return subprocess.run([go, *arguments], cwd=SOURCE, check=check, **options)
