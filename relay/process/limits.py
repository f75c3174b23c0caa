"""The core's limits, in its units, of an app's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relay.core.state import SealingLimits

if TYPE_CHECKING:
    from relay.config.settings import Settings


def limits(settings: Settings) -> SealingLimits:
    """Convert an app's settings to the core's limits and units."""
    block, relay = settings.block, settings.relay
    return SealingLimits(
        app=settings.app,
        max_bytes=block.max_bytes,
        max_rows=block.max_rows,
        max_decoded_bytes=block.max_decoded_bytes,
        max_age_ms=round(block.max_age_seconds * 1000),
        table_max_age_ms={t: round(b.max_age_seconds * 1000) for t, b in block.tables.items()},
        max_per_second=block.max_per_second,
        commit_interval_ms=round(relay.commit_interval_seconds * 1000),
        max_buffer_bytes=relay.max_buffer_bytes,
        transaction_timeout_ms=round(relay.transaction_timeout_seconds * 1000),
        max_reread=relay.max_reread,
        flush_point_interval_ms=round(relay.flush_point_interval_seconds * 1000),
        keepalive_ms=round(relay.journal_keepalive_seconds * 1000),
    )
