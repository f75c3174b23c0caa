"""The peers' bench without servers: what peers are given, who takes turns, and who is judged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from google.protobuf import message_factory
from google.protobuf.internal.decoder import _DecodeVarint32  # type: ignore[attr-defined]

from relay.errors import MissingTool, NotExactlyOnce
from relay.schema import protoc
from tests.bench import consumers, kafka_engine, native_loader, peers, rows
from tests.bench.backlog import WARM_MESSAGES, Size
from tests.bench.consumers import Engine, LoneEngine, NativeLoader, Product
from tests.bench.kills import Count, Kill, Pause, Steady
from tests.bench.peers import Outcome, Rate, Sizes
from tests.bench.rows import Shape

NOTHING = Count(0, 0, 0)
FILE = Path("/bench_rows.proto")


@pytest.mark.parametrize("columns", rows.WIDTHS)
def test_the_engine_reads_the_rows_that_the_relay_reads(columns: int, tmp_path: Path) -> None:
    """protoc takes the schema, and by it each message holds the same rows behind its length."""
    shape = Shape(columns, 1)
    file = tmp_path / "rows.proto"
    file.write_text(kafka_engine.proto(shape))
    envelope = message_factory.GetMessageClass(protoc.row_message(file, "Envelope"))
    codec = rows.codec(shape.names[0], shape)
    for number, value in enumerate(rows.values(codec, rows.columns(0, 300, shape), 100)):
        whole = rows.delimited(value)
        length, begin = _DecodeVarint32(whole, 0)
        assert length == len(value) == len(whole) - begin
        read = envelope.FromString(whole[begin:]).rows
        assert [row.event for row in read] == list(range(number * 100, number * 100 + 100))


def test_the_loader_in_go_reads_the_rows_that_the_relay_reads() -> None:
    """Its schema has the registry's numbers and types, so that it reads the same messages."""
    file = native_loader.SOURCE / "rows" / "rows.proto"
    shape = Shape(native_loader.COLUMNS, 1)
    batch = message_factory.GetMessageClass(protoc.row_message(file, "RowBatch"))
    made = rows.columns(0, 300, shape)
    (value,) = rows.values(rows.codec(shape.names[0], shape), made, 300)
    read = batch.FromString(value).rows
    for column in made.schema.names:
        wanted = ["" if one is None else one for one in made[column].to_pylist()]
        assert [getattr(row, column) for row in read] == wanted
    # Only a note may be null.
    assert [row.HasField("note") for row in read] == made["note"].is_valid().to_pylist()


def test_each_table_has_a_reader_of_its_own_or_all_share_one() -> None:
    """Whether tables are alike decides; views always choose by the header."""
    shape = Shape(10, 4)
    each = kafka_engine.statements("b:1", "t", shape, kafka_engine.EACH, FILE)
    alone = kafka_engine.statements("b:1", "t", shape, kafka_engine.ALONE, FILE)
    for made, readers in ((each, 4), (alone, 1)):
        assert sum("ENGINE = Kafka" in one for one in made) == readers
        assert sum("MATERIALIZED VIEW" in one for one in made) == 4
        assert all("WHERE" in one for one in made if "MATERIALIZED VIEW" in one)
    groups = {kafka_engine.group("t", number) for number in range(4)}
    assert all(any(f"'{group}'" in one for one in each) for group in groups)
    (lone,) = kafka_engine.statements("b:1", "t", Shape(10, 1), kafka_engine.EACH, FILE)[2:]
    assert "WHERE" not in lone


