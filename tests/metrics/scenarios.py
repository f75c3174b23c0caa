"""What happens to a relay, and what its metrics must say then. Each gets a fresh rig."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relay.blocks.form_block import BlockFacts, DeadMessage
from relay.core import events as ev
from relay.core.state import Phase
from relay.errors import Fenced, Unavailable
from relay.program.metric import NAMELESS
from relay.schema.dead_reason import DeadKind, DeadReason
from tests.core.build import arrival, buffer, found, limits, partition, polled, with_limits
from tests.metrics.rig import INFO, Rig, consumer_statistics

Scenario = Callable[[Rig], None]


def polls(rig: Rig) -> None:
    """Messages and bytes by table and partition; an empty poll is one, too."""
    rig.now += 3
    rig.recorder.polled(1.0, 3, 30)
    rig.step(polled(0, arrival("d.a", 0), arrival("d.a", 4, 6, p=1)))
    rig.now += 0.5
    rig.recorder.polled(0.25, 0, 0)
    assert rig.value("relay_polls_total") == 2
    assert rig.value("relay_polls_empty_total") == 1
    assert rig.value("relay_poll_seconds_sum") == 1.25
    assert rig.value("relay_poll_messages_sum") == 3
    assert rig.value("relay_poll_bytes_sum") == 30
    assert rig.value("relay_turn_seconds_sum") == 2.25
    assert rig.value("relay_messages_polled_total", table="d.a", partition=0) == 1
    assert rig.value("relay_messages_polled_total", table="d.a", partition=1) == 2
    assert rig.value("relay_bytes_polled_total", table="d.a", partition=1) == 20
    assert rig.value("relay_last_poll_seconds") == 0
    rig.now += 7
    assert rig.value("relay_last_poll_seconds") == 7


def messages_in_blocks_already(rig: Rig) -> None:
    """Below its table's mark a message is passed over, and counted as such."""
    rig.state = with_limits(limits(), p0=partition(marks={"d.a": 2}))
    rig.step(polled(0, arrival("d.a", 0, 1, 2), arrival("d.b", 3)))
    assert rig.value("relay_messages_passed_over_total", table="d.a", partition=0) == 2
    assert rig.value("relay_messages_passed_over_total", table="d.b", partition=0) == 0


def a_committed_transaction(rig: Rig) -> None:
    """Counts what it holds once it is committed; durations by phase and in all."""
    rig.state = with_limits(limits(max_rows=2, flush_point_interval_ms=1), p0=partition())
    rig.step(polled(7_000, arrival("d.a", 0, 1, first_timestamp_ms=95_000)))
    (seal,) = rig.state.transaction.seals  # type: ignore[union-attr]
    seal_buffer = replace(seal.buffer, opened_at_ms=3_000)
    seal = replace(seal, buffer=seal_buffer)
    assert rig.state.transaction is not None
    rig.state = replace(rig.state, transaction=replace(rig.state.transaction, seals=(seal,)))
    bad = [DeadReason(DeadKind.DOES_NOT_FIT, "row 3: no", field) for field in ("a", "b")]
    dead = {DeadMessage(1, bad[0]): 2, DeadMessage(2, bad[1]): 1}
    rig.recorder.formed(seal, BlockFacts(unknown={"9": 4}, dead_groups=dead), 0.25)
    assert rig.value("relay_form_seconds_sum") == 0.25
    assert rig.value("relay_dead_letters_total", table="d.a", reason="does-not-fit") is None
    rig.through(seconds=0.5, dead=1)
    assert rig.value("relay_dead_letters_total", table="d.a", reason="does-not-fit") == 3
    assert rig.value("relay_unknown_field_messages_total", table="d.a") == 4
    for name in ("messages", "rows"):
        assert rig.value(f"relay_{name}_committed_total", table="d.a", partition=0) == 1
    assert rig.value("relay_row_bytes_committed_total", table="d.a", partition=0) == 10
    assert rig.value("relay_blocks_committed_total", table="d.a", reason="flush") == 1
    assert rig.value("relay_chunks_committed_total", table="d.a") == 1
    assert rig.value("relay_block_rows_sum", reason="flush") == 1
    assert rig.value("relay_block_bytes_sum", reason="flush") == 10
    assert rig.value("relay_block_messages_sum", reason="flush") == 1
    assert rig.value("relay_block_age_seconds_sum", reason="flush") == 4.0
    assert rig.value("relay_commit_lag_seconds_sum") == 102.5 - 95
    assert rig.value("relay_transactions_total", outcome="committed") == 1
    assert rig.value("relay_transaction_seconds_sum", outcome="committed") == 2.5
    for phase in ("beginning", "producing", "journalling", "sending_offsets", "committing"):
        assert rig.value("relay_transaction_phase_seconds_sum", phase=phase) == 0.5
    assert rig.value("relay_transaction_blocks_sum") == 1
    assert rig.value("relay_transaction_rows_sum") == 1
    assert rig.value("relay_transaction_partitions_sum") == 1
    assert rig.value("relay_journal_records_total") == 1
    assert rig.value("relay_flush_points_total", partition=0) == 1
    rig.now += 4
    assert rig.value("relay_last_commit_seconds") == 4


