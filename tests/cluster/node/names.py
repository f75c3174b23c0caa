"""DNS for pods: the API server, and the pods of headless Services, as the API server knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.error import HTTPError

from dnslib import QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

from tests.cluster.node.namespaces import API_SERVER, DNS

if TYPE_CHECKING:
    from tests.cluster.control_plane import ControlPlane

DOMAIN = "cluster.local"
_TTL_SECONDS = 5


class Names(BaseResolver):  # type: ignore[misc] # dnslib ships no types
    """Answers questions about names of Services and their pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def resolve(self, request: DNSRecord, handler: object) -> DNSRecord:
        """The addresses of a name; none where nobody has it."""
        del handler
        reply = request.reply()
        addresses = self._addresses(str(request.q.qname).lower().rstrip("."))
        if not addresses:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            for address in addresses:
                reply.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=_TTL_SECONDS))
        return reply

    def _addresses(self, host: str) -> list[str]:
        parts = host.removesuffix(f".{DOMAIN}").split(".")
        if parts == ["kubernetes", "default", "svc"]:
            return [API_SERVER]
        if len(parts) not in {3, 4} or parts[-1] != "svc":
            return []
        *pod, service, namespace, _ = parts
        within = f"/api/v1/namespaces/{namespace}"
        try:
            selector = self._plane.ask("GET", f"{within}/services/{service}")["spec"]["selector"]
        except (HTTPError, KeyError):  # there is none, or it has no pods
            return []
        return [
            one["status"]["podIP"]
            for one in self._plane.ask("GET", f"{within}/pods")["items"]
            if one["status"].get("podIP")
            and selector.items() <= one["metadata"].get("labels", {}).items()
            and pod in ([], [one["spec"].get("hostname")])
        ]


def serve(plane: ControlPlane) -> None:
    """Answer in threads of this process, until it ends."""
    DNSServer(Names(plane), address=DNS, port=53, logger=DNSLogger("error")).start_thread()
