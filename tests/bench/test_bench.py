"""What the benches rest on: the rule of the rate, and rows that the product can read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from relay.errors import ConfigError, NotExactlyOnce, Unavailable
from relay.rows.decode import decode
from tests.bench import history, large_rows, measure, report, rows
from tests.bench.measure import Result, Run
from tests.bench.rows import Shape


def test_rate_leaves_out_start_and_warm_up() -> None:
    """The clock runs from the first sample with a fifth of the work to the one with all."""
    samples = [(100.0, 0), (130.0, 10), (131.0, 30), (132.0, 60), (133.0, 100)]
    run = measure.rate(samples, total=100, rows=1000, started=90.0)
    assert run == Run(rows_per_second=350.0, seconds=2.0, seconds_with_start=43.0)


def test_rate_refuses_what_it_cannot_measure() -> None:
    """Work counted twice, and work done between two samples, are errors and never rates."""
    with pytest.raises(NotExactlyOnce, match="120 done of 100"):
        measure.rate([(0.0, 0), (1.0, 50), (2.0, 120)], total=100, rows=100, started=0.0)
    with pytest.raises(ConfigError, match="between two samples"):
        measure.rate([(0.0, 0), (1.0, 100)], total=100, rows=100, started=0.0)


def test_watch_ends_with_a_dead_contender() -> None:
    """A contender that dies ends the measurement with its error, not with a wait."""

    def died() -> None:
        raise Unavailable("ended with status 1")

    with pytest.raises(Unavailable, match="status 1"):
        measure.watch(lambda: 0, 100, 100, died, started=0.0)


@pytest.mark.parametrize("per_message", [1, 7, 100])
def test_messages_hold_the_rows_and_nothing_else(per_message: int) -> None:
    """Cut by columns, the messages decode to exactly the rows asked for, in order."""
    codec = rows.codec(rows.TABLES[0])
    made = rows.messages(codec, 500, 1001, per_message)
    assert len(made) == -(-1001 // per_message)
    decoded = decode(pa.chunked_array([made], pa.binary()), codec, "batch")
    assert not decoded.bad
    assert decoded.batch.column("event").to_pylist() == list(range(500, 1501))
    assert decoded.batch.column("note").to_pylist() == rows.columns(500, 1001)["note"].to_pylist()


def test_rows_are_of_the_size_that_the_figures_speak_of() -> None:
    """Ten columns, about 82 bytes: figures of other sizes would not compare."""
    made = rows.messages(rows.codec(rows.TABLES[0]), 1_000_000, 10_000, 100)
    assert len(rows.COLUMNS) == 10
    assert 78 < sum(map(len, made)) / 10_000 < 88


def test_large_rows_are_of_the_size_that_peers_publish_figures_for() -> None:
    """40 columns of about 1.5 kB with texts of 5 to 200 characters, a map and an array."""
    shape = Shape(rows.LARGE, 1)
    codec = rows.codec(shape.names[0], shape)
    made = rows.columns(1_000_000, 10_000, shape)
    assert made.num_columns == len(large_rows.COLUMNS) == 40
    assert 1_300 < sum(map(len, rows.values(codec, made, 20))) / 10_000 < 1_700
    lengths = [pc.min_max(pc.binary_length(one)) for one in made if pa.types.is_string(one.type)]
    assert min(one["min"].as_py() for one in lengths) == 5
    assert 150 < max(one["max"].as_py() for one in lengths) <= 200
    kinds = {column.type.partition("(")[0] for column in large_rows.COLUMNS}
    assert {"Map", "Array", "Nullable", "LowCardinality", "DateTime64", "Date"} < kinds


def test_report_compares_with_the_best_peer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ratio is to the faster of the peer's variants, median against median."""
    results = [
        Result("block-relay", 1, (_run(30), _run(300), _run(200)), "product"),
        Result("Kafka Streams, 1 thread", 1, (_run(80),), "peer"),
        Result("Kafka Streams, 2 threads", 1, (_run(100),), "peer"),
        Result("pass-through", 1, (_run(400),), "ceiling"),
    ]
    run = history.entry("relay", {"runs": 3}, report.machine(tmp_path), report.versions(), [])
    report.show(results, run, {}, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert [(r["product"], r["beside"], r["role"], r["ratio"]) for r in shown["ratios"]] == [
        ("block-relay", "Kafka Streams, 2 threads", "peer", 2.0),
        ("block-relay", "pass-through", "ceiling", 0.5),
    ]
    assert shown["results"][0]["median_rows_per_second"] == 200
    assert {"machine", "versions"} <= shown.keys()
    report.show(results, run, {}, as_json=False)
    shown = capsys.readouterr().out
    assert "2.00" in shown
    assert "WORSE" not in shown
    report.show(results, run, {"block-relay, 1 per message": 260.0}, as_json=False)
    assert "WORSE" in capsys.readouterr().out


def _run(rate: float) -> Run:
    return Run(rows_per_second=rate, seconds=5.0, seconds_with_start=9.0)
