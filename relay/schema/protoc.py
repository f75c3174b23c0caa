"""Compiles a `.proto` file to descriptors, by protoc itself.

Receives a path, gives its row message and what stands behind the fields. protoc comes with
grpcio-tools, so that whatever a producer compiles is understood here as it is there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor

from relay.errors import ConfigError

_SECONDS = 60
_BATCH, _ROW = "RowBatch", "Row"
_MESSAGES = descriptor_pb2.FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_FIELDS = descriptor_pb2.DescriptorProto.FIELD_FIELD_NUMBER


def row_message(path: Path, name: str | None = None) -> Descriptor:
    """Return the row message of a file.

    Args:
        path: of the file; what it imports is looked for beside it.
        name: of the message, in the file's package. Default: what `RowBatch` holds, else `Row`.

    Raises:
        ConfigError: protoc does not take the file, or there is no such message in it.
    """
    return _find_row(path, _pool(_compile(path)), name)


def commented_row(path: Path) -> tuple[Descriptor, dict[int, str]]:
    """Return a file's row message, and what the file says behind its fields, by their numbers.

    Args, Raises: as `row_message`.
    """
    files = _compile(path)
    row = _find_row(path, _pool(files), None)
    return row, next(_read_comments(file, row.name) for file in files if file.name == row.file.name)


def _find_row(path: Path, file: FileDescriptor, name: str | None) -> Descriptor:
    messages = file.message_types_by_name
    if name is not None:
        if name in messages:
            return messages[name]
    elif _BATCH in messages:
        batch: Descriptor = messages[_BATCH]
        rows = batch.fields_by_number.get(1)
        if rows is not None and rows.is_repeated and rows.message_type is not None:
            return rows.message_type
        raise ConfigError(
            f"{path}: RowBatch has no `repeated Row rows = 1`",
            "name the row message with --message",
        )
    elif _ROW in messages:
        return messages[_ROW]
    known = ", ".join(messages) or "none"
    raise ConfigError(
        f"{path}: no message {name or f'{_BATCH} or {_ROW}'} (messages: {known})",
        "name the row message with --message",
    )


def _compile(path: Path) -> list[descriptor_pb2.FileDescriptorProto]:
    with tempfile.TemporaryDirectory(prefix="block-relay-") as scratch:
        output = Path(scratch) / "descriptors"
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{path.parent or '.'}"),
            *("--include_imports", "--include_source_info"),
            *(f"--descriptor_set_out={output}", str(path)),
        ]
        done = subprocess.run(  # noqa: S603 - our interpreter, and paths as single arguments
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode != 0:
            said = done.stderr.strip() or f"protoc ended with status {done.returncode}"
            raise ConfigError(f"protoc refuses {path}:\n{said}")
        return [*descriptor_pb2.FileDescriptorSet.FromString(output.read_bytes()).file]


def _pool(files: Sequence[descriptor_pb2.FileDescriptorProto]) -> FileDescriptor:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    return pool.FindFileByName(files[-1].name)


def _read_comments(file: descriptor_pb2.FileDescriptorProto, message: str) -> dict[int, str]:
    """What stands behind the fields of a message that no other message is around."""
    names = [nested.name for nested in file.message_type]
    if message not in names:
        return {}
    at = names.index(message)
    fields = file.message_type[at].field
    own: dict[tuple[int, ...], int] = {
        (_MESSAGES, at, _FIELDS, index): field.number for index, field in enumerate(fields)
    }
    return {
        own[tuple(place.path)]: place.trailing_comments
        for place in file.source_code_info.location
        if tuple(place.path) in own and place.trailing_comments
    }
