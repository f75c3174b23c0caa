from __future__ import annotations

from tests.broker.conftest import pipeline

__all__ = ["pipeline"]
