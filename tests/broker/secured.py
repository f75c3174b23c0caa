"""A broker with TLS, SCRAM and an authorizer, and TLS before ClickHouse's endpoint: both with
certificates of an authority made for the test."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import trustme
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from relay.dev.layout import HOST
from relay.operate.doctor.grants import CLUSTER
from tests.broker.authorized import Authorized, Right, authorized

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROPERTIES = """
listeners=PLAINTEXT://{{host}}:{{client}},CONTROLLER://{{host}}:{{controller}},SASL://{at}:{{sasl}}
advertised.listeners=PLAINTEXT://{{host}}:{{client}},SASL://{at}:{{sasl}}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.ssl.keystore.type=PEM
listener.name.sasl.ssl.keystore.location={keystore}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
allow.everyone.if.no.acl.found=false
"""


@dataclass(frozen=True)
class Certificates:
    """Files (PEM) of one authority.

    Attributes:
        ca: the authority's certificate.
        server: key and certificate of the address at which servers are reached.
        certificate: of a client.
        key: of that client.
    """

    ca: Path
    server: Path
    certificate: Path
    key: Path


def certificates(directory: Path, at: str = HOST) -> Certificates:
    """Made anew, for servers that are reached at this address."""
    authority = trustme.CA()
    made = Certificates(*(directory / f"{name}.pem" for name in ("ca", "server", "client", "key")))
    authority.cert_pem.write_to_path(made.ca)
    client = authority.issue_cert("client.example")
    client.cert_chain_pems[0].write_to_path(made.certificate)
    client.private_key_pem.write_to_path(made.key)
    server = authority.issue_cert(at)
    # Of all the ways to write a key, Kafka reads PKCS #8.
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(pem.bytes() for pem in server.cert_chain_pems)
    made.server.write_bytes(written + chain)
    return made


@contextlib.contextmanager
def secured(
    directory: Path, users: dict[str, str], properties: str = "", at: str = HOST, port: int = 0
) -> Iterator[tuple[Authorized, Certificates]]:
    """The broker, as long as the body runs; `users` are names and passwords, `properties` more.

    `at`, `port`: at which users come in; 0: a free one.
    """
    made = certificates(directory, at)
    properties = PROPERTIES.format(keystore=made.server, at=at) + properties
    with authorized(directory, properties, at, port) as server:
        set_passwords(server, users)
        yield server, made


def set_passwords(server: Authorized, users: dict[str, str]) -> None:
    """Make users, or change their passwords; `users` are names and passwords."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    wanted = [
        UserScramCredentialUpsertion(user, info, password.encode())
        for user, password in users.items()
    ]
    for future in server.admin.alter_user_scram_credentials(wanted).values():
        future.result(30)


def printed_rights(lines: Sequence[str]) -> list[Right]:
    """What the kafka-acls commands among the lines grant."""
    found = []
    for line in lines:
        tool, *words = shlex.split(line, comments=True) or [""]
        if tool != "kafka-acls":
            continue
        words.remove("--add")
        if "--cluster" in words:  # there is one, without a name
            words.insert(words.index("--cluster") + 1, CLUSTER)
        given = dict(zip(words[::2], words[1::2], strict=True))
        given.pop("--bootstrap-server")
        principal, operation = given.pop("--allow-principal"), given.pop("--operation")
        prefixed = given.pop("--resource-pattern-type", "literal") == "prefixed"
        ((kind, name),) = given.items()
        kind = "broker" if name == CLUSTER else kind.removeprefix("--")
        resource = ResourceType[kind.replace("-", "_").upper()]
        asked = AclOperation[re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()]
        found.append(Right(asked, resource, name, prefixed, principal))
    return found


@contextlib.contextmanager
def over_tls(url: str, made: Certificates, at: str = HOST, port: int = 0) -> Iterator[str]:
    """The address of a front that speaks TLS, asks for a client's certificate, and passes on.

    `at`, `port`: of its own; 0: a free one.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    context.load_cert_chain(made.server)
    context.verify_mode = ssl.CERT_REQUIRED
    behind = urlsplit(url)
    loop = asyncio.new_event_loop()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError, ssl.SSLError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection(behind.hostname, behind.port)
        with contextlib.suppress(asyncio.CancelledError):  # by `ended`
            await asyncio.gather(pump(reader, outer), pump(inner, writer))

    async def ended() -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, at, port, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"https://{at}:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.run_until_complete(ended())
        loop.close()
