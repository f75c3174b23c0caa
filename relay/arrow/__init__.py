"""Lay out columns in memory as Arrow does, without a Python object per value.

In come the addresses and sizes of values, or arrays of numpy; out come Arrow arrays over memory,
and views of the memory that Arrow arrays have. Rows, messages and tables are not known here:
intake, rows and blocks use it alike.

Read `byte_column` first (values that come a few at a time become a column), then `array_memory`
(what is between numpy's arrays and Arrow's).
"""
