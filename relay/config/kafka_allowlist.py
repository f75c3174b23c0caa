"""Which librdkafka settings `kafka.client` may hold, which not and why, and which are secret.

Pure tables; relay.config.checks asks them, relay.config.kafka_clients passes the rest through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_OURS = "the relay and the loader set it themselves, exactly-once depends on it"
_LOADS_CODE = "it loads program code into this process"
_OWNED_BY_REASON: Mapping[str, str] = {
    "set kafka.bootstrap": "bootstrap.servers metadata.broker.list",
    "set source.start": "auto.offset.reset",
    "set relay.session_timeout_seconds": "session.timeout.ms",
    "set relay.transaction_timeout_seconds": "transaction.timeout.ms message.timeout.ms "
    "delivery.timeout.ms",
    "write its keys straight into kafka.client": "default.topic.config",
    "it is named after app and relay.member": "group.id group.instance.id transactional.id",
    "the classic protocol fences the old member, the newer one the new": "group.protocol "
    "group.remote.assignor",
    "every assignment must read the committed floors anew": "partition.assignment.strategy",
    "floors are committed only inside transactions": "enable.auto.commit auto.commit.enable "
    "auto.commit.interval.ms enable.auto.offset.store offset.store.method offset.store.path",
    "aborted records must never be read": "isolation.level",
    "a damaged record must never become a row": "check.crcs",
    "topics are created with their own settings, or not at all": "allow.auto.create.topics",
    "every record is written once, acknowledged by all replicas in sync": "enable.idempotence "
    "enable.gapless.guarantee acks request.required.acks retries message.send.max.retries "
    "max.in.flight max.in.flight.requests.per.connection",
    "deliveries are counted before a transaction is committed": "delivery.report.only.error",
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
    "enable.sasl.oauthbearer.unsecure.jwt": "its tokens are unsigned, so anyone could be anyone",
    "enable.ssl.certificate.verification": "whoever stands between could read and change all; "
    "name the authority in ssl.ca.location",
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
        return "refused: it becomes part of a shell command and holds characters a shell reads"
    return None
