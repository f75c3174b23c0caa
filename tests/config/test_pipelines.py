"""`[pipelines]`: what each is made of, and what is said where two come too near."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.config import settings_file
from relay.errors import ConfigError

from .test_cli import relay
from .test_load import GOOD, write

TWO = """
[pipelines.east.kafka]
bootstrap = "east:9092"
[pipelines.west]
kafka.bootstrap = "west:9092"
block.max_rows = 7
"""


def wrong(directory: Path, text: str, pipeline: str | None = None) -> dict[str, str]:
    """What is wrong in a file of this text, by key; each key once."""
    with pytest.raises(ConfigError) as raised:
        settings_file.pipelines(write(directory, text), pipeline=pipeline)
    pairs = [line.strip().split(": ", 1) for line in raised.value.message.splitlines()[1:]]
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


def test_each_pipeline_is_what_all_share_with_its_own_over_it(tmp_path: Path) -> None:
    """Deep, in the file's order; app and checkpoint by its name."""
    shared = GOOD + '[block]\nmax_rows = 5\n[kafka.client]\n"linger.ms" = 7\n'
    east, west = settings_file.pipelines(write(tmp_path, shared + TWO))
    assert (east.name, east.settings.app) == ("east", "shop-east")
    assert (west.name, west.settings.app) == ("west", "shop-west")
    assert [one.settings.kafka.bootstrap for one in (east, west)] == ["east:9092", "west:9092"]
    assert [one.settings.block.max_rows for one in (east, west)] == [5, 7]
    assert [one.settings.kafka.client for one in (east, west)] == [{"linger.ms": 7}] * 2
    assert [one.settings.loader.checkpoint for one in (east, west)] == [
        str(tmp_path / "checkpoint" / name) for name in ("east", "west")
    ]


