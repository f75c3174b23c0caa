"""Lists which librdkafka settings `kafka.client` may hold, which not and why, which are secret.

Pure tables; relay.config.checks asks them, relay.config.kafka_clients passes the rest through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OURS = "the relay and the loader set it themselves, because exactly-once depends on it"
_LOADS_CODE = "it loads program code into this process"
_OWNED_BY_REASON: Mapping[str, str] = {
    "set kafka.bootstrap": "bootstrap.servers metadata.broker.list",
    "set source.start": "auto.offset.reset",
    "set relay.session_timeout_seconds": "session.timeout.ms",
    "set relay.transaction_timeout_seconds": "transaction.timeout.ms message.timeout.ms "
    "delivery.timeout.ms",
    "write the keys of default.topic.config directly into kafka.client": "default.topic.config",
    "its value is made from app and relay.member": "group.id group.instance.id transactional.id",
    "the relay needs the classic protocol, which fences the old member; the newer protocol fences "
    "the new one": "group.protocol group.remote.assignor",
    "the relay must read committed offsets at every assignment": "partition.assignment.strategy",
    "the relay commits offsets only inside transactions": "enable.auto.commit auto.commit.enable "
    "auto.commit.interval.ms enable.auto.offset.store offset.store.method offset.store.path",
    "aborted records must never be read": "isolation.level",
    "a damaged record must never become a row": "check.crcs",
    "the relay creates its topics itself, with settings of its own": "allow.auto.create.topics",
    "every record must be written once, acknowledged by all in-sync replicas": "enable.idempotence "
    "enable.gapless.guarantee acks request.required.acks retries message.send.max.retries "
    "max.in.flight max.in.flight.requests.per.connection",
    "the relay counts deliveries before it commits a transaction": "delivery.report.only.error",
    _OURS: "enable.partition.eof logger",
}

OWNED: Mapping[str, str] = {
    key: reason for reason, keys in _OWNED_BY_REASON.items() for key in keys.split()
}
"""Settings that `kafka.client` must not hold, because correctness owns them, and why."""

DENIED: Mapping[str, str] = {
    "plugin.library.paths": _LOADS_CODE,
    "ssl.engine.location": _LOADS_CODE,
    "ssl.engine.id": _LOADS_CODE,
    "ssl.providers": _LOADS_CODE,
    "sasl.kerberos.kinit.cmd": "it runs a shell command",
    "enable.sasl.oauthbearer.unsecure.jwt": "its tokens are not signed: anybody could be anyone",
    "enable.ssl.certificate.verification": "anybody between client and broker could "
    "read and change all data; name the certificate authority in ssl.ca.location",
}
"""Settings that would make a configuration file run code, or take the protection away."""

SECRETS = frozenset({
    "sasl.password",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
})  # fmt: skip
"""Settings whose values are never shown."""

# librdkafka puts these into the text of a shell command (kinit) without quoting.
_INTO_SHELL = re.compile(r"sasl\.kerberos\.(keytab|principal|service\.name)")
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_@%.,:/+=-]*")


def refusal(key: str, value: object) -> str | None:
    """Return why `kafka.client` must not hold this setting; None if it may."""
    if key in OWNED:
        return f"not for kafka.client: {OWNED[key]}"
    if key in DENIED:
        return f"refused: {DENIED[key]}"
    if key.endswith("_cb"):
        return f"not for kafka.client: {_OURS}"
    if _INTO_SHELL.fullmatch(key) and not _SHELL_SAFE.fullmatch(str(value)):
        return (
            "refused: the value becomes part of a shell command and contains characters that a "
            "shell interprets"
        )
    return None