def records_without_a_time(rig: Rig) -> None:
    """Of a block whose record says -1 or 0 nobody knows how late it is."""
    rig.state = with_limits(limits(max_rows=1), p0=partition())
    for offset, made_ms in enumerate((-1, 0, 99_000)):
        rig.step(polled(0, arrival("d.a", offset, first_timestamp_ms=made_ms)))
        rig.through()
    assert rig.value("relay_messages_committed_total", table="d.a", partition=0) == 3
    assert rig.value("relay_commit_lag_seconds_count") == 1
    assert rig.value("relay_commit_lag_seconds_sum") == 1


def an_aborted_transaction(rig: Rig) -> None:
    """Counts nothing of what it held, and rewinds."""
    rig.step(polled(0, arrival("d.a", 0, 1, 2)))
    letter = DeadMessage(0, DeadReason(DeadKind.EMPTY_BATCH, "empty batch"))
    rig.recorder.formed(rig.results()[0].seal, BlockFacts(dead_groups={letter: 1}), 0.1)
    rig.step(ev.Begun())
    rig.step(ev.Failed(ev.Failure.ABORT, "why"))
    rig.now += 2
    rig.step(ev.Aborted())
    assert rig.value("relay_failed_calls_total", phase="producing", kind="abort") == 1
    assert rig.value("relay_transactions_total", outcome="aborted") == 1
    assert rig.value("relay_transaction_phase_seconds_sum", phase="aborting") == 2
    assert rig.value("relay_partitions_pending") == 2
    rig.now += 1
    rig.step(ev.TruthRead((found(committed=None, record=None, log_start=0, start_offset=0),), 0))
    assert rig.value("relay_truth_seconds_sum") == 1
    assert rig.value("relay_takeovers_total") == 1
    assert rig.value("relay_offsets_rewound_total", partition=0) == 3
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.through()
    assert rig.value("relay_dead_letters_total", table="d.a", reason="empty-batch") is None
    assert rig.value("relay_transactions_total", outcome="committed") == 1


def an_unknown_outcome(rig: Rig) -> None:
    """No answer to a commit: unknown; before it: abandoned. Both replace the producer."""
    for answers, outcome, phase in (
        ((ev.Begun(), ev.Produced, ev.JournalWritten({0: 1}), ev.OffsetsSent()), "unknown", 1),
        ((ev.Begun(),), "abandoned", 2),
    ):
        rig.state = with_limits(limits(max_rows=2), p0=partition())
        rig.step(polled(0, arrival("d.a", 0, 1)))
        for answer in answers:
            rig.step(ev.Produced(rig.results()) if answer is ev.Produced else answer)  # type: ignore[arg-type]
        rig.step(ev.Failed(ev.Failure.UNKNOWN, "lost"))
        assert rig.value("relay_transactions_total", outcome=outcome) == 1
        name = "committing" if phase == 1 else "producing"
        assert rig.value("relay_producer_replacements_total", phase=name) == 1
        assert rig.value("relay_failures_in_a_row") == 1
    rig.step(ev.Failed(ev.Failure.UNKNOWN, "again"))
    assert rig.value("relay_producer_replacements_total", phase="replacing") == 1
    assert rig.value("relay_failures_in_a_row") == 2


