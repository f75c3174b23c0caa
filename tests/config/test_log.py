"""relay.log: one line per event, without payloads."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from loader import console
from relay import log


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == "", "stdout is for results"
    return err.splitlines()


def emit(message: str, **extra: object) -> None:
    logging.getLogger("relay.test").info(message, extra=extra)


def test_text_is_one_line_with_extras_as_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(json=False)
    emit("sealed", table="a.b", rows=5, reason="too old", floors={0: 7}, empty="")
    [line] = lines(capsys)
    head, _, pairs = line.partition(" sealed ")
    assert head.endswith("Z INFO relay.test")
    assert pairs == 'table=a.b rows=5 reason="too old" floors={"0":7} empty=""'


def test_json_is_one_object_with_extras_as_members(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(json=True)
    emit("sealed", table="a.b", rows=5, level="mine")
    [line] = lines(capsys)
    record = json.loads(line)
    assert record["time"].endswith("Z")
    assert {k: record[k] for k in ("level", "logger", "message", "table", "rows")} == {
        "level": "INFO",
        "logger": "relay.test",
        "message": "sealed",
        "table": "a.b",
        "rows": 5,
    }


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING])
def test_what_a_loader_says_has_time_and_level(
    capsys: pytest.CaptureFixture[str], level: int
) -> None:
    log.setup(json=False)
    console.say("set aside shop:shop.orders:0:0:0", level=level, blocks=1)
    [line] = lines(capsys)
    when, name, rest = line.split(" ", 2)
    assert when.endswith("Z")
    assert (name, rest) == (logging.getLevelName(level), "loader set aside shop:shop.orders:0:0:0")


@pytest.mark.parametrize("as_json", [True, False])
def test_nothing_breaks_the_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    log.setup(json=as_json)
    emit("two\nlines\x1b[31m", value="a\nb\u2028c")
    [line] = capsys.readouterr().err.split("\n")[:-1]
    assert "\x1b" not in line
    if not as_json:
        assert "two\\nlines\\x1b[31m" in line
        assert '"a\\nb' in line


@pytest.mark.parametrize("as_json", [True, False])
def test_payloads_appear_as_their_size(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    log.setup(json=as_json)
    emit("bad", value=b"hunter2", nested=[b"hunter2"], text="x" * 501)
    [line] = lines(capsys)
    assert "hunter2" not in line
    assert "<7 bytes>" in line
    assert "(501 characters)" in line
    assert "x" * 501 not in line


@pytest.mark.parametrize("as_json", [True, False])
def test_an_exception_stays_on_the_line(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    log.setup(json=as_json)
    try:
        int("why")
    except ValueError:
        logging.getLogger("relay.test").exception("failed")
    [line] = lines(capsys)
    assert "ValueError: invalid literal" in line
    assert "Traceback" in line


def test_a_second_setup_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup(json=False)
    log.setup(json=True)
    emit("once")
    assert len(lines(capsys)) == 1
