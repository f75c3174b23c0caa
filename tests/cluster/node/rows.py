"""Rolls the manifests out on the node, and counts the rows that its pods bring to ClickHouse.

    unshare --net --mount --pid --fork --mount-proc --kill-child \\
        python -m tests.cluster.node.rows DIRECTORY

Prints what was done and when. Ends with a status other than 0 where something was not as it has
to be, after what the pods and the cluster say of it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import yaml

from tests.broker.pipeline import wait_until
from tests.cluster import control_plane, image
from tests.cluster.node import cut_off, names, namespaces, servers, spark_operator, tools
from tests.cluster.node.machine import FIRST, OTHER, Machine
from tests.cluster.node.policies import Enforcement
from tests.cluster.test_control_plane import NAMESPACE, kubectl, roll_out
from tests.k8s.built import K8S
from tests.k8s.test_own_overlay import own

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.control_plane import ControlPlane

ROWS = 5_000
LOADER = "loader-driver"
"""The loader's pod in the end, as the Spark operator names it."""
ROLL_OUT_SECONDS, ROWS_SECONDS, PASSWORD_SECONDS = 400, 240, 150
_TLS = """\
ca_file = "/etc/relay/passwords/ca.crt"
certificate_file = "/etc/relay/passwords/client.crt"
key_file = "/etc/relay/passwords/client.key"
"""
_SMALL = """\
- op: replace
  path: /spec/template/spec/containers/0/resources/requests/cpu
  value: 100m
"""
"""So that one node takes three relays."""


class Way(NamedTuple):
    """From a pod to an address."""

    namespace: str
    pod: str
    host: str
    port: int


