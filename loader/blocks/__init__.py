"""Move one block: fetch its chunks, check them, insert them once.

In come blocks of the journal; out comes one outcome for each. This runs in Spark's worker
processes.

Read `worker` first, which carries out what `loader.core.plan` decides, then `attempt`, `fetch` with
`block_order`, `transform` with `made_rows` and `fit_columns`, `insert_statement` (the one INSERT; a
change of it goes there) and `insert_groups`. `isolation` and `scratch_table` find messages that a
table refuses, `dead_letters` writes them.
"""
