"""What a person recorded by `relay rewind` or `relay accept`: its kinds, and in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from relay.records_pb2 import Commit

REWIND = "rewind"
ACCEPTED = ("retention", "topic", "truncated", "epoch", "offsets")
"""What `relay accept` takes note of."""
OTHER = "other"
"""What no release of the program accepts; the verifier names it as an anomaly besides."""


def kinds(commit: Commit) -> tuple[str, ...]:
    """Return what a person acknowledged in this record; empty where no person wrote it."""
    if commit.HasField("rewind"):
        return (REWIND,)
    accepted = sorted({kind if kind in ACCEPTED else OTHER for kind in commit.accept.kinds})
    return tuple(accepted) or ((OTHER,) if commit.HasField("accept") else ())


def describe(partition: int, commit: Commit) -> str:
    """Say it on one line, with place, time and reason."""
    place = f"partition {partition}, n={commit.n}, {utc(commit.written_at_ms)}"
    return f"{place}: {'; '.join(parts(commit))}"


def parts(commit: Commit) -> Iterator[str]:
    """Yield what was done, with which values, and why; nothing where no person wrote it."""
    if commit.HasField("rewind"):
        rewind = commit.rewind
        starts = ", ".join(f"{s.table or '(no table)'} from {s.offset}" for s in rewind.starts)
        yield f"rewound from {commit.previous_floor}: {starts}"
        if rewind.kept:
            yield f"old rows kept in {', '.join(rewind.kept)}"
        yield f"why: {rewind.why or 'not said'}"
    if commit.HasField("accept"):
        accept = commit.accept
        yield f"accepted {', '.join(accept.kinds)}: {accept.found}"
        yield f"floor {commit.previous_floor} became {commit.floor}"
        yield f"why: {accept.why or 'not said'}"


def utc(ms: int) -> str:
    """Return a Unix time in milliseconds as people read it."""
    try:
        instant = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged record may hold any number
        return f"{ms} ms"
    return f"{instant.replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"