class Walk:
    """The steps, one after the other.

    Args:
        directory: of an overlay that is nobody's but this walk's.
        plane: of the node.
        site: the servers.
        enforced: the NetworkPolicies, from the start.
        other: a node that does not run yet, and what it needs to run.
    """

    def __init__(
        self,
        directory: Path,
        plane: ControlPlane,
        site: servers.Site,
        enforced: Enforcement,
        other: Callable[[], Machine],
    ) -> None:
        self._directory, self._plane, self._site = directory, plane, site
        self._enforced, self._other = enforced, other
        self._sent = 0

    def go(self) -> None:
        """All of them.

        Raises:
            AssertionError: something is not as it has to be.
        """
        self._make_secrets()
        self._write_overlay()
        self._roll_out()
        say("rolled out: doctor, relay, loader and verifier run")
        self._send_rows()
        self._kubectl("delete", "pod", "relay-0", "--force", "--grace-period=0")
        say("relay-0 deleted by force")
        self._send_rows()
        self._kubectl("delete", "pod", "loader-0", "--force", "--grace-period=0")
        say("loader-0 deleted by force")
        self._send_rows()
        self._roll_out()
        say("rolled out again")
        self._send_rows()
        self._drain_without_clickhouse()
        self._send_rows()
        self._change_password()
        cut_off.run(self._other(), self._kubectl, self._send, self._rows_come)
        self._submit_by_the_operator()
        self._probe_policies()

    def _make_secrets(self) -> None:
        self._kubectl("apply", "-k", str(K8S / "namespace"))
        made = self._site.certificates
        files = {"ca.crt": made.ca, "client.crt": made.certificate, "client.key": made.key}
        for role, password in self._site.passwords.items():
            given = [f"--from-literal={of}={password}" for of in ("kafka", "clickhouse")]
            given += [f"--from-file={name}={file}" for name, file in files.items()]
            self._kubectl("create", "secret", "generic", f"{role}-passwords", *given)

    def _write_overlay(self) -> None:
        """The README's, with the images that the node has."""
        own(self._directory)
        kustomization = self._directory / "kustomization.yaml"
        overlay = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
        del overlay["images"]
        overlay["patches"] = [{"patch": _SMALL, "target": {"kind": "StatefulSet", "name": "relay"}}]
        kustomization.write_text(yaml.safe_dump(overlay), encoding="utf-8")
        text = (K8S / "base" / "relay.toml").read_text(encoding="utf-8")
        for before, after in self._replaced().items():
            assert before in text, f"k8s/base/relay.toml has no {before}"
            text = text.replace(before, after)
        (self._directory / "relay.toml").write_text(text, encoding="utf-8")

    def _replaced(self) -> dict[str, str]:
        """In the base's relay.toml: addresses, an authority of one's own, a client certificate."""
        protocol = '"security.protocol" = "sasl_ssl"\n'
        password = 'password_file = "/etc/relay/passwords/clickhouse"\n'
        return {
            "kafka-bootstrap.kafka.svc:9093": self._site.kafka.sasl,
            "replication = 3": "replication = 1",
            "https://clickhouse.clickhouse.svc:8443": self._site.https,
            protocol: f'{protocol}"ssl.ca.location" = "/etc/relay/passwords/ca.crt"\n',
            password: password + _TLS,
        }

    def _roll_out(self) -> None:
        done = roll_out(self._plane, self._directory, ROLL_OUT_SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr

    def _send_rows(self) -> None:
        self._send()
        self._rows_come("")

    def _send(self) -> None:
        self._site.produce(self._sent, ROWS)
        self._sent += ROWS

    def _rows_come(self, after: str) -> None:
        wanted = (self._sent, self._sent)
        wait_until(lambda: self._site.counted() == wanted, f"{self._sent} rows", ROWS_SECONDS)
        say(f"{self._sent} rows in ClickHouse, each once {after}".rstrip())

    def _drain_without_clickhouse(self) -> None:
        """The relay may be evicted, though no server could take its blocks just now."""
        self._site.clickhouse.kill()
        relays = "--pod-selector=app.kubernetes.io/name=relay"
        self._kubectl("drain", FIRST.name, relays, "--delete-emptydir-data", "--timeout=100s")
        self._kubectl("uncordon", FIRST.name)
        say("drained of relays while ClickHouse was away")
        self._site.clickhouse.start()

    def _change_password(self) -> None:
        """Of the relay in Kafka, as the README has it; then its connections are broken."""
        # A relay that is just starting ends where it is refused, and its pod starts it again.
        self._kubectl("rollout", "status", "statefulset/relay", f"--timeout={ROLL_OUT_SECONDS:g}s")
        began = self._get("relay-0", "{.status.containerStatuses[0].containerID}")
        new = self._site.change_in_kafka("relay")
        secret = json.dumps({"stringData": {"kafka": new}})
        self._kubectl("patch", "secret", "relay-passwords", "--patch", secret)
        shown = ("exec", "relay-0", "--", "cat", "/etc/relay/passwords/kafka")
        wait_until(lambda: self._kubectl(*shown) == new, "the new password", PASSWORD_SECONDS)
        old = self._connected("relay-0")
        assert old, "the relay is not connected"
        pod = f"ip saddr {self._address('relay-0')} tcp dport {servers.KAFKA_PORT}"
        chain = "type filter hook input priority -10;"
        tools.set_table("broken", f"chain broken {{ {chain} {pod} reject with tcp reset; }}\n")
        # A client that has nothing to send does not notice: its connection is good for ever.
        wait_until(lambda: not old <= self._connected("relay-0"), "the end of a connection", 60)
        tools.set_table("broken")
        self._send_rows()
        assert self._get("relay-0", "{.status.containerStatuses[0].containerID}") == began
        assert self._connected("relay-0") - old, "nothing was connected anew"
        say("the relay's password in Kafka was changed under it, and it connected with it anew")

    def _connected(self, pod: str) -> set[str]:
        """Local ends of a pod's connections to the broker, as its kernel lists them."""
        listed = self._kubectl("exec", pod, "--", "cat", "/proc/net/tcp").splitlines()[1:]
        ends = [line.split()[1:4] for line in listed]
        port = f":{servers.KAFKA_PORT:04X}"
        return {local for local, there, state in ends if there.endswith(port) and state == "01"}

    def _submit_by_the_operator(self) -> None:
        """The component in the place of the loader's StatefulSet."""
        files = self._directory / "operator"
        files.mkdir()
        spark_operator.start(self._plane, files)
        has = lambda: spark_operator.has_its_authority(self._plane)  # noqa: E731
        wait_until(has, "the operator's webhook", ROLL_OUT_SECONDS)
        kustomization = self._directory / "kustomization.yaml"
        overlay = yaml.safe_load(kustomization.read_text(encoding="utf-8"))
        here = self._directory.resolve()
        overlay["components"] = [os.path.relpath(K8S.resolve() / "components/spark-operator", here)]
        name, tag = image.IMAGES["loader"].rsplit(":", 1)
        overlay["images"] = [{"name": "block-relay-loader", "newName": name, "newTag": tag}]
        kustomization.write_text(yaml.safe_dump(overlay), encoding="utf-8")
        self._kubectl("delete", "statefulset", "loader")
        self._roll_out()
        self._send_rows()
        driver = "{.metadata.labels.sparkoperator\\.k8s\\.io/launched-by-spark-operator}"
        assert self._get(LOADER, driver) == "true"
        say("by a driver that the Spark operator submitted")

    def _probe_policies(self) -> None:
        """What they let through, what they hold up, and that it is they who do."""
        for namespace in ("monitoring", "elsewhere"):
            self._kubectl("create", "namespace", namespace)
            image_name = f"--image={image.IMAGES['relay']}"
            self._in(namespace, "run", "probe", image_name, "--", "sleep", "infinity")
            self._in(namespace, "wait", "--for=condition=Ready", "pod/probe", "--timeout=60s")
        executors = ("get", "pods", "-l", "app.kubernetes.io/name=loader-executor", "-o", "name")
        executor = self._kubectl(*executors).split()[-1].removeprefix("pod/")
        relay, loader = (self._address(pod) for pod in ("relay-0", LOADER))
        open_ = [
            Way("monitoring", "probe", relay, 9464),
            Way("monitoring", "probe", loader, 9465),
            Way(NAMESPACE, "relay-0", namespaces.NODE, servers.KAFKA_PORT),
            Way(NAMESPACE, LOADER, namespaces.API_SERVER, control_plane.SERVICE_PORT),
        ]
        closed = [
            Way("elsewhere", "probe", relay, 9464),
            Way("monitoring", "probe", loader, 7078),
            Way(NAMESPACE, "relay-0", loader, 9465),
            Way(NAMESPACE, "relay-0", namespaces.API_SERVER, control_plane.SERVICE_PORT),
            Way(NAMESPACE, executor, namespaces.API_SERVER, control_plane.SERVICE_PORT),
        ]
        found = {way: self._passes(way) for way in (*open_, *closed)}
        assert found == dict.fromkeys(open_, True) | dict.fromkeys(closed, False)
        self._enforced.stop()
        assert all(map(self._passes, closed)), "closed without the policies, too"
        say(f"network policies: {len(open_)} ways are open, {len(closed)} closed by them")

    def _passes(self, way: Way) -> bool:
        call = f"socket.create_connection(('{way.host}', {way.port}), 3)"
        program = f"import socket; {call}; print('passes')"
        command = ("exec", way.pod, "--", "python", "-c", program)
        return self._in(way.namespace, *command, check=False).strip() == "passes"

    def _address(self, pod: str) -> str:
        return self._get(pod, "{.status.podIP}")

    def _get(self, pod: str, path: str) -> str:
        return cut_off.field(self._kubectl, pod, path)

    def tell(self) -> None:
        """Print what table, pods and cluster say."""
        print(f"(rows, different) are {self._site.counted()}, of {self._sent}")
        listed = self._kubectl("get", "pods", "-o", "name").split()
        for pod in listed:
            logs = ("logs", pod, "--all-containers", "--tail=30")
            print(pod, self._in(NAMESPACE, *logs, check=False), flush=True)
        print(self._kubectl("get", "pods", "-o", "wide"))
        print(self._kubectl("get", "events", "--sort-by=.lastTimestamp")[-8000:], flush=True)

    def _kubectl(self, *words: str) -> str:
        return self._in(NAMESPACE, *words)

    def _in(self, namespace: str, *words: str, check: bool = True) -> str:
        done = kubectl(self._plane, "--namespace", namespace, *words)
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


BEGAN = time.monotonic()


def say(what: str) -> None:
    """Print it with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}", flush=True)


def main(directory: Path) -> int:
    """Walk, in namespaces that are this process's own; return an exit status."""
    # Whoever waits for a server says each time that it does not answer.
    logging.disable(logging.WARNING)
    parts = [directory / name for name in ("plane", "node", "other", "servers", "overlay")]
    for part in parts:
        part.mkdir(parents=True)
    plane_files, node_files, other_files, server_files, overlay = parts
    namespaces.furnish(node_files)
    plane = control_plane.start(plane_files, namespaces.NODE, namespaces.API_SERVER)
    say(f"a control plane, Kubernetes {control_plane.VERSION}")
    names.serve(plane)
    pause, of = tools.pause(node_files), {name: image.archive(name) for name in image.IMAGES}
    Machine(node_files, plane, FIRST).start([pause, *of.values()])
    say("a node, with the images")

    def other() -> Machine:
        machine = Machine(other_files, plane, OTHER)
        machine.start([pause, of["relay"]])
        say("another node")
        return machine

    enforced = Enforcement(plane)
    enforced.start()
    with servers.running_site(server_files) as site:
        say("Kafka and ClickHouse with TLS; users with the printed rights; a topic and a table")
        walk = Walk(overlay, plane, site, enforced, other)
        try:
            walk.go()
        except AssertionError as wrong:
            say(str(wrong))
            walk.tell()
            return 1
    return 0


if __name__ == "__main__":
    os._exit(main(Path(sys.argv[1]).resolve()))  # DNS' threads have no end of their own
