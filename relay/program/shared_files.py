"""Files of the repository that are no Python: documents, manifests, rules, dashboard.

Receives a path from the repository's root, gives where it is: in a checkout there, in an installed
package where relay.program.shared_build has copied it.
"""

from __future__ import annotations

from pathlib import Path

import relay

ROOT = Path(relay.__file__).resolve().parents[1]
"""The repository, or the directory that the package is installed in."""
_SHARED = "relay/shared"


def path_of(path: str, root: Path = ROOT) -> Path | None:
    """Return where a file or directory is; None where it is neither here nor installed."""
    places = (root / path, root / _SHARED / path)
    return next((place for place in places if place.exists()), None)
