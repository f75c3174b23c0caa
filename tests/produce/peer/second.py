"""The rows of Second.java, by the classes that protoc generates for Python."""

import sys

import rows_pb2

batch = rows_pb2.RowBatch()
batch.rows.add(id=3, name="new", price=1.5, note="first")
batch.rows.add(id=4)
sys.stdout.buffer.write(batch.SerializeToString())
