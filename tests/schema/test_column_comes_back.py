"""A column that is back has its number of before: what is sent for it is read at once, though the
relay knows the number as that of a column that is gone."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.errors import Unavailable
from relay.kafka.record_limits import RecordLimits
from relay.process.perform import Performer
from relay.rows.codecs_of_tables import PAUSE_SECONDS, PAUSE_SHARE
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve
from tests.schema.rows import binary, row_batch, versions_of
from tests.schema.test_tables import ClickHouse, Registry, Topics, carried, tables
from tests.schema.values import fill

if TYPE_CHECKING:
    from relay.blocks.form_block import Formed

N, C = ColumnDef("n", "UInt64"), ColumnDef("c", "UInt64", "DEFAULT")
WIDE, TEXT = ColumnDef("c", "UInt64"), ColumnDef("c", "String")
LIST, MAP, TUPLE = (
    ColumnDef("c", kind) for kind in ("Array(UInt8)", "Map(String, UInt8)", "Tuple(x UInt8)")
)
OTHER = ColumnDef("other", "UInt64")
SUB = [ColumnDef("s.a", "Array(UInt8)"), ColumnDef("s.b", "Array(String)")]


class At:
    """A relay that knows the table d.a by its last columns, and what goes on around it.

    Attributes:
        asked: how often it read the registry.
        takes: seconds that an answer of the registry takes.
    """

    def __init__(self, *versions: list[ColumnDef], framing: str = "batch") -> None:
        self.now, self.takes, self.asked, self.framing = 0.0, 0.0, 0, framing
        self.clickhouse, self.registry = ClickHouse(a=versions[0]), Registry()
        self.relay = tables(self.clickhouse, self.registry, _Topics(), lambda: self.now)
        self.relay.resolve(["d.a"])
        for columns in versions[1:]:
            self.clickhouse.tables["d.a"] = columns
            assert self.relay.refresh()
            self.relay.adopt()
        catch_up = self.registry.catch_up

        def counted() -> None:
            self.asked += 1
            self.now += self.takes
            catch_up()

        self.registry.catch_up = counted  # type: ignore[method-assign]

    def producer_registers(self, columns: list[ColumnDef]) -> RowCodec:
        """What a producer that is new sees in ClickHouse; gives its codec."""
        self.clickhouse.tables["d.a"] = columns
        versions = versions_of(self.registry.topic)["d.a"]
        after = evolve(versions[max(versions)], "d.a", "u", columns)
        assert after is not None
        self.registry.topic.append(after)
        return RowCodec(after)

    def sealed(self, *buffers: list[bytes]) -> list[Formed]:
        """What the relay makes of buffers with these messages."""
        performer: Any = object.__new__(Performer)
        performer._tables = self.relay
        source = SimpleNamespace(framing=self.framing, unknown_fields="dead")
        block = SimpleNamespace(max_decoded_bytes=1 << 20)
        performer._settings = SimpleNamespace(source=source, block=block)
        performer._encoders = defaultdict(lambda: Encoder(1 << 20))
        held: list[Any] = [
            SimpleNamespace(offsets=list(range(len(some))), column=lambda some=some: binary(some))
            for some in buffers
        ]
        formed: list[Formed] = performer._form("d.a", held)
        return formed

    def message(self, codec: RowCodec, values: dict[int, Any]) -> bytes:
        row = fill(codec.message_class(), values).SerializeToString()
        return row if self.framing == "row" else row_batch([row])


class _Topics(Topics):
    limits = RecordLimits()

    def of(self, table: str) -> str:
        return f"blocks.{table}"


def rows(formed: Formed) -> list[dict[str, Any]]:
    """All are good."""
    assert not formed.dead
    return chunks.decode([value for value, _ in formed.chunks]).to_pylist()


BACK = {
    "as it was": ([[N, C], [N], [N, C]], 7, 7),
    "wider": ([[N, WIDE._replace(type="UInt32")], [N], [N, WIDE]], 7, 7),
    "nullable": ([[N, TEXT], [N], [N, TEXT._replace(type="Nullable(String)")]], "x", "x"),
    "a list": ([[N, LIST], [N], [N, LIST]], [1], [1]),
    "a map": ([[N, MAP], [N], [N, MAP]], [("k", 1)], [{"key": "k", "value": 1}]),
    "a tuple": ([[N, TUPLE], [N], [N, TUPLE]], {"x": 3}, {"x": 3}),
    "of a Nested": ([[N, *SUB], [N], [N, SUB[0]]], [2], [2]),
    "EPHEMERAL": ([[N, C], [N], [N, C._replace(default_kind="EPHEMERAL")]], 7, 7),
    "renamed, and back": ([[N, C], [N, OTHER], [N, C]], 7, 7),
    "retyped, dropped, and back": ([[N, C], [N, TEXT], [N], [N, C]], 7, 7),
    "MATERIALIZED before": ([[N, C._replace(default_kind="MATERIALIZED")], [N, C]], 7, 7),
    "an ALIAS before": ([[N, C._replace(default_kind="ALIAS")], [N, C]], 7, 7),
    "MATERIALIZED meanwhile": (
        [[N, C], [N, C._replace(default_kind="MATERIALIZED")], [N, C]], 7, 7,
    ),
}  # fmt: skip
"""Columns of the table, one ALTER after the other; the relay has not seen the last yet. And a value
of field 2 as a producer gives it who has, as a row has it."""


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("framing", ["batch", "row"])
@pytest.mark.parametrize("name", BACK)
def test_a_value_is_read_before_the_next_refresh(name: str, framing: str) -> None:
    """It would be left out, and the column take its DEFAULT, without a dead letter or a count."""
    (*seen, last), value, expected = BACK[name]
    at = At(*seen, framing=framing)
    codec = at.producer_registers(last)
    message = at.message(codec, {1: 5, 2: value})
    column = codec.column_names[1]
    [one] = at.sealed([message])
    assert rows(one) == [{"n": 5, column: expected}]
    assert one.facts.schema_version == codec.schema.version


@pytest.mark.usefixtures("decoder")
def test_a_value_is_read_in_buffers_that_are_formed_together() -> None:
    """Though the other has none."""
    at = At([N, C], [N])
    codec = at.producer_registers([N, C])
    plain, new = at.message(codec, {1: 1}), at.message(codec, {1: 2, 2: 7})
    formed = at.sealed([plain], [new])
    versions = {one.facts.schema_version for one in formed}
    assert versions == {codec.schema.version}
    assert rows(formed[0]) == [{"n": 1, "c": None}, {"n": 2, "c": 7}]


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("framing", ["batch", "row"])
def test_what_an_old_producer_sends_for_ever_is_passed_over(framing: str) -> None:
    """No dead letter, and the registry is asked now and then: as soon as the column is back, its
    values are read, those of the old producer too."""
    at = At([N, C], [N], framing=framing)
    old = RowCodec(at.registry.topic[0])
    message = at.message(old, {1: 5, 2: 7})
    for _ in range(100):
        [one] = at.sealed([message] * 3)
        assert rows(one) == [{"n": 5}] * 3
        assert one.facts.unknown == {}
        at.now += PAUSE_SECONDS / 10
    assert at.asked in {10, 11}
    at.producer_registers([N, C])
    at.now += PAUSE_SECONDS
    [one] = at.sealed([message])
    assert rows(one) == [{"n": 5, "c": 7}]


def test_a_registry_that_answers_slowly_is_asked_seldom() -> None:
    """Or not at all: the relay seals nothing while it waits."""
    at = At([N, C], [N])
    old = RowCodec(at.registry.topic[0])
    message = at.message(old, {1: 5, 2: 7})
    at.takes = 10.0
    at.sealed([message])
    at.now += PAUSE_SHARE * at.takes - 1
    at.sealed([message])
    assert at.asked == 1
    at.now += 1
    at.sealed([message])
    assert at.asked == 2


def test_who_sends_nothing_for_it_costs_no_question() -> None:
    at = At([N, C], [N])
    plain = at.message(RowCodec(at.registry.topic[0]), {1: 5})
    [one] = at.sealed([plain] * 3)
    assert (rows(one), one.passed_over, at.asked) == ([{"n": 5}] * 3, False, 0)


def test_what_cannot_be_read_is_asked_for_each_time() -> None:
    """Of what would be a dead letter no pause keeps the relay: its producer may be ahead."""
    at = At([N, C], [N])
    old = RowCodec(at.registry.topic[0])
    at.sealed([at.message(old, {1: 5, 2: 7})])
    codec = at.producer_registers([N, OTHER])
    [one] = at.sealed([at.message(codec, {1: 5, 3: 8})])
    assert rows(one) == [{"n": 5, "other": 8}]


def test_what_was_polled_before_a_refresh_is_sealed_with_its_values() -> None:
    """A refresh has buffers sealed under the old row message, and then uses the new one."""
    at = At([N, C], [N])
    codec = at.producer_registers([N, C])
    assert at.relay.refresh() == {"d.a"}
    assert carried(at.relay) == ["n"]
    [one] = at.sealed([at.message(codec, {1: 5, 2: 7})])
    assert rows(one) == [{"n": 5, "c": 7}]
    at.relay.adopt()
    assert carried(at.relay) == ["c", "n"]


def test_what_was_read_of_the_registry_counts_though_nobody_answers() -> None:
    """ClickHouse is away, so that no refresh comes to its end; then the registry is, too."""
    at = At([N, C], [N])
    codec = at.producer_registers([N, C])

    def away(*_: object) -> Any:
        raise Unavailable("away", "wait")

    at.clickhouse.read = away  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        at.relay.refresh()
    at.registry.catch_up = away  # type: ignore[method-assign]
    [one] = at.sealed([at.message(codec, {1: 5, 2: 7})])
    assert rows(one) == [{"n": 5, "c": 7}]
