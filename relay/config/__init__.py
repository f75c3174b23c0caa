"""Read the TOML file and the environment into checked, immutable settings.

In comes a path; out comes one `Settings` for each pipeline, or one error that lists every problem.

Read `settings` and `server_settings` first: they hold every setting with its default and its
reason. `settings_file` loads a file, with `secrets`, `validation`, `checks` and `pipelines` behind
it. `kafka_clients` turns settings into librdkafka's, and `kafka_allowed` says which of those a user
may set. `allowed_tables` decides which tables may receive rows.
"""
