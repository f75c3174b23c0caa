"""Run the Spark job: micro-batches of sealed blocks, spread over worker processes.

In come settings; out come settled blocks. Read `one_app` first, then `session`, `job`,
`micro_batch`, `workers`, `set_aside`; `several_apps` runs many pipelines in one session.
"""
