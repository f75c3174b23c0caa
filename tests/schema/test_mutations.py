"""Messages with bytes changed, cut, doubled and made up: none ends the relay."""

from __future__ import annotations

import numpy as np
import pytest

from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Messages
from relay.rows.row_codec import RowCodec
from relay.schema.evolution import ColumnDef, evolve
from tests.profiles import is_long
from tests.schema.rows import binary, row_batch
from tests.schema.values import fill

LONG = is_long()
MESSAGES = 50_000 if LONG else 2_000
"""Of each table and place; with --hypothesis-profile=long 200 000 in all."""
BUFFER = 1_000

SIMPLE = {
    "id": "Int64", "tiny": "Int8", "ratio": "Float64", "name": "Nullable(String)", "at": "DateTime",
    "code": "FixedString(3)", "kind": "Enum8('up' = -1, 'down' = 1)", "key": "UUID", "ok": "Bool",
}  # fmt: skip
DEEP = {
    "id": "Int64",
    "tags": "Array(LowCardinality(String))",
    "small": "Array(Nullable(Int8))",
    "by": "Map(String, Array(Decimal(9, 2)))",
    "at": "Tuple(x Float64, `y z` Array(UInt16), w Nullable(IPv6))",
    "any": "Variant(Array(UInt8), String, UInt64)",
    "n.a": "Array(Int32)",
    "n.b": "Array(String)",
    "json": "JSON",
    "area": "MultiPolygon",
}
DEEP_ROW = {
    1: -5, 2: ["a", "ü"], 3: [{1: -3}, {}], 4: [("k", {1: ["1.25", "-3"]})],
    5: {1: 0.5, 2: [1, 300], 3: "::1"}, 6: {1: {1: [1, 2]}}, 7: [1, 2], 8: ["x", "y"],
    9: '{"a": {"b": [1, null]}}', 10: [{1: [{1: [{1: 1.5, 2: 2.5}]}]}],
}  # fmt: skip
SIMPLE_ROW = {
    1: 2**40, 2: -128, 3: 0.1, 4: "grüße", 5: 7, 6: b"ab", 7: "up",
    8: "61f0c404-5cb3-11e7-907b-a6006ad3dba0", 9: True,
}  # fmt: skip


def codec_of(columns: dict[str, str]) -> RowCodec:
    schema = evolve(None, "shop.orders", "u", [ColumnDef(*pair) for pair in columns.items()])
    assert schema is not None
    return RowCodec(schema)


def mutated(value: bytes, random: np.random.Generator) -> bytes:
    """One to three changes at random places."""
    for _ in range(random.integers(1, 4)):
        at, to = sorted(random.integers(0, len(value) + 1, 2).tolist())
        some = random.integers(0, 256, int(random.integers(1, 6)), dtype=np.uint8).tobytes()
        change = random.integers(0, 6)
        if change == 0 and value:
            at = min(at, len(value) - 1)
            value = (
                value[:at] + bytes([value[at] ^ 1 << int(random.integers(0, 8))]) + value[at + 1 :]
            )
        elif change == 1:
            value = value[:at] + some + value[at + len(some) :]
        elif change == 2:
            value = value[:at] + some + value[at:]
        elif change == 3:
            value = value[:at] + value[to:]
        elif change == 4:
            value = value[:at]
        else:
            value = value[:to] + value[at:]
    return value


@pytest.mark.timeout(3_600 if LONG else 300)
@pytest.mark.parametrize("place", ["row", "message"])
@pytest.mark.parametrize(("columns", "values"), [(SIMPLE, SIMPLE_ROW), (DEEP, DEEP_ROW)])
def test_every_mutated_message_is_rows_or_a_dead_letter(
    columns: dict[str, str], values: dict[int, object], place: str
) -> None:
    """Of messages with mutated bytes, in a row or in its envelope, each is in the block or among
    the dead letters, and the untouched ones between them are all in the block."""
    codec = codec_of(columns)
    random = np.random.default_rng(20_260_101)
    good = fill(codec.message_class(), values).SerializeToString()
    dead = 0
    for _ in range(MESSAGES // BUFFER):
        messages = []
        for at in range(BUFFER):
            if at % 10 == 0:
                messages.append(row_batch([good, good]))
            elif place == "row":
                messages.append(row_batch([mutated(good, random), good]))
            else:
                messages.append(mutated(row_batch([good, good]), random))
        former = BlockFormer(codec, "batch", Encoder(10_000_000))
        formed = former.form(Messages(list(range(BUFFER)), binary(messages)))
        assert formed.facts.messages + len(formed.dead) == BUFFER
        lost = {offset for offset, _ in formed.dead}
        assert not [offset for offset in lost if offset % 10 == 0]
        assert all(reason.text for _, reason in formed.dead)
        assert formed.facts.rows == sum(rows for _, rows in formed.chunks)
        assert formed.facts.rows >= formed.facts.messages
        dead += len(lost)
    assert 0 < dead < MESSAGES


def test_a_block_of_mutated_rows_opens_as_what_it_says() -> None:
    """What comes through is a whole block: every chunk is Arrow of the table's types."""
    codec = codec_of(DEEP)
    random = np.random.default_rng(7)
    good = fill(codec.message_class(), DEEP_ROW).SerializeToString()
    messages = [row_batch([mutated(good, random)]) for _ in range(BUFFER)]
    former = BlockFormer(codec, "batch", Encoder(10_000))
    formed = former.form(Messages(list(range(BUFFER)), binary(messages)))
    assert formed.facts.rows > 0
    for chunk, rows in formed.chunks:
        batch = chunks.decode([chunk])
        batch.validate(full=True)
        assert (batch.schema.names, batch.num_rows) == (codec.column_names, rows)
