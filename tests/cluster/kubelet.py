"""Plays what becomes of pods where there is no kubelet: Jobs' pods end, the others are ready.

A thread that looks at all pods of a namespace again and again, and writes their status.
"""

from __future__ import annotations

import threading
import urllib.error
from types import TracebackType
from typing import Any, Self

from tests.cluster.control_plane import ControlPlane

LOOK_SECONDS = 0.2
BROKEN = "broken"
"""In an image's name: such a pod never becomes ready."""


class Kubelet(threading.Thread):
    """One of a namespace; a context manager.

    Attributes:
        jobs_end: the phase in which pods of Jobs end.
    """

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(daemon=True)
        self._plane, self._pods = plane, f"/api/v1/namespaces/{namespace}/pods"
        self._left = threading.Event()
        self.jobs_end = "Succeeded"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self.join()

    def run(self) -> None:
        """Until it is left."""
        while not self._left.wait(LOOK_SECONDS):
            for pod in self._plane.ask("GET", self._pods)["items"]:
                wanted = self._status(pod)
                if pod["status"].get("phase") != wanted["phase"]:
                    self._write(pod["metadata"]["name"], wanted)

    def _write(self, pod: str, status: dict[str, Any]) -> None:
        try:
            self._plane.ask("PATCH", f"{self._pods}/{pod}/status", {"status": status})
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409}:  # gone or changed meanwhile
                raise

    def _status(self, pod: dict[str, Any]) -> dict[str, Any]:
        owners = {one["kind"] for one in pod["metadata"].get("ownerReferences", ())}
        broken = any(BROKEN in one["image"] for one in pod["spec"]["containers"])
        phase = self.jobs_end if "Job" in owners else "Pending" if broken else "Running"
        ready = phase == "Running"
        states = [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": _state(phase),
            }
            for one in pod["spec"]["containers"]
        ]
        condition = {"type": "Ready", "status": str(ready)}
        return {"phase": phase, "conditions": [condition], "containerStatuses": states}


def _state(phase: str) -> dict[str, Any]:
    if phase == "Running":
        return {"running": {}}
    if phase == "Pending":
        return {"waiting": {"reason": "ImagePullBackOff"}}
    return {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1}}
