"""Judge what was recorded; pure.

In come journal records, committed offsets, block records, rows counts and server logs as values;
out come anomalies. Read `anomaly` (every kind), then `chain` with `record` and `operator_records`
(the journal), `beginning` (where the journal begins), `committed_offset` (the group's offsets),
`contents`, `table_facts`, `server_records`, `missing_rows`, `unlisted_blocks`, `writes` and
`ledger_history` (ClickHouse). `acknowledgements` are a person's words, `tally` counts what cannot
be judged. The verifier shares record formats with the relay and none of its judgement.
"""

# pure
