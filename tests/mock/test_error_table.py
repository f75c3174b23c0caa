"""Each (request, error code) pair leads to abort, retry, a new producer or the end, as tabled."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError

from relay.core import effects as ef
from relay.kafka import errors, transactional_producer
from tests.mock.cluster import Api
from tests.mock.rig import Course, Rig, flags
from tests.mock.table import INSIDE, LASTING, TABLE, TRIED, Place, Row

if TYPE_CHECKING:
    from collections.abc import Iterator

APIS = {
    Place.FIND_TRANSACTION: Api.FIND_COORDINATOR,
    Place.INIT: Api.INIT_PRODUCER_ID,
    Place.ADD_PARTITIONS: Api.ADD_PARTITIONS_TO_TXN,
    Place.PRODUCE: Api.PRODUCE,
    Place.ADD_OFFSETS: Api.ADD_OFFSETS_TO_TXN,
    Place.FIND_GROUP: Api.FIND_COORDINATOR,
    Place.COMMIT_OFFSETS: Api.TXN_OFFSET_COMMIT,
    Place.COMMIT: Api.END_TXN,
    Place.ABORT: Api.END_TXN,
}
AT_START = {Place.FIND_TRANSACTION, Place.INIT}
FOR_EVER = 5_000
"""More answers than anybody asks for within a test."""
ENDED_BY_DEADLINE = {Place.INIT: "", Place.ADD_OFFSETS: "SendOffsets", Place.COMMIT: "Commit"}
"""The effect from which on a call has this little time; "" is the start."""
SLICE_SECONDS, DEADLINE_SECONDS = 1.0, 3.0
AT_ONCE = 8
"""Rigs side by side: most of their time is librdkafka's waiting before it asks again."""


def single(rows: tuple[Row, ...]) -> list[Row]:
    """One row per code."""
    return [replace(row, codes=code) for row in rows for code in row.codes.split()]


def once(row: Row) -> Course:
    """The course of a transaction that is answered with the row's one code, once."""
    times = 1
    if APIS[row.place] is Api.FIND_COORDINATOR and row.flag != INSIDE:
        times = 5  # librdkafka may search for the transaction's more than once
    elif row.place is Place.FIND_GROUP:
        # The rig's consumer searches for its group's too, and may take one of them. Not more:
        # librdkafka searches three times inside the call, and never answers it after the third.
        times = 2
    with Rig("app") as rig:
        return course_of(row, rig, times)


def for_ever(row: Row) -> Course:
    """The same, answered so whenever it is asked; records time out with their transaction."""
    of_records = row.place in {Place.ADD_PARTITIONS, Place.PRODUCE}
    with Rig("app", 1.0 if of_records else 30.0) as rig:
        return course_of(row, rig, FOR_EVER)


def course_of(row: Row, rig: Rig, times: int) -> Course:
    course = thread.course = Course()
    api, codes = APIS[row.place], [getattr(KafkaError, row.codes)] * times

    def hasten(effect: str) -> None:
        if row.flag == "retriable" and effect == ENDED_BY_DEADLINE[row.place]:
            rig.producer._deadline_seconds = DEADLINE_SECONDS

    def before(effect: str) -> None:
        hasten(effect)
        # Not at begin: the search for the transaction's coordinator may still go on then.
        if row.place is Place.FIND_GROUP and effect == "SendOffsets":
            rig.cluster.fail(api, *codes)

    hasten("")
    if row.place in AT_START:
        rig.cluster.fail(api, *codes)
    if not rig.start(course):
        return course
    if row.place not in {*AT_START, Place.FIND_GROUP}:
        rig.cluster.fail(api, *codes)
    rig.transaction(course, before, ef.Commit if row.place is Place.ABORT else None)
    return course


thread = threading.local()
"""`course`: of the rig that runs in this thread."""


@pytest.fixture(scope="module", autouse=True)
def _classified() -> Iterator[None]:
    """Errors as the client raised them are written down on their way to relay.kafka.errors."""

    def classify(error: KafkaError) -> object:
        thread.course.flagged = flags(error)
        return errors.classify(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactional_producer, "classify", classify)
        yield


