"""Every metric of the loader is moved by something that happens, to the value it should have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from loader.blocks.attempt import AttemptFigures, Outcome
from loader.core.retry_cause import RetryCause
from loader.metrics.definitions import CURRENT, RECORDED
from loader.metrics.gauges import LoaderGauges
from loader.metrics.health import LoaderHealthLimits, liveness, readiness
from loader.metrics.ledger_watch import (
    GAP_SECONDS,
    LedgerLook,
    LedgerWatch,
    seen_since,
    waiting,
)
from loader.metrics.recorder import LoaderRecorder, why
from relay.errors import Refused
from relay.names import LEFT_OUT
from relay.program.metric import HISTOGRAM, Metric, registry
from relay.records_pb2 import Block, LeftOut

LIMITS = LoaderHealthLimits(query_seconds=10, batch_seconds=20, partition_seconds=30)


class Rig:
    """A loader's metrics with clocks set by hand: `now`, seconds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.registry = registry()
        self.recorder = LoaderRecorder(self.registry, lambda: self.now)
        self.look: LedgerLook | None = None
        self.current = LoaderGauges(
            ("1.2.3", "shop", "4.3"),
            self.recorder,
            lambda: self.look,
            lambda facts: (*liveness(facts, LIMITS), *readiness(facts)),
            lambda: round(self.now * 1000),
        )
        self.registry.register(self.current)

    def value(self, name: str, **labels: object) -> float | None:
        return self.registry.get_sample_value(name, {k: str(v) for k, v in labels.items()})

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.registry.collect()
            for sample in family.samples
        }

    def attempted(self, *outcomes: Outcome) -> None:
        blocks = {one.block: block(one.block) for one in outcomes}
        self.recorder.attempted(outcomes, blocks, 2.0)


def block(name: str = "b") -> Block:
    made = Block(
        id=name, table="d.a", rows=7, row_bytes=70, first_timestamp_ms=90_000, sealed_at_ms=95_000
    )
    if name.endswith(LEFT_OUT):
        made.left_out.extend(LeftOut(offset=at, rows=1) for at in range(3))
    return made


def a_micro_batch(rig: Rig) -> None:
    """Blocks are loaded: how many, how large, how long each step took, when they could be read."""
    rig.recorder.began(2, [block("b1"), block("b2")])
    rig.now += 5
    assert rig.value("loader_batch_open_seconds") == 5
    assert rig.value("loader_batch_open_blocks") == 2
    cost = AttemptFigures(fetch_seconds=0.25, insert_seconds=0.5, inserts=1, queryable_ms=99_000)
    rig.attempted(Outcome("b1", "loaded", 7, "", cost))
    assert rig.value("loader_batch_open_blocks") == 1
    assert rig.value("loader_blocks_loaded_total", table="d.a") == 1
    assert rig.value("loader_rows_loaded_total", table="d.a") == 7
    assert rig.value("loader_row_bytes_loaded_total", table="d.a") == 70
    assert rig.value("loader_queryable_seconds_sum", table="d.a") == 9
    assert rig.value("loader_sealed_to_queryable_seconds_sum", table="d.a") == 4
    assert rig.value("loader_fetch_seconds_sum") == 0.25
    assert rig.value("loader_insert_seconds_sum") == 0.5
    assert rig.value("loader_inserts_total") == rig.value("loader_attempts_total") == 1
    assert rig.value("loader_round_seconds_sum") == 2
    rig.recorder.settled(6.0)
    assert rig.value("loader_batches_total") == 1
    assert rig.value("loader_batch_seconds_sum") == 6
    assert rig.value("loader_batch_blocks_sum") == 4
    assert rig.value("loader_batch_rows_sum") == 7
    assert rig.value("loader_blocks_known_total") == 2
    assert rig.value("loader_batch_open_seconds") == 0
    rig.now += 3
    assert rig.value("loader_last_heard_seconds") == 3
    rig.recorder.began(0, [block("b3")])
    rig.now += 1


def records_without_a_time(rig: Rig) -> None:
    """Of a block whose record says -1 or 0 nobody knows how late it is."""
    for name, made_ms in (("b1", -1), ("b2", 0)):
        loaded = Outcome(name, "loaded", 7, "", AttemptFigures(inserts=1, queryable_ms=99_000))
        found = block(name)
        found.first_timestamp_ms = made_ms
        rig.recorder.attempted([loaded], {name: found}, 2.0)
    assert rig.value("loader_blocks_loaded_total", table="d.a") == 2
    assert rig.value("loader_queryable_seconds_count", table="d.a") is None
    assert rig.value("loader_sealed_to_queryable_seconds_sum", table="d.a") == 8


