"""What people read where no broker answers: real clients, no brokers."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, TopicCollection

from relay.config.server_settings import Brokers
from relay.dev.layout import free_ports
from relay.errors import Unavailable
from relay.kafka.admin import Admin
from relay.kafka.connection_errors import Heard

if TYPE_CHECKING:
    from collections.abc import Sequence

RELAY = Path(sys.executable).parent / "relay"
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down")
REFUSED = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"


def heard(*texts: str) -> KafkaError:
    """What is kept of all brokers down, after these words about single ones."""
    found = Heard()
    for text in texts:
        found.listen(KafkaError(KafkaError._TRANSPORT, text))
    found.listen(DOWN)
    assert found.error is not None
    return found.error


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ([], "no broker answers"),
        ([f"127.0.0.1:9092/bootstrap: {REFUSED}"], "127.0.0.1:9092: Connection refused"),
        ([f"sasl_ssl://[::1]:9092/3: {REFUSED}"], "[::1]:9092: Connection refused"),
        (
            ["b:1/1: Disconnected (after 4213ms in state UP, 3 identical error(s) suppressed)"],
            "b:1: Disconnected",
        ),
        (
            [
                "b:1/bootstrap: Failed to resolve 'b:1': Not known (after 1ms in state CONNECT)",
                f"a:1/1: {REFUSED}",
            ],
            "a:1: Connection refused; b:1: Not known",
        ),
    ],
)
def test_all_brokers_down_names_each_and_why(texts: Sequence[str], says: str) -> None:
    error = heard(*texts)

    assert error.code() == KafkaError._ALL_BROKERS_DOWN
    assert error.str().endswith(says)
    assert "0/2" not in error.str()


def test_the_last_word_of_a_broker_counts() -> None:
    error = heard("a:1/1: Disconnected", f"a:1/1: {REFUSED}")

    assert error.str() == "no broker answers: a:1: Connection refused"


def test_a_request_that_timed_out_says_what_was_heard_since_and_nothing_older() -> None:
    """What a broker said before may be over; an answer of the brokers stays as it is."""
    found, timed_out = Heard(), KafkaError(KafkaError._TIMED_OUT, "Local: Timed out")
    found.listen(KafkaError(KafkaError._TRANSPORT, "a:1/1: Disconnected"))
    begun = time.monotonic()
    assert found.explained(timed_out, begun).str() == "Local: Timed out"

    found.listen(KafkaError(KafkaError._TRANSPORT, f"b:1/2: {REFUSED}"))

    explained = found.explained(timed_out, begun)
    assert explained.code() == KafkaError._TIMED_OUT
    assert explained.str() == "Local: Timed out; b:1: Connection refused"
    no = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")
    assert found.explained(no, begun) is no


def test_a_request_to_nobody_names_the_addresses() -> None:
    """Read before as `_ALL_BROKERS_DOWN (0/2 brokers are down)`."""
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    admin = Admin(Brokers(bootstrap=f"{first},{second}"))
    asked = admin.client.describe_topics(TopicCollection(["rows"]), request_timeout=20)["rows"]

    with pytest.raises(Unavailable) as caught:
        admin.answer("describe topic rows", asked, "")

    said = caught.value.message
    assert f"{first}: Connection refused" in said
    assert f"{second}: Connection refused" in said
    assert "are down" not in said


@pytest.mark.parametrize("command", ["status", "blocks ls", "dead ls"])
def test_a_command_that_answers_says_it_once(tmp_path: Path, command: str) -> None:
    """Not also in librdkafka's own lines; and what it waited for has its time and cause."""
    kafka, clickhouse = (f"127.0.0.1:{port}" for port in free_ports(2))
    config = tmp_path / "relay.toml"
    config.write_text(
        f'app = "a"\n[kafka]\nbootstrap = "{kafka}"\n[source]\ntopic = "s"\n'
        f'[clickhouse]\nurl = "http://{clickhouse}"\n[loader]\ncheckpoint = "c"\n'
    )
    arguments = [RELAY, *command.split(), config]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == Unavailable.exit_code, ended.stderr
    *before, says, _ = ended.stderr.splitlines()
    assert says.startswith("relay: ")
    assert f"{kafka}: Connection refused" in says
    for line in before:
        assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z WARNING relay\.\S+ .* why=", line), line
    assert "librdkafka" not in ended.stderr
    assert "FAIL" not in ended.stderr
