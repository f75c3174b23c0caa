"""`relay verify` of several pipelines: one order, and none that holds up another."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.cli import cli
from relay.cli.verify import command, several
from relay.errors import ConfigError, Refused, Unavailable
from relay.operate.verify.anomaly_order import CommitTimes, DatedAnomaly, Merged
from relay.operate.verify.judge.anomaly import Anomaly, AnomalyKind
from relay.operate.verify.judge.beginning import JournalBeginning
from relay.program.command import run_main
from relay.records_pb2 import Commit
from tests.broker.pipeline import wait_until
from tests.config.test_load import GOOD
from tests.config.test_pipelines import TWO


def anomaly(n: int, partition: int = 0) -> Anomaly:
    return Anomaly(AnomalyKind.GAP, partition, n, 0, f"gap {n}")


def commit(n: int, at_ms: int) -> Commit:
    return Commit(n=n, written_at_ms=at_ms)


def test_what_was_found_comes_in_the_order_of_the_commits() -> None:
    """Whoever told it first; and once."""
    merged = Merged()
    found = [
        DatedAnomaly(30, "a", anomaly(3)),
        DatedAnomaly(10, "b", anomaly(1)),
        DatedAnomaly(10, "a", anomaly(2)),
    ]
    for told in found:
        merged.add(told)
    assert merged.take() == [found[2], found[1], found[0]]
    assert merged.take() == []


def test_the_time_is_that_of_the_commit_that_shows_it() -> None:
    """The last one of its partition while reading; any one where all are remembered."""
    for each, of_first in ((False, 200), (True, 100)):
        clock = CommitTimes(each=each)
        clock.note(0, 0, commit(1, 100))
        clock.note(0, 1, commit(2, 200))
        clock.note(1, 0, commit(1, 900))
        assert clock.of(anomaly(1), 7) == of_first
        assert clock.of(anomaly(2), 7) == 200
        assert clock.of(anomaly(1, partition=1), 7) == 900
        assert clock.of(anomaly(1, partition=2), 7) == 7


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of two pipelines, east and west; readers ask no server."""
    path = tmp_path / "relay.toml"
    path.write_text(GOOD + TWO)

    class Reader:
        def __init__(self, settings: object, *, lasting: bool = False) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(several, "Reader", Reader)
    monkeypatch.setattr(several, "AGAIN_SECONDS", 0.05)
    return str(path)


def found_by(audits: dict[str, list[tuple[int, int]]]) -> Callable[..., None]:
    """In place of an audit: (n, Unix milliseconds) of each anomaly, by app."""

    def look(settings: Any, _reader: object, audit: Any, say: Any, note: Any, **_: Any) -> None:
        for n, at_ms in audits[settings.app]:
            note(0, n, commit(n, at_ms))
            audit.anomalies.append(anomaly(n))
            say(anomaly(n))

    return look