def test_a_file_without_pipelines_is_one_without_a_name(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert settings_file.pipelines(path) == (("", settings_file.load(path)),)
    assert settings_file.load(path).loader.checkpoint == str(tmp_path / "checkpoint")


def test_an_app_of_its_own_keeps_its_topics_and_ledger(tmp_path: Path) -> None:
    """So a file with one app can become one with two, and the first goes on where it was."""
    text = GOOD + TWO + '[pipelines.old]\napp = "shop"\nsource.topic = "others"\n'
    assert settings_file.load(write(tmp_path, text), pipeline="old").app == "shop"


def test_the_file_needs_no_app_where_each_pipeline_has_one(tmp_path: Path) -> None:
    text = GOOD.replace('app = "shop"', "") + TWO
    assert wrong(tmp_path, text) == {"app": "is missing, and has no default"}
    own = TWO.replace("[pipelines.east.kafka]", '[pipelines.east]\napp = "e"\nkafka.')
    own = own.replace("kafka.\nboot", "kafka.boot").replace("west]", 'west]\napp = "w"')
    made = settings_file.pipelines(write(tmp_path, GOOD.replace('app = "shop"', "") + own))
    assert [one.settings.app for one in made] == ["e", "w"]


def test_all_problems_of_all_pipelines_are_told_at_once_by_the_key_to_mend(tmp_path: Path) -> None:
    """What all share is told once, at its own place."""
    text = """
    app = "shop"
    [kafka]
    [source]
    topic = "r ows"
    [clickhouse]
    url = "http://localhost:8123"
    [loader]
    checkpoint = "c"
    [relay]
    max_reread = 0
    [pipelines.east]
    kafka = { bootstrap = "east" }
    loader = { master = "local" }
    relay = { transaction_timeout_seconds = 60 }
    [pipelines.west.kafak]
    x = 1
    [pipelines]
    flat = 3
    "a b" = { kafka = { bootstrap = "c:1" } }
    long-long-long-long-long-long-long-name.kafka.bootstrap = "d:1"
    """
    found = wrong(tmp_path, text)
    assert found.keys() == {
        "source.topic",
        "relay.max_reread",
        "pipelines.flat",
        'pipelines."a b"',
        "pipelines.long-long-long-long-long-long-long-name",
        "pipelines.east.kafka.bootstrap",
        "pipelines.east.loader.master",
        "pipelines.east.relay",
        "pipelines.west.kafak",
        "pipelines.west.kafka.bootstrap",
    }
    assert "one Spark session" in found["pipelines.east.loader.master"]
    assert found["pipelines.west.kafak"] == "unknown key; did you mean kafka?"


@pytest.mark.parametrize("value", ["pipelines = 3", "pipelines = {}", "pipelines = []"])
def test_pipelines_without_any_are_a_mistake(tmp_path: Path, value: str) -> None:
    assert wrong(tmp_path, value + GOOD).keys() == {"pipelines"}


@pytest.mark.parametrize(
    ("of_west", "key", "reason"),
    [
        ('app = "shop-East"', "pipelines.west.app", "is also the app of pipeline east"),
        (
            'loader.checkpoint = "checkpoint/east"',
            "pipelines.west.loader.checkpoint",
            "has the same checkpoint",
        ),
        (
            'kafka.bootstrap = "a:1, EAST:9092"',
            "pipelines.west.source.topic",
            "every row would be loaded twice",
        ),
        (
            'kafka.bootstrap = "east:9092"\nsource.topic = "shop-east.blocks.a.b"',
            "pipelines.west.source.topic",
            "pipeline west reads 'shop-east.blocks.a.b', which pipeline east writes",
        ),
    ],
)
def test_what_two_pipelines_must_not_share(
    tmp_path: Path, of_west: str, key: str, reason: str
) -> None:
    east = '[pipelines.east]\nkafka.bootstrap = "east:9092"\n'
    west = "[pipelines.west]\n" + ("" if "kafka." in of_west else 'kafka.bootstrap = "west:9092"\n')
    found = wrong(tmp_path, f"{GOOD}{east}{west}{of_west}\n")
    assert found.keys() == {key}
    assert reason in found[key]


def test_what_two_pipelines_may_share(tmp_path: Path) -> None:
    """A cluster with another topic; a topic's name in another cluster; a topic for two servers."""
    text = """
    [pipelines.a]
    [pipelines.b.source]
    topic = "others"
    [pipelines.c.kafka]
    bootstrap = "c:9092"
    [pipelines.d.clickhouse]
    url = "http://other:8123"
    """
    assert len(settings_file.pipelines(write(tmp_path, GOOD + text))) == 4


@pytest.mark.parametrize(
    "url", ["http://localhost", "http://LOCALHOST:8123/", '["https://b", "http://localhost:8123"]']
)
def test_one_server_is_seen_under_another_spelling(tmp_path: Path, url: str) -> None:
    """A port left out is the one of ClickHouse, not of the web."""
    value = url if url.startswith("[") else f'"{url}"'
    text = f"{GOOD}[pipelines.east]\n[pipelines.west.clickhouse]\nurl = {value}\n"
    found = wrong(tmp_path, text + 'insert_quorum = "auto"\n')
    assert found.keys() == {"pipelines.west.source.topic"}
    assert "every row would be loaded twice" in found["pipelines.west.source.topic"]


def test_a_server_at_another_port_or_an_address_that_is_none_is_another(tmp_path: Path) -> None:
    text = f'{GOOD}[pipelines.east]\n[pipelines.west.clickhouse]\nurl = "'
    assert len(settings_file.pipelines(write(tmp_path, f'{text}https://localhost"'))) == 2
    assert wrong(tmp_path, f'{text}http://localhost:x"').keys() == {"pipelines.west.clickhouse.url"}


def test_a_pipelines_secret_takes_the_place_of_the_shared_one(tmp_path: Path) -> None:
    """Whichever way either is given: else both would be there, which is refused."""
    for name in ("all", "mine"):
        (tmp_path / name).write_text(name)
    text = (
        GOOD.replace("[loader]", 'password_file = "all"\n[loader]')
        + TWO
        + '[pipelines.west.clickhouse]\npassword = ""\n'
        + '[kafka.client_files]\n"ssl.key.password" = "all"\n'
        + '[pipelines.east.kafka.client]\n"ssl.key.password" = ""\n'
    )
    east, west = settings_file.pipelines(write(tmp_path, text))
    assert east.settings.clickhouse.secret() == "all"
    assert west.settings.clickhouse.secret() == ""
    assert east.settings.kafka.client_files == {}
    assert west.settings.kafka.client_files.keys() == {"ssl.key.password"}


def test_a_pipelines_secret_in_plain_is_refused_and_not_shown(tmp_path: Path) -> None:
    secrets = '[pipelines.east.clickhouse]\npassword = "hunter2"\n'
    client = '[pipelines.west.kafka.client]\n"sasl.password" = "hunter3"\n'
    found = wrong(tmp_path, GOOD + TWO + secrets + client)
    assert found.keys() == {
        "pipelines.east.clickhouse.password",
        'pipelines.west.kafka.client."sasl.password"',
    }
    assert "hunter" not in str(found)


def test_one_pipeline_of_several_is_to_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + TWO)
    with pytest.raises(ConfigError, match=r"several pipelines \(east, west\)"):
        settings_file.load(path)
    assert settings_file.load(path, pipeline="west").app == "shop-west"
    with pytest.raises(ConfigError, match="no pipeline 'wets': it has east, west"):
        settings_file.load(path, pipeline="wets")
    with pytest.raises(ConfigError, match=r"no pipeline 'west': it has no table \[pipelines\]"):
        settings_file.load(write(tmp_path, GOOD), pipeline="west")


