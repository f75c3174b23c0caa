"""relay.config.settings_file: what a file says, and what is said about a wrong one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from relay.config import settings_file
from relay.config.settings import Settings
from relay.config.validation import dotted
from relay.errors import ConfigError

GOOD = """
app = "shop"
[kafka]
bootstrap = "localhost:9092"
[source]
topic = "rows"
[clickhouse]
url = "http://localhost:8123"
[loader]
checkpoint = "checkpoint"
"""


def problems(text: str) -> dict[str, str]:
    """What is wrong in a file of this text."""
    _, found = settings_file.check(tomllib.loads(text))
    assert len({path for path, _ in found}) == len(found), "one line per key"
    return {dotted(path): reason for path, reason in found}


def write(directory: Path, text: str) -> Path:
    path = directory / "relay.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_minimal_file_gives_the_settings_with_their_defaults(tmp_path: Path) -> None:
    settings = settings_file.load(write(tmp_path, GOOD))
    assert isinstance(settings, Settings)
    assert settings.app == "shop"
    assert settings.block.max_bytes == 10_000_000
    assert settings.source.start is None
    assert problems(GOOD) == {}


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_no_number_is_infinite(value: str) -> None:
    """JSON has no word for one, and for waiting without end there is 0."""
    text = GOOD.replace("[loader]", f"[loader]\nwait_for_servers_seconds = {value}")
    assert problems(text).keys() == {"loader.wait_for_servers_seconds"}
    assert problems(f"{GOOD}[block]\nmax_per_second = {value}\n").keys() == {"block.max_per_second"}


def test_every_problem_is_listed_at_once_with_its_key(tmp_path: Path) -> None:
    text = """
    app = "a b"
    max_bytes = 1
    [kafka]
    client = { "enable.auto.commit" = true, "linger.ms" = "soon", "no.such" = 1 }
    [source]
    topic = "r ows"
    start = "middle"
    [block]
    max_bytes = -5
    max_age = 3
    [relay]
    transaction_timeout_seconds = 60
    commit_interval = 1
    [clickhouse]
    url = "localhost:8123"
    [loader]
    checkpoint = "c"
    block_column = "a`b"
    """
    with pytest.raises(ConfigError) as raised:
        settings_file.load(write(tmp_path, text))
    keys = {line.split(": ")[0].strip() for line in raised.value.message.splitlines()[1:]}
    assert keys == {
        "app",
        "max_bytes",
        "kafka.bootstrap",
        'kafka.client."enable.auto.commit"',
        'kafka.client."linger.ms"',
        'kafka.client."no.such"',
        "source.topic",
        "source.start",
        "block.max_bytes",
        "block.max_age",
        "relay",
        "relay.commit_interval",
        "clickhouse.url",
        "loader.block_column",
    }
    assert raised.value.message.startswith("14 problems in ")
    assert "relay config check" in raised.value.next_step
    assert raised.value.exit_code == 2


def test_a_check_over_a_section_shows_beside_a_wrong_key_of_it() -> None:
    """pydantic alone would report the section only after the key was mended."""
    text = GOOD + "[relay]\ntransaction_timeout_seconds = 50\nmax_reread = 0\n"
    found = problems(text)
    assert "must be below session_timeout_seconds (45)" in found["relay"]
    assert found["relay.max_reread"] == "should be greater than 0, not 0"
    # Negative control: with the timeout right only the key is wrong.
    assert problems(text.replace("= 50", "= 30")).keys() == {"relay.max_reread"}


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("[block]\nmax_age = 1", "block.max_age_seconds"),
        ("[relay]\nmax_bufer_bytes = 1", "relay.max_buffer_bytes"),
        ("[relay]\nmax_rows = 1", "block.max_rows"),
        ("[lauder]\nx = 1", "loader"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(unknown: str, meant: str) -> None:
    [reason] = problems(f"{GOOD}\n{unknown}").values()
    assert reason == f"unknown key; did you mean {meant}?"


def test_an_unknown_key_like_no_other_gets_no_guess() -> None:
    assert problems(f"{GOOD}\n[relay]\nzzz = 1") == {"relay.zzz": "unknown key"}


def test_missing_sections_are_reported_by_the_keys_they_need() -> None:
    assert problems("").keys() == {
        "app",
        "kafka.bootstrap",
        "source.topic",
        "clickhouse.url",
        "loader.checkpoint",
    }


@pytest.mark.parametrize(
    "text",
    [
        'clickhouse = "hunter2"',
        '[clickhouse]\npasword = "hunter2"',
        '[clickhouse]\npassword = ["hunter2"]',
        '[clickhouse]\nurl = "http://me:hunter2@host:1"',
        '[kafka.client]\n"sasl.password" = ["hunter2"]',
        '[kafka.client]\n"sasl.pasword" = "hunter2"',
        '[kafka]\nclient = "sasl.password=hunter2"',
    ],
)
def test_no_message_shows_a_secret(text: str) -> None:
    found = problems(text)
    assert len(found) >= 5
    assert "hunter2" not in str(found)


def test_a_wrong_value_that_is_no_secret_is_shown() -> None:
    """Negative control of the test above."""
    assert "hunter2" in str(problems('[source]\nstart = "hunter2"'))


@pytest.mark.parametrize("topic", ["shop.journal", "shop.dead", "shop.schemas", "shop.blocks.a.b"])
def test_the_source_is_never_a_topic_that_the_relay_writes(topic: str) -> None:
    [(key, reason)] = problems(GOOD.replace('"rows"', f'"{topic}"')).items()
    assert key == "source.topic"
    assert "its own output" in reason


@pytest.mark.parametrize("bootstrap", ["localhost", "a:1,b", "a:0", "a:70000", "", "a:1,,b:2"])
def test_brokers_are_host_and_port(bootstrap: str) -> None:
    found = problems(GOOD.replace("localhost:9092", bootstrap))
    assert found.keys() == {"kafka.bootstrap"}


@pytest.mark.parametrize("bootstrap", ["a:1", "a:1, b:2", "[::1]:9092", "kafka-0.kafka.svc:9092"])
def test_brokers_may_be_written_in_these_ways(bootstrap: str) -> None:
    assert problems(GOOD.replace("localhost:9092", bootstrap)) == {}


def test_settings_that_make_sense_only_together_are_tried_together() -> None:
    sasl = '[kafka.client]\n"security.protocol" = "sasl_plaintext"\n"sasl.mechanism" = "PLAIN"\n'
    assert "sasl.username" in problems(GOOD + sasl)["kafka.client"]
    assert problems(GOOD + sasl + '"sasl.username" = "u"\n"sasl.password" = "p"\n') == {}


def test_secrets_come_from_the_environment_and_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace("[loader]", 'password_file = "nowhere"\n[loader]')
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=r"password_file: cannot read .*nowhere"):
        settings_file.load(path)
    monkeypatch.setenv("RELAY_CLICKHOUSE_PASSWORD", "from the environment")
    monkeypatch.setenv("RELAY_KAFKA_SASL_PASSWORD", "this too")
    settings = settings_file.load(path)
    assert settings.clickhouse.secret() == "from the environment"
    assert settings.kafka.client["sasl.password"] == "this too"


def test_password_and_password_file_together_are_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    both = f'password = "p"\npassword_file = "{tmp_path / "secret"}"\n[loader]'
    assert problems(GOOD.replace("[loader]", both)).keys() == {"clickhouse.password_file"}


def test_relative_paths_count_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n", encoding="utf-8")
    text = GOOD.replace("[loader]", 'password_file = "secret"\n[loader]')
    settings = settings_file.load(write(tmp_path, text))
    assert settings.loader.checkpoint == str(tmp_path / "checkpoint")
    assert settings.clickhouse.secret() == "s3cret"


@pytest.mark.parametrize("url", ["hdfs:/spark/cp", "hdfs://nn:8020/cp", "s3a://bucket/cp"])
def test_a_checkpoint_elsewhere_keeps_its_host_or_bucket(tmp_path: Path, url: str) -> None:
    text = GOOD.replace('"checkpoint"', f'"{url}"')
    assert settings_file.load(write(tmp_path, text)).loader.checkpoint == url
    several = text + '[pipelines.a]\n[pipelines.b]\nsource.topic = "others"\n'
    made = settings_file.pipelines(write(tmp_path, several))
    assert [one.settings.loader.checkpoint for one in made] == [f"{url}/a", f"{url}/b"]


def test_overrides_of_a_command_line_win_and_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert settings_file.load(path, {"relay.member": "r-1"}).relay.member == "r-1"
    with pytest.raises(ConfigError) as given:
        settings_file.load(path, {"relay.member": "a/b"})
    assert given.value.message == (
        "1 problem on the command line:\n"
        "  --member (relay.member): should be 1 to 100 letters, digits, dots, underscores and "
        "hyphens, not 'a/b'"
    )
    assert given.value.next_step == "give another value for the option"


def test_what_the_file_says_is_told_as_the_files_beside_an_options(tmp_path: Path) -> None:
    """The same words for a pattern, from wherever it comes."""
    text = GOOD.replace("[loader]", '[loader]\ntransform = "no colon"')
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as both:
        settings_file.load(path, {"source.start": "soon"})
    said = both.value.message
    assert said.startswith(f"2 problems in {path}:")
    assert "  --start (source.start): should be 'earliest' or 'latest', not 'soon'" in said
    assert "  loader.transform: should be module:function, as in etl.prices:rounded" in said
    assert "^" not in said, "no regular expression"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no file"),
        (b"a = ", "is not TOML"),
        (b"a = 1\na = 2", "is not TOML"),
        (b'a = "\xff"', "is not TOML in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "relay.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=said) as raised:
        settings_file.load(path)
    assert str(path) in raised.value.message
    assert raised.value.next_step


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        settings_file.load(tmp_path)
