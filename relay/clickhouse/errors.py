"""ClickHouse's error codes, each with what it is about. Pure.

The loader decides by it whether a block parks, stands aside or waits; the relay, whether it waits
for the server or ends. Numbers and names are ClickHouse's (src/Common/ErrorCodes.cpp); a test asks
the server for each name. A code that is not listed is UNKNOWN, and its block stands aside: it holds
up nothing, is tried again, and people see it. To park it would leave blocks to people after an
outage that ended by itself; to wait for it would stop every other table.
"""

# pure

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class About(StrEnum):
    """What an error is about, which says who else has it and what ends it."""

    BLOCK = "block"
    """The block's values or shape: the same at every try, and no other block has it. It parks."""
    SIZE = "size"
    """What one statement may use. Another block of the table may do with less, and the limit may be
    raised: the block stands aside alone, and is tried again."""
    TABLE_NOW = "table now"
    """The table takes no rows just now; it will by itself. A few tries, then its blocks stand
    aside."""
    TABLE = "table"
    """The table takes no rows until somebody changes table or rights. Its blocks stand aside at
    once."""
    USER = "user"
    """ClickHouse does not let this user in, or not with what every statement needs."""
    SERVER = "server"
    """The server, its disks, memory, network or Keeper: every table has it, and waits."""
    CONNECTION = "connection"
    """What the client learned when it connected is no longer true: it connects again."""
    UNKNOWN = "unknown"
    """Not listed here. The block stands aside alone, and is tried again; trials of its messages say
    whether some of them are to blame."""


EITHER = frozenset({32, 33, 36, 43})
"""About a value where the table takes other messages of the block; else about the table.

BAD_ARGUMENTS; ILLEGAL_TYPE_OF_ARGUMENT, as a Dynamic or JSON column has each value's own type; and
the end of a text, or that of a connection or a file that a view reads."""
UNKNOWN_COLUMNS = frozenset({10, 16, 47})
"""NOT_FOUND_COLUMN_IN_BLOCK, NO_SUCH_COLUMN_IN_TABLE and UNKNOWN_IDENTIFIER."""
PASSING = frozenset({About.SERVER, About.TABLE_NOW, About.SIZE})
"""What may be over at the next try, though nobody has changed anything."""
RAISE_THE_LIMIT = "raise that limit in the settings of this user's profile, or set it to 0"
"""The next step after an error that is About.SIZE."""
RIGHTS = frozenset({164, 497})
"""READONLY and ACCESS_DENIED, which are about one table where its own statement meets them."""

OF_ONE_REPLICA = frozenset({225, 242, 244, 289, 416, 568, 667, 999})
"""What another replica may not have: this one has lost Keeper, or lags behind."""


class Code(NamedTuple):
    """One of them."""

    number: int
    name: str
    about: About
    why: str


def _of(about: About, *codes: tuple[int, str, str]) -> list[Code]:
    return [Code(number, name, about, why) for number, name, why in codes]


