"""TLS, SCRAM and an authorizer: the whole path works with the printed rights, and tells no one."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourceType

from loader.clickhouse.client import connect
from relay.cli import cli
from relay.config import settings_file
from relay.dev.clickhouse import toml
from relay.errors import Unavailable
from relay.operate.doctor import grants
from relay.operate.verify.read.topic import TopicReader
from relay.operate.view.group import GroupReader
from relay.program.command import run_main
from tests import reach
from tests.broker.authorized import Authorized, Right, rights
from tests.broker.pipeline import Pipeline, wait_until
from tests.broker.secured import Certificates, over_tls, printed_rights, secured
from tests.broker.test_missing_rights import send_bad
from tests.config.test_load import GOOD, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clickhouse_connect.driver.client import Client

    from relay.config.server_settings import ClickHouse

pytestmark = pytest.mark.timeout(420)

BIN = Path(sys.executable).parent
ROLES = ("relay", "loader", "verifier", "operator", "retirer", "replayer", "rewinder", "feeder")
SENTINEL = "s3ntinel-Pa55word-of-"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Authorized, Certificates]]:
    users = {role: f"{SENTINEL}{role}" for role in ROLES}
    with secured(tmp_path_factory.mktemp("secured"), users) as made:
        yield made


@pytest.fixture(scope="module")
def bootstrap(server: tuple[Authorized, Certificates]) -> str:
    """Instead of the session's broker: `pipeline` and its judge are super users on this one."""
    return server[0].bootstrap


@pytest.fixture
def https(clickhouse: ClickHouse, server: tuple[Authorized, Certificates]) -> Iterator[str]:
    with over_tls(clickhouse.url, server[1]) as address:
        yield address


def config(
    pipeline: Pipeline, server: tuple[Authorized, Certificates], https: str, role: str
) -> Path:
    """Of a program that comes in as the role's user, with librdkafka's debugging on."""
    broker, made = server
    held = pipeline.directory / f"{role}.password"
    held.write_text(f"{SENTINEL}{role}\n", encoding="utf-8")
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": role,
        "ssl.ca.location": made.ca,
        "debug": "security,broker,conf",
    }
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in client.items())
    path = pipeline.config(
        f'[kafka.client]\n{lines}\n[kafka.client_files]\n"sasl.password" = "{held}"\n'
    )
    tls = f'ca_file = "{made.ca}"\ncertificate_file = "{made.certificate}"\n'
    tls += f'key_file = "{made.key}"\n'
    text = path.read_text(encoding="utf-8").replace(broker.bootstrap, broker.sasl)
    over = toml(reach.elsewhere(pipeline.clickhouse, https))
    text = text.replace(toml(pipeline.clickhouse), over + tls)
    path.write_text(text, encoding="utf-8")
    return path


class Heard:
    """Everything that anybody could read: outputs, logs, arguments of processes."""

    def __init__(self) -> None:
        self.text = ""

    def watch(self, process: psutil.Process) -> None:
        for one in (process, *process.children(recursive=True)):
            try:
                self.text += f"{one.cmdline()}\n"
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue  # it has ended meanwhile


def loaded(config: Path, heard: Heard) -> None:
    """`loader run --once`, its processes watched until it ends."""
    said = config.parent / "loader.log"
    with said.open("wb") as output:
        command = [BIN / "loader", "run", config, "--once", "--master", "local[1]"]
        process = subprocess.Popen(command, stdout=output, stderr=output)

    def ended() -> bool:
        if process.poll() is None:
            heard.watch(psutil.Process(process.pid))
        return process.poll() is not None

    try:
        wait_until(ended, "the end of the loader", 200)
    finally:
        process.kill()
    text = said.read_text(encoding="utf-8")
    heard.text += text
    assert process.returncode == 0, text
    assert "SparkSubmit" in heard.text, "negative control: arguments of Spark's processes are seen"


