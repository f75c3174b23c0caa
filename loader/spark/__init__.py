"""Run the Spark job: micro-batches of sealed blocks, spread over worker processes.

In come settings; out come settled blocks. Read `one_app` first, then `session`, `job`,
`micro_batch`, `known_blocks`, `workers`, `set_aside`; `several_apps` runs many pipelines in one
session. `query_start` begins a query again, `leftovers` removes what a killed driver left on
Kubernetes, `class_archive` halves the processor time of Spark's start.
"""
