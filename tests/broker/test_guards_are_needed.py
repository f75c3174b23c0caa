"""Negative controls: each scenario goes red when its guard is taken away."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.broker.test_aborted_source_messages_never_come_through import (
    test_aborted_source_messages_never_come_through as aborted_source,
)
from tests.broker.test_bad_input_becomes_dead_letters import each_lands
from tests.broker.test_bad_input_becomes_dead_letters import (
    test_a_message_near_the_size_limit_goes_through as near_the_size_limit,
)
from tests.broker.test_kill_after_commit_repeats_nothing import (
    test_kill_after_commit_repeats_nothing as kill_after_commit,
)
from tests.broker.test_kill_before_commit_leaves_nothing_visible import (
    test_kill_before_commit_leaves_nothing_visible as kill_before_commit,
)
from tests.broker.test_rebalance_aborts_the_open_transaction import (
    test_rebalance_aborts_the_open_transaction as rebalance,
)
from tests.broker.test_second_producer_fences_the_first import (
    test_second_producer_under_one_transactional_id_fences_the_first as second_producer,
)
from tests.broker.test_several_processes_under_one_command import (
    test_several_processes_share_the_partitions_and_stop_together as several_processes,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_a_first_start_that_nobody_decided as undecided_start,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_a_journal_that_was_deleted as deleted_journal,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_a_source_topic_deleted_and_made_anew as source_made_anew,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_a_source_topic_made_anew_and_the_offsets_restored as source_restored,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_a_source_topic_that_is_not_there as no_source,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_an_offset_moved_by_a_tool as moved_offset,
)
from tests.broker.test_wrong_surroundings_end_with_a_clear_error import (
    test_sigterm_leaves_within_seconds_with_status_0 as sigterm,
)
from tests.broker.test_zombie_cannot_commit import (
    test_relay_stopped_past_its_session_timeout_cannot_commit as zombie,
)

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from tests.broker.pipeline import Pipeline


FLOOR = "the floor behind the last"


class Control(NamedTuple):
    """A scenario without its guard.

    Attributes:
        guard: taken away (tests.broker.unguarded).
        scenario: run with relays that lack it.
        anomaly: where in the scenario's own words it shows.
        arguments: the scenario's, behind its fixtures.
    """

    guard: str
    scenario: Callable[..., None]
    anomaly: str
    arguments: tuple[object, ...] = ()


NEVER_COMES = {"the end of the first", "the end of the relay", "the end of all", FLOOR}
CONTROLS = [
    Control("read_committed", aborted_source, "self.rows() == self.sent"),
    Control("stable_identity", second_producer, "the end of the first"),
    Control("generation", zombie, "the zombie committed", ("before_send_offsets",)),
    Control("metadata_at_begin", zombie, "the zombie committed", ("before_send_offsets",)),
    Control("generation", rebalance, "a transaction of an old generation committed"),
    Control("committed_truth", kill_after_commit, "self.rows() == self.sent"),
    Control("one_transaction", kill_before_commit, "c.blocks", ("before_commit",)),
    # What comes in.
    Control("header_once", each_lands, "became rows", (["doubled header"],)),
    # A server runs one statement only: the name breaks the question, and nothing goes on.
    Control("plain_names", each_lands, FLOOR, (["SQL in the name"],)),
    Control("explained_bytes", each_lands, "became rows", (["foreign fields", "empty batch"],)),
    Control(
        "each_message_alone",
        each_lands,
        "a good one was lost",
        (["row that takes in the next message"],),
    ),
    Control("text_is_utf8", each_lands, "became rows", (["bad UTF-8 in a string"],)),
    Control("ranges", each_lands, "became rows", (["number out of range"],)),
    Control("dead_letters", each_lands, "left no trace", (["unknown table", "null value"],)),
    Control("roomy_topics", near_the_size_limit, "gave up on a message"),
    # What a relay finds when it starts, and how it ends.
    Control("source_exists", no_source, "the end of the relay"),
    Control("topic_identity", source_restored, "the relay read on"),
    Control("journal_remembers", source_made_anew, "the relay read on"),
    Control("offset_is_the_journals", moved_offset, "the relay read on"),
    Control("gone_is_said", deleted_journal, "the end of the relay"),
    Control("start_is_decided", undecided_start, "the relay chose where to begin"),
    Control("seal_at_stop", sigterm, "what was buffered is not sealed"),
    Control("end_together", several_processes, "the end of all"),
]


@pytest.mark.long  # 200 s: a negative control of the tests that it names
@pytest.mark.parametrize(
    "control", CONTROLS, ids=lambda c: f"{c.guard}-{c.scenario.__name__.removeprefix('test_')}"
)
def test_a_scenario_fails_without_its_guard(
    pipeline: Pipeline, client: Client, control: Control
) -> None:
    """The same scenario, run with relays that lack the guard, finds the anomaly."""
    pipeline.without = control.guard
    pipeline.failed -= {4}  # as it may end without its guard
    if control.anomaly in NEVER_COMES:  # to wait longer shows no more
        pipeline.end_seconds = 5.0
    if control.anomaly == FLOOR:  # the first that is waited for
        pipeline.patience_seconds = 15.0
    fixtures = {"pipeline": pipeline, "client": client}
    wanted = [fixtures[n] for n in inspect.signature(control.scenario).parameters if n in fixtures]

    with pytest.raises(AssertionError) as found:
        control.scenario(*wanted, *control.arguments)

    where = str(found.traceback[-1].statement) + str(found.value)
    assert control.anomaly in where, f"red for another reason: {where}"


@pytest.mark.long
def test_polling_in_a_transaction_alone_commits_nothing(pipeline: Pipeline) -> None:
    """What the control `metadata_at_begin` does beside its guard: the guard is what counts."""
    pipeline.without = "polls_in_transactions"
    pipeline.failed -= {4}  # as it may end without its guard
    zombie(pipeline, "before_send_offsets")