def a_commit_in_doubt(rig: Rig) -> None:
    """It is committed, and the producer replaced all the same."""
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.through(clean=False)
    assert rig.value("relay_commits_in_doubt_total") == 1
    assert rig.value("relay_transactions_total", outcome="committed") == 1
    assert rig.value("relay_producer_replacements_total", phase="committing") == 1


def fenced_by_the_producer(rig: Rig) -> None:
    """The transaction ends as fenced, and so does liveness."""
    rig.step(polled(0, arrival("d.a", 0, 1)))
    assert rig.value("relay_check", check="fenced") == 1
    rig.step(ev.Failed(ev.Failure.FENCED, "a newer one"))
    rig.recorder.ended(Fenced("a newer one"))
    assert rig.value("relay_fenced_total") == 1
    assert rig.value("relay_transactions_total", outcome="fenced") == 1
    assert rig.value("relay_check", check="fenced") == 0
    assert rig.value("relay_phase", phase="stopped") == 1


def fenced_by_the_group(rig: Rig) -> None:
    """What the consumer is told comes without a step; other errors are no fencing."""
    rig.recorder.ended(Unavailable("no"))
    assert rig.value("relay_fenced_total") == 0
    rig.recorder.ended(Fenced("another member"))
    assert rig.value("relay_fenced_total") == 1
    assert rig.failed() == ["fenced", "assigned"]


def refused(rig: Rig) -> None:
    """A right is missing."""
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.step(ev.Failed(ev.Failure.REFUSED, "no right"))
    assert rig.value("relay_transactions_total", outcome="refused") == 1


def a_rebalance(rig: Rig) -> None:
    """Given and taken; a transaction that is open then is aborted."""
    rig.step(ev.Assigned(frozenset({2})))
    assert rig.value("relay_partitions_pending") == 1
    assert rig.value("relay_partitions_owned") == 2
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.step(ev.Revoked(frozenset({0, 1, 2})))
    rig.step(ev.Aborted())
    assert rig.value("relay_rebalances_total", kind="assigned") == 1
    assert rig.value("relay_rebalances_total", kind="revoked") == 1
    assert rig.value("relay_transactions_total", outcome="aborted") == 1
    assert rig.value("relay_partitions_owned") == 0


def a_message_that_does_not_come(rig: Rig) -> None:
    """Each time that its error comes instead."""
    for _ in range(3):
        rig.recorder.trouble(1, "_BAD_COMPRESSION")
    found = rig.value("relay_source_errors_total", partition=1, error="_BAD_COMPRESSION")
    assert found == 3


def servers_away(rig: Rig) -> None:
    """Each try counts, until a poll comes round."""
    rig.recorder.away("no broker")
    assert rig.value("relay_server_waits_total") == 1
    rig.recorder.polled(0.1, 0, 0)
    assert rig.value("relay_server_away") == 0
    rig.recorder.away("no broker")
    assert rig.value("relay_server_away") == 1


def tables_change(rig: Rig) -> None:
    """Looks at the catalogue: how long, what changed, when it was away."""
    rig.recorder.refreshed(0.5, 2, "")
    rig.recorder.refreshed(1.0, 0, "ClickHouse is away")
    assert rig.value("relay_schema_refresh_seconds_sum") == 1.5
    assert rig.value("relay_schema_changes_total") == 2
    assert rig.value("relay_schema_refresh_failures_total") == 1
    assert rig.value("relay_check", check="servers") == 1, "blocks flow on without ClickHouse"


def what_is_held(rig: Rig) -> None:
    """Buffers by table over all partitions; what no header names has a name of its own."""
    # The record of one has the time of an event, long ago, that of the other has none.
    young = buffer(3, opened_at_ms=98_000, first_timestamp_ms=-1)
    held = {"d.a": buffer(0, 2, opened_at_ms=96_000, first_timestamp_ms=10, beside=5), "": young}
    rig.state = with_limits(
        limits(max_buffer_bytes=99),
        p0=partition(0, 4, epoch=2, n=7, marks={"d.b": 4}, buffers=held),
        p1=partition(5, 6, buffers={"d.a": buffer(5)}),
    )
    rig.state = replace(rig.state, tokens=12.0)
    rig.step(ev.StopRequested() if rig.state.phase is Phase.STOPPED else polled(0))
    assert rig.value("relay_buffers") == 3
    assert rig.value("relay_buffer_bytes", table="d.a") == 45
    assert rig.value("relay_buffer_messages", table="d.a") == 4
    assert rig.value("relay_buffer_rows", table=NAMELESS) == 1
    assert rig.value("relay_buffer_limit_bytes") == 99
    assert rig.value("relay_seal_tokens") == 12
    for name, value in {
        "position": 4,
        "floor": 0,
        "uncommitted_offsets": 4,
        "epoch": 2,
        "n": 7,
        "marks": 1,
        "buffers": 2,
        "oldest_seconds": 4.0,
    }.items():
        assert rig.value(f"relay_partition_{name}", partition=0) == value, name


