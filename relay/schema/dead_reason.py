"""Why a source message could not become rows: its kind, the field it is about, and words.

Received by whoever finds a message bad; kept in its dead letter, counted by kind, shown to people.
The kind is written into records, so none of these names is ever changed or used for another kind.
"""

# pure

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self


class DeadKind(StrEnum):
    """Kinds of reasons, in the order in which a message meets them."""

    because: str
    next_step: str
    """What a person does about it."""

    def __new__(cls, name: str, because: str, next_step: str) -> Self:
        """Make a kind that is its name."""
        kind = str.__new__(cls, name)
        kind._value_, kind.because, kind.next_step = name, because, next_step
        return kind

    NO_TABLE = (
        "no-table",
        "no header `table` names `database.table` exactly once, in UTF-8 and plain identifiers",
        "correct the producer, or `source.topic`; replay with `--as-table`",
    )
    UNKNOWN_TABLE = (
        "unknown-table",
        "ClickHouse has no such table, or the relay's user may not see it",
        "create the table, then replay; if the name was wrong, replay with `--as-table`",
    )
    TABLE_REFUSED = (
        "table-refused",
        "the table is not among `source.tables`, is ClickHouse's own, or is a loader's ledger",
        "widen `source.tables`, then replay, or correct the producer",
    )
    UNSUPPORTED_TYPE = (
        "unsupported-type",
        "the table has a column whose type rows cannot carry, or no column that rows could fill",
        "change the column's type, then replay",
    )
    NO_BLOCK_TOPIC = (
        "no-block-topic",
        "the brokers refuse the table's block topic",
        "correct what the reason names, then replay",
    )
    NULL_VALUE = (
        "null-value",
        "the message has no value (a tombstone)",
        "correct the producer",
    )
    EMPTY_BATCH = (
        "empty-batch",
        "the message holds no row",
        "correct the producer",
    )
    NOT_A_BATCH = (
        "not-a-batch",
        "the value is another format than a RowBatch",
        "correct the producer, or `source.framing`",
    )
    TOO_MANY_ROWS = (
        "too-many-rows",
        "the message's rows take more than four times `block.max_decoded_bytes` as columns",
        "send fewer rows in a message; raise the setting, then replay",
    )
    UNREADABLE_ROW = (
        "unreadable-row",
        "a row's bytes are no protobuf message, or one that is nested too deep",
        "correct the producer",
    )
    WRONG_WIRE_TYPE = (
        "wrong-wire-type",
        "the producer's `.proto` has another type for a field",
        "`relay schema check` names every difference; correct the producer",
    )
    UNKNOWN_FIELD = (
        "unknown-field",
        "the producer writes a field that the table has no column for",
        "add the column, then replay, or set `source.unknown_fields`",
    )
    OUTDATED_FIELD = (
        "outdated-field",
        "the producer writes a column under the field number that it had before its type changed",
        "give the producer the new row message (`relay schema proto`)",
    )
    DOES_NOT_FIT = (
        "does-not-fit",
        "a value does not fit its column's type",
        "widen the column, then replay, or correct the producer",
    )
    UNEVEN_NESTED = (
        "uneven-nested",
        "the arrays of a Nested column have different lengths in a row",
        "correct the producer",
    )
    MISSING_VALUE = (
        "missing-value",
        "a row has no value for a column that needs one: EPHEMERAL and not Nullable",
        "correct the producer, or make the column Nullable, then replay",
    )
    ROW_TOO_LARGE = (
        "row-too-large",
        "a row is larger than the largest record that the table's block topic accepts",
        "raise the topic's `max.message.bytes`, then replay",
    )
    REJECTED = (
        "rejected",
        'the table, or `loader.transform`, refuses a row, and `loader.rejected` is "dead"',
        "correct the rule, then replay, or correct the producer",
    )
    UNKNOWN = (
        "unknown",
        "an earlier version wrote it without a kind, or a later one with a kind that is new",
        "read the reason",
    )

    @property
    def first_step(self) -> str:
        """What a person does who has no dead letter to replay."""
        return self.next_step.partition(", then replay")[0]

    @classmethod
    def read(cls, name: str) -> DeadKind:
        """Return the kind that a record names; UNKNOWN where it names none of these."""
        return _BY_NAME.get(name, cls.UNKNOWN)


_BY_NAME = {kind.value: kind for kind in DeadKind}


class DeadReason(NamedTuple):
    """Why one message could not become rows.

    Attributes:
        kind: by which dead letters are counted and chosen.
        text: for people; names row, column, value and range.
        field: that it is about: the column's name, or the number of a field of the row message;
            empty where it is about none.
    """

    kind: DeadKind
    text: str
    field: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def group(self) -> tuple[DeadKind, str]:
        """By which reasons are counted: kind and field, without this message's own values."""
        return self.kind, self.field
