"""What the steady scenarios rest on: quantiles over rows, a slope, the rows, the past."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from clickhouse_connect.driver.client import Client

from loader.blocks import insert_statement
from loader.clickhouse.tables import Target
from loader.core.table_rules import Nature, Window
from relay.errors import NotExactlyOnce, Unavailable
from relay.records_pb2 import Block
from relay.rows.decode import decode
from tests.bench import endtoend, longjournal, restarts, rows, scaling, wide
from tests.bench import source as sources
from tests.bench.__main__ import bench
from tests.bench.consumers import BROKER, SERVER
from tests.bench.feed import Fed, Order, due
from tests.bench.figures import Figure, medians, quantile, slope
from tests.bench.live import Load
from tests.bench.rows import Shape

if TYPE_CHECKING:
    from clickhouse_connect.driver.httpclient import HttpClient

THREE = [(1.0, 9.0), (2.0, 4.0), (3.0, 6.0)]
NATURE = Nature(Window(0, None, "none"))
SCENARIOS = (
    *("relay", "loader", "dead", "freshness", "endtoend"),
    *("scaling", "rebalance", "memory", "price", "peers", "wide"),
)


def test_a_quantile_counts_rows_and_not_values() -> None:
    """One block of 98 rows at 1 s outweighs two single rows; its p99 is the first of those."""
    values = [(5.0, 1), (1.0, 98), (3.0, 1)]
    assert [quantile(values, share) for share in (0.5, 0.98, 0.99, 1.0)] == [1.0, 1.0, 3.0, 5.0]
    # Control: without the weights it is another.
    assert quantile([(value, 1) for value, _ in values], 0.5) == 3.0


@pytest.mark.parametrize("many", [1, 10, 30, 101])
def test_a_quantile_is_the_least_value_with_that_share(many: int) -> None:
    """Of 1 to n, the tenth part lies at the first number that is no less than n / 10."""
    assert quantile([(n, 1) for n in range(many, 0, -1)], 0.1) == -(-many // 10)


def test_a_quantile_of_nothing_is_an_error() -> None:
    """Nothing measured is never a figure of 0."""
    with pytest.raises(ValueError, match="nothing was measured"):
        quantile([(1.0, 0)], 0.5)


def test_the_slope_of_a_lag() -> None:
    """A saw-tooth around one height does not grow; the same on a ramp grows by the ramp."""
    saw = [(float(second), float(second % 3) * 1000) for second in range(120)]
    assert abs(slope(saw)) < 10
    assert slope([(second, lag + 50 * second) for second, lag in saw]) == pytest.approx(50, abs=10)
    with pytest.raises(ValueError, match="two times"):
        slope([(1.0, 5.0), (1.0, 6.0)])


@pytest.mark.parametrize(("keeps", "held"), [(1.0, True), (0.9, False)])
def test_a_lag_is_judged_while_rows_come(keeps: float, held: bool) -> None:
    """The seconds until the feed has started, and those behind its end, say nothing; a loader
    that takes nine tenths of what comes is found out by them alone."""
    load = Load(rate=500_000.0, seconds=60.0)
    samples = []
    for second in range(80):
        came = 500_000 * min(max(second - 7, 0), 60)
        shown = max(came - 400_000, 0) * keeps if second < 70 else came
        samples.append(endtoend.Sample(second + 0.3, came, int(shown)))
    found = {figure.name: figure for figure in endtoend.figures(samples, load)}
    growth, rate = (
        found[name]
        for name in ("growth of the lag, share of the rate", "queryable per second while fed")
    )
    assert growth.value == pytest.approx(1 - keeps, abs=0.001)
    assert rate.value == pytest.approx(500_000 * keeps, rel=0.001)
    assert growth.held is held
    assert found["lag, most"].value == max(s.lag for s in endtoend.fed(samples, 60.0))


def test_no_rows_are_no_figures() -> None:
    """A feed that sent nothing has no lag of 0."""
    with pytest.raises(Unavailable, match="no sample"):
        endtoend.fed([endtoend.Sample(1.0, 0, 0)], 60.0)


def test_a_limit_is_held_on_its_own_side() -> None:
    """Less than demanded is a miss where higher is better, more where it is not."""
    assert Figure("rate", 400.0, "", "higher", 400.0).held is True
    assert Figure("rate", 399.0, "", "higher", 400.0).held is False
    assert Figure("p50", 1.0, "", "lower", 1.0).held is True
    assert Figure("p50", 1.1, "", "lower", 1.0).held is False
    assert Figure("cores", 1.0, "").held is None


def test_a_feed_is_even_and_ends_with_all_that_was_ordered(tmp_path: Path) -> None:
    """What is due never passes the rate, and is the whole order at the end, and later too."""
    order = Order("b", "t", Shape(tables=4), 2, 1000.0, 10, 8.0, [0, 10, 20, 30])
    assert due(order, 0.0) == [0, 0, 0, 0]
    for elapsed in (0.05, 1.0, 3.33, 7.9):
        assert sum(due(order, elapsed)) <= elapsed * 100 < sum(due(order, elapsed)) + 4
    assert due(order, 8.0) == due(order, 9.0) == [200] * 4
    assert Order.read(order.written(tmp_path / "order.json")) == order
    skewed = due(Order("b", "t", Shape(tables=4, skew=True), 2, 1000.0, 10, 8.0), 8.0)
    assert skewed == [384, 192, 128, 96]
    (tmp_path / "log").write_text(
        'a line of the client\n{"ends": [1], "messages": 1, "seconds": 1.0,'
        ' "longest_tick_seconds": 0.1, "cpu_seconds": 0.2}\n'
    )
    assert Fed.read(tmp_path / "log").ends == [1]


def test_waves_hold_each_row_once() -> None:
    """Whatever the shares, the waves of a table follow each other from 0 to its end."""
    shares = [300_000, 70, 1_230_000]
    waves = list(sources._waves(shares, 10))
    for table, share in enumerate(shares):
        ends = [first + count for first, count in (wave[table] for wave in waves)]
        assert [wave[table][0] for wave in waves] == [0, *ends[:-1]]
        assert ends[-1] == share
        assert all(count % 10 == 0 for _, count in (wave[table] for wave in waves))


@pytest.mark.parametrize("columns", rows.WIDTHS)
def test_rows_of_every_width_decode(columns: int) -> None:
    """As many columns as asked for, and the produce time in each row."""
    shape = Shape(columns, tables=7)
    codec = rows.codec(shape.names[6], shape)
    batch = rows.columns(5, 20, shape, at=1_700_000_123_456)
    values = rows.values(codec, batch, 7)
    decoded = decode(pa.chunked_array([values], pa.binary()), codec, "batch")
    assert not decoded.bad
    assert decoded.batch.num_columns == columns
    assert decoded.batch.column("event").to_pylist() == list(range(5, 25))
    assert set(decoded.batch.column("at").cast("int64").to_pylist()) == {1_700_000_123_456}


def test_a_ratio_is_of_one_round() -> None:
    """Rounds on a machine that got twice as slow still give the ratio that all of them had."""
    comparison = scaling.Comparison("tables", ((8, 4), (200, 4)), 1.5)
    found = scaling.figures(comparison, [[200, 100, 50], [100, 50, 25]], [[1], [2]])
    ratio = found[-1]
    assert (ratio.name, ratio.value, ratio.held) == (
        "time per row, 200 tables / 8 tables",
        2,
        False,
    )
    assert scaling.figures(comparison, [[10], [8]], [[1], [2]])[-1].held is True


def test_medians_are_of_each_figure() -> None:
    """A round that was slow in one thing may be the middle one in another."""
    rounds = [[Figure("a", a, "s"), Figure("b", b, "", "higher", 5.0)] for a, b in THREE]
    assert medians(rounds) == [Figure("a", 2.0, "s"), Figure("b", 6.0, "", "higher", 5.0)]


def test_megabytes_of_a_core_are_of_relay_and_loader_together() -> None:
    """100 MB in 0.4 and 0.6 core-seconds are 100 a core, whatever the servers took."""
    servers = {BROKER: 0.3, SERVER: 0.5}
    relay = wide.Part(0.5, {"relay": 0.4, "loader": 9.0, **servers})
    loader = wide.Part(0.8, {"relay": 9.0, "loader": 0.6, **servers})
    moved = wide.Round(70_000, 100_000_000, relay, loader, 0.1, {"relay": 2.0, "loader": 20.0})
    found = {figure.name: figure for figure in moved.figures()}
    assert found["relay and loader together"].value == pytest.approx(100)
    assert found["relay and loader together"].held is True
    assert (found["relay"].value, found["relay, by the clock"].value) == pytest.approx((250, 200))
    assert found["ClickHouse's engine"].value == pytest.approx(5)


@pytest.mark.parametrize(("total", "first", "rest"), [(1_000_000, 50_000, 800_000), (1, 20, 80)])
def test_a_fifth_of_large_rows_comes_first(total: int, first: int, rest: int) -> None:
    """The rest comes at one moment; even of a single row each table gets a message of both."""
    size = wide.size_of(total, per_message=20, tables=4, partitions=4)
    assert (size.warm, sum(size.shares), size.shape.columns) == (first, rest, rows.LARGE)


def insert_rows(client: Client, table: str, made: pa.RecordBatch, shape: Shape) -> None:
    """As relay and loader do it, with neither of them."""
    codec = rows.codec(table, shape)
    values = pa.chunked_array([rows.values(codec, made, 1)], pa.binary())
    block = decode(values, codec, "batch").batch
    target = Target({one.name: one.type for one in shape.definitions}, 0, NATURE, -1)
    sql = insert_statement.trial_statement(Block(), block.schema, target, "_block", table)
    insert_statement.send(cast("HttpClient", client), sql, block, {})


@pytest.mark.parametrize("columns", [rows.USUAL, rows.LARGE])
def test_contents_are_compared(client: Client, columns: int) -> None:
    """Rows as they were made pass; each of the four ways to differ is found, and named."""
    shape = Shape(columns, tables=1)
    rows.create_tables(client, shape)
    (table,) = shape.names

    def insert(first: int, count: int, **other: object) -> None:
        made = rows.columns(first, count, shape)
        for name, value in other.items():
            at = made.schema.get_field_index(name)
            made = made.set_column(at, name, pa.array([value] * count, made.column(at).type))
        insert_rows(client, table, made, shape)

    def verdict(end: int) -> str:
        with pytest.raises(NotExactlyOnce) as error:
            endtoend.judge(client, shape, [end])
        return str(error.value)

    insert(0, 2_000)
    endtoend.judge(client, shape, [2_000])
    assert "2000 are there" in verdict(2_001)
    assert "1 that were never sent" in verdict(1_999)
    insert(2_000, 1, quantity=-1)
    assert "1 with other contents" in verdict(2_001)
    insert(7, 1)
    assert "2002 are there, 2001 of them different" in verdict(2_001)


@pytest.mark.parametrize("blocks", [1, 5_000])
def test_a_past_is_one_chain_and_ends_with_empty_buffers(blocks: int) -> None:
    """Each record goes on where the one before ended; it ends at the first flush point behind
    so many blocks, and every block is of the app and partition that were asked for."""
    records = list(longjournal._records("past", 3, "id", blocks))
    for before, after in pairwise(records):
        assert (after.n, after.previous_floor) == (before.n + 1, before.floor)
    assert records[-1].flush_point
    assert records[-1].floor == records[-1].position
    made = [block for record in records for block in record.blocks]
    assert len({block.id for block in made}) == len(made) >= blocks
    flushed = [at for at, record in enumerate(records) if record.flush_point]
    earlier = records[: flushed[-2] + 1] if len(flushed) > 1 else []
    assert sum(len(record.blocks) for record in earlier) < blocks
    for block in made:
        assert block.id.startswith(f"past:{block.table}:3:")
        assert (block.topic, block.partition) == (f"past.blocks.{block.table}", 3)
    assert {(record.app, record.source_topic_id) for record in records} == {("past", "id")}


def test_a_start_behind_a_long_past_is_compared_with_its_own_round() -> None:
    """1.1 times as long in each round is held, though the second round was slower; 1.3 is not."""
    short, long = (
        restarts.App(name, Path(name), longjournal.Past(blocks), Path(name))
        for name, blocks in (("short", 100), ("long", 100_000))
    )
    short.relay, long.relay = [1.0, 4.0, 2.0], [1.1, 4.4, 2.2]
    short.loader, long.loader = [1.0, 4.0, 2.0], [1.3, 5.2, 2.6]
    ratios = {f.name: f.held for f in restarts.figures([short, long]) if f.limit is not None}
    assert ratios == {
        "start of the relay, long past / short past": True,
        "start of the loader, long past / short past": False,
    }


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_explains_its_options(name: str) -> None:
    """And all of them can be remembered and drawn."""
    assert sorted(bench.commands) == sorted(SCENARIOS)
    shown = CliRunner().invoke(bench, [name, "--help"])
    assert shown.exit_code == 0
    for option in ("--json", "--keep", "--history", "--plot"):
        assert option in shown.output
    assert all(getattr(option, "help", "") for option in bench.commands[name].params)