def how_far_behind(rig: Rig) -> None:
    """The lag counts what can be read; where markers alone are left there is none."""
    rig.step(polled(0, arrival("d.a", 0)))
    rig.now += 6
    assert rig.value("relay_partition_idle_seconds", partition=0) == 6
    assert rig.value("relay_partition_lag_offsets", partition=0) is None, "not known yet"
    rig.hear("consumer", consumer_statistics(end=30, fetched=12))
    assert rig.value("relay_partition_end", partition=0) == 30
    assert rig.value("relay_partition_lag_offsets", partition=0) == 29
    rig.hear("consumer", consumer_statistics(end=30, fetched=30, queued=2))
    assert rig.value("relay_partition_lag_offsets", partition=0) == 29
    rig.hear("consumer", consumer_statistics(end=30, fetched=30))
    assert rig.value("relay_partition_lag_offsets", partition=0) == 0


def partitions_take_turns(rig: Rig) -> None:
    """Those whose turn has not come wait; nobody does while all are read."""
    chosen = limits(max_age_ms=1_000, max_buffer_bytes=1)
    rig.state = with_limits(chosen, p0=partition(), p1=partition())
    rig.step(replace(polled(0), full=True))
    assert rig.value("relay_partitions_waiting") == 0
    rig.step(replace(polled(1_000), full=True))
    assert rig.value("relay_partitions_waiting") == 1


def tables_are_held_back(rig: Rig) -> None:
    """ClickHouse is away: a table is new, and its partition holds as much of it as it may."""
    rig.state = with_limits(limits(max_rows=1, max_reread=1), p0=partition(), p1=partition())
    rig.step(polled(0, arrival("d.new", 0, 1)))
    rig.step(ev.TablesUndecided(frozenset({"d.new"})))
    rig.step(polled(0))
    assert rig.value("relay_tables_held") == 1
    assert rig.value("relay_partitions_waiting") == 1
    assert rig.value("relay_transactions_total", outcome="abandoned") == 0
    rig.step(ev.TablesDecided(frozenset({"d.new"})))
    rig.step(polled(0))
    assert rig.value("relay_tables_held") == 0
    assert rig.value("relay_partitions_waiting") == 0


def a_transaction_is_open(rig: Rig) -> None:
    """From the answer to begin on; before it, and after the commit, none is."""
    rig.step(polled(0, arrival("d.a", 0, 1)))
    rig.now += 5
    assert rig.value("relay_transaction_open_seconds") == 0
    rig.step(ev.Begun())
    rig.now += 5
    assert rig.value("relay_transaction_open_seconds") == 5
    assert rig.value("relay_phase", phase="producing") == 1
    assert rig.value("relay_phase", phase="ready") == 0


def who_it_is(rig: Rig) -> None:
    """Version, app and member are labels."""
    names = ("version", "app", "member", "librdkafka")
    assert rig.value("relay_info", **dict(zip(names, INFO, strict=True))) == 1


SCENARIOS: tuple[Scenario, ...] = (
    polls,
    messages_in_blocks_already,
    a_committed_transaction,
    records_without_a_time,
    an_aborted_transaction,
    an_unknown_outcome,
    a_commit_in_doubt,
    fenced_by_the_producer,
    fenced_by_the_group,
    refused,
    a_rebalance,
    a_message_that_does_not_come,
    servers_away,
    tables_change,
    what_is_held,
    how_far_behind,
    partitions_take_turns,
    a_transaction_is_open,
    who_it_is,
)