def test_once_tells_all_of_all_in_one_order(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"shop-east": [(1, 100), (2, 300)], "shop-west": [(1, 200)]}
    monkeypatch.setattr(several, "once", found_by(found))
    assert run_main(cli, "relay", ["verify", config, "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [(one["pipeline"], one["committed_ms"]) for one in lines if "anomaly" in one]
    assert told == [("east", 100), ("west", 200), ("east", 300)]
    totals = {one["pipeline"]: one["anomalies"] for one in lines if "anomalies" in one}
    assert totals == {"east": 2, "west": 1}
    assert run_main(cli, "relay", ["verify", config]) == 1
    lines_of_text = capsys.readouterr().err.splitlines()
    assert lines_of_text[0].startswith("anomaly: 1970-01-01 00:00:00.100 UTC  east  gap: ")


@pytest.mark.parametrize(("of_west", "status"), [([(1, 100)], 1), ([], 4)])
def test_once_one_that_is_away_hides_no_other(
    config: str,
    of_west: list[tuple[int, int]],
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others are audited; that one was not is the status where nothing worse is."""

    def look(settings: Any, *arguments: Any, **named: Any) -> None:
        if settings.app == "shop-east":
            raise Unavailable("east is away", "wait")
        found_by({"shop-west": of_west})(settings, *arguments, **named)

    monkeypatch.setattr(several, "once", look)
    assert run_main(cli, "relay", ["verify", config]) == status
    said = capsys.readouterr()
    assert "relay: east: east is away" in said.err
    assert "Journal of west" in said.out
    assert "Journal of east" not in said.out


UNREAD = JournalBeginning(0, None, 0, source_start=20, floor=10)
ONE = [(1, 100)]


@pytest.mark.parametrize(
    ("found", "history", "status"),
    [([], [], 4), (ONE, [], 1), ([], [UNREAD], 6), (ONE, [UNREAD], 6)],
)
@pytest.mark.parametrize("pipelines", ["", TWO])
def test_what_was_found_before_a_server_was_away_is_told(
    pipelines: str,
    found: list[tuple[int, int]],
    history: list[JournalBeginning],
    status: int,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It was dropped: with one pipeline all of it, with several what was deleted unread."""

    def look(settings: Any, reader: object, audit: Any, say: Any, *_: Any, **__: Any) -> None:
        found_by({settings.app: found})(settings, reader, audit, say, lambda *_: None)
        audit.totals.records, audit.history = len([*found, *history]), history
        raise Unavailable("ClickHouse is away", "wait")

    for where in (several, command):
        monkeypatch.setattr(where, "once", look)
    monkeypatch.setattr(command, "Reader", several.Reader)
    Path(config).write_text(GOOD + pipelines)
    assert run_main(cli, "relay", ["verify", config]) == status
    heard = capsys.readouterr().err
    assert "ClickHouse is away" in heard
    assert ("gap 1" in heard) == bool(found)
    assert ("the source log begins at offset 20" in heard) == bool(history)


@pytest.mark.parametrize(("anomalies", "status"), [([], 5), (ONE, 1)])
def test_a_table_that_could_not_be_judged_is_the_status_where_nothing_is_worse(
    anomalies: list[tuple[int, int]],
    status: int,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The audit went on beside it."""

    def look(settings: Any, reader: object, audit: Any, say: Any, **_: Any) -> None:
        found_by({settings.app: anomalies})(settings, reader, audit, say, lambda *_: None)
        audit.errors += [Unavailable("shop.b is away"), Refused("shop.a may not be read")]

    monkeypatch.setattr(command, "once", look)
    monkeypatch.setattr(command, "Reader", several.Reader)
    Path(config).write_text(GOOD)
    assert run_main(cli, "relay", ["verify", config]) == status
    assert ("shop.a may not be read" in capsys.readouterr().err) == (status == 5)


def test_follow_goes_on_with_the_others_and_begins_again(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """East has no journal at first. What each finds is told while they go on, and is the status."""
    tries: list[str] = []
    both = threading.Event()

    def look(
        settings: Any, _: object, audit: Any, say: Any, outlets: Any, stop: Any, note: Any
    ) -> None:
        tries.append(outlets.listen)
        if settings.app == "shop-east" and tries.count("127.0.0.1:9466") < 3:
            raise ConfigError("there is no topic shop-east.journal", "run a relay")
        found_by({"shop-east": [(1, 100)], "shop-west": [(1, 200)]})(
            settings, None, audit, say, note
        )
        stop.wait(60)

    def then_stop() -> None:
        wait_until(lambda: len(tries) >= 4, "the third try of the east")
        both.set()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(several, "follow_one", look)
    thread = threading.Thread(target=then_stop)
    thread.start()
    command = ["verify", config, "--follow", "--http", "127.0.0.1:9466"]
    status = run_main(cli, "relay", command)
    thread.join()
    assert (both.is_set(), status) == (True, 1)
    assert sorted(tries) == [*["127.0.0.1:9466"] * 3, "127.0.0.1:9467"]
    said = capsys.readouterr()
    assert said.err.count("relay: east: there is no topic") == 2
    assert {line.split("  ")[1] for line in said.err.splitlines() if "anomaly:" in line} == {
        "east",
        "west",
    }


def test_what_nobody_foresaw_ends_the_verifier(
    config: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever supervises it starts it again; going on without one would look like no anomaly."""

    def look(settings: Any, *arguments: Any) -> None:
        if settings.app == "shop-east":
            raise KeyError("east")
        arguments[4].wait(60)

    monkeypatch.setattr(several, "follow_one", look)
    assert run_main(cli, "relay", ["verify", config, "--follow"]) == 70
    assert "KeyError" in capsys.readouterr().err


def test_a_webhook_that_is_none_is_told_before_anything_begins(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(cli, "relay", ["verify", config, "--follow", "--webhook", "host"]) == 2
    assert "the webhook's URL is not http or https" in capsys.readouterr().err
