"""Guard ptars, the decoder, against messages that would end the process.

ptars 0.0.25 calls itself for every group that opens inside another, without a limit: half a
megabyte of nothing but openings overflows the stack and kills the process, again at every
start. The protobuf runtime stops at 100 levels. A length near 2^64 makes ptars panic, which is no
Exception in Python. Nothing of a panic stays behind: every call builds its columns anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError, Message

from relay.arrow.array_memory import offsets_of
from relay.schema.row_descriptor import row_descriptor
from relay.schema.types.proto_shape import ProtoField

SURELY_SHALLOW = 16_384
"""Levels that fit into any stack (of 8 MB, more than 60 000 did). A level takes a byte at least,
so that a smaller message needs no look, nor one with fewer bytes that could open a group."""


def refuse_deep(messages: pa.BinaryArray, message_class: type[Message]) -> None:
    """Refuse nothing where no message can overflow the decoder's stack.

    Args:
        messages: serialized, without nulls.
        message_class: theirs; Empty, to which every field is unknown, where only groups around
            their fields are looked for.

    Raises:
        ValueError: one is nested too deep, or too large to be sure and does not parse.
    """
    sizes = pc.binary_length(messages).to_numpy()
    if not (len(sizes) and sizes.max() > SURELY_SHALLOW):
        return
    offsets = offsets_of(messages)
    values: Any = messages.buffers()[2]
    data = np.frombuffer(values, np.uint8)
    for at in np.flatnonzero(sizes > SURELY_SHALLOW).tolist():
        held = data[offsets[at] : offsets[at + 1]]
        # Wire type 3, in the lowest bits of a tag's first byte.
        if np.count_nonzero(held & 7 == 3) <= SURELY_SHALLOW:
            continue
        try:
            message_class().ParseFromString(held.tobytes())
        except DecodeError as error:
            raise ValueError("it does not parse, or is nested too deep for protobuf") from error


def handler_of(fields: Sequence[ProtoField]) -> Any:
    """Return ptars' codec of a message with these fields."""
    descriptor = row_descriptor(fields, for_codec=True)
    return ptars.HandlerPool([descriptor.file]).get_for_message(descriptor)


def decode_messages(handler: Any, messages: Any) -> pa.RecordBatch:
    """Return serialized messages (a binary array without nulls) as columns.

    Raises:
        ValueError: a message does not parse.
    """
    try:
        batch: pa.RecordBatch = handler.array_to_record_batch(messages)
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise ValueError(f"failed to decode Protobuf message: {error}") from error
        raise
    return batch
