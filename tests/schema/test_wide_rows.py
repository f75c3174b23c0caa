"""Rows that set few of many columns: what is decoded at a time is bounded by what they take."""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.blocks import chunks
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Messages
from relay.core import block_bound
from relay.core.block_bound import ALONE
from relay.rows.decode import Decoded, decode
from relay.rows.row_bound import RowBound, row_bits
from relay.schema.dead_reason import DeadKind
from relay.schema.types.column_type import parse_type
from tests.schema.rows import binary, codec_of, row, row_batch
from tests.schema.test_formed_together import made

CODECS = {
    "nested": codec_of({"id": "UInt8", "name": "Nullable(String)", "list": "Array(UInt32)"}),
    "flat": codec_of({"id": "UInt8", "name": "Nullable(String)", "flag": "Bool"}),
}
ANY = 1 << 40
ROWS = 10
"""That a block may have here; a message alone ALONE times as many."""


def many(codec: str, number: int) -> bytes:
    """A message of as many rows as none may have."""
    return row_batch([row(CODECS[codec], id=number % 256)] * (ALONE * ROWS + 1 + number % 3))


def alone(codec: str, number: int) -> bytes:
    """One of more rows than a block has, but for one that is made of it alone."""
    more = 1 + number % (ALONE * ROWS - ROWS)
    return row_batch([row(CODECS[codec], id=number % 256)] * (ROWS + more))


kinds = st.sampled_from(["good"] * 9 + ["empty", "null", "cut off", "too large", "unknown"])
kinds |= st.sampled_from(["many", "alone"])
messages = st.lists(st.tuples(kinds, st.integers(0, 255)), min_size=1, max_size=30)


def by_stretch(
    values: pa.ChunkedArray[Any], codec: str, unknown: str, bound: RowBound | None
) -> list[Decoded]:
    """All of them, decoded as many at a time as fit."""
    found: list[Decoded] = []
    while len(values):
        found.append(decode(values, CODECS[codec], "batch", unknown, bound))
        assert found[-1].left < len(values), "at least one is looked at"
        values = values.slice(len(values) - found[-1].left)
    return found


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", ["nested", "flat"])
@settings(deadline=None)
@given(drawn=messages, unknown=st.sampled_from(["dead", "ignore"]))
def test_by_stretches_as_all_at_once(
    codec: str, drawn: list[tuple[str, int]], unknown: str
) -> None:
    """Nothing lost, nothing twice, in order; only messages of too many rows are bad besides."""
    make = {"many": many, "alone": alone}
    values = [make[kind](codec, n) if kind in make else made(codec, kind, n) for kind, n in drawn]
    bound = RowBound(CODECS[codec].row_bytes, ROWS * CODECS[codec].row_bytes)
    large = [at for at, (kind, _) in enumerate(drawn) if kind == "many"]
    (whole,) = by_stretch(binary(values), codec, unknown, None)
    parts = by_stretch(binary(values), codec, unknown, bound)

    begun, good, rows, bad = 0, [], [], []
    for part in parts:
        good += [begun + at for at in part.good]
        bad += [(begun + one.index, one.reason) for one in part.bad]
        rows += part.batch.to_pylist()
        assert part.batch.num_rows == sum(part.rows)
        assert part.batch.num_rows <= ROWS or part.messages == 1
        begun += len(part.good) + len(part.bad)
    refused = [at for at, why in bad if why.kind is DeadKind.TOO_MANY_ROWS]
    assert refused == large
    kept = np.repeat(~np.isin(whole.good, large), whole.rows)
    assert good == [at for at in whole.good if at not in large]
    assert rows == whole.batch.filter(pa.array(kept)).to_pylist()
    others = [(at, why.kind, why.text) for at, why in bad if at not in large]
    assert others == [(one.index, one.reason.kind, one.reason.text) for one in whole.bad]


