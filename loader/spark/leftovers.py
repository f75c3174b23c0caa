"""Removes what an earlier driver left behind in this pod's name on Kubernetes.

Executors and their ConfigMaps belong to the driver's pod, and Kubernetes removes them with it. A
driver that is killed inside its container leaves both, for the pod stays: executors that no driver
knows, and one that is pending still, which takes a CPU later. Called before Spark asks for any,
so whatever belongs to this pod is of an earlier driver.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token and the API server's authority."""
EXECUTORS = "spark-role=executor"
"""The label that Spark gives to executors and their ConfigMaps."""
KINDS = ("pods", "configmaps")
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Api:
    """The API server, as a pod reaches it.

    Attributes:
        url: without a path.
        token: of the service account.
        context: for TLS; None: without.
    """

    url: str
    token: str
    context: ssl.SSLContext | None = None

    def ask(self, method: str, path: str) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises:
            OSError: no answer, or a refusal (urllib.error.HTTPError).
        """
        request = urllib.request.Request(f"{self.url}{path}", method=method)  # noqa: S310 - ours
        request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(  # noqa: S310 - as above
            request, timeout=_SECONDS, context=self.context
        ) as answer:
            content: dict[str, Any] = json.load(answer)
            return content


def in_pod(environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Api:
    """Return the API server of the cluster that this process runs in.

    Raises:
        OSError: no token is mounted.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    where = f"[{host}]" if ":" in host else host
    return Api(
        f"https://{where}:{port}",
        (account / "token").read_text(encoding="utf-8").strip(),
        ssl.create_default_context(cafile=str(account / "ca.crt")),
    )


def remove(api: Api, namespace: str, pod: str) -> list[str]:
    """Remove what an earlier driver left in this pod's name.

    Returns:
        The removed objects, as kind/name.

    Raises:
        OSError: the API server does not answer, or refuses.
    """
    within = f"/api/v1/namespaces/{namespace}"
    owner = api.ask("GET", f"{within}/pods/{pod}")["metadata"]["uid"]
    selector = urllib.parse.urlencode({"labelSelector": EXECUTORS})
    removed = []
    for kind in KINDS:
        listed = api.ask("GET", f"{within}/{kind}?{selector}")["items"]
        for name in owned(listed, owner):
            api.ask("DELETE", f"{within}/{kind}/{name}")
            removed.append(f"{kind}/{name}")
    return removed


def owned(listed: Iterable[Mapping[str, Any]], owner: str) -> list[str]:
    """Return the names of objects that belong to the pod of this uid and still exist."""
    return [
        item["metadata"]["name"]
        for item in listed
        if "deletionTimestamp" not in item["metadata"]
        and any(of["uid"] == owner for of in item["metadata"].get("ownerReferences", ()))
    ]
