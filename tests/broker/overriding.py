"""Client settings with other values, for relays that lack a guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relay.config import kafka_clients

if TYPE_CHECKING:
    from collections.abc import Callable

    from relay.config.settings import Settings


def overriding(name: str, **values: Any) -> None:
    """Replace a function of kafka_settings by one whose answer has other values."""
    original: Callable[[Settings], dict[str, Any]] = getattr(kafka_clients, name)
    keys = {key.replace("_", "."): value for key, value in values.items()}
    setattr(kafka_clients, name, lambda settings: {**original(settings), **keys})
