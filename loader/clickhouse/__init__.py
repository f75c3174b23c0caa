"""Ask ClickHouse: the ledger, the target tables, and the evidence for each INSERT.

In come table names and block ids; out come the values that `loader.core.plan` decides by.

Read `client` and `ledger` (with `ledger_table`) first, then `tables` (which `table_cache` remembers
for a moment; its SQL is in `table_state_sql`), `tables_behind`, `replica_lag`, `running_statements`
and `server_records` (the evidence).
"""
