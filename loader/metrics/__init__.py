"""What a loader counts: read by Prometheus, served by the driver.

Workers measure each attempt at a block, and their figures come back with its outcome. `definitions`
declares the metrics, `observer` is what the driver calls, `recorder` counts; `listener` passes
Spark's events on, `ledger_watch` looks at the ledger; `gauges` and `health` say how things stand,
and `endpoint` serves all of it.
"""
