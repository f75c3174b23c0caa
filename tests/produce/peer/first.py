"""The rows of First.java, by the classes that protoc generates for Python."""

import sys

import rows_pb2

batch = rows_pb2.RowBatch()
batch.rows.add(
    id=-(2**63),
    name="grüße ✓ 🦊",
    price=-0.5,
    at=1_700_000_000_123,
    paid=True,
    count=2**64 - 1,
    small=-128,
    tags=["a", ""],
    amounts={"x": 7},
)
batch.rows.add(id=0, name="", paid=False, small=0)
sys.stdout.buffer.write(batch.SerializeToString())
