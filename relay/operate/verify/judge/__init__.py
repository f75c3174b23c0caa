"""Judge what was recorded; pure.

In come journal records, committed offsets, block records, rows counts and server logs as values;
out come anomalies. Read `anomaly` (every kind), then `chain` with `record` and `operator_records`
(the journal), `committed_offset` (the group's offsets), `contents`, `missing_rows`,
`unlisted_blocks` and `writes` (ClickHouse). The verifier shares record formats with the relay and
none of its judgement.
"""

# pure
