"""The doctor where the source is in a cluster of its own: each judged by what it has."""

from __future__ import annotations

from dataclasses import replace

from relay.operate.doctor import grants
from relay.operate.doctor.examine import judge_kafka
from relay.operate.doctor.facts import GroupFloor, Trial
from tests.doctor.healthy import BROKER, OUTAGE, kafka, settings

ACROSS = settings(source={"kafka": {"bootstrap": "s:9092"}})


def found(**changed: object) -> dict[str, str]:
    """Findings: their kind, with what mends them."""
    facts = kafka(source_brokers={7: BROKER}, **changed)
    return {one.code: one.mend for one in judge_kafka(ACROSS, facts, OUTAGE)}


def test_nothing_is_wrong_where_nothing_is() -> None:
    assert found() == {}


def test_the_groups_bounds_are_those_of_the_sources_brokers() -> None:
    short = {**BROKER, "group.max.session.timeout.ms": "1000"}
    assert found(brokers=dict.fromkeys((1, 2, 3), short)) == {}
    facts = kafka(source_brokers={7: short})
    (one,) = judge_kafka(ACROSS, facts, OUTAGE)
    assert one.code == "session-timeout"
    assert "the source's broker 7" in one.what


def test_a_group_that_only_shows_names_nothing_that_must_be_there() -> None:
    """Neither a tool's offset nor a record that is gone: nobody reads them as truth."""
    foreign = GroupFloor(
        floor=5, metadata="tool", journal_offset=None, source_start=0, journal_start=0
    )
    gone = replace(foreign, metadata="{}", journal_offset=3, journal_start=9)
    assert found(heads={0: foreign, 1: gone}) == {}


def test_what_is_gone_is_passed_by_a_new_app() -> None:
    """`relay accept` is refused across clusters."""
    passed = GroupFloor(floor=5, metadata="{}", journal_offset=3, source_start=6, journal_start=0)
    mend = found(heads={0: passed})["source-passed"]
    assert "begin under a new app name" in mend
    assert "accept" not in mend


def test_commands_name_the_cluster_that_they_are_for() -> None:
    mend = found(group_granted=frozenset({"DESCRIBE"}))["right-group"]
    assert "--bootstrap-server s:9092" in mend
    mend = found(transactions=Trial("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"))
    assert "b:9092" in mend["right-transactional-id"]
    assert "--transactional-id app.source. " in mend["right-transactional-id"]


def test_the_relays_rights_are_split() -> None:
    (relay,) = (role for role in grants.roles(ACROSS) if role.name == "relay")
    every = list(grants.as_text(ACROSS, relay))
    asked = [line for line in every if "DescribeConfigs --cluster" in line]
    assert ["s:9092" in line for line in asked] == [False, True]
    lines = [line for line in every if "# optional: " not in line]
    of_source = [line for line in lines if "s:9092" in line]
    assert len(of_source) == 2
    assert all("--topic rows" in line or "--group app.relay" in line for line in of_source)
    assert sum("b:9092" in line for line in lines) > 5
