"""A cluster without sockets or tasks: the real store and verbs, the real controllers and kubelets,
a manual clock.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubesched.base.clock import ManualClock
from kubesched.base.errors import NotFound, ServerError
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.playground.client.local import LocalApi
from kubesched.playground.control_plane import build_registry
from kubesched.playground.controller_manager import ControllerOptions, start_all
from kubesched.playground.storage.store import Store

LABELS = {"app": "web"}
Obj = dict[str, Any]


class World:
    """Everything a test needs, in steps."""

    def __init__(
        self, options: ControllerOptions, seed: int = 1, gates: FeatureGates = DEFAULT_GATES
    ) -> None:
        self.clock = ManualClock()
        self.rng = random.Random(seed)
        self.registry = build_registry(Store(), clock=self.clock, rng=self.rng, gates=gates)
        self.api = LocalApi(self.registry)
        self._options = options
        self._gates = gates
        self.cast = start_all(self.api, self.clock, self.rng, options, gates)
        self.is_scheduling = True
        self.settle()

    def settle(self) -> None:
        """Let everybody do what is due at this moment, binding pods in between."""
        while self.cast.settle() or self.schedule():
            pass
        self.registry.store.check_invariants()

    def run(self, seconds: float) -> None:
        """Let time pass, stopping wherever a controller has work."""
        end = self.clock.monotonic() + seconds
        self.settle()
        while (wait := self.cast.next_due_s()) is not None:
            if self.clock.monotonic() + wait > end:
                break
            self.clock.advance(wait)
            self.settle()
        self.clock.advance(end - self.clock.monotonic())
        self.settle()

    def schedule(self) -> int:
        """The simplest scheduler: pinned pods where they want, others in turn over ready nodes."""
        if not self.is_scheduling:
            return 0
        nodes = [
            node
            for node in self.list("nodes")
            if not node.get("spec", {}).get("unschedulable") and not node["spec"].get("taints")
        ]
        bound = 0
        for pod in self.list("pods"):
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            wanted = _pinned_node(pod)
            names = [wanted] if wanted else [node["metadata"]["name"] for node in nodes]
            if not names:
                continue
            load = dict.fromkeys(names, 0)
            for other in self.list("pods"):
                if other["spec"].get("nodeName") in load:
                    load[other["spec"]["nodeName"]] += 1
            metadata = pod["metadata"]
            self.api.bind(metadata["namespace"], metadata["name"], min(names, key=load.__getitem__))
            bound += 1
        return bound

    def restart(self) -> None:
        """The process dies and comes back: the store stays, everything in memory is gone."""
        self.cast.disconnect()
        self.cast = start_all(self.api, self.clock, self.rng, self._options, self._gates)

    # -- shorthand -------------------------------------------------------------------------------

    def _space(self, resource: str, namespace: str) -> str:
        return namespace if self.registry.catalog.get(resource).namespaced else ""

    def create(
        self, resource: str, obj: dict[str, Any], namespace: str = "default"
    ) -> dict[str, Any]:
        return self.api.create(resource, obj, namespace)

    def get(self, resource: str, name: str, namespace: str = "default") -> dict[str, Any]:
        return self.api.get(resource, self._space(resource, namespace), name)

    def exists(self, resource: str, name: str, namespace: str = "default") -> bool:
        try:
            self.get(resource, name, namespace)
        except NotFound:
            return False
        return True

    def list(
        self, resource: str, namespace: str | None = None, selector: str = ""
    ) -> list[dict[str, Any]]:
        return self.api.list(resource, namespace, selector)[0]

    def patch(
        self,
        resource: str,
        name: str,
        patch: dict[str, Any],
        namespace: str = "default",
        subresource: str = "",
    ) -> dict[str, Any]:
        space = self._space(resource, namespace)
        return self.api.patch(resource, space, name, patch, subresource=subresource)

    def delete(self, resource: str, name: str, namespace: str = "default", **options: Any) -> None:
        self.api.delete(resource, self._space(resource, namespace), name, **options)

    def pods(self, selector: str = "", namespace: str | None = None) -> list[dict[str, Any]]:
        return self.list("pods", namespace, selector)

    def active_pods(self, selector: str = "") -> list[dict[str, Any]]:
        return [
            pod
            for pod in self.pods(selector)
            if not pod["metadata"].get("deletionTimestamp")
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")
        ]

    def reasons(self, name: str) -> list[str]:
        """The reasons of the events about an object, oldest first."""
        events = [event for event in self.list("events") if event["involvedObject"]["name"] == name]
        events.sort(key=lambda event: event["metadata"]["name"])
        return [event["reason"] for event in events]

    # -- builders --------------------------------------------------------------------------------

    @staticmethod
    def template(image: str = "web:1", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
        containers = spec.pop("containers", [{"name": "main", "image": image}])
        return {
            "metadata": {"labels": dict(labels or LABELS)},
            "spec": {"containers": containers, **spec},
        }

    def workload(
        self,
        resource: str,
        name: str = "web",
        *,
        image: str = "web:1",
        labels: dict[str, str] | None = None,
        pod: dict[str, Any] | None = None,
        namespace: str = "default",
        **spec: Any,
    ) -> Obj:
        """Create a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
        labels = dict(labels or LABELS)
        template = self.template(image, labels, **(pod or {}))
        body = {"selector": {"matchLabels": labels}, "template": template, **spec}
        return self.create(resource, {"metadata": {"name": name}, "spec": body}, namespace)

    def deployment(self, name: str = "web", **spec: Any) -> Obj:
        return self.workload("deployments.apps", name, **spec)

    def pod(
        self, name: str = "solo", *, metadata: dict[str, Any] | None = None, **spec: Any
    ) -> Obj:
        template = self.template(**spec)
        merged = {**template["metadata"], **(metadata or {}), "name": name}
        return self.create("pods", {"metadata": merged, "spec": template["spec"]})


def _pinned_node(pod: dict[str, Any]) -> str:
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for requirement in term.get("matchFields") or ():
            return str(requirement["values"][0])
    return ""


class LostWrite:
    """Makes the n-th write of the controllers fail; `happened` says whether there were that
    many.
    """

    def __init__(self, patched: pytest.MonkeyPatch, number: int) -> None:
        self.happened = False
        self._number = number
        self._calls = 0
        for name in ("create", "patch", "update_status", "write_status", "delete"):
            patched.setattr(LocalApi, name, self._failing(getattr(LocalApi, name)))

    def _failing(self, method: Any) -> Any:
        def call(api: LocalApi, *args: Any, **kwargs: Any) -> Any:
            if api._options.manager == "kube-controller-manager":
                self._calls += 1
                if self._calls == self._number:
                    self.happened = True
                    raise ServerError("injected")
            return method(api, *args, **kwargs)

        return call