def test_of_one_named_pipeline_another_ones_secrets_need_not_be_here(tmp_path: Path) -> None:
    text = GOOD + TWO + '[pipelines.east.clickhouse]\npassword_file = "elsewhere"\n'
    assert wrong(tmp_path, text).keys() == {"pipelines.east.clickhouse.password_file"}
    assert settings_file.load(tmp_path / "relay.toml", pipeline="west").app == "shop-west"
    # But what stands between two is seen all the same.
    text = text.replace("east:9092", "west:9092")
    assert wrong(tmp_path, text, pipeline="west").keys() == {"pipelines.west.source.topic"}


def test_a_command_lines_values_hold_for_all(tmp_path: Path) -> None:
    made = settings_file.pipelines(write(tmp_path, GOOD + TWO), {"relay.member": "m"})
    assert {one.settings.relay.member for one in made} == {"m"}
    with pytest.raises(ConfigError, match=r"(?m)^1 problem .*\n  --member \(relay\.member\): "):
        settings_file.pipelines(tmp_path / "relay.toml", {"relay.member": "m m"})


def test_check_and_show_tell_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINE", "hunter2")
    path = write(tmp_path, GOOD + TWO + '[pipelines.east.clickhouse]\npassword = "${MINE}"\n')
    assert relay(monkeypatch, "config", "check", path) == 0
    assert "ok, pipeline west, app 'shop-west'" in capsys.readouterr().out
    assert relay(monkeypatch, "config", "show", path) == 0
    text = capsys.readouterr().out
    assert text.index("# ---- pipeline east") < text.index('bootstrap = "east:9092"')
    assert text.index("# ---- pipeline west") < text.index('bootstrap = "west:9092"')
    assert relay(monkeypatch, "config", "show", path, "--json") == 0
    shown = json.loads(capsys.readouterr().out)["pipelines"]
    assert shown["east"]["clickhouse"]["password"] == "(hidden)"
    assert shown["west"]["app"] == "shop-west"
    assert relay(monkeypatch, "config", "show", path, "--json", "--pipeline", "west") == 0
    alone = capsys.readouterr().out
    assert json.loads(alone)["pipelines"] == {"west": shown["west"]}
    assert "hunter2" not in text + alone


# ---- several replicas of one ClickHouse


@pytest.mark.parametrize(
    "urls",
    ['"http://a:1, https://b:2"', '["http://a:1", "https://b:2"]', '["http://a:1,https://b:2"]'],
)
def test_replicas_are_a_list_or_separated_by_commas(tmp_path: Path, urls: str) -> None:
    text = GOOD.replace('"http://localhost:8123"', f'{urls}\ninsert_quorum = "auto"')
    clickhouse = settings_file.load(write(tmp_path, text)).clickhouse
    assert clickhouse.urls == ("http://a:1", "https://b:2")
    assert clickhouse.insert_quorum == "auto"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('["http://a:1", "b:2"]', "must begin with http:// or https://, not 'b:2'"),
        ('"http://a:1,http://me:pw@b:2"', "contains a user or a password"),
        ('["http://a:1", "http://b:2"]', "also set clickhouse.insert_quorum"),
        ('"http://a:1/east"', "write no path: 'http://a:1'"),
        ('"https://a/?user=u&password=pw"', "write no query: 'https://a'"),
        ('"http://a:1/?#pw"', "write no fragment: 'http://a:1'"),
        ('"http:///?password=pw"', "write no query"),
        ('"me:pw@a:1/?password=pw"', "must begin with http:// or https://, not 'a:1/'"),
        ("[]", "valid string"),
        ('""', "must begin with"),
    ],
)
def test_wrong_replicas_are_named(tmp_path: Path, value: str, reason: str) -> None:
    found = wrong(tmp_path, GOOD.replace('"http://localhost:8123"', value))
    assert found.keys() == {"clickhouse.url"}
    assert reason in found["clickhouse.url"]
    assert "pw" not in found["clickhouse.url"]


@pytest.mark.parametrize("value", ["1", "0", "true", '"most"', "2.5"])
def test_a_quorum_is_two_or_more_or_auto(tmp_path: Path, value: str) -> None:
    text = GOOD.replace("[loader]", f"insert_quorum = {value}\n[loader]")
    assert wrong(tmp_path, text).keys() == {"clickhouse.insert_quorum"}
