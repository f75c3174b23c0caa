"""Talk to ClickHouse over HTTP, whoever asks: the relay, the loader, the verifier, the doctor.

In come settings; out come clients that notice cut answers, other replicas and replaced servers.

Read `errors` first: one table says for each ClickHouse error code whether the block, the table, the
rights or the server is at fault; `error_text` puts an error into words. `http_pool`, `replicas`,
`reconfigure` and `balancer` make the client, which sends `statement_settings` with every statement;
`insert_settings` and `dedup_trial` hold what an INSERT needs to be deduplicated, `replica_log` how
to ask whether a replica has made every ALTER. `quoting` writes names and texts in SQL,
`table_engine` reads a table's engine, TTLs and window, `removing_statements` which rows a recorded
statement removed, `table_keys` whether a table's keys may be others when the same messages are
inserted again, `hidden_rows` whether a row policy or a filter hides rows from the user.
"""
