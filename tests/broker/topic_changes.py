"""Changes settings of a topic, as Kafka's own tool does beside running programs."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, not in __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.broker.pipeline import wait_until


def set_topic(admin: AdminClient, topic: str, **values: object) -> None:
    """Set them, and wait until the broker says so; `_` in a name stands for a dot.

    Raises:
        KafkaException: it refuses them.
    """
    dotted = {name.replace("_", "."): str(value) for name, value in values.items()}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in dotted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)

    def done() -> bool:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        now = admin.describe_configs([asked])[asked].result(30)
        return all(now[name].value == value for name, value in dotted.items())

    wait_until(done, f"settings of {topic}")