def other_outcomes(rig: Rig) -> None:
    """Parked, given up, tried again, found in the table, denied; each with what it cost."""
    rig.recorder.began(0, [block(f"b{i}") for i in range(6)])
    again = AttemptFigures(inserts=1, failures=1, repeats=1)
    rig.attempted(
        Outcome("b0", "parked", 7, "no table"),
        Outcome("b1", "discarded", 7, ""),
        Outcome("b2", "retry", 7, "INSERT: Code: 252. DB::Exception: Too many parts", again),
        Outcome("b3", "loaded", 7, "", AttemptFigures(found=1)),
        Outcome("b4", "refused", 7, "no right\ngrant it"),
        Outcome(f"b5{LEFT_OUT}", "dead", 7, "dead letters of shop.dead, 0:0"),
    )
    assert rig.value("loader_blocks_parked_total", table="d.a") == 1
    assert rig.value("loader_blocks_discarded_total", table="d.a") == 1
    assert rig.value("loader_blocks_dead_total", table="d.a") == 1
    assert rig.value("loader_dead_letters_total", table="d.a") == 3
    assert rig.value("loader_retries_total", why="code 252") == 1
    assert rig.value("loader_insert_failures_total") == 1
    assert rig.value("loader_inserts_repeated_total") == 1
    assert rig.value("loader_blocks_found_total") == 1
    assert rig.value("loader_queryable_seconds_count", table="d.a") is None
    assert rig.value("loader_refusals_total") == 1


def stands_aside(rig: Rig) -> None:
    """A block that holds up no micro-batch any more, and is loaded beside the next."""
    rig.recorder.began(0, [block("b0"), block("b1")])
    rig.attempted(
        Outcome("b0", "loaded", 7, ""), Outcome("b1", "retry", 7, "Code: 497. no", about="table")
    )
    assert rig.value("loader_batch_open_blocks") == 1
    rig.recorder.aside(block("b1"))
    assert rig.value("loader_batch_open_blocks") == 0
    assert rig.value("loader_blocks_aside_total", table="d.a") == 1
    rig.recorder.settled(1.0)
    rig.recorder.began(0, [block("b2")])
    rig.recorder.tried_again([Outcome("b1", "loaded", 7, "")], {"b1": block("b1")})
    assert rig.value("loader_blocks_loaded_total", table="d.a") == 2
    assert rig.value("loader_batch_open_blocks") == 1


def servers(rig: Rig) -> None:
    """The ledger's time, and waiting for what is away; an answer ends it."""
    rig.recorder.asked(0.5)
    assert rig.value("loader_ledger_seconds_sum") == 0.5
    rig.recorder.waiting("no ClickHouse")
    assert rig.value("loader_server_waits_total") == 1
    assert rig.value("loader_server_away") == 1
    rig.attempted()
    assert rig.value("loader_server_away") == 0
    rig.recorder.waiting("no ClickHouse")
    rig.recorder.restarted()
    assert rig.value("loader_query_restarts_total") == 1


def spark(rig: Rig) -> None:
    """The listener's events; a rate over no time is none."""
    rig.recorder.query_event("started")
    assert rig.value("loader_check", check="started") == 1
    progress = SimpleNamespace(
        numInputRows=3,
        batchId=9,
        inputRowsPerSecond=math.nan,
        processedRowsPerSecond=4.0,
        durationMs={"addBatch": 250, "walCommit": 500},
    )
    rig.recorder.query_event("progress", progress)
    rig.recorder.query_event("idle")
    assert rig.value("loader_spark_triggers_total") == 1
    assert rig.value("loader_spark_idle_total") == 1
    assert rig.value("loader_spark_records_total") == 3
    assert rig.value("loader_spark_batch_id") == 9
    assert rig.value("loader_spark_input_rate") == 0
    assert rig.value("loader_spark_processed_rate") == 4
    assert rig.value("loader_spark_step_seconds_sum", step="addBatch") == 0.25
    progress.inputRowsPerSecond = 2.0
    rig.recorder.query_event("progress", progress)
    assert rig.value("loader_spark_input_rate") == 2
    rig.recorder.query_event("terminated")
    assert rig.value("loader_check", check="started") == 0


