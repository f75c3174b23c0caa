"""What differs from one version of ClickHouse to the next, as far as the doctor needs it; pure.

`python -m tests.versions` runs the loader's guards on each of these;
relay/docs/clickhouse-versions.md has the table.
"""

# pure

from __future__ import annotations

import re

OLDEST = (25, 8)
"""The oldest version on which the loader's guards were run."""
FREE_INPUT = (26, 5)
"""From here on `input()` needs no right of its own."""

Version = tuple[int, int]
"""As 26.3: what comes behind it changes no right and no setting."""


def parsed(text: str) -> Version | None:
    """Return the version in `26.3.9.1`, `v26.3` or the like; None where there is none."""
    found = re.match(r"v?(\d+)\.(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else None


def version_text(version: Version) -> str:
    """Write a version as people do."""
    return f"{version[0]}.{version[1]}"