@pytest.fixture(scope="module")
def courses() -> dict[Row, Course]:
    """The course of every row of TABLE."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(AT_ONCE) as pool:
        patch.setattr(transactional_producer, "SLICE_SECONDS", 60.0)  # however slow this machine is
        rows = single(TABLE)
        return dict(zip(rows, pool.map(once, rows), strict=True))


@pytest.fixture(scope="module")
def long_courses() -> dict[Row, Course]:
    """The course of every row of LASTING."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(AT_ONCE) as pool:
        patch.setattr(transactional_producer, "SLICE_SECONDS", SLICE_SECONDS)
        rows = single(LASTING)
        return dict(zip(rows, pool.map(for_ever, rows), strict=True))


def disagreements(row: Row, course: Course) -> list[str]:
    """Where the course of things is not the row's."""
    kind, why, flagged = course.failures[0] if course.failures else ("", "", "")
    name, *marks = (flagged or row.codes).split()
    flag = INSIDE if flagged == "" else " ".join(marks) or "none"
    pairs = {
        "flag": (row.flag, flag),
        "failure": (row.failure, kind),
        "did": (row.did, ", ".join(course.did)),
    }
    found = [f"{n}: tabled {a!r}, found {b!r}" for n, (a, b) in pairs.items() if a != b]
    if row.flag != INSIDE and name not in why:
        found.append(f"{name} is not named in {why!r}")
    if "exit" in row.did and name not in course.message:
        found.append(f"{name} is not named in {course.message!r}")
    return found


def named(row: Row) -> str:
    return f"{row.place.name}-{row.codes}"


@pytest.mark.parametrize("row", single(TABLE), ids=named)
def test_each_pair_leads_where_the_table_says(row: Row, courses: dict[Row, Course]) -> None:
    """One such answer: librdkafka's flag, the relay's failure, and what the core does then."""
    assert disagreements(row, courses[row]) == []


@pytest.mark.parametrize("row", single(LASTING), ids=named)
def test_an_error_that_lasts_ends_at_a_deadline(row: Row, long_courses: dict[Row, Course]) -> None:
    """What librdkafka would repeat for ever is given up after the relay's or its own deadline."""
    assert disagreements(row, long_courses[row]) == []


def test_the_table_has_every_pair_once_and_a_reason_for_each() -> None:
    """Nothing is left out, nothing is said twice."""
    rows = single(TABLE)
    for place in Place:
        assert sorted(row.codes for row in rows if row.place is place) == sorted(TRIED[place])
    assert all(len(row.why) > 20 for row in TABLE)


WRONG = [
    (Row(Place.COMMIT, "ILLEGAL_GENERATION", "fatal", "ABORT", "abort", ""), "flag"),
    (Row(Place.COMMIT, "ILLEGAL_GENERATION", "abort", "UNKNOWN", "abort", ""), "failure"),
    (Row(Place.COMMIT, "ILLEGAL_GENERATION", "abort", "ABORT", "commit", ""), "did"),
    (Row(Place.COMMIT, "_TRANSPORT", INSIDE, "", "commit", ""), "did"),
    (Row(Place.COMMIT, "_TRANSPORT", INSIDE, "ABORT", "commit, replace", ""), "failure"),
]


@pytest.mark.parametrize(("row", "column"), WRONG)
def test_a_wrong_row_is_found(row: Row, column: str) -> None:
    """Negative control: each column is compared."""
    assert [line.partition(":")[0] for line in disagreements(row, once(row))] == [column]


@pytest.mark.parametrize(
    ("emptied", "row"),
    [
        ("FENCED", Row(Place.COMMIT_OFFSETS, "PRODUCER_FENCED", "abort", "FENCED", "exit 7", "")),
        ("REFUSED", Row(Place.PRODUCE, "MSG_SIZE_TOO_LARGE", "none", "REFUSED", "exit 5", "")),
    ],
)
def test_flags_alone_would_not_do(emptied: str, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without the relay's own entries, pairs with too weak a flag go astray."""
    assert disagreements(row, once(row)) == []
    monkeypatch.setattr(errors, emptied, {})

    found = disagreements(row, once(row))

    assert {line.partition(":")[0] for line in found} >= {"failure", "did"}
