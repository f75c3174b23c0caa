"""The pure parts of a campaign, and its bookkeeping, without servers."""

from __future__ import annotations

import json
import random
import signal
from typing import TYPE_CHECKING

import click
import numpy as np
import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner

from relay.blocks.chunks import Encoder
from relay.records_pb2 import Block, Commit
from tests import wall_clock
from tests.broker.pipeline import wait_until
from tests.chaos import coordinator, facts, measures, retention_faults, rows, schedule
from tests.chaos.__main__ import chaos
from tests.chaos.controls import GUARDS
from tests.chaos.faults import FAULTS
from tests.chaos.history import History, command_of, versions
from tests.chaos.programs import Program, ended_already, ended_by_watchdog
from tests.chaos.rows import Range
from tests.chaos.slots import Cycle, shuffled
from tests.chaos.upgrade import NEWER, OLDER, VERSIONS, steps

if TYPE_CHECKING:
    from pathlib import Path


def test_a_seed_is_a_schedule() -> None:
    """The same on every run; another seed is another schedule."""
    plan = schedule.plan(7, 600, schedule.KINDS, 2.0)

    assert plan == schedule.plan(7, 600, schedule.KINDS, 2.0)
    assert plan != schedule.plan(8, 600, schedule.KINDS, 2.0)
    assert [f.at for f in plan] == sorted(f.at for f in plan)
    assert 200 < len(plan) < 400
    assert schedule.counted(plan).keys() == set(schedule.KINDS)


def test_no_kinds_are_no_faults() -> None:
    assert schedule.plan(1, 300, (), 2.0) == []


def test_every_kind_can_be_performed() -> None:
    """And every fault that can be performed is drawn."""
    assert FAULTS.keys() == schedule.KINDS.keys()
    for kind in schedule.KINDS.values():
        assert kind.seconds[0] <= kind.seconds[1]
        assert kind.details


def test_controls_use_kinds_that_there_are() -> None:
    for control in GUARDS.values():
        assert set(control.kinds) <= schedule.KINDS.keys()


def test_a_message_is_what_its_header_says() -> None:
    """The header names the rows; values follow from numbers, and differ between places."""
    ranges = Range(2, 1, 1000, 3)
    assert rows.parse_header(ranges.header(rows.COMMIT)) == (ranges, rows.COMMIT)

    numbers = np.arange(1000, 1003)
    values = rows.mixed(2, 1, numbers)
    assert len({*values.tolist(), *rows.mixed(2, 0, numbers).tolist()}) == 6
    value = rows.message(ranges)
    assert all(text.encode() in value for text in rows.texts(values.tolist()))
    assert rows.message(Range(2, 1, 1000, 1)) == value[: len(rows.message(Range(2, 1, 1000, 1)))]


def test_altered_rows_are_counted() -> None:
    numbers = np.arange(5)
    values = rows.mixed(0, 3, numbers)
    held = rows.Rows(np.full(5, 3), numbers, values, rows.texts(values.tolist()))
    assert rows.altered(0, held) == 0

    held.values[2] += np.uint64(1)
    held.texts[4] = "other"  # type: ignore[index]
    assert rows.altered(0, held) == 2


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(1 << 31))],
)
def test_hash_is_javas(text: str, hashed: int) -> None:
    """Known values of String.hashCode."""
    assert coordinator.java_hash(text) == hashed
    assert coordinator.partition_of(text, 3) == (0 if hashed == -(1 << 31) else abs(hashed) % 3)


