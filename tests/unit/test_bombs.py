"""A message made to burst memory, stack or time: bounded, and a dead letter or just rows."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from relay.rows.decode import decode
from relay.rows.decoder_guards import SURELY_SHALLOW, refuse_deep
from relay.rows.wire_scan import NAMED
from tests.schema.rows import binary, codec_of, row, row_batch
from tests.unit import bombs

MIB = 1 << 20
SIZE = 2 * MIB
"""Of each bomb; brokers bound it by `max.message.bytes`, by default at 1 MiB."""
TIMES = 48
"""What one message may add to resident memory while it is decoded, in sizes of its own,"""
BYTES_A_ROW = 640
"""and for each of its rows, of which two bytes make one."""

PROGRAM = """
import json, sys
from pathlib import Path
from relay.rows.decode import decode
from relay.rows.envelope import count_rows
from tests.schema.rows import binary, codec_of, row, row_batch
from tests.unit import bombs

def resident(kind):
    (line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if kind in l]
    return int(line.split()[1]) * 1024

codec = codec_of(bombs.COLUMNS)
good = row_batch([row(codec, id=1, name="a")])
decode(binary([good, b"\\xff", bombs.empty_elements(1000)]), codec, "batch")  # what stays
size = int(sys.argv[1])
for kind, make in bombs.MADE.items():
    values = binary([good, make(size), good])
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    rows = int(count_rows(values, "batch").sum())
    decoded = decode(values, codec, "batch")
    grown = resident("VmHWM") - before
    bad = [(one.index, one.reason.text[:100]) for one in decoded.bad]
    said = {"kind": kind, "grown": grown, "rows": rows, "loaded": decoded.batch.num_rows}
    print(json.dumps({**said, "bad": bad}), flush=True)
    del values, decoded
"""

DEAD = {"deep_unknown", "deep_groups", "deep_json", "absurd_length", "unknown_fields"}
DEAD |= {"deep_json_that_closes"}


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Any]]:
    """By kind, from one process that survived them all."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(SIZE)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    found = {line["kind"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, f"ended after {list(found)}: {done.stderr[-2000:]}"
    return found


@pytest.mark.parametrize("kind", bombs.MADE)
def test_a_bomb_is_bounded_and_harms_no_neighbour(
    measured: dict[str, dict[str, Any]], kind: str
) -> None:
    one = measured[kind]
    assert one["grown"] < TIMES * SIZE + BYTES_A_ROW * one["rows"], one
    if kind in DEAD:
        ((index, reason),) = one["bad"]
        assert index == 1
        assert reason
        assert one["loaded"] == 2
    else:
        assert one["bad"] == []
        assert one["loaded"] == one["rows"] >= 3


def test_the_measure_sees_memory(measured: dict[str, dict[str, Any]]) -> None:
    """Negative control: what makes columns shows, at least as large as the columns are."""
    assert measured["empty_rows"]["grown"] > 30 * measured["empty_rows"]["rows"]
    assert measured["packed_numbers"]["grown"] > SIZE


CODEC = codec_of({"id": "Int64", "text": "String"})


def test_a_large_text_full_of_brackets_is_a_row() -> None:
    """A byte that could open a group is none inside a text."""
    text = "[" * (4 * SURELY_SHALLOW)
    assert np.count_nonzero(np.frombuffer(text.encode(), np.uint8) & 7 == 3) > SURELY_SHALLOW
    decoded = decode(binary([row_batch([row(CODEC, id=1, text=text)])]), CODEC, "batch")
    assert decoded.bad == []
    assert decoded.batch.column("text").to_pylist() == [text]


def test_groups_are_refused_in_rows_and_around_them() -> None:
    """In a slice too: what is looked at is the message, not the buffer that it lies in."""
    deep = bombs.deep_groups(8 * SURELY_SHALLOW)
    inner = deep[len(deep) - 8 * SURELY_SHALLOW :]
    for value in (deep, inner):
        decoded = decode(binary([row_batch([row(CODEC, id=1)]), value]), CODEC, "batch")
        ((index, reason),) = [(one.index, one.reason.text) for one in decoded.bad]
        assert index == 1
        assert "nested too deep" in reason
    array = pa.array([inner, b"\x08\x01"], pa.binary())
    with pytest.raises(ValueError, match="nested too deep"):
        refuse_deep(array, CODEC.message_class)
    refuse_deep(array.slice(1), CODEC.message_class)


def test_many_unknown_fields_are_counted_together() -> None:
    """The message is bad as a whole, or loaded without them, as the app wishes; few are named."""
    many = bombs.unknown_fields(16 * NAMED)
    value = row_batch([row(CODEC, id=1) + many[many.index(b"\xa0") :]])
    dead = decode(binary([value]), CODEC, "batch")
    assert len(dead.bad) == 1
    ignored = decode(binary([value]), CODEC, "batch", "ignore")
    assert ignored.bad == []
    assert ignored.batch.column("id").to_pylist() == [1]
    assert ignored.unknown["others"] == 1
    assert len(ignored.unknown) < 2 * NAMED