def a_look(rig: Rig) -> None:
    """States of the ledger, positions and ends of the journal, and what waits."""
    assert rig.value("loader_check", check="ledger") == 0
    rig.look = LedgerLook(
        95.0,
        [("d.a", "loaded", 4, 28), ("d.a", "parked", 1, 7)],
        {0: 8, 1: 5},
        {0: 12, 1: 6},
        {0: 3},
        {0: 60_000},
    )
    assert rig.value("loader_look_seconds") == 5
    assert rig.value("loader_ledger_blocks", table="d.a", state="loaded") == 4
    assert rig.value("loader_ledger_rows", table="d.a", state="parked") == 7
    assert rig.value("loader_position", partition=0) == 8
    assert rig.value("loader_journal_end", partition=1) == 6
    assert rig.value("loader_waiting_blocks", partition=0) == 3
    assert rig.value("loader_waiting_seconds", partition=0) == 40
    assert rig.value("loader_waiting_seconds", partition=1) == 0
    assert rig.value("loader_check", check="ledger") == 1


SCENARIOS: tuple[Callable[[Rig], None], ...] = (
    a_micro_batch,
    records_without_a_time,
    other_outcomes,
    stands_aside,
    servers,
    spark,
    a_look,
)
# Its labels say it all: it is there from the beginning.
STEADY = {"loader_info"}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_happens_moves_its_metrics(scenario: Callable[[Rig], None]) -> None:
    scenario(Rig())


def unmoved(metrics: Iterable[Metric], scenarios: Iterable[Callable[[Rig], None]]) -> set[str]:
    """Names of metrics that no scenario changed, nor brought into being."""
    moved: set[str] = set()
    for scenario in scenarios:
        rig = Rig()
        before = rig.samples()
        scenario(rig)
        moved |= {key[0] for key, value in rig.samples().items() if before.get(key) != value}
    sample = {
        one.name: f"{one.name}_count" if one.kind == HISTOGRAM else one.name for one in metrics
    }
    return {name for name, shown in sample.items() if shown not in moved}


def test_every_metric_is_moved_by_a_scenario() -> None:
    assert unmoved((*RECORDED, *CURRENT), SCENARIOS) == STEADY


def test_a_metric_that_nothing_moves_is_found() -> None:
    """Negative control."""
    left = [one for one in SCENARIOS if one is not servers]
    assert unmoved((*RECORDED, *CURRENT), left) - STEADY == {
        "loader_ledger_seconds",
        "loader_server_waits_total",
        "loader_server_away",
        "loader_query_restarts_total",
    }


@pytest.mark.parametrize(
    ("cause", "reason", "label"),
    [
        (RetryCause.ERROR, "INSERT into d.t: Code: 252. Too many parts", "code 252"),
        (RetryCause.ERROR, "HTTPDriver for http://h:1 returned response code 404", "server away"),
        (RetryCause.ERROR, "ledger relay.ledger: connection refused", "server away"),
        (RetryCause.ANOTHER_LOADER, "another loader works on this block", "another loader"),
        (RetryCause.TABLE_ALTERED, "d.t was altered meanwhile: Code: 16.", "table altered"),
    ],
)
def test_reasons_to_try_again_are_few(cause: RetryCause, reason: str, label: str) -> None:
    """A label takes few values, whatever a server writes into its error."""
    assert why(cause, reason) == label


def test_what_waits_in_the_journal_by_partition() -> None:
    """The oldest sealed block of each; records without blocks do not wait."""
    old, new = Block(sealed_at_ms=5), Block(sealed_at_ms=9)
    rows = [(0, 1, new.SerializeToString()), (0, 2, old.SerializeToString()), (1, 7, None)]
    assert waiting(rows) == ({0: 2}, {0: 5})


# ---- health -------------------------------------------------------------------------------


def failed(rig: Rig) -> list[str]:
    facts = rig.current.facts()
    return [one.check for one in (*liveness(facts, LIMITS), *readiness(facts)) if not one.ok]


@pytest.fixture
def rig() -> Rig:
    """A loader at rest: its query runs, ledger and journal were looked at, nothing waits."""
    made = Rig()
    made.recorder.found()
    made.recorder.query_event("started")
    made.look = LedgerLook(100.0, ends={0: 5, 1: 5})
    assert failed(made) == []
    return made


def test_a_driver_without_executors_is_alive_and_not_ready(rig: Rig) -> None:
    """On a cluster it can load nothing yet; in one process it needs none."""
    there = 0
    rig.recorder.engine(lambda: there)
    assert failed(rig) == ["executors"]
    there = 1
    assert failed(rig) == []
    rig.recorder.engine(None)
    assert failed(rig) == []


