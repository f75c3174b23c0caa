"""Ask ClickHouse: the ledger, the target tables, and the evidence for each INSERT.

In come table names and block ids; out come the values that `loader.core.plan` decides by.

Read `client` and `ledger` (with `ledger_table`) first, then `tables` (which `table_cache` remembers
for a moment; its SQL is in `table_state_sql`), `tables_behind`, `unseen_columns`, and the evidence:
`running_statements`, `server_records`, `unconfirmed_parts`, `replica_lag` and `forgotten_blocks`.
`servers` and `dedup_trial` are asked once, at the start.
"""
