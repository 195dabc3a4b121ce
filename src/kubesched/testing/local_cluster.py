"""`kubesched up` in a process of its own, and a small client for tests.

with LocalCluster(folder) as cluster:
cluster.create(make_pod("a"))
assert cluster.wait_for_node("a")
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib import error, request

import yaml

from kubesched.base.errors import KubeschedError
from kubesched.testing import die_with_parent
from kubesched.testing.builders import NodeBuilder, PodBuilder

T = TypeVar("T")

DEADLINE_S = 60.0
_POLL_S = 0.05


class LocalCluster:
    """A running playground. `kubeconfig` is for kubectl and other clients."""

    def __init__(self, folder: Path, config: str | None = None, *, nodes: int = 3) -> None:
        """`folder` gets the kubeconfig, the configuration and the log."""
        self.kubeconfig = folder / "kubeconfig"
        self._log = folder / "kubesched.log"
        self._words = ["up", "--nodes", str(nodes), "--no-page", "--kubeconfig", self.kubeconfig]
        if config is not None:
            path = folder / "scheduler.yaml"
            path.write_text(config)
            self._words += ["--config", path]

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "kubesched", *map(str, self._words)]
        wrapped = [sys.executable, die_with_parent.__file__, str(os.getpid()), *command]
        # The configuration may name plugins of modules that only this process can find.
        path = os.pathsep.join(part for part in sys.path if part)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                wrapped, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )
        try:
            self._wait(lambda: "Ctrl-C ends it." in self._log.read_text(), "the cluster to start")
        except BaseException:
            self.__exit__()
            raise
        config = yaml.safe_load(self.kubeconfig.read_text())
        (server,), (user,) = config["clusters"], config["users"]
        authority = base64.b64decode(server["cluster"]["certificate-authority-data"]).decode()
        self._server, self._token = server["cluster"]["server"], user["user"]["token"]
        self._tls = ssl.create_default_context(cadata=authority)
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  # JSON
        """One request, such as `call("GET", "/api/v1/nodes/node-0")`; the answer's JSON.

        Raises:
            KubeschedError: with the server's message.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        data = None if body is None else json.dumps(body).encode()
        sent = request.Request(self._server + path, data, headers, method=method)
        try:
            with request.urlopen(sent, timeout=DEADLINE_S, context=self._tls) as answer:
                return json.load(answer)
        except error.HTTPError as refused:
            with refused:
                message = json.load(refused).get("message", refused.reason)
            raise KubeschedError(f"{method} {path}: {message}") from None

    def create(self, *builders: PodBuilder | NodeBuilder) -> None:
        """Create pods and nodes that are built."""
        for builder in builders:
            is_pod = isinstance(builder, PodBuilder)
            namespace = builder.json["metadata"].get("namespace")
            where = f"namespaces/{namespace}/pods" if is_pod else "nodes"
            head = {"apiVersion": "v1", "kind": "Pod" if is_pod else "Node"}
            self.call("POST", f"/api/v1/{where}", {**head, **builder.json})

    def pod(self, name: str, namespace: str = "default") -> dict[str, Any]:
        """A pod as it is now."""
        pod: dict[str, Any] = self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return pod

    def wait_for_node(self, name: str, namespace: str = "default") -> str:
        """The node of a pod, once it has one."""

        def node() -> str:
            return str(self.pod(name, namespace)["spec"].get("nodeName", ""))

        return self._wait(node, f"pod {namespace}/{name} to get a node")

    def wait_for_rejection(self, name: str, namespace: str = "default") -> str:
        """The message of the pod's PodScheduled condition, once it is False."""

        def message() -> str:
            conditions = self.pod(name, namespace)["status"].get("conditions", ())
            told = (c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False")
            return next((c.get("message", "") for c in told), "")

        return self._wait(message, f"pod {namespace}/{name} to be rejected")

    def _wait(self, look: Callable[[], T], text: str) -> T:
        """What `look` returns, once that is true."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := look()):
            if self._process.poll() is not None:
                raise KubeschedError(f"kubesched up ended: {self._log.read_text().strip()}")
            if time.monotonic() > deadline:
                raise KubeschedError(f"waited {DEADLINE_S:.0f} s for {text}")
            time.sleep(_POLL_S)
        return found
