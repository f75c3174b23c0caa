"""Keep `from relay.producer import RowProducer` working; it is `relay.produce.RowProducer` now."""

from __future__ import annotations

import warnings

from relay.produce import RowProducer

__all__ = ["RowProducer"]

warnings.warn(
    "relay.producer has moved: use `from relay.produce import RowProducer`",
    DeprecationWarning,
    stacklevel=2,
)
