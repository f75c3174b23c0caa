"""Read what the verifier judges: topics, committed offsets, ClickHouse's tables and logs.

In come settings; out come the plain values that `relay.operate.verify.judge` takes. `journal` and
`topic` read Kafka; `table_facts`, `landed_rows` and `server_logs` ask ClickHouse, by `optional`
where an answer may be refused.
"""
