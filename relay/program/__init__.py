"""Provide what every long-running program and command has, whatever it does.

In come settings and facts about a process; out go exit statuses, HTTP answers, tables for people.
Nothing here knows Kafka, ClickHouse or the relay.

Read `command` first (errors become messages and exit statuses), then `waiting` (signals, back-off),
`supervision` (restart policy of child processes), `serving`, `health` and `metric` (the HTTP
endpoints), `console`, `text_table`, `plural` and `spelling` (output for people), `json_output` (for
programs). `config_argument` finds the configuration file, `java` a Java, `monotonic` the time that
nobody sets; `shared_files` are what is no Python, which `shared_build` puts into the package.
"""
