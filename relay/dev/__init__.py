"""Kafka and ClickHouse's engine on this machine, for development and tests only.

Read `stack` first: the servers of one directory, whose ports are in `layout`. `broker` starts a
Kafka broker from the `jars` that it fetches; `clickhouse` starts `clickhouse_server` with
`clickhouse_config`. `process` starts and ends servers, `sql` asks the ClickHouse of a stack.
"""