def test_a_message_of_too_many_rows_says_how_many_it_may_have() -> None:
    codec = CODECS["flat"]
    bound = RowBound(codec.row_bytes, 1_000 * codec.row_bytes)
    values = binary([b"\x0a\x00" * (ALONE * 1_000 + 1), b"\x0a\x00"])
    decoded = decode(values, codec, "batch", bound=bound)
    [bad] = decoded.bad
    assert (bad.index, bad.reason.kind) == (0, DeadKind.TOO_MANY_ROWS)
    assert bad.reason.text == (
        f"4,001 rows, and a message may have 4,000: each takes {codec.row_bytes} bytes as columns, "
        f"whatever fields it sets, and together they may take {4_000 * codec.row_bytes:,}"
    )
    assert decoded.batch.num_rows == 1


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", ["nested", "flat"])
def test_bare_rows_are_bounded_too(codec: str) -> None:
    of = CODECS[codec]
    values = binary([row(of, id=n) for n in range(2 * ROWS + 5)])
    bound = RowBound(of.row_bytes, ROWS * of.row_bytes)
    ids: list[int] = []
    for left in (ROWS + 5, 5, 0):
        decoded = decode(values, of, "row", bound=bound)
        assert (decoded.left, decoded.bad) == (left, [])
        ids += decoded.batch.column("id").to_pylist()
        values = values.slice(len(values) - left)
    assert ids == list(range(2 * ROWS + 5))


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("codec", ["nested", "flat"])
def test_a_buffer_of_too_many_rows_becomes_a_block_of_its_first_messages(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_bound, "DENSE", 0)  # these rows are small, not sparse
    of = CODECS[codec]
    buffer = Messages(
        list(range(100, 109)), binary([row_batch([row(of, id=n)] * 4) for n in range(9)])
    )
    former = BlockFormer(of, "batch", Encoder(1 << 20), max_decoded=10 * of.row_bytes)
    formed = former.form(buffer)
    assert (formed.left, formed.facts.messages, formed.facts.rows) == (7, 2, 8)
    assert formed.facts.row_bytes == sum(len(v.as_py()) for v in buffer.values[:2])
    assert formed.facts.decoded_bytes == 8 * of.row_bytes
    rows = chunks.decode([value for value, _ in formed.chunks]).column("id").to_pylist()
    assert rows == [0] * 4 + [1] * 4

    together = former.form_all([buffer.first(2), buffer.first(3)])
    assert [(one.left, one.facts.first_row) for one in together] == [(0, None), (1, None)]


@pytest.mark.usefixtures("decoder")
def test_rows_that_set_their_fields_are_cut_nowhere() -> None:
    """Their memory is what their messages take: each cut would cost a transaction."""
    of = codec_of({"a": "UInt64", "b": "String"})
    full = [row(of, a=2**60 + n, b="of some length") for n in range(50)]
    buffer = Messages(list(range(50)), binary([row_batch([one]) for one in full]))
    former = BlockFormer(of, "batch", Encoder(1 << 20), max_decoded=20 * of.row_bytes)
    formed = former.form(buffer)
    assert (formed.left, formed.facts.rows) == (0, 50)


SPARSE = {f"c{at}": "Nullable(Float64)" for at in range(60)}


@pytest.mark.parametrize("more", [{}, {"list": "Array(UInt8)"}], ids=["flat", "nested"])
@pytest.mark.parametrize("others", [0, 400])
@pytest.mark.parametrize("too_many", [ALONE * 100 + 1, 10_000])
def test_what_a_message_may_have_is_no_matter_of_its_neighbours(
    too_many: int, others: int, more: dict[str, str]
) -> None:
    """However many they are: 400 messages let a block have more rows than one message may.

    Red before: among them 401 rows were fine, and the compiled decoder never came back from 10 000.
    """
    of = codec_of(SPARSE | more)
    bound = 100 * of.row_bytes
    one = row(of, c0=1.0, c1=2.0, c2=3.0)
    large = row_batch([one] * too_many)
    values = [row_batch([one] * 100)] * others + [large, row_batch([one])]
    former = BlockFormer(of, "batch", Encoder(1 << 20), max_decoded=bound)
    assert not others or 2 * sum(map(len, values)) > ALONE * bound
    taken, dead, rows = 0, [], 0
    while taken < len(values):
        formed = former.form(Messages(list(range(taken, len(values))), binary(values[taken:])))
        dead += [(letter.offset, letter.reason.kind) for letter in formed.dead]
        rows += formed.facts.rows
        assert formed.facts.rows <= ALONE * 100
        taken = len(values) - formed.left
    assert dead == [(others, DeadKind.TOO_MANY_ROWS)]
    assert rows == 100 * others + 1


