"""Settings of an app whose servers nobody reaches, for tests that put others in their place."""

from __future__ import annotations

from relay.config.settings import Settings


def settings(app: str, **source: str) -> Settings:
    """Of an app that reads the topic `source`, with more settings of it."""
    return Settings.model_validate(
        {
            "app": app,
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "source": {"topic": "source", **source},
            "clickhouse": {"url": "http://127.0.0.1:1"},
            "loader": {"checkpoint": "/nowhere"},
        }
    )
