"""Reads a message of the journal, and says where one is that is no journal record.

Receives a message's value and its place; gives the record, or an error that names the place.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from relay.errors import NEW_APP, ContractBroken
from relay.records_pb2 import Commit


def read(value: bytes, topic: str, partition: int, offset: int) -> Commit:
    """Return the record that a message of the journal holds.

    Raises:
        ContractBroken: it holds none.
    """
    try:
        return Commit.FromString(value)
    except DecodeError as error:
        raise no_record(topic, partition, offset) from error


def no_record(topic: str, partition: int, offset: int) -> ContractBroken:
    """Return what to raise where a message is no journal record: nobody may pass over it."""
    return ContractBroken(
        f"{topic}[{partition}] has a message at offset {offset} that is no journal record: "
        "another program wrote it",
        f"find out which, and take its right to write into {topic}; `relay verify` names each "
        f"such message. No relay and no loader passes over one: {NEW_APP}",
    )