def test_the_loader_in_go_takes_turns_where_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without Go, with other rows, or unwanted, it is left out, and why is said twice."""
    assert peers.kinds(1, None) == [Product, Engine]
    assert peers.kinds(4, FILE) == [Product, Engine, LoneEngine, NativeLoader]
    monkeypatch.setattr(native_loader, "CACHE", Path("/nowhere"))
    monkeypatch.setattr(native_loader, "_PLACES", ("no-such-go",))
    with pytest.raises(MissingTool, match="no Go"):
        native_loader.build(print)
    for columns, with_go, why in (
        (10, True, "no Go"),
        (100, True, "10 columns"),
        (10, False, "not wanted"),
    ):
        found, lines = Outcome(), list[str]()
        sizes = Sizes(1_000, (1,), columns, 100, 4, 1.0, 1.0)
        assert peers._native(sizes, found, lines.append, with_go=with_go) is None
        assert why in found.left_out
        assert why in lines[0]
        assert why in str(peers.table(found).caption)


def test_a_program_of_other_files_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was built before a change of the source is not run."""
    source = tmp_path / "native"
    shutil.copytree(native_loader.SOURCE, source)
    before = native_loader._digest()
    monkeypatch.setattr(native_loader, "SOURCE", source)
    assert native_loader._digest() == before
    (source / "main.go").write_text("package main\n")
    assert native_loader._digest() != before


def test_a_backlog_counts_its_first_rows_apart() -> None:
    """Rows that can be read at once come before those that are measured."""
    size = Size(4_000, 100, Shape(10, 4), 4, delimited=False)
    assert size.shares == [1_000] * 4
    assert size.ends == [WARM_MESSAGES * 100 + 1_000] * 4


def test_a_pause_ends_with_new_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the longest time between rows; the silence behind the last of them is none."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    pause = Pause(99.5, 1_000)
    for at, rows_there, still in (
        (100.0, 1_000, 0.5),  # the rows at which it was killed
        (101.5, 1_000, 2.0),
        (102.0, 1_100, 0.0),
        (102.1, 1_200, 0.0),
        (109.1, 1_200, 7.0),
    ):
        clock[0] = at
        assert pause.look(rows_there) == pytest.approx(still)
    assert pause.longest == pytest.approx(2.5)


def test_only_the_product_has_to_be_exact() -> None:
    """What the peer doubles is a figure; one row of the product's ends the bench."""
    peers.judge(outcome(NOTHING, Count(3, 5, 7)))
    for bad in (Count(1, 0, 0), Count(0, 1, 0), Count(0, 0, 1)):
        with pytest.raises(NotExactlyOnce, match="the product"):
            peers.judge(outcome(bad, NOTHING))
        with pytest.raises(NotExactlyOnce, match="the product"):
            peers.judge(outcome(NOTHING, NOTHING, killed=bad))


def test_figures_have_names_of_their_own_and_the_table_their_sums() -> None:
    """A history finds a figure by its name; a reader finds all kills in one place."""
    found = outcome(NOTHING, NOTHING, peer_killed=Count(0, 1_200, 0))
    made = peers.figures(found)
    names = [figure.name for figure in made]
    assert len(set(names)) == len(names)
    values = dict(zip(names, (figure.value for figure in made), strict=True))
    assert values["relay and loader, 1 table: rate"] == 100_000
    assert values["relay and loader, 1 table: price"] == pytest.approx(3.0)
    assert values["relay and loader, 1 table: price with merges"] == pytest.approx(3.5)
    cells = [list(column.cells) for column in peers.table(found).columns]
    assert cells[-1] == ["0, 0", "0, 2,400"]


def outcome(
    ours: Count, peers_own: Count, killed: Count = NOTHING, peer_killed: Count = NOTHING
) -> Outcome:
    """Two consumers of one table, each killed twice."""
    used = {"relay": 1.0, "the broker": 2.0}
    found = Outcome()
    for name, count, kill in (
        (consumers.PRODUCT, ours, killed),
        (kafka_engine.EACH.name, peers_own, peer_killed),
    ):
        rate = Rate(name, 1, 1_000_000, 10.0, used, 0.5, (2.0, 1.0), count)
        found.rates.append(rate)
        kills = [Kill(part, kill, 1.0) for part in ("relay", "loader")]
        found.steady[name] = Steady(0.5, 1.0, {"relay": 0.1}, kills)
    return found
