"""Ask brokers and ClickHouse what the doctor judges.

In come settings; out come the plain values of `relay.operate.doctor.facts`. A question without an
answer is kept with its reason, and is a finding of its own. Each module asks one thing: `brokers`
(through `client`), `broker_clock`, `group`, `clickhouse`, `deduplication` (`--try`) and `sample`.
"""
