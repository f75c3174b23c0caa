"""`relay config`: the example, the check and the display, as a user meets them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from relay.cli import cli, config, main
from relay.cli.config import HIDDEN, example
from relay.config import settings_file
from relay.config.settings import Settings
from relay.config.validation import dotted, known_keys
from relay.dev import layout
from relay.dev.layout import Layout

from .test_load import GOOD, write

FILES = ("ca_file", "certificate_file", "key_file", "password_file")
EXAMPLES = (*FILES, "insert_quorum")
"""Settings of [clickhouse] that have no default but an example."""


def relay(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """The exit status of a command line."""
    monkeypatch.setattr("sys.argv", ["relay", *map(str, arguments)])
    return main()


def uncommented(text: str) -> str:
    """The example with every commented setting made live."""
    return re.sub(r'^# ((?:[a-z_]+|"[^"]+") = |\[)', r"\1", text, flags=re.MULTILINE)


def test_the_example_is_a_correct_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert relay(monkeypatch, "config", "check", write(tmp_path, example())) == 0


def test_the_examples_commented_lines_are_the_defaults_and_hold_every_key() -> None:
    live = tomllib.loads(uncommented(example()))
    known = {path for path in known_keys() if "*" not in path}
    for path in known:
        table: object = live
        for part in path:
            assert isinstance(table, dict), path
            assert part in table, f"{dotted(path)} is not in the example"
            table = table[part]
    named = re.findall(r"^# ([a-z_]+) = .*# an example, not the default", example(), re.MULTILINE)
    assert sorted(named) == sorted([*EXAMPLES, "member", "replication", "start", "tables"])
    # With the named examples and the example tables taken out, it is the minimal file.
    for section, key in (
        ("relay", "member"),
        *(("clickhouse", key) for key in EXAMPLES),
        ("source", "start"),
        ("source", "tables"),
        ("kafka", "replication"),
        ("kafka", "client"),
        ("kafka", "client_files"),
        ("block", "tables"),
        ("loader", "tables"),
    ):
        del live[section][key]
    for key in ("client", "client_files"):
        del live["source"]["kafka"][key]
    assert live.pop("pipelines") == {}
    assert Settings.model_validate(live) == Settings.model_validate(tomllib.loads(example()))


def test_every_setting_has_a_description() -> None:
    lines = example().splitlines()
    keys = [n for n, line in enumerate(lines) if re.match(r"(# )?[a-z_]+ = ", line)]
    assert len(keys) > 25
    for n in keys:
        assert re.match(r"# [a-zA-Z]", lines[n - 1]), lines[n]
        assert " = " not in lines[n - 1], lines[n]


def test_check_lists_the_problems_on_stderr_and_exits_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD + "[relay]\nmax_reread = 0\nmax_rereat = 1\n")
    assert relay(monkeypatch, "config", "check", path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "relay.max_reread: should be greater than 0, not 0" in err
    assert "relay.max_rereat: unknown key; did you mean relay.max_reread?" in err
    assert "Traceback" not in err


SECRETS = (
    'password = "${MINE}"\n[kafka.client]\n"security.protocol" = "sasl_plaintext"\n'
    '"sasl.mechanism" = "PLAIN"\n"sasl.username" = "u"\n"sasl.password" = "${MINE}"\n'
)


@pytest.mark.parametrize("as_json", [True, False])
def test_show_hides_secrets_and_shows_all_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
) -> None:
    monkeypatch.setenv("MINE", "hunter2")
    # [kafka.client] may follow [clickhouse]: TOML joins tables by name.
    path = write(tmp_path, GOOD.replace("[loader]", SECRETS + "[loader]"))
    assert relay(monkeypatch, "config", "show", path, *["--json"][: int(as_json)]) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    shown = json.loads(out) if as_json else tomllib.loads(out)
    assert shown["clickhouse"]["password"] == HIDDEN
    assert shown["kafka"]["client"]["sasl.password"] == HIDDEN
    assert shown["kafka"]["client"]["sasl.username"] == "u"
    for key in known_keys():
        if "*" not in key and (as_json or key[-1] not in {"replication", "start", *EXAMPLES}):
            value: object = shown
            for part in key:
                assert isinstance(value, dict)
                value = value[part]


def test_show_as_text_marks_what_is_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    relay(monkeypatch, "config", "show", write(tmp_path, GOOD + "[block]\nmax_rows = 5\n"))
    out = capsys.readouterr().out
    assert "max_rows = 5\n" in out
    assert "max_bytes = 10_000_000  # default\n" in out


def test_show_as_text_reads_back_as_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.replace('"rows"', '"r.1"') + '[block.tables."a.b"]\nmax_age_seconds = 5\n'
    path = write(tmp_path, text)
    relay(monkeypatch, "config", "show", path)
    again = tmp_path / "again.toml"
    again.write_text(capsys.readouterr().out, encoding="utf-8")
    assert settings_file.load(again) == settings_file.load(path)


def printed(*arguments: object) -> str:
    done = CliRunner().invoke(cli, ["config", "init", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("short", [True, False])
def test_init_writes_a_file_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    """Nothing that a first start needs is left open; options are taken over."""
    monkeypatch.chdir(tmp_path)
    options = ["--short"] if short else []
    file = tmp_path / "relay.toml"
    assert "wrote" in CliRunner().invoke(cli, ["config", "init", str(file), *options]).stderr
    plain = settings_file.load(file)
    assert (plain.app, plain.source.topic, plain.source.start) == ("shop", "rows", "earliest")
    assert printed(*options) == file.read_text(encoding="utf-8")
    given = {"--app": "x", "--topic": "t", "--start": "latest", "--bootstrap": "b:1"}
    given |= {"--clickhouse": "http://c:2"}
    words = [word for pair in given.items() for word in pair]
    again = CliRunner().invoke(cli, ["config", "init", str(file), *options, *words])
    assert "already exists" in str(again.exception)
    assert printed(file, *options, *words, "--force") == ""
    found = settings_file.load(file)
    assert (found.app, found.source.topic, found.source.start) == ("x", "t", "latest")
    assert (found.kafka.bootstrap, found.clickhouse.url) == ("b:1", "http://c:2")
    assert (len(file.read_text().splitlines()) < 25) is short


def test_init_knows_the_stack_of_relay_dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "localhost:9092" in printed("--short")
    layout.write(tmp_path / ".relay-dev", Layout("c", [15001, 15002, 15003], [15004], 15005, 15006))
    found = tomllib.loads(printed("--short"))
    assert found["kafka"] == {"bootstrap": "127.0.0.1:15001,127.0.0.1:15002,127.0.0.1:15003"}
    assert found["clickhouse"]["url"] == "http://127.0.0.1:15005"
    assert found["clickhouse"]["password_file"].endswith(".relay-dev/clickhouse.password")
    assert Settings.model_validate(tomllib.loads(printed())) == Settings.model_validate(found)


def test_init_asks_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no option gives; not where it only prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "in_terminal", lambda: True)
    words = ["config", "init", "relay.toml", "--short", "--app", "x"]
    done = CliRunner().invoke(cli, words, input="b:1\n\nlatest\nhttp://c:2\n")
    assert done.exit_code == 0, done.output
    found = settings_file.load(tmp_path / "relay.toml")
    assert (found.app, found.kafka.bootstrap, found.source.topic) == ("x", "b:1", "rows")
    assert (found.source.start, found.clickhouse.url) == ("latest", "http://c:2")
    assert "app" in printed("--short")


@pytest.mark.parametrize(("port", "noted"), [(9000, True), (9440, True), (8123, False)])
def test_check_notes_the_port_of_another_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, noted: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    printed("relay.toml", "--short", "--clickhouse", f"http://localhost:{port}")
    done = CliRunner().invoke(cli, ["config", "check"])
    assert done.exit_code == 0
    assert ("native protocol; HTTP is mostly 8123" in done.output) is noted


def test_several_topics_are_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of topics, which other products have, is answered with what there is."""
    monkeypatch.chdir(tmp_path)
    printed("relay.toml", "--short")
    file = tmp_path / "relay.toml"
    text = file.read_text().replace("[source]", '[source]\ntopics = ["a", "b"]')
    file.write_text(text)
    done = CliRunner().invoke(cli, ["config", "check"])
    assert "source.topics: an app reads one topic" in str(done.exception)
    assert "[pipelines]" in str(done.exception)
