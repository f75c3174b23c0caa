"""What a driver that was killed inside its container left behind is removed at the next start.

A server with TLS plays the API over objects as Spark 4.3 makes them: the real requests, token and
authority of a pod.
"""

from __future__ import annotations

import json
import ssl
import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trustme
from pyspark import SparkConf

from loader.spark import leftovers, session
from loader.spark.leftovers import in_pod, owned, remove

TOKEN = "of-the-account"
ME, OTHER = "uid-of-loader-0", "uid-of-another"


def made(name: str, role: str, owner: str | None, **more: str) -> dict[str, Any]:
    references = [] if owner is None else [{"kind": "Pod", "uid": owner}]
    meta = {"name": name, "labels": {"spark-role": role}, "ownerReferences": references}
    return {"metadata": {**meta, **more}}


class Played:
    """Its objects by kind; answers as the API server does, to the right token alone."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {
            "pods": [
                {"metadata": {"name": "loader-0", "uid": ME, "labels": {}}},
                made("exec-1", "executor", ME),
                made("exec-2", "executor", ME),
                made("exec-gone", "executor", ME, deletionTimestamp="2026-01-01T00:00:00Z"),
                made("exec-of-another", "executor", OTHER),
            ],
            "configmaps": [
                made("spark-exec-1-conf-map", "executor", ME),
                made("relay-config", "", None),
            ],
        }
        self.refuses: set[str] = set()

    def answer(self, method: str, target: str, token: str | None) -> tuple[int, Any]:
        url = urlsplit(target)
        namespace, kind, name = [*url.path.split("/")[4:], ""][:3]
        if token != f"Bearer {TOKEN}":
            return 401, {}
        if method in self.refuses or namespace != "shop":
            return 403, {"message": "forbidden"}
        found = [one for one in self.objects[kind] if one["metadata"]["name"] == name]
        if not name:
            (wanted,) = parse_qs(url.query)["labelSelector"]
            key, _, value = wanted.partition("=")
            every = self.objects[kind]
            return 200, {
                "items": [one for one in every if one["metadata"]["labels"].get(key) == value]
            }
        if method == "DELETE":
            self.objects[kind].remove(found[0])
        return 200, found[0]

    def names(self) -> set[str]:
        return {one["metadata"]["name"] for kind in self.objects.values() for one in kind}


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
def api(played: Played, tmp_path: Path) -> Iterator[leftovers.Api]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            status, body = played.answer(self.command, self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_DELETE = _answer  # noqa: N815 - the base's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    authority = trustme.CA()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    host, port = server.server_address[:2]
    there = {"KUBERNETES_SERVICE_HOST": str(host), "KUBERNETES_SERVICE_PORT": str(port)}
    yield in_pod(there, tmp_path)
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_what_belongs_to_this_pod_is_removed(api: leftovers.Api, played: Played) -> None:
    removed = remove(api, "shop", "loader-0")
    assert removed == ["pods/exec-1", "pods/exec-2", "configmaps/spark-exec-1-conf-map"]
    assert played.names() == {"loader-0", "exec-gone", "exec-of-another", "relay-config"}
    assert remove(api, "shop", "loader-0") == []


def test_another_pod_of_this_name_owns_nothing_of_them(api: leftovers.Api, played: Played) -> None:
    """A StatefulSet's pod that comes back has the name and another uid."""
    played.objects["pods"][0]["metadata"]["uid"] = "uid-of-its-successor"
    before = played.names()
    assert remove(api, "shop", "loader-0") == []
    assert played.names() == before


def test_what_has_no_owner_is_nobodys() -> None:
    assert owned([{"metadata": {"name": "x"}}], ME) == []


def test_a_refusal_is_said_and_the_loader_starts(
    api: leftovers.Api,
    played: Played,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And where it is no refusal, what was removed; without Kubernetes nothing is asked."""
    given = SparkConf(loadDefaults=False)
    session._clear(given)
    assert capsys.readouterr().err == ""
    given.set("spark.kubernetes.driver.pod.name", "loader-0")
    given.set("spark.kubernetes.namespace", "shop")
    monkeypatch.setattr(leftovers, "in_pod", lambda: api)
    played.refuses.add("DELETE")
    with pytest.raises(urllib.error.HTTPError):
        remove(api, "shop", "loader-0")
    session._clear(given)
    assert (
        "cannot remove what an earlier driver left behind: HTTP Error 403"
        in capsys.readouterr().err
    )
    played.refuses.clear()
    session._clear(given)
    assert "pods/exec-1, pods/exec-2" in capsys.readouterr().err
