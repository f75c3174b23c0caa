"""Read the TOML file and the environment into checked, immutable settings.

In comes a path; out comes one `Settings` for each pipeline, or one error that lists every problem.

Read `settings` and `server_settings` first: they hold every setting with its default and its
reason. `settings_file` loads a file, with `secrets`, `validation`, `checks` and `pipelines` behind
it. `kafka_clients` turns settings into librdkafka's, and `kafka_allowlist` says which of those a
user may set. `topic_settings` holds those of the topics that relays create, and `allowed_tables`
decides which tables may receive rows.
"""

from __future__ import annotations

from pathlib import Path

from relay.config.settings import Settings


def load(path: Path) -> Settings:
    """Return the settings of the one app in a TOML file, for programs that use the library.

    Raises:
        ConfigError: lists everything that is wrong in the file.
    """
    from relay.config import settings_file  # noqa: PLC0415 - it brings the Kafka client

    return settings_file.load(path)
