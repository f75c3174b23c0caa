"""The commands that fix findings, and values as people read them; pure text."""

# pure

from __future__ import annotations

import shlex

from relay.clickhouse.quoting import readable, readable_user
from relay.config.settings import Brokers
from relay.operate.doctor.facts import ClockOffset

CLOCK_SECONDS = 5.0
"""Clocks kept by NTP differ by far less; below this nothing depends on them."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def span(seconds: float) -> str:
    """Return a time as `7 d`, `90 min`, `0.25 s`: in the largest unit that it fills."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{seconds:.3g} s"


def clock_error(whose: str, clock: ClockOffset | None) -> str:
    """Return how far somebody's clock is off; empty: not known, or too little to matter."""
    if clock is None or abs(clock.ahead_seconds) - clock.within_seconds <= CLOCK_SECONDS:
        return ""
    way = "ahead of" if clock.ahead_seconds > 0 else "behind"
    off, within = span(abs(clock.ahead_seconds)), span(clock.within_seconds)
    return f"{whose} clock is {off} {way} ours (± {within})"


def set_topic(kafka: Brokers, topic: str, **values: object) -> str:
    """Return Kafka's command that sets these on a topic; `_` in a name stands for a dot."""
    pairs = ",".join(f"{name.replace('_', '.')}={value}" for name, value in values.items())
    return (
        f"kafka-configs --bootstrap-server {kafka.bootstrap} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {pairs}"
    )


def set_user(user: str, settings: str) -> str:
    """Return ClickHouse's statement that gives a user these settings besides those he has.

    Without MODIFY it would take away all others, and his profiles.
    """
    return f"ALTER USER {readable_user(user)} MODIFY SETTINGS {settings}"


def exempt(place: str, user: str) -> str:
    """Return what to do so that no policy hides rows of this table from the loader's user."""
    return (
        f"exempt the loader's user: ALTER ROW POLICY … ON {place} TO ALL EXCEPT "
        f"{readable_user(user)}, or change its settings profile"
    )


def set_brokers(*settings: tuple[str, object]) -> str:
    """Return what to do about settings that a running broker does not take."""
    pairs = ", ".join(f"{name}={value}" for name, value in settings)
    return f"set {pairs} in server.properties of every broker, and restart one after another"


def grant(kafka: Brokers, operation: str, kind: str, name: str, *, prefixed: bool = False) -> str:
    """Return Kafka's command that grants an operation (Read) to the user of kafka.client.

    The resource is of this kind (topic, group, transactional-id or cluster) and name; `prefixed`:
    all whose names begin so.
    """
    resource = "--cluster" if kind == "cluster" else f"--{kind} {shlex.quote(name)}"
    pattern = " --resource-pattern-type prefixed" if prefixed else ""
    return (
        f"kafka-acls --bootstrap-server {kafka.bootstrap} --add --allow-principal "
        f"{shlex.quote(principal(kafka))} --operation {operation} {resource}{pattern}"
    )


def principal(kafka: Brokers) -> str:
    """Return the user as the brokers name it, as far as the settings tell."""
    user = kafka.client.get("sasl.username")
    if user is not None:
        return f"User:{user}"
    protocol = str(kafka.client.get("security.protocol", "plaintext")).lower()
    return "User:ANONYMOUS" if protocol == "plaintext" else "User:<this client's>"


def alter(table: str, setting: str, value: int) -> str:
    """Return the statement that sets a table's setting."""
    return f"ALTER TABLE {readable(table)} MODIFY SETTING {setting} = {value}"
