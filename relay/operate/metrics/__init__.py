"""What a relay counts, and what its Kafka clients do: read by Prometheus.

`definitions` and `client_definitions` declare the metrics, `observer` is what the relay's shell
calls, `recorder` counts (until the commit in `open_transaction`), `vitals` notes when what happened
last, `gauges` and `statistics` tell the current state, `endpoint` serves it.
"""
