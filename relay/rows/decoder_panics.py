"""ptars' decoder, with its panics as errors.

A length near 2^64 overflows in ptars 0.0.25, which then panics: no Exception in Python, so
that one such message would end the relay. Nothing of a panic stays behind: every call builds
its columns anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def decoded(handler: Any, messages: Any) -> pa.RecordBatch:
    """Serialized messages (no nulls) as columns.

    Args:
        handler: of ptars, for their type.
        messages: a binary array.

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