def test_a_row_too_large_for_its_topic_leaves_the_others_of_the_block() -> None:
    """Its message is one less to decode, and the bound is that of all of them all the same.

    Red before: without it, the rest was small enough to be cut, and nobody looked at what was left.
    """
    of = codec_of({"text": "String"} | SPARSE)
    text = "".join(random.Random(7).choices(string.printable, k=60_000))
    values = [row_batch([row(of, text=text)])] + [row_batch([row(of, c0=1.0)] * 10)] * 1_000
    former = BlockFormer(of, "batch", Encoder(1 << 20), most=40_000, max_decoded=100_000)
    formed = former.form(Messages(list(range(len(values))), binary(values)))
    assert [letter.offset for letter in formed.dead] == [0]
    assert formed.left > 0
    assert formed.facts.messages + len(formed.dead) + formed.left == len(values)


@pytest.mark.parametrize(
    ("type_", "bits"),
    [
        ("Float64", 65),
        ("Nullable(UInt8)", 9),
        ("String", 33),
        ("FixedString(16)", 33),
        ("UUID", 33),
        ("Array(UInt64)", 33),
        ("Map(String, UInt8)", 33),
        ("Tuple(a Float64, b String)", 1 + 65 + 33),
    ],
)
def test_what_a_row_takes_of_a_column(type_: str, bits: int) -> None:
    found = row_bits(parse_type(type_).arrow)
    assert found == bits or parse_type(type_).arrow.id == pa.lib.Type_FIXED_SIZE_BINARY


PROGRAM = """
import json, sys
from pathlib import Path
from relay.blocks.chunks import Encoder
from relay.blocks.form_block import BlockFormer, Messages
from tests.schema.rows import binary, codec_of, row, row_batch

def resident(kind):
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if kind in l]
    return int(line.split()[1]) * 1024

kind, most = sys.argv[1], int(sys.argv[2])
columns = {f"c{i}": "Nullable(Float64)" for i in range(1000)}
if kind == "general":
    columns["list"] = "Array(UInt8)"
codec = codec_of(columns)
one = row(codec, c0=1.0, c1=2.0, c500=3.0, c999=4.0)
former = BlockFormer(codec, "batch", Encoder(900_000), max_decoded=most)
former.form(Messages([0], binary([row_batch([one] * 3000)])))  # what stays
values = [row_batch([one] * 100)] * 300
values[0] = b"\\x0a\\x00" * 524_288
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = resident("VmRSS")
formed = former.form(Messages(list(range(300)), binary(values)))
grown = resident("VmHWM") - before
dead = [(offset, why.text[:20]) for offset, why in formed.dead]
print(json.dumps({"grown": grown, "rows": formed.facts.rows, "left": formed.left, "dead": dead}))
"""


@pytest.mark.parametrize(("kind", "times"), [("flat", 6), ("general", 8)])
def test_memory_is_bounded_by_the_rows_of_a_block(kind: str, times: int) -> None:
    """Of 1.1 MB with 8 kB a row, and a message of 1 MiB that is nothing but 524 288 rows."""
    most = 32_000_000
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind, str(most)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["dead"] == [[0, "524,288 rows, and a "]]
    assert found["rows"] * 8_000 < most
    assert found["left"] > 200
    assert most / 4 < found["grown"] < times * most, found
