"""librdkafka's own mock brokers, in this process and on loopback: errors on demand.

Receives what each request type shall be answered with; gives `bootstrap` to ordinary
clients. It knows no isolation and no last stable offset: good for what a client makes of an
error, never for a proof of exactly-once.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import confluent_kafka

if TYPE_CHECKING:
    from collections.abc import Sequence

DISCONNECT = -195
"""As an error code: the connection is closed instead of an answer."""
ALL_BROKERS = -1


class Api(IntEnum):
    """Request types, by their key in the protocol."""

    PRODUCE = 0
    METADATA = 3
    FIND_COORDINATOR = 10
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


_POINTER, _TEXT, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_INT, _SHORT = ctypes.c_int32, ctypes.c_int16
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "conf_new": (_POINTER,),
    "conf_set": (_INT, _POINTER, _TEXT, _TEXT, _POINTER, _SIZE),
    "new": (_POINTER, _INT, _POINTER, _TEXT, _SIZE),
    "destroy": (None, _POINTER),
    "mock_cluster_new": (_POINTER, _POINTER, _INT),
    "mock_cluster_destroy": (None, _POINTER),
    "mock_cluster_bootstraps": (_TEXT, _POINTER),
    "mock_topic_create": (_INT, _POINTER, _TEXT, _INT, _INT),
    "mock_push_request_errors_array": (None, _POINTER, _SHORT, _SIZE, ctypes.POINTER(_INT)),
    # The only variadic one: pairs of error and milliseconds follow.
    "mock_broker_push_request_error_rtts": (_INT, _POINTER, _INT, _SHORT, _SIZE),
    "mock_broker_set_rtt": (_INT, _POINTER, _INT, _INT),
    "mock_broker_set_down": (_INT, _POINTER, _INT),
    "mock_broker_set_up": (_INT, _POINTER, _INT),
    "mock_broker_decommission": (_INT, _POINTER, _INT),
    "mock_broker_remove_from_metadata": (_INT, _POINTER, _INT),
    "mock_coordinator_set": (_INT, _POINTER, _TEXT, _TEXT, _INT),
    "mock_partition_set_leader": (_INT, _POINTER, _TEXT, _INT, _INT),
    "mock_start_request_tracking": (None, _POINTER),
    "mock_get_requests": (ctypes.POINTER(_POINTER), _POINTER, ctypes.POINTER(_SIZE)),
    "mock_request_api_key": (_SHORT, _POINTER),
    "mock_request_destroy_array": (None, ctypes.POINTER(_POINTER), _SIZE),
}
"""Result and arguments of what is used of librdkafka, each name without `rd_kafka_`."""


class Cluster:
    """Mock brokers with ids 1..brokers; ended by `close` or with the `with` block.

    Raises (every method): RuntimeError with librdkafka's error code, where it refuses.
    """

    def __init__(self, brokers: int = 3) -> None:
        self.brokers = range(1, brokers + 1)
        self._library = _library()
        conf = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", None, 0)
        why = ctypes.create_string_buffer(512)
        self._client = self._library.rd_kafka_new(0, conf, why, len(why))
        if not self._client:
            raise RuntimeError(f"no client for the mock cluster: {why.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        self._library.rd_kafka_mock_start_request_tracking(self._cluster)
        name = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap: str = name.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the brokers and free what they hold; a second call does nothing."""
        cluster, self._cluster = self._cluster, None
        client, self._client = self._client, None
        if cluster is not None:
            self._library.rd_kafka_mock_cluster_destroy(cluster)
            self._library.rd_kafka_destroy(client)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """A topic with one replica on each broker."""
        self._do("topic_create", topic.encode(), partitions, len(self.brokers))

    def fail(self, api: Api, *codes: int) -> None:
        """Answer the next requests of this type with these codes, in order, on any broker."""
        array = (_INT * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(self._cluster, api, len(codes), array)

    def delay(self, api: Api, milliseconds: Sequence[int], broker: int, code: int = 0) -> None:
        """Let the next requests of this type to one broker wait this long for their answers."""
        pairs = [_INT(value) for ms in milliseconds for value in (code, ms)]
        self._do("broker_push_request_error_rtts", broker, api, len(milliseconds), *pairs)

    def slow_down(self, milliseconds: int, broker: int = ALL_BROKERS) -> None:
        """Delay every answer; 0 ends it."""
        self._do("broker_set_rtt", broker, milliseconds)

    def take_down(self, broker: int = ALL_BROKERS) -> None:
        """Close its connections and accept no new ones."""
        self._do("broker_set_down", broker)

    def bring_up(self, broker: int = ALL_BROKERS) -> None:
        self._do("broker_set_up", broker)

    def decommission(self, broker: int) -> None:
        """The broker is gone for good, connections and all."""
        self._do("broker_decommission", broker)

    def hide(self, broker: int) -> None:
        """Out of the metadata, while its connections live: clients let go of it themselves."""
        self._do("broker_remove_from_metadata", broker)

    def set_transaction_coordinator(self, transactional_id: str, broker: int) -> None:
        self._do("coordinator_set", b"transaction", transactional_id.encode(), broker)

    def set_group_coordinator(self, group: str, broker: int) -> None:
        self._do("coordinator_set", b"group", group.encode(), broker)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        self._do("partition_set_leader", topic.encode(), partition, broker)

    def requests(self) -> Counter[int]:
        """How many requests of each type arrived so far, lost ones included."""
        count = _SIZE()
        found = self._library.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        keys = Counter(
            self._library.rd_kafka_mock_request_api_key(found[i]) for i in range(count.value)
        )
        self._library.rd_kafka_mock_request_destroy_array(found, count)
        return keys

    def _do(self, name: str, *arguments: Any) -> None:
        # The mock's thread may miss the wake-up of an order right behind another one, and then
        # sleeps a second before it looks again. Nothing but that second depends on this pause.
        time.sleep(0.002)
        code = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if code != 0:
            raise RuntimeError(f"{name}{arguments}: error {code}")


def _library() -> Any:
    """The librdkafka that the installed confluent_kafka itself runs on, its functions typed."""
    beside = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(beside.glob("librdkafka-*.so*"))))
    for name, (result, *arguments) in SIGNATURES.items():
        # Older versions lack one or the other: whoever asks for it then is told.
        function = getattr(library, f"rd_kafka_{name}", None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
    return library
