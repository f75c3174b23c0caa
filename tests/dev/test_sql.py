"""`relay dev sql`: statements from an argument, a file and a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relay.cli import cli
from relay.config.server_settings import ClickHouse
from relay.dev import sql
from relay.dev.stack import Stack
from relay.program.command import run_main

RELAY = [str(Path(sys.executable).parent / "relay"), "dev", "sql", "--directory"]


def _run(stack: Stack, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [*RELAY, str(stack.directory), *arguments]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(
    ("text", "whole", "rest"),
    [
        ("SELECT 1", [], "SELECT 1"),
        ("SELECT 1;", ["SELECT 1"], ""),
        ("SELECT ';'; SELECT `;`;\n x", ["SELECT ';'", "SELECT `;`"], "\n x"),
        ("SELECT 'it\\';s', 'it''s;';", ["SELECT 'it\\';s', 'it''s;'"], ""),
        ('SELECT ";" -- ; a comment\n;', ['SELECT ";" -- ; a comment'], ""),
        ("SELECT /* ; */ 1; /* ;", ["SELECT /* ; */ 1"], " /* ;"),
        ("SELECT $a$ ; $b$ ; $a$;", ["SELECT $a$ ; $b$ ; $a$"], ""),
        ("SELECT 'open; still", [], "SELECT 'open; still"),
        (";;\n-- nothing\n;# nothing\n;", [], ""),
    ],
)
def test_only_a_semicolon_outside_of_quotes_ends_a_statement(
    text: str, whole: list[str], rest: str
) -> None:
    """Quotes, comments and heredocs hide it; what is not closed yet waits for more."""
    assert sql.split(text) == (whole, rest)


class Answering:
    """A connection to a server that answers one statement."""

    status = 200

    def request(self, *_: object) -> None:
        self._rows = iter([b"rows"])

    def getresponse(self) -> Answering:
        return self

    def read(self, _: int) -> bytes:
        return next(self._rows, b"")


def test_an_output_that_is_closed_is_not_a_server_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `| head` closes it: the status was 4, and the advice to start ClickHouse."""
    session = sql.Session(ClickHouse(url="http://127.0.0.1:1"))
    monkeypatch.setattr(session, "_connection", Answering())

    def closed(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        session.ask("SELECT 1", closed)


def test_a_table_for_people_and_rows_for_programs(stack: Stack, database: str) -> None:
    """Several statements share a session; formats are ClickHouse's own."""
    made = (
        f"USE {database}; CREATE TABLE t (id UInt8, v String) ENGINE MergeTree ORDER BY id; "
        "INSERT INTO t VALUES (1, 'semi;colon'), (2, 'é')"
    )
    assert (_run(stack, made).returncode, _run(stack, made).returncode) == (0, 2)  # is there now
    rows = f"SELECT * FROM {database}.t ORDER BY id"
    table = _run(stack, rows).stdout
    assert "┌─id─┬─v" in table
    assert "semi;colon" in table
    assert "\x1b" not in table
    lines = _run(stack, "--json", rows).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 1, "v": "semi;colon"},
        {"id": 2, "v": "é"},
    ]
    assert _run(stack, "--format", "CSV", rows).stdout == '1,"semi;colon"\n2,"é"\n'
    assert _run(stack, "--json", f"{rows} FORMAT TSV").stdout == "1\tsemi;colon\n2\té\n"
    from_file = f"-- a file\n{rows} LIMIT 1;\nSELECT 'end'"
    assert _run(stack, "--format", "TSV", stdin=from_file).stdout == "1\tsemi;colon\nend\n"


def test_an_error_is_one_line_and_ends_the_list(stack: Stack) -> None:
    """With ClickHouse's words, also where rows came before it; what stands behind does not run."""
    for wrong, words in (
        ("SELECT * FROM nowhere.t", "Database nowhere does not exist"),
        ("SELEC 1", "Syntax error"),
        ("SELECT throwIf(number = 400000) FROM numbers(500000)", "FUNCTION_THROW_IF_VALUE_IS"),
    ):
        done = _run(stack, f"SELECT 'before'; {wrong}; SELECT 'behind'", "--format", "TSV")
        assert (done.returncode, done.stdout) == (2, "before\n")
        (line,) = done.stderr.splitlines()
        assert line.startswith("relay: Code: ")
        assert words in line
        assert "version" not in line


def test_a_statement_holds_a_thousand_lines_of_a_file(stack: Stack) -> None:
    """The tutorial's question about the columns of a file; ClickHouse parses 256 KiB by default."""
    wide = "x" * 400
    lines = "\n".join(["id,v", *(f"{number},{wide}" for number in range(1_000))])
    done = _run(stack, "--json", stdin=f"DESCRIBE format(CSVWithNames, $${lines}\n$$)\n")
    assert (done.returncode, done.stderr) == (0, "")
    columns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["name"] for one in columns] == ["id", "v"]


def test_where_nothing_runs_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No stack: status 2; a stack that is down: status 4; each with the next step."""
    none = ["dev", "sql", "--directory", str(tmp_path), "SELECT 1"]
    assert run_main(cli, "relay", none) == 2
    assert "relay dev up" in capsys.readouterr().err
    (tmp_path / "stack.json").write_text(
        json.dumps(
            {
                "cluster_id": "x",
                "kafka_ports": [1],
                "controller_ports": [2],
                "clickhouse_port": 3,
                "clickhouse_tcp_port": 4,
            }
        )
    )
    (tmp_path / "clickhouse.password").write_text("x\n")
    assert run_main(cli, "relay", none) == 4
    assert "does not answer" in capsys.readouterr().err
    assert run_main(cli, "relay", [*none, "--json", "--format", "CSV"]) == 2


def test_a_dialogue_in_a_terminal(stack: Stack) -> None:
    """Statements over several lines; an error does not end it, Ctrl-D does."""
    master, terminal = pty.openpty()
    command = [*RELAY, str(stack.directory), "--format", "TSV"]
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal) as child:
        os.close(terminal)
        heard = _until(master, "", "clickhouse> ")
        os.write(master, b"SELECT 40\n+ 2;\n")
        heard = _until(master, heard, "42\r\n")
        assert "...> " in heard
        os.write(master, b"SELECT nothing;\n")
        heard = _until(master, heard, "(UNKNOWN_IDENTIFIER)")
        os.write(master, b"SELECT 6 * 7 + 1;\n")
        heard = _until(master, heard, "43\r\n")
        os.write(master, b"\x04")
        assert child.wait(30) == 0
    os.close(master)


def _until(master: int, heard: str, what: str) -> str:
    """Read the terminal until it shows what is waited for."""
    deadline = time.monotonic() + 60
    while what not in heard:
        readable, _, _ = select.select([master], [], [], deadline - time.monotonic())
        assert readable, f"{what!r} never came: {heard}"
        heard += os.read(master, 4096).decode()
    return heard