def test_history_is_played_again(tmp_path: Path) -> None:
    """Its first line has the command and options; what follows is written at once."""
    history = History(tmp_path / "history.jsonl")
    history.write("campaign", command="kills", options={"seed": 5, "count": 3})
    history.write("fault", kind="kill_relay")

    assert command_of(history.path) == ("kills", {"seed": 5, "count": 3})
    lines = [json.loads(line) for line in history.path.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["campaign", "fault"]
    history.close()
    assert versions()["kafka"]

    history.path.write_text('{"event": "fault"}\n')
    with pytest.raises(ValueError, match="no history"):
        command_of(history.path)


CLOCK = """
from pathlib import Path
zero = time.time() - time.monotonic()
def said(n):
    wall, ns = time.time() - time.monotonic(), time.time_ns() / 1e9 - time.monotonic()
    Path(sys.argv[0]).with_name(f"{n}.part").write_text(f"{round(wall - zero)} {round(ns - zero)}")
    Path(sys.argv[0]).with_name(f"{n}.part").rename(Path(sys.argv[0]).with_name(n))
said("before")
for n in ("forth", "back"):
    while not Path(sys.argv[0]).with_name(f"{n}.go").exists():
        time.sleep(0.01)
    said(n)
"""


def test_a_clock_is_stepped_both_ways_while_a_program_works(tmp_path: Path) -> None:
    """Its wall clock only: the monotonic one, which `said` compares with, runs on."""
    it = program(tmp_path, CLOCK)
    try:
        for name, seconds in (("before", 0), ("forth", 3600), ("back", -600)):
            wall_clock.set_by(it.clock, seconds)
            (tmp_path / f"{name}.go").touch()
            wait_until((tmp_path / name).exists, name)
            assert (tmp_path / name).read_text() == f"{seconds} {seconds}"
    finally:
        it.kill()


def test_retention_passes_what_a_loader_was_done_with_and_no_more() -> None:
    """Up to the first block that it has not settled, and never the journal's last record."""

    def commit(offset: int, *blocks: str) -> tuple[int, int, Commit]:
        ten = 10 * offset
        made = [
            Block(id=b, topic="t", partition=1, first_offset=ten, next_offset=ten + 9)
            for b in blocks
        ]
        return 1, offset, Commit(blocks=made)

    records = [commit(3, "a"), commit(5, "b", "c"), commit(7), commit(8, "d"), commit(9, "e")]
    journal, block_topic = ("j", 1), ("t", 1)

    def bounds(done: str, noted: int = 10) -> dict[tuple[str, int], int]:
        return dict(retention_faults.deletable(records, set(done), {1: noted}, "j"))

    assert bounds("abcde") == {journal: 9, block_topic: 99}
    assert bounds("abce") == {journal: 8, block_topic: 59}
    assert bounds("acde") == {journal: 5, block_topic: 39}
    assert bounds("bcde") == {journal: 3}, "not even the first"
    assert bounds("") == {journal: 3}
    assert bounds("abcde", noted=7) == {journal: 7, block_topic: 99}
    assert bounds("abcde", noted=0) == {block_topic: 99}, "a loader that was killed noted nothing"


def test_retention_passes_a_chunk_when_all_blocks_that_share_it_are_settled() -> None:
    """Blocks of the journals 1 and 2 lie in partition 1 of the block topic, one has its own."""

    def commit(partition: int, *blocks: Block) -> tuple[int, int, Commit]:
        for block in blocks:
            block.topic, block.partition = "t", partition
            block.next_offset = block.first_offset + 1
        return partition, 5, Commit(blocks=blocks)

    shared = {"partition": 1, "first": "a"}
    records = [
        commit(1, Block(id="a", first_offset=10, share=shared), Block(id="c", first_offset=12)),
        commit(2, Block(id="b", first_offset=10, share=shared), Block(id="d", first_offset=30)),
    ]

    for ordered in (records, records[::-1]):

        def bounds(done: str, ordered: list[tuple[int, int, Commit]] = ordered) -> dict[int, int]:
            found = retention_faults.deletable(ordered, set(done), {1: 5, 2: 5}, "j")
            return {place: at for (topic, place), at in found.items() if topic == "t"}

        assert bounds("abcd") == {1: 13, 2: 31}
        assert bounds("abd") == {1: 11, 2: 31}, "the chunk that is shared, and no more"
        assert bounds("acd") == {2: 31}, "journal 2 still needs the chunk"
        assert bounds("bcd") == {2: 31}, "as does journal 1"
        assert bounds("abc") == {1: 13}, "what is not settled of 2 lies in another partition"


def test_memory_that_grows_is_named() -> None:
    """Slopes are per hour, and of the second half: the first warms up."""
    flat = [(float(t), 100_000_000 + t % 2, 20) for t in range(100)]
    leak = [(float(t), 100_000_000 + 100_000 * t, 20) for t in range(100)]
    files = [(float(t), 100_000_000, 20 + t) for t in range(100)]

    assert measures.growth({"flat": flat}) == []
    assert measures.growth({"leak": leak, "files": files}) == [
        "leak: resident memory grows by 360.0 MB an hour",
        "files: open files went from 70 to 119",
    ]


def test_cycles_are_shuffled_by_the_seed() -> None:
    cycles = [Cycle(str(i)) for i in range(50)]
    mixed = shuffled(random.Random(1), cycles)

    assert mixed != cycles
    assert sorted(c.point for c in mixed) == sorted(c.point for c in cycles)
    assert mixed == shuffled(random.Random(1), cycles)


def program(tmp_path: Path, code: str) -> Program:
    """A Python program under supervision, that says when it is ready."""
    script = tmp_path / "script.py"
    script.write_text(f"import sys, time, os, signal\n{code}\nprint('up', flush=True)\n"
                      "time.sleep(600)\n")  # fmt: skip
    made = Program("it", ["python", str(script)], tmp_path)
    made.start()
    return made


def test_a_killed_program_was_expected_to_end(tmp_path: Path) -> None:
    it = program(tmp_path, "")

    assert it.kill()
    assert it.tend() == (-signal.SIGKILL, True)
    assert not it.kill()
    assert it.kills == 1


@pytest.mark.parametrize(("status", "expected"), [(0, False), (1, False), (4, True), (6, False),
                                                  (7, True), (70, False)])  # fmt: skip
def test_an_exit_status_is_an_anomaly_or_not(tmp_path: Path, status: int, expected: bool) -> None:
    """Nobody asked it to end."""
    it = program(tmp_path, f"sys.exit({status})")
    wait_until(lambda: not it.runs(), "its end")

    assert it.tend() == (status, expected)


def test_a_session_goes_with_its_program(tmp_path: Path) -> None:
    """What it started is ended too, also when it has ended itself before."""
    child = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    it = program(tmp_path, child)
    wait_until(lambda: "up" in it.log.read_text(), "its child")
    pid = int(it.log.read_text().split()[0])

    it.kill()

    wait_until(lambda: not alive(pid), "the end of its child")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_stopped_program_ends_with_its_own_status(tmp_path: Path) -> None:
    """SIGTERM is sent once."""
    it = program(tmp_path, "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))")
    wait_until(lambda: "up" in it.log.read_text(), "its handler")

    it.ask_to_end()
    it.stop(30)

    assert it.ends == [(0, True)]


HUNG = "from relay.kafka.hang_guard import armed\nwith armed(0.1):\n    time.sleep(600)"


def test_a_watchdogs_end_is_told_from_others(tmp_path: Path) -> None:
    """Status 1 with all stacks on stderr is what the product promises of a hung call.

    The next run ends with 1 and says nothing: the dump of the one before is no excuse.
    """
    it = program(tmp_path, HUNG)
    wait_until(lambda: not it.runs(), "its end")
    assert it.tend() == (1, True)
    assert it.watchdogs == 1
    assert "Timeout" in it.log.read_text(), "what the next run has before it"

    (tmp_path / "script.py").write_text("import sys\nsys.exit(1)\n")
    it.start()
    wait_until(lambda: not it.runs(), "its end")

    assert it.tend() == (1, False)
    assert it.watchdogs == 1


DUMP = """Timeout (0:01:10)!
Thread 0x00007f00 (most recent call first):
  File "relay/kafka/transactional_producer.py", line 214 in _call
"""


@pytest.mark.parametrize(
    ("status", "said", "excused"),
    [
        (1, f"some log line\n{DUMP}", True),
        (1, DUMP.replace("Thread", "Current thread"), True),
        (70, DUMP, False),
        (-6, DUMP, False),
        (1, "Traceback (most recent call last):\n  File x\nTimeoutError: read timeout\n", False),
        (1, "a message with Timeout (0:01:10)! in it\n", False),
        (1, "Timeout (0:01:10)!\n", False),
        (1, "", False),
    ],
)
def test_only_the_dump_of_all_stacks_says_watchdog(status: int, said: str, excused: bool) -> None:
    """A status 1 of another cause stays an anomaly, as does a dump under another status."""
    assert ended_by_watchdog(status, said) == excused


LEFT = (
    "2026-11-22T08:39:55.362Z INFO relay.process.loop left the consumer group member=m2 "
    "transaction=chaos.relay.m2/14\n"
)


@pytest.mark.parametrize(
    ("status", "said", "excused"),
    [
        (-15, LEFT, True),
        (-15, "2026-11-22T08:39:55.362Z INFO loader ended\n", True),
        (-15, LEFT.replace("left", "joined"), False),
        (-15, "a 2026-11-22T08:39:55.362Z INFO loader ended\n", False),
        (-15, "", False),
        (-11, LEFT, False),
        (70, LEFT, False),
    ],
)
def test_only_a_run_that_had_ended_may_end_by_sigterm(
    status: int, said: str, excused: bool
) -> None:
    """One at work, or starting, that has no handler is an anomaly."""
    assert ended_already(status, said) == excused


@pytest.mark.parametrize("first", VERSIONS)
def test_an_upgrade_never_has_a_loader_older_than_a_relay(first: str) -> None:
    """By relay/docs/upgrade.md; each mixture comes up, and the end is as the beginning."""
    programs = dict.fromkeys(("a", "b", "loader"), first)
    seen = []
    for step in steps(first, ("a", "b"), "loader"):
        programs |= {step.program: step.version} if step.program else {}
        seen.append(tuple(programs.values()))

    assert seen[0] == seen[-1] == (first,) * 3
    mixtures = {(NEWER, OLDER, NEWER), (OLDER, NEWER, NEWER), (OLDER, OLDER, NEWER)}
    assert mixtures | {(OLDER,) * 3, (NEWER,) * 3} == {*seen}
    assert not any(loader == OLDER and NEWER in relays for *relays, loader in seen)


def test_commands_explain_themselves() -> None:
    """Every command and option has help; a kind that is none is refused."""
    for command in chaos.commands.values():
        assert command.help
        assert all(o.help for o in command.params if isinstance(o, click.Option)), command.name
    refused = CliRunner().invoke(chaos, ["mixed", "--kinds", "rain"])
    assert refused.exit_code != 0
    assert "rain" in str(refused.exception)


@pytest.mark.parametrize("rows", [10, 1_003, 5_000])
def test_the_judges_read_chunks_of_any_kind(rows: int) -> None:
    """One stream, or three: heads, rows, and a column of random numbers in the plain one."""
    noise = random.Random(2)
    columns = {
        "n": list(range(rows)),
        "h": [noise.getrandbits(63) for _ in range(rows)],
        "v": [str(n * 7) for n in range(rows)],
    }
    found = [facts.chunk_of(value) for value, _ in Encoder(20_000).encode(pa.record_batch(columns))]
    assert sum(table.num_rows for table in found) == rows
    for name in ("n", "h"):
        assert [v for table in found for v in table.column(name).to_pylist()] == columns[name]
    texts = [v for table in found for v in table.column("v").cast(pa.string()).to_pylist()]
    assert texts == columns["v"]
