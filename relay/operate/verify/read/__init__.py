"""Read what the verifier judges: topics, committed offsets, ClickHouse's tables and logs.

In come settings; out come the plain values that `relay.operate.verify.judge` takes.
"""
