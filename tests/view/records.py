"""Journal records made by hand, for the pure modules of relay.operate.view."""

from __future__ import annotations

from typing import Any

from relay.records_pb2 import Block, Commit, DeadLetters

APP = "shop"
TABLE = "d.t"


def block(first: int = 0, table: str = TABLE, partition: int = 0, **fields: Any) -> Block:
    """A block of 10 rows and 5 messages, sealed a second after its oldest message."""
    values: dict[str, Any] = {
        "messages": 5,
        "rows": 10,
        "row_bytes": 100,
        "chunks": 1,
        "first_offset": first,
        "next_offset": first + 1,
        "first_timestamp_ms": 1_000,
        "opened_at_ms": 1_500,
        "sealed_at_ms": 2_000,
        "reason": "age",
        **fields,
    }
    return Block(
        id=f"{APP}:{table}:{partition}:0:{first}",
        table=table,
        topic=f"{APP}.blocks.{table}",
        partition=partition,
        first_source_offset=first,
        next_source_offset=first + 5,
        **values,
    )


def commit(n: int, *blocks: Block, floor: int = 0, at_ms: int = 2_000, **fields: Any) -> Commit:
    """Record `n` of partition 0; position = floor unless told."""
    values: dict[str, Any] = {"position": floor, "member": "a", **fields}
    return Commit(
        app=APP,
        source_topic="rows",
        n=n,
        floor=floor,
        blocks=blocks,
        written_at_ms=at_ms,
        **values,
    )


def dead(table: str, messages: int, reason: str, kind: str = "") -> DeadLetters:
    return DeadLetters(
        table=table, messages=messages, reason=reason, kind=kind, next_source_offset=1
    )
