"""Log lines of running programs: which transaction they concern, in which format, and no secret."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relay import log
from relay.config.settings_file import load
from relay.core import effects as ef
from relay.core.state import Phase
from relay.errors import Refused
from relay.operate.metrics.endpoint import RelayMonitor
from relay.process.log_lines import LogContext
from relay.process.several import PROGRAM
from relay.program.command import log_format_option, show_error
from tests.core.build import in_phase

SENTINEL = "sentinel-7f3a-secret"


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    log.about()
    root.handlers[:], root.level = handlers, level


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """The one line."""
    found: dict[str, object] = json.loads(capsys.readouterr().err)
    return found


def test_lines_within_a_transaction_carry_its_id_and_its_blocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From begin to its end; the next one has another id."""
    log.setup(json=True)
    transaction = in_phase(Phase.PRODUCING).transaction
    assert transaction is not None
    concerning, logger = LogContext("shop", "0"), logging.getLogger("relay.test")
    concerning.before(ef.Begin())
    logger.warning("connection lost")
    assert said(capsys)["transaction"] == "shop.relay.0/1"
    concerning.before(ef.Produce(transaction.seals))
    logger.warning("failed", extra={"why": "no"})
    line = said(capsys)
    assert (line["transaction"], line["why"]) == ("shop.relay.0/1", "no")
    assert line["blocks"] == [seal.block_id for seal in transaction.seals]
    for end in (ef.Commit(), ef.Abort(), ef.Replace("why")):
        concerning.before(ef.Begin())
        concerning.after(end)
        logger.warning("later")
        assert "transaction" not in said(capsys)
    concerning.before(ef.Begin())
    logger.warning("next")
    assert said(capsys)["transaction"] == "shop.relay.0/5"


def test_other_threads_lines_are_not_of_the_transaction(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The HTTP server's, for instance."""
    log.setup(json=True)
    log.about(transaction="t/1")
    other = threading.Thread(target=logging.getLogger("http").info, args=("hello",))
    other.start()
    other.join()
    assert "transaction" not in said(capsys)


def test_what_a_line_says_itself_wins(capsys: pytest.CaptureFixture[str]) -> None:
    """Over what it is about."""
    log.setup(json=True)
    log.about(blocks=["a"])
    logging.getLogger("x").info("one", extra={"blocks": 3})
    assert said(capsys)["blocks"] == 3


@pytest.mark.parametrize(
    ("arguments", "environment", "chosen"),
    [
        ([], {}, "text"),
        ([], {"RELAY_LOG_FORMAT": "json"}, "json"),
        (["--log-format", "text"], {"RELAY_LOG_FORMAT": "json"}, "text"),
    ],
)
def test_the_format_comes_from_option_or_environment(
    arguments: list[str], environment: dict[str, str], chosen: str
) -> None:
    """The option wins."""

    @click.command()
    @log_format_option
    def command(log_format: str) -> None:
        click.echo(log_format)

    result = CliRunner().invoke(command, arguments, env=environment)
    assert result.output.strip() == chosen


def test_the_last_error_is_a_line_like_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Message, next step and page as members; as three lines of text for people."""
    log.setup(json=True)
    error = Refused("no right", "grant it", page="security#rights")
    show_error("relay", error)
    line = said(capsys)
    assert (line["message"], line["next"], line["level"]) == ("no right", "grant it", "ERROR")
    assert line["more"] == "relay docs security#rights"
    log.setup(json=False)
    show_error("relay", error)
    said_to_people = "relay: no right\n  next: grant it\n  more: relay docs security#rights\n"
    assert capsys.readouterr().err == said_to_people


CONFIG = """
app = "shop"
[kafka]
bootstrap = "127.0.0.1:1"
[kafka.client]
"debug" = "all"
"security.protocol" = "sasl_plaintext"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "relay"
[kafka.client_files]
"sasl.password" = "held"
[source]
topic = "rows"
start = "earliest"
[clickhouse]
url = "http://127.0.0.1:1"
password_file = "held"
[relay]
member = "m"
wait_for_servers_seconds = 0.1
[loader]
checkpoint = "c"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "relay.toml"
    path.write_text(CONFIG, encoding="utf-8")
    (tmp_path / "held").write_text(SENTINEL, encoding="utf-8")
    return path


def test_each_line_of_a_relay_is_an_object_and_none_holds_a_secret(config: Path) -> None:
    """With librdkafka's debug log on, and no broker, up to the error that ends it."""
    process = subprocess.run(
        [*PROGRAM, "run", str(config), "--http", "127.0.0.1:0"],
        env={**os.environ, "RELAY_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 4, process.stderr
    assert SENTINEL not in process.stdout + process.stderr
    lines = [json.loads(line) for line in process.stderr.splitlines()]
    assert {"serving metrics and health"} <= {line["message"] for line in lines}
    assert any(line["logger"] == "librdkafka" for line in lines), "debug lines were there"
    assert lines[-1]["level"] == "ERROR"


def test_metrics_and_health_hold_no_secret(config: Path) -> None:
    """Whatever is asked."""
    for path, route in RelayMonitor(load(config)).routes().items():
        status, _, body = route({})
        assert status in {200, 503}, path
        assert SENTINEL.encode() not in body
        assert len(body) > 50
