from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Block(_message.Message):
    __slots__ = ("id", "table", "topic", "partition", "first_offset", "next_offset", "chunks", "messages", "rows", "row_bytes", "crc32c", "first_source_offset", "next_source_offset", "schema_version", "opened_at_ms", "sealed_at_ms", "reason", "first_timestamp_ms", "left_out", "sealed_rows", "to_dead_letters", "source_topic", "source_topic_id", "share", "decoded_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    FIRST_SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SEALED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    SEALED_ROWS_FIELD_NUMBER: _ClassVar[int]
    TO_DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    DECODED_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    table: str
    topic: str
    partition: int
    first_offset: int
    next_offset: int
    chunks: int
    messages: int
    rows: int
    row_bytes: int
    crc32c: int
    first_source_offset: int
    next_source_offset: int
    schema_version: int
    opened_at_ms: int
    sealed_at_ms: int
    reason: str
    first_timestamp_ms: int
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOut]
    sealed_rows: int
    to_dead_letters: bool
    source_topic: str
    source_topic_id: str
    share: Share
    decoded_bytes: int
    def __init__(self, id: _Optional[str] = ..., table: _Optional[str] = ..., topic: _Optional[str] = ..., partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., chunks: _Optional[int] = ..., messages: _Optional[int] = ..., rows: _Optional[int] = ..., row_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ..., first_source_offset: _Optional[int] = ..., next_source_offset: _Optional[int] = ..., schema_version: _Optional[int] = ..., opened_at_ms: _Optional[int] = ..., sealed_at_ms: _Optional[int] = ..., reason: _Optional[str] = ..., first_timestamp_ms: _Optional[int] = ..., left_out: _Optional[_Iterable[_Union[LeftOut, _Mapping]]] = ..., sealed_rows: _Optional[int] = ..., to_dead_letters: _Optional[bool] = ..., source_topic: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., decoded_bytes: _Optional[int] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("partition", "first", "first_row")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    partition: int
    first: str
    first_row: int
    def __init__(self, partition: _Optional[int] = ..., first: _Optional[str] = ..., first_row: _Optional[int] = ...) -> None: ...

class LeftOut(_message.Message):
    __slots__ = ("offset", "rows", "reason")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    offset: int
    rows: int
    reason: str
    def __init__(self, offset: _Optional[int] = ..., rows: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DeadLetters(_message.Message):
    __slots__ = ("table", "messages", "first_source_offset", "next_source_offset", "reason", "kind")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_SOURCE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    table: str
    messages: int
    first_source_offset: int
    next_source_offset: int
    reason: str
    kind: str
    def __init__(self, table: _Optional[str] = ..., messages: _Optional[int] = ..., first_source_offset: _Optional[int] = ..., next_source_offset: _Optional[int] = ..., reason: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("table", "offset")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    table: str
    offset: int
    def __init__(self, table: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("app", "source_topic", "source_topic_id", "partition", "epoch", "n", "previous_floor", "floor", "position", "marks", "blocks", "dead", "reference", "count", "member", "written_at_ms", "flush_point", "rewind", "rewound", "accept", "source_partitions")
    APP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FLOOR_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_POINT_FIELD_NUMBER: _ClassVar[int]
    REWIND_FIELD_NUMBER: _ClassVar[int]
    REWOUND_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    app: str
    source_topic: str
    source_topic_id: str
    partition: int
    epoch: int
    n: int
    previous_floor: int
    floor: int
    position: int
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    dead: _containers.RepeatedCompositeFieldContainer[DeadLetters]
    reference: int
    count: int
    member: str
    written_at_ms: int
    flush_point: bool
    rewind: Rewind
    rewound: bool
    accept: Accept
    source_partitions: int
    def __init__(self, app: _Optional[str] = ..., source_topic: _Optional[str] = ..., source_topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., epoch: _Optional[int] = ..., n: _Optional[int] = ..., previous_floor: _Optional[int] = ..., floor: _Optional[int] = ..., position: _Optional[int] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ..., dead: _Optional[_Iterable[_Union[DeadLetters, _Mapping]]] = ..., reference: _Optional[int] = ..., count: _Optional[int] = ..., member: _Optional[str] = ..., written_at_ms: _Optional[int] = ..., flush_point: _Optional[bool] = ..., rewind: _Optional[_Union[Rewind, _Mapping]] = ..., rewound: _Optional[bool] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., source_partitions: _Optional[int] = ...) -> None: ...

class Rewind(_message.Message):
    __slots__ = ("starts", "kept", "why", "next_letter", "dead_topic_id")
    STARTS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    NEXT_LETTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    starts: _containers.RepeatedCompositeFieldContainer[Mark]
    kept: _containers.RepeatedScalarFieldContainer[str]
    why: str
    next_letter: int
    dead_topic_id: str
    def __init__(self, starts: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ..., kept: _Optional[_Iterable[str]] = ..., why: _Optional[str] = ..., next_letter: _Optional[int] = ..., dead_topic_id: _Optional[str] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("kinds", "found", "why", "next_letter", "dead_topic_id")
    KINDS_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    NEXT_LETTER_FIELD_NUMBER: _ClassVar[int]
    DEAD_TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    kinds: _containers.RepeatedScalarFieldContainer[str]
    found: str
    why: str
    next_letter: int
    dead_topic_id: str
    def __init__(self, kinds: _Optional[_Iterable[str]] = ..., found: _Optional[str] = ..., why: _Optional[str] = ..., next_letter: _Optional[int] = ..., dead_topic_id: _Optional[str] = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "type", "number", "dropped", "default_kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    number: int
    dropped: bool
    default_kind: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., number: _Optional[int] = ..., dropped: _Optional[bool] = ..., default_kind: _Optional[str] = ...) -> None: ...

class TableSchema(_message.Message):
    __slots__ = ("table", "version", "based_on", "columns", "uuid", "written_at_ms")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASED_ON_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    table: str
    version: int
    based_on: int
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    uuid: str
    written_at_ms: int
    def __init__(self, table: _Optional[str] = ..., version: _Optional[int] = ..., based_on: _Optional[int] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., uuid: _Optional[str] = ..., written_at_ms: _Optional[int] = ...) -> None: ...
