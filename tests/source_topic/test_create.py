"""`relay topic create` beside a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from relay import names
from relay.cli import cli
from relay.errors import ContractBroken, RelayError
from tests.broker.pipeline import WAIT_SECONDS, create_topics, wait_until

if TYPE_CHECKING:
    from relay.dev.stack import Stack


def test_it_is_made_once_and_left_as_it_is(stack: Stack, app: str, tmp_path: Path) -> None:
    """--dry-run makes nothing; what is refused changes nothing; the journal of a former is seen."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    config, topic = _configured(tmp_path, stack, app), f"{app}-rows"

    def partitions() -> int:
        return len(admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions)

    assert "would be created: 4 partitions" in _run(config, "--dry-run").output
    assert partitions() == 0
    refused = _run(config, "--replication", "2")
    assert isinstance(refused.exception, RelayError)
    assert "1 broker is up" in refused.exception.message
    assert partitions() == 0
    made = json.loads(_run(config, "--partitions", "3", "--json").output)
    assert (made["created"], made["partitions"], made["replication"]) == (True, 3, 1)
    assert partitions() == 3
    again = _run(config)
    assert again.exit_code == 0
    assert again.output.startswith(f"topic {topic}: exists, nothing was changed: 3 partitions")

    create_topics(admin, NewTopic(names.journal_topic(app), 3, 1))
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: not _there(admin, topic), "the deletion")
    assert isinstance(_run(config).exception, ContractBroken)
    assert _run(config, "--anew").output.startswith(f"topic {topic}: created: 3 partitions")
    assert partitions() == 3


def _there(admin: AdminClient, topic: str) -> bool:
    described = admin.describe_topics(TopicCollection([topic]))[topic]
    return described.exception() is None


def _run(config: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["topic", "create", str(config), *options])


def _configured(directory: Path, stack: Stack, app: str) -> Path:
    file = directory / "relay.toml"
    text = f"""
app = "{app}"
{stack.config_hint}
[source]
topic = "{app}-rows"
[loader]
checkpoint = "c"
"""
    file.write_text(text, encoding="utf-8")
    return file