def test_a_query_that_says_nothing_any_more(rig: Rig) -> None:
    rig.now += LIMITS.query_seconds
    assert failed(rig) == []
    rig.now += 0.1
    assert failed(rig) == ["query"]
    rig.recorder.query_event("idle")
    assert failed(rig) == []


def test_a_micro_batch_that_comes_to_nothing(rig: Rig) -> None:
    """Though Spark's listener is heard all the while; and each round counts anew."""
    rig.recorder.began(0, [block()])
    for _ in range(3):
        rig.now += LIMITS.batch_seconds
        rig.recorder.query_event("idle")
        assert failed(rig) == []
        rig.attempted(Outcome("b", "retry", 7, "another loader works on this block"))
    rig.now += LIMITS.batch_seconds + 0.1
    rig.recorder.query_event("idle")
    assert failed(rig) == ["batch"]


def stands_still(rig: Rig, seconds: float, sealed_ms: int = 100_000) -> None:
    """Partition 1 has one block, the same at each look; the query is heard all the while."""
    begun = rig.now if rig.look is None else rig.look.since.get(1, rig.now)
    rig.now += seconds
    rig.look = LedgerLook(rig.now, {}, {}, {0: 5, 1: 5, 2: 5}, {1: 1}, {1: sealed_ms}, {1: begun})
    rig.recorder.query_event("progress")


def test_one_journal_partition_of_many_that_stands_still(rig: Rig) -> None:
    stands_still(rig, LIMITS.partition_seconds)
    assert failed(rig) == []
    stands_still(rig, 0.1)
    assert failed(rig) == ["partitions"]
    (said,) = (one for one in liveness(rig.current.facts(), LIMITS) if not one.ok)
    assert said.why == "blocks of journal partitions 1 have waited for 30 s"


@pytest.mark.parametrize("sealed_ms", [0, 100_000, 700_000])
def test_the_relays_wall_clock_is_not_asked_for_health(rig: Rig, sealed_ms: int) -> None:
    """Set back or forward by 600 s, a block waits as long as it is seen to wait."""
    stands_still(rig, LIMITS.partition_seconds, sealed_ms)
    assert failed(rig) == []
    stands_still(rig, 0.1, sealed_ms)
    assert failed(rig) == ["partitions"]


def test_a_loader_at_rest_is_alive_however_long_the_journal_cannot_be_read(rig: Rig) -> None:
    """Its last look saw a block that was loaded a moment later; no batch waits for anything."""
    rig.look = LedgerLook(100.0, ends={0: 5}, sealed_ms={0: 1}, since={0: 100.0})
    rig.look = replace(rig.look, failed="journal: no answer")
    rig.now += 1000
    rig.recorder.query_event("idle")
    assert failed(rig) == ["ledger"]


def test_a_look_that_gets_no_answer_lets_no_block_grow_old(rig: Rig) -> None:
    """A server may take minutes to say that it has no answer."""
    rig.look = LedgerLook(100.0, ends={0: 5}, sealed_ms={0: 1}, since={0: 100.0})
    rig.now += 1000
    rig.recorder.query_event("idle")
    assert failed(rig) == []


def test_what_was_late_before_the_servers_went_away_is_judged_when_they_are_back(rig: Rig) -> None:
    stands_still(rig, LIMITS.partition_seconds + 0.1)
    assert rig.look is not None
    rig.look = replace(rig.look, failed="journal: no answer")
    assert failed(rig) == ["ledger"]
    stands_still(rig, 0.1)
    assert failed(rig) == ["partitions"]


def test_a_server_that_answers_again_gives_blocks_their_time_anew(rig: Rig) -> None:
    """Looks went well all the while, and the last one is older than the first good round."""
    rig.recorder.began(0, [block()])
    stands_still(rig, 1)
    rig.recorder.waiting("no ClickHouse")
    stands_still(rig, LIMITS.partition_seconds)
    rig.recorder.waiting("no ClickHouse")
    assert failed(rig) == ["servers"]
    rig.attempted(Outcome("b", "loaded", 7, ""))
    assert failed(rig) == []
    rig.recorder.settled(1.0)
    stands_still(rig, LIMITS.partition_seconds)
    assert failed(rig) == []
    stands_still(rig, 0.1)
    assert failed(rig) == ["partitions"]


