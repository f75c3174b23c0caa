"""Judge what the servers said; pure.

In come the values of `relay.operate.doctor.facts`; out come findings, each with its reason and the
command that fixes it. A new finding begins here and in `relay.operate.doctor.findings`. Of Kafka:
`brokers`, `topics`. Of ClickHouse: `clickhouse` first, then `ledger`, `replicas`, `deduplication`,
`dependents` (views), `evidence` and `row_policies`. `rights` and `sample` are of both.
"""

# pure
