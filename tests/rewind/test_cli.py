"""What is wrong with the arguments is said before any server is asked; what is printed."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from loader.cli.supersede import supersede
from relay.cli import cli
from relay.cli.output import rewind
from relay.operate.rewind import accept as accept_steps
from relay.operate.rewind import rewind as steps
from relay.operate.rewind.removal import RewindConsent
from relay.operate.rewind.rewind import RewindRequest
from relay.program.command import run_main
from relay.records_pb2 import Block, Commit
from tests.rewind.world import AUTHOR, World

CONFIG = """
app = "shop"
[kafka]
bootstrap = "127.0.0.1:1"
[source]
topic = "rows"
[clickhouse]
url = "http://127.0.0.1:1"
[loader]
checkpoint = "checkpoint"
"""


def record(of: Block | Commit) -> str:
    return base64.b64encode(of.SerializeToString()).decode()


FOREIGN = record(Block(id="other:d.t:0:0:1", table="d.t"))
REWIND = record(Commit(app="shop"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "relay.toml"
    path.write_text(CONFIG)
    return path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rewind CONFIG --to-offset 3", "say what"),
        ("rewind CONFIG --partition 0", "say from where"),
        ("rewind CONFIG --all --to-offset 3 --to-time 2h", "say from where"),
        ("rewind CONFIG --all --partition 0 --to-offset 3", "--all cannot be combined"),
        ("rewind CONFIG --all --to-offset soon", "neither an offset nor"),
        ("rewind CONFIG --table orders --to-offset 3", "not a table name"),
        ("accept CONFIG --from 3", "name it with --partition"),
        ("accept CONFIG --run", "say why"),
        ("accept CONFIG --run --why BLANK", "say why"),
    ],
)
def test_what_is_wrong_is_said(
    command: str, said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    means = {"CONFIG": str(config), "BLANK": "  "}
    arguments = [means.get(word, word) for word in command.split()]

    assert run_main(cli, "relay", arguments) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "the rewind is of app '', not 'shop'"),
        ("no base64!", "not the rewind's journal record"),
        (record(Commit(app="other")), "the rewind is of app 'other', not 'shop'"),
        (f"{REWIND}\nno base64!", "not a block"),
        (f"{REWIND}\n{FOREIGN}", "is not a block of app shop"),
    ],
)
def test_a_loader_settles_only_blocks_of_its_app(
    lines: str, said: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = tmp_path / "blocks"
    blocks.write_text(f"{lines}\n")

    assert run_main(supersede, "loader", [str(config), "--blocks", str(blocks), "--at", "3"]) == 2
    assert said in capsys.readouterr().err


def made() -> World:
    world = World(1)
    world.relay(30)
    world.load()
    return world


def test_a_dry_run_names_blocks_rows_and_relays() -> None:
    world = made()
    wanted = RewindRequest({0: 0}, None, RewindConsent())
    places = world.look(wanted.offsets)
    ready = steps.ready(world, places, wanted, "_block")

    text = [str(line) for line in rewind.describe_plan(ready, places, ["a"], as_json=False)]
    (row,) = rewind.describe_plan(ready, places, ["a"], as_json=True)

    blocks = {block.id for block in world.blocks()}
    assert isinstance(row, dict)
    assert set(row["blocks"]) == blocks
    assert row["rows"] == sum(world.rows.values())
    assert f"in all {len(blocks):,} blocks" in "\n".join(text)
    assert any("--run would fence" in line and line.endswith("a") for line in text)
    assert "nothing was changed" in text[-1]


def test_what_was_done_and_what_was_begun_are_said() -> None:
    world = made()
    done = steps.rewind(
        world, RewindRequest({0: 0}, None, RewindConsent()), "_block", lambda: AUTHOR
    )

    text = "\n".join(str(line) for line in rewind.describe_result(done, as_json=False))
    (row,) = rewind.describe_result(done, as_json=True)

    assert isinstance(row, dict)
    assert row["partitions"] == {"0": done.partitions[0]}
    assert f"{done.rows:,} of their rows were removed" in text
    begun = world.journal[: [c.rewound for _, c in world.journal].index(True)]
    world.journal = begun
    (line,) = rewind.describe_unfinished(steps.unfinished(world.look({0: 0})), as_json=False)
    assert "--run finishes it" in str(line)


def test_notes_say_both_values() -> None:
    world = made()
    world.named = (3, None)
    notes = accept_steps.accept(world, {}, None, None)

    text = "\n".join(
        str(line) for line in rewind.describe_notes(notes, accepted=False, as_json=False)
    )
    (row,) = rewind.describe_notes(notes, accepted=False, as_json=True)

    assert "which no relay wrote" in text
    assert f"floor {world.floor}" in text
    assert json.loads(json.dumps(row))["kinds"] == ["offsets"]
