"""Provide what every long-running program and command has, whatever it does.

In come settings and facts about a process; out go exit statuses, HTTP answers, tables for people.
Nothing here knows Kafka, ClickHouse or the relay.

Read `command` first (errors become messages and exit statuses), then `waiting` (signals, back-off),
`supervision` (restart policy of child processes), `serving`, `health` and `metric` (the HTTP
endpoints), `console`, `text_table` and `plural` (output for people), `json_output` (for programs).
"""