@pytest.mark.parametrize("failed", ["", "journal: no answer"])
def test_time_in_which_nobody_looked_is_not_time_that_a_block_was_seen_to_wait(failed: str) -> None:
    """Servers did not answer, or the process was stopped, for 1 000 s; else a look comes in 30."""
    sealed = {0: 7, 1: 8}
    before = LedgerLook(100.0, sealed_ms=sealed, since={0: 40.0, 1: 90.0}, failed=failed)
    assert seen_since(before, sealed, 130.0) == {0: 40.0, 1: 90.0}
    later = seen_since(before, {**sealed, 2: 9}, 1100.0)
    assert later == {0: 1100.0 - 60 - GAP_SECONDS, 1: 1100.0 - 10 - GAP_SECONDS, 2: 1100.0}
    assert seen_since(before, {0: 9}, 1100.0) == {0: 1100.0}
    assert seen_since(None, sealed, 1100.0) == {0: 1100.0, 1: 1100.0}


def test_alive_and_not_ready_while_a_server_is_away(rig: Rig) -> None:
    """For longer than any limit, with a micro-batch open and blocks that wait."""
    rig.look = LedgerLook(100.0, ends={0: 5}, sealed_ms={0: 1_000}, failed="connection refused")
    rig.recorder.began(0, [block()])
    for _ in range(10):
        rig.now += LIMITS.query_seconds
        rig.recorder.waiting("no ClickHouse")
        assert failed(rig) == ["servers", "ledger"]


def test_not_ready_before_the_query_runs() -> None:
    assert failed(Rig()) == ["started", "ledger"]


def test_alive_and_not_ready_while_a_server_is_away_at_the_start() -> None:
    """A try may last as long as a round; once all have answered, Spark's time begins."""
    rig = Rig()
    for _ in range(10):
        rig.recorder.waiting("topic shop.journal does not exist")
        rig.now += LIMITS.batch_seconds
        assert failed(rig) == ["started", "servers", "ledger"]
    rig.now += 0.1
    assert failed(rig) == ["query", "started", "servers", "ledger"]
    rig.recorder.found()
    rig.now += LIMITS.query_seconds
    assert failed(rig) == ["started", "ledger"]
    rig.now += 0.1
    assert failed(rig) == ["query", "started", "ledger"]


class Servers:
    """Ledger and journal of a LedgerWatch: one partition, one sealed block, no server."""

    def __init__(self) -> None:
        self.settled = 3
        self.uncountable = ""

    def positions(self) -> dict[tuple[str, int], int]:
        return {("j", 0): self.settled}

    def counts(self) -> list[tuple[str, str, int, int]]:
        if self.uncountable:
            raise Refused(self.uncountable, "raise max_execution_time")
        return [("d.a", "loaded", self.settled, 28)]

    def read(self, _begin: object) -> tuple[list[tuple[int, int, bytes]], object]:
        return [(0, self.settled, block().SerializeToString())], None

    def ends(self) -> dict[str, int]:
        return {"0": self.settled + 1}

    def rest(self) -> None:
        pass


def test_what_cannot_be_counted_hides_no_block_that_waits() -> None:
    """The counts go over the whole ledger: they fail first, by time or memory."""
    rig, servers = Rig(), Servers()
    watch: Any = LedgerWatch.__new__(LedgerWatch)
    watch._start, watch._clock = SimpleNamespace(journal="j"), lambda: rig.now
    watch._reader = watch._ledger = servers
    watch.latest = None
    watch.look()
    rig.look = watch.latest
    assert rig.value("loader_check", check="ledger") == 1
    servers.uncountable = "Code: 159. TIMEOUT_EXCEEDED"
    for _ in range(3):  # a look a minute
        rig.now += 60
        watch.look()
    rig.look = watch.latest
    assert rig.value("loader_check", check="ledger") == 0, "an alert tells that it is not counted"
    assert rig.value("loader_ledger_blocks", table="d.a", state="loaded") == 3, "the last known"
    assert rig.value("loader_look_seconds") == 0
    assert rig.value("loader_waiting_blocks", partition=0) == 1
    assert rig.value("loader_check", check="partitions") == 0, "it has stood still for minutes"
    servers.settled = 4
    watch.look()
    rig.look = watch.latest
    assert rig.value("loader_position", partition=0) == 4
    servers.uncountable = ""
    watch.look()
    rig.look = watch.latest
    assert rig.value("loader_check", check="ledger") == 1
    assert rig.value("loader_ledger_blocks", table="d.a", state="loaded") == 4