@pytest.mark.long  # 70 s: every program, one after the other
def test_the_whole_path_with_exactly_the_printed_rights(
    pipeline: Pipeline,
    server: tuple[Authorized, Certificates],
    https: str,
    client: Client,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Rows from a file to ClickHouse, then every command; no secret is anywhere to be read."""
    heard = Heard()
    of = {role: config(pipeline, server, https, role) for role in ROLES}

    def run(role: str, command: str) -> str:

        words = [word.replace("CONFIG", str(of[role])) for word in command.split()]
        status = run_main(cli, "relay", words)
        out, err = capfd.readouterr()
        heard.text += out + err
        assert status == 0, f"{command} as {role}: {out}{err}"
        return out

    for role in ROLES:
        printed = run("relay", f"doctor CONFIG --grants --role {role} --table {pipeline.table}")
        lines = printed.replace("User:relay", f"User:{role}").splitlines()
        server[0].grant(printed_rights(lines))
    file = pipeline.directory / "rows.jsonl"
    file.write_text("".join(json.dumps({"id": i, "v": "x"}) + "\n" for i in range(50)), "utf-8")
    run("feeder", f"produce CONFIG --table {pipeline.table} {file}")
    pipeline.sent.update(range(50))
    relay = pipeline.start("a", of["relay"])
    pipeline.send(range(50, 100))
    send_bad(pipeline)
    pipeline.exactly_once()
    heard.watch(psutil.Process(relay.pid))

    loaded(of["loader"], heard)
    assert client.query(f"SELECT count(), uniqExact(id) FROM {pipeline.table}").result_rows == [
        (100, 100)
    ]
    run("operator", "status CONFIG --json")
    relay.send_signal(signal.SIGTERM)
    assert pipeline.end_of(relay) == 0
    heard.text += pipeline.log(relay)
    assert '"anomalies": 0' in run("verifier", "verify CONFIG --once --deep --json")
    run("replayer", "dead replay --run --config CONFIG")
    operator = GroupReader(settings_file.load(of["operator"]))
    wait_until(lambda: not operator.read().members, "the relay's session to end")
    run("retirer", "retire CONFIG --member a --run")
    consent = f"--keep-rows {pipeline.table} --despite-replays"
    run("rewinder", f"rewind CONFIG --partition 0 --to-offset 0 --run --why test {consent}")
    run("operator", "config show CONFIG")

    for shown in ("SCRAM-SHA-512", "sasl_ssl", https):
        assert shown in heard.text, f"negative control: {shown} is no secret"
    assert SENTINEL not in heard.text
    assert pipeline.clickhouse.secret() not in heard.text
    assert SENTINEL in Path(pipeline.directory / "relay.password").read_text("utf-8")


def test_the_printed_rights_of_a_relay_are_those_that_it_ends_without(tmp_path: Path) -> None:
    """test_missing_rights takes each of them away; what a relay works without says so."""
    path = write(tmp_path, GOOD.replace('"rows"', '"shop.source"'))
    printed = CliRunner().invoke(cli, ["doctor", str(path), "--grants", "--role", "relay"]).output
    lines = printed.replace("User:ANONYMOUS", "User:relay").splitlines()
    needed = [line for line in lines if "# optional: " not in line]
    assert set(printed_rights(needed)) == set(rights("shop").values())
    assert len(needed) < len(lines)


def test_one_role_may_not_do_the_work_of_another(
    pipeline: Pipeline, server: tuple[Authorized, Certificates], https: str
) -> None:
    """Negative control: the broker asks its authorizer; a loader's user can be no relay."""
    settings = settings_file.load(config(pipeline, server, https, "loader"))
    (role,) = [one for one in grants.roles(settings) if one.name == "loader"]
    server[0].grant(printed_rights(list(grants.as_text(settings, role))))
    pipeline.send(range(5))

    process = pipeline.start("a", config(pipeline, server, https, "loader"))

    wait_until(lambda: process.poll() is not None, "the end of the relay", 60)
    assert process.returncode == 5, pipeline.log(process)
    assert "AUTHORIZATION_FAILED" in pipeline.log(process)
    assert SENTINEL not in pipeline.log(process)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    server: tuple[Authorized, Certificates], https: str, clickhouse: ClickHouse
) -> None:
    """By either side: without the authority's file, and without a certificate of one's own."""
    made = server[1]
    files = {
        "ca_file": made.ca,
        "certificate_file": made.certificate,
        "key_file": made.key,
    }
    whole = reach.elsewhere(clickhouse, https).model_copy(update=files)
    connect(whole, 10).close()
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        connect(whole.model_copy(update={"ca_file": None}), 10)
    nameless = whole.model_copy(update={"certificate_file": None, "key_file": None})
    with pytest.raises(Unavailable):  # the front cuts the connection, at a moment of its own
        connect(nameless, 10)


def test_a_topic_that_a_user_may_not_see_is_told_from_one_that_is_not_there(
    pipeline: Pipeline, server: tuple[Authorized, Certificates], https: str
) -> None:
    """`relay verify --deep` took blocks that wait in it for lost."""
    settings = settings_file.load(config(pipeline, server, https, "verifier"))
    gone = f"{pipeline.app}.gone"
    see = Right(AclOperation.DESCRIBE, ResourceType.TOPIC, gone, principal="User:verifier")
    server[0].grant([see])
    with contextlib.closing(TopicReader(settings)) as reader:
        assert reader.partitions(pipeline.source) == []
        assert "TOPIC_AUTHORIZATION_FAILED" in reader.not_shown(pipeline.source)
        assert reader.partitions(gone) == []
        assert reader.not_shown(gone) == ""
