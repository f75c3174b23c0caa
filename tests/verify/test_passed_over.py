"""Messages before an app's first record of a source partition: who may have passed them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from relay.config.settings_file import load
from relay.operate.verify import deep
from relay.operate.verify.audit import Audit
from relay.operate.verify.judge.beginning import came_later
from relay.operate.verify.source_messages import SourceJudge
from relay.records_pb2 import Accept, Commit, Mark, Rewind
from tests.broker.conftest import pipeline  # noqa: F401 - a fixture
from tests.broker.pipeline import PARTITIONS
from tests.broker.test_source_grows import GROWN, all_taken, grow, recorded, starts_at
from tests.loader import unsparked
from tests.verify import nowhere
from tests.verify.test_live import spoken
from tests.verify.test_silent_partitions import LandedElsewhere, SomeBrokers

if TYPE_CHECKING:
    from tests.broker.pipeline import Pipeline

BEGUN = Commit(n=1, previous_floor=500, floor=600)
RETAINED = Commit(n=2, previous_floor=500, floor=600)
TOPIC = Commit(n=2, previous_floor=600, floor=0, accept=Accept(kinds=["topic"]))
TRUNCATED = Commit(n=2, previous_floor=600, floor=550, accept=Accept(kinds=["truncated"]))
OFFSETS = Commit(n=1, previous_floor=500, floor=500, accept=Accept(kinds=["offsets"]))


def rewound(to: int) -> list[Commit]:
    """A person had all that was sealed read again from there, where the log still has it."""
    rewind = Rewind(starts=[Mark(table="d.t", offset=to)])
    return [
        BEGUN,
        Commit(n=2, previous_floor=600, floor=to, rewind=rewind),
        Commit(n=3, previous_floor=to, floor=to, rewound=True),
        Commit(n=4, previous_floor=to, floor=700),
    ]


@pytest.mark.parametrize(
    ("commits", "start", "begun"),
    [
        ([BEGUN], 0, 500),
        ([BEGUN], 499, 500),
        ([BEGUN, RETAINED], 0, 500),
        (rewound(300), 0, 300),
        (rewound(550), 0, 500),
        ([BEGUN], 500, None),
        ([BEGUN], 550, None),  # retention took more of the log since
        ([RETAINED], 0, None),  # and records of the journal, which told of what is before
        (rewound(0), 0, None),
        ([BEGUN, TOPIC], 0, None),  # offsets name other messages
        ([BEGUN, TRUNCATED], 0, None),
        ([OFFSETS], 0, None),  # a person began the journal anew
    ],
)
def test_where_an_app_began(commits: Sequence[Commit], start: int, begun: int | None) -> None:
    """Behind messages that are there, it is a fault, or what a person chose; nobody said so."""
    said = [f"the app began at source offset {begun}, and the log begins at {start}"]
    said = said if begun is not None else []

    known = SourceJudge(commits, start)
    assert list(known.judge()) == []
    assert [line.partition(": whether")[0] for line in known.not_judged(3)] == [
        f"partition 3: {one}" for one in said
    ]

    newer = SourceJudge(commits, start, later=True)
    assert [f"{one.kind.value}: {one.text.partition(': ')[0]}" for one in newer.judge()] == [
        f"gap: {one}" for one in said
    ]
    assert list(newer.not_judged(3)) == []


@pytest.mark.parametrize(
    ("widths", "later"),
    [([3, 3, 3], True), ([9, 3], True), ([4, 4], False), ([0, 0], False), ([], False)],
)
def test_a_partition_came_later_if_a_record_is_of_a_narrower_source(
    widths: Sequence[int], later: bool
) -> None:
    assert came_later(3, [Commit(source_partitions=width) for width in widths]) == later


@pytest.mark.parametrize(("width", "gap"), [(1, True), (2, False)])
def test_a_new_partition_that_was_begun_at_its_end(
    width: int, gap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relay that takes it for an old one, as source.start = "latest" says of those: 500 lost."""
    monkeypatch.setattr(deep, "TopicReader", lambda *_: SomeBrokers(set(), None))
    monkeypatch.setattr(deep, "Landing", LandedElsewhere)
    settings = nowhere.settings("shop", start="latest")
    further = deep.Deep(settings, Audit("a", "rows", 1.0))
    further.keep(0, 0, Commit(n=1, source_partitions=width))
    first = Commit(n=1, partition=1, previous_floor=500, floor=500, source_partitions=2)
    further.keep(1, 0, first)
    found = [one for one in further.judge(lambda _: None) if "the app began at" in one.text]
    assert [(one.kind.value, one.partition) for one in found] == ([("gap", 1)] if gap else [])
    assert any("the app began at" in line for line in further.audit.not_judged) != gap


# ---- on real servers


def test_an_app_that_began_at_the_end_of_a_source_that_grows(
    pipeline: Pipeline,  # noqa: F811
) -> None:
    """What was there before it is said; what came later is read from its beginning: status 0."""
    path = starts_at(pipeline, "latest")
    for partition in range(PARTITIONS):
        pipeline.send(range(100 * partition, 100 * partition + 5), partition)
    pipeline.sent.clear()
    relay = pipeline.start("a", path)
    recorded(pipeline)
    pipeline.send(range(10, 20))
    pipeline.until(lambda: pipeline.rows() == pipeline.sent, "rows before")
    relay.terminate()
    assert pipeline.end_of(relay) == 0

    grow(pipeline, pipeline.source)
    for partition in range(GROWN):
        pipeline.send(range(1_000 * partition + 1_000, 1_000 * partition + 1_005), partition)
    relay = pipeline.start("a", path)
    all_taken(pipeline)
    relay.terminate()
    assert pipeline.end_of(relay) == 0

    unsparked.load(load(path))
    status, heard = spoken(path, "--deep")
    assert status == 0, heard
    said = [f"partition {p}: the app began at source offset" in heard for p in range(GROWN)]
    assert said == [partition < PARTITIONS for partition in range(GROWN)], heard
