"""ClickHouse's engine in a child process: SQL in, text out, one JSON line each way.

In a child, because chdb takes one path per process and does not let go of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class EngineError(Exception):
    pass


class Engine:
    def __init__(self, directory: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.schema.engine", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def query(self, sql: str, output: str = "TabSeparated") -> str:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps([sql, output]) + "\n")
        self._child.stdin.flush()
        answer = json.loads(self._child.stdout.readline())
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["text"]

    def rows(self, sql: str) -> list[list]:
        return [json.loads(line) for line in self.query(sql, "JSONCompactEachRow").splitlines()]

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(timeout=30)


def _serve(directory: str) -> None:
    from chdb.session import Session  # noqa: PLC0415 - only the child loads the engine

    session = Session(directory)
    for line in sys.stdin:
        sql, output = json.loads(line)
        try:
            answer = {"text": session.query(sql, output).bytes().decode()}
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(sys.argv[1])