_BLOCK = _of(
    About.BLOCK,
    (6, "CANNOT_PARSE_TEXT", "a value cannot be read as the column's current type"),
    (25, "CANNOT_PARSE_ESCAPE_SEQUENCE", "as 6"),
    (26, "CANNOT_PARSE_QUOTED_STRING", "as 6"),
    (27, "CANNOT_PARSE_INPUT_ASSERTION_FAILED", "as 6"),
    (
        32,
        "ATTEMPT_TO_READ_AFTER_EOF",
        "as 6: a text ends too early; or the connection or file that a DEFAULT or a view reads",
    ),
    (33, "CANNOT_READ_ALL_DATA", "as 32"),
    (38, "CANNOT_PARSE_DATE", "as 6"),
    (41, "CANNOT_PARSE_DATETIME", "as 6"),
    (72, "CANNOT_PARSE_NUMBER", "as 6"),
    (130, "CANNOT_READ_ARRAY_FROM_TEXT", "as 6"),
    (376, "CANNOT_PARSE_UUID", "as 6"),
    (467, "CANNOT_PARSE_BOOL", "as 6"),
    (563, "CANNOT_READ_MAP_FROM_TEXT", "as 6"),
    (675, "CANNOT_PARSE_IPV4", "as 6"),
    (676, "CANNOT_PARSE_IPV6", "as 6"),
    (19, "SIZE_OF_FIXED_STRING_DOESNT_MATCH", "a value is longer than its FixedString"),
    (131, "TOO_LARGE_STRING_SIZE", "as 19"),
    (128, "TOO_LARGE_ARRAY_SIZE", "an array of the block is longer than the server reads"),
    (190, "SIZES_OF_ARRAYS_DONT_MATCH", "arrays of one Nested column differ in length"),
    (53, "TYPE_MISMATCH", "a value has no place in the column's type"),
    (69, "ARGUMENT_OUT_OF_BOUND", "a DEFAULT, a key or a view cannot compute with a value"),
    (70, "CANNOT_CONVERT_TYPE", "a value does not fit the column's current type"),
    (321, "VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE", "as 70"),
    (349, "CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN", "the column was Nullable when it was sealed"),
    (691, "UNKNOWN_ELEMENT_OF_ENUM", "the Enum has lost the value"),
    (153, "ILLEGAL_DIVISION", "an expression of the table divides by a value that is 0"),
    (407, "DECIMAL_OVERFLOW", "an expression of the table overflows with a value"),
    (395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO", "throwIf in the table or a view refused a value"),
    (469, "VIOLATED_CONSTRAINT", "a row violates a CHECK of the table or of a view's"),
    (117, "INCORRECT_DATA", "the server cannot read the values that were sent"),
    (248, "INVALID_PARTITION_VALUE", "no partition id can be computed from a value"),
    (12, "PARAMETER_OUT_OF_BOUND", "as 69"),
    (135, "ZERO_ARRAY_OR_TUPLE_INDEX", "an expression of the table takes an index from a value"),
    (427, "CANNOT_COMPILE_REGEXP", "an expression of the table takes a pattern from a value"),
    (454, "OPENSSL_ERROR", "an expression of the table cannot decrypt a value"),
    (
        36,
        "BAD_ARGUMENTS",
        "as 69; where it meets every message, or the only one, of a block, it may be the table",
    ),
)
_SIZE = _of(
    About.SIZE,
    (158, "TOO_MANY_ROWS", "a limit of the user's profile on one statement"),
    (160, "TOO_SLOW", "as 158"),
    (307, "TOO_MANY_BYTES", "as 158"),
    (396, "TOO_MANY_ROWS_OR_BYTES", "as 158"),
    (191, "SET_SIZE_LIMIT_EXCEEDED", "as 158"),
)
_TABLE_NOW = _of(
    About.TABLE_NOW,
    (242, "TABLE_IS_READ_ONLY", "its replica lost the connection to Keeper, or was stopped"),
    (
        252,
        "TOO_MANY_PARTS",
        "merges are behind; an error about partitions is recognised by its text",
    ),
    (286, "UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE", "the previous INSERT into it has no quorum yet"),
    (384, "PART_IS_TEMPORARILY_LOCKED", "one of its parts is being moved"),
    (
        86,
        "RECEIVED_ERROR_FROM_REMOTE_IO_SERVER",
        "what a dictionary of a DEFAULT, or a view, reads is unavailable",
    ),
    (410, "EXTERNAL_SERVER_IS_NOT_RESPONDING", "as 86"),
    (510, "CACHE_DICTIONARY_UPDATE_FAIL", "as 86"),
    (614, "POSTGRESQL_CONNECTION_FAILURE", "as 86"),
    (692, "TOO_MANY_MUTATIONS", "its mutations are behind"),
    (722, "ASYNC_LOAD_WAIT_FAILED", "the server has started, but not loaded this table yet"),
    (733, "TABLE_IS_BEING_RESTARTED", "somebody restarts its replica"),
    (738, "PART_IS_LOCKED", "as 384"),
)
_TABLE = _of(
    About.TABLE,
    (
        60,
        "UNKNOWN_TABLE",
        "the table, or one that a view behind it writes to, was dropped or renamed",
    ),
    (81, "UNKNOWN_DATABASE", "as 60"),
    (218, "TABLE_IS_DROPPED", "as 60"),
    (164, "READONLY", "this user may not write there"),
    (291, "DATABASE_ACCESS_DENIED", "as 164"),
    (
        482,
        "DICTIONARY_ACCESS_DENIED",
        "a DEFAULT or a view reads a dictionary that this user may not read",
    ),
    (497, "ACCESS_DENIED", "a right on it, or on what a view behind it reads, is missing"),
    (10, "NOT_FOUND_COLUMN_IN_BLOCK", "a view behind it does not fit its target"),
    (16, "NO_SUCH_COLUMN_IN_TABLE", "as 10"),
    (20, "NUMBER_OF_COLUMNS_DOESNT_MATCH", "as 10"),
    (
        43,
        "ILLEGAL_TYPE_OF_ARGUMENT",
        "as 10: an expression does not fit a column's type, or a value's in a Dynamic or JSON one",
    ),
    (46, "UNKNOWN_FUNCTION", "an expression names something that this server does not have"),
    (47, "UNKNOWN_IDENTIFIER", "as 10"),
    (50, "UNKNOWN_TYPE", "this server, perhaps an older one, does not have a column's type"),
    (122, "INCOMPATIBLE_COLUMNS", "as 10"),
    (1, "UNSUPPORTED_METHOD", "its engine takes no INSERT"),
    (48, "NOT_IMPLEMENTED", "as 1"),
    (344, "SUPPORT_IS_DISABLED", "it needs a setting that this user has not"),
    (
        156,
        "DICTIONARIES_WAS_NOT_LOADED",
        "a DEFAULT or a view reads a dictionary that does not exist",
    ),
    (754, "UDF_EXECUTION_FAILED", "a DEFAULT or a view calls a program that fails"),
    (764, "DEDUPLICATION_IS_NOT_POSSIBLE", "this server cannot keep tokens for its INSERTs"),
    (774, "TABLE_IS_PERMANENTLY_READ_ONLY", "its storage cannot be written to"),
    (1016, "TABLE_SIZE_LIMIT_EXCEEDED", "it has reached its size limit"),
)
_UNKNOWN_USER = _of(
    About.USER,
    (192, "UNKNOWN_USER", "the name is wrong, or the user was dropped"),
    (193, "WRONG_PASSWORD", "the password was changed"),
    (194, "REQUIRED_PASSWORD", "a password is missing"),
    (195, "IP_ADDRESS_NOT_ALLOWED", "the user may not come from this host"),
    (516, "AUTHENTICATION_FAILED", "as 192 and 193, which newer servers do not tell apart"),
    (720, "USER_EXPIRED", "as 192"),
    (767, "REQUIRED_SECOND_FACTOR", "a program has none"),
)
UNKNOWN_USERS = frozenset(code.number for code in _UNKNOWN_USER)
"""By these a server does not let a user in."""
_PROFILE = _of(
    About.USER,
    (
        452,
        "SETTING_CONSTRAINT_VIOLATION",
        "the user's profile forbids a setting that the loader needs",
    ),
    (472, "READONLY_SETTING", "as 452"),
)
_SERVER = _of(
    About.SERVER,
    (74, "CANNOT_READ_FROM_FILE_DESCRIPTOR", "a disk fails"),
    (75, "CANNOT_WRITE_TO_FILE_DESCRIPTOR", "a disk became full while a part was written"),
    (76, "CANNOT_OPEN_FILE", "no file descriptor is left, or a disk is unavailable"),
    (172, "CANNOT_CREATE_DIRECTORY", "as 75"),
    (204, "CANNOT_FSYNC", "as 74"),
    (243, "NOT_ENOUGH_SPACE", "a disk is full; a time that is too short is recognised by its text"),
    (294, "CANNOT_WRITE_TO_FILE", "as 75"),
    (400, "CANNOT_STAT", "as 74"),
    (531, "CANNOT_FSTAT", "as 74"),
    (586, "CANNOT_CREATE_FILE", "as 75"),
    (499, "S3_ERROR", "object storage is unavailable or slow"),
    (500, "AZURE_BLOB_STORAGE_ERROR", "as 499"),
    (660, "HDFS_ERROR", "as 499"),
    (693, "AWS_ERROR", "as 499"),
    (707, "GCP_ERROR", "as 499"),
    (737, "GOOGLE_CLOUD_ERROR", "as 499"),
    (900, "DISTRIBUTED_CACHE_ERROR", "the cache in front of object storage is unavailable"),
    (903, "DISTRIBUTED_CACHE_REGISTRY_SHUTDOWN", "as 900"),
    (905, "DISTRIBUTED_CACHE_SERVER_IN_BACKOFF", "as 900"),
    (173, "CANNOT_ALLOCATE_MEMORY", "the machine has no memory left"),
    (
        241,
        "MEMORY_LIMIT_EXCEEDED",
        "a memory limit of server or user; one of a statement is recognised by its text",
    ),
    (778, "MEMORY_RESERVATION_FAILED", "as 241"),
    (777, "MEMORY_RESERVATION_KILLED", "as 241"),
    (1020, "MEMORY_RESERVATION_ACQUISITION_TIMEOUT", "as 241"),
    (411, "PTHREAD_ERROR", "no thread could be started"),
    (425, "SYSTEM_ERROR", "the operating system refused a call"),
    (439, "CANNOT_SCHEDULE_TASK", "as 411"),
    (159, "TIMEOUT_EXCEEDED", "the server is slow, or a lock is held"),
    (473, "DEADLOCK_AVOIDED", "a lock is held: by an ALTER, for instance"),
    (201, "QUOTA_EXCEEDED", "the user's, until its interval ends"),
    (202, "TOO_MANY_SIMULTANEOUS_QUERIES", "other queries use the server up"),
    (203, "NO_FREE_CONNECTION", "as 202"),
    (364, "RECEIVED_ERROR_TOO_MANY_REQUESTS", "as 202"),
    (700, "USER_SESSION_LIMIT_EXCEEDED", "as 202"),
    (745, "SERVER_OVERLOADED", "as 202"),
    (749, "TCP_CONNECTION_LIMIT_REACHED", "as 202"),
    (762, "HTTP_CONNECTION_LIMIT_REACHED", "as 202"),
    (776, "RESOURCE_LIMIT_EXCEEDED", "as 202"),
    (1019, "QUERY_SLOT_ACQUISITION_TIMEOUT", "as 202"),
    (95, "CANNOT_READ_FROM_SOCKET", "a connection broke"),
    (96, "CANNOT_WRITE_TO_SOCKET", "as 95"),
    (198, "DNS_ERROR", "host names cannot be resolved at the moment"),
    (209, "SOCKET_TIMEOUT", "as 95"),
    (210, "NETWORK_ERROR", "as 95"),
    (279, "ALL_CONNECTION_TRIES_FAILED", "as 95"),
    (
        1000,
        "POCO_EXCEPTION",
        "an unforeseen error of network or disk; one of a request's size is recognised by its text",
    ),
    (1001, "STD_EXCEPTION", "as 1000; a lack of memory too"),
    (225, "NO_ZOOKEEPER", "Keeper is unavailable"),
    (244, "UNEXPECTED_ZOOKEEPER_ERROR", "as 225"),
    (568, "RAFT_ERROR", "as 225"),
    (999, "KEEPER_EXCEPTION", "as 225"),
    (254, "NO_ACTIVE_REPLICAS", "other replicas are unavailable"),
    (285, "TOO_FEW_LIVE_REPLICAS", "as 254: no quorum"),
    (289, "REPLICA_IS_NOT_IN_QUORUM", "this replica lags"),
    (319, "UNKNOWN_STATUS_OF_INSERT", "Keeper did not answer in time; the ledger decides"),
    (416, "REPLICA_STATUS_CHANGED", "as 225"),
    (236, "ABORTED", "the server shuts down"),
    (394, "QUERY_WAS_CANCELLED", "somebody killed the statement, or the server shuts down"),
    (677, "THREAD_WAS_CANCELED", "as 236"),
    (667, "NOT_INITIALIZED", "a replica has just started: its tables have not asked Keeper yet"),
    (695, "ASYNC_LOAD_FAILED", "the server has just started, and could not load its tables"),
    (696, "ASYNC_LOAD_CANCELED", "as 236: it shuts down while it starts"),
    (735, "QUERY_WAS_CANCELLED_BY_CLIENT", "the connection was lost"),
)
_CONNECTION = _of(
    About.CONNECTION,
    (115, "UNKNOWN_SETTING", "the server was replaced by one that knows fewer settings"),
)
_ALL = (_BLOCK, _SIZE, _TABLE_NOW, _TABLE, _UNKNOWN_USER, _PROFILE, _SERVER, _CONNECTION)
CODES = {code.number: code for codes in _ALL for code in codes}
"""By number; a test sees that no number stands twice."""

_PARTITIONS = re.compile(r"[Tt]oo many partitions")
_SHORT_TIME = re.compile(r"Unable to parse")
_DICTIONARY = re.compile(r"[Dd]ictionary")
_OF_ONE_QUERY = re.compile(r"[Qq]uery memory limit|\(for query\)|for query memory limit")
_FORM = re.compile(r"HTML Form Exception")
_FIXED = re.compile(r"Setting \w+ is readonly")
_CODE = re.compile(r"\bCode: (\d+)|error code (\d+)", re.IGNORECASE)


def number(text: str) -> int | None:
    """Return the code of an error's text; None where the server did not answer properly."""
    match = _CODE.search(text)
    return int(match[1] or match[2]) if match else None


def is_answer(error: BaseException | None) -> bool:
    """Return whether a server said no, rather than nothing; a stream that broke has only a text."""
    return getattr(error, "code", None) is not None or number(str(error)) is not None


def about(text: str, code: int | None = None) -> About:
    """Return what an error of this text or code is about; one without a code: the server."""
    code = number(text) if code is None else code
    if code is None:  # the client's own word, before the server is asked, or the network's
        return About.USER if _FIXED.match(text) else About.SERVER
    # Two meanings each. More partitions than one INSERT may write are as many at every try; a text
    # that ends before parseDateTime has all of its format has no space left, too; a dictionary that
    # is missing is missing for every row; a limit of one statement, or of its parameters
    # (http_max_field_value_size), leaves the server as it is.
    if (code == 252 and _PARTITIONS.search(text)) or (code == 243 and _SHORT_TIME.search(text)):
        return About.BLOCK
    if code == 36 and _DICTIONARY.search(text):
        return About.TABLE
    if code == 241 and _OF_ONE_QUERY.search(text):
        return About.SIZE
    if code == 1000 and _FORM.search(text):
        return About.SIZE
    return CODES[code].about if code in CODES else About.UNKNOWN


def may_be_a_value(text: str) -> bool:
    """Return whether an INSERT's error may be about some of its values: trials of them say it."""
    what = about(text)
    if what is About.BLOCK:
        return True
    # What a dictionary has in its cache it gives for some values, while its source is away.
    either = what is About.UNKNOWN or number(text) in EITHER
    return either and not _DICTIONARY.search(text)


def is_surely_a_value(text: str) -> bool:
    """Return whether a server's or a transform's (it has no code) refusal is about values."""
    code = number(text)
    return code is None or (about(text) is About.BLOCK and code not in EITHER)
