"""Fluent builders: concise pods and nodes for tests.

pod = make_pod("web-1").cpu("500m").label("app", "web").tolerates("gpu").build()
node = make_node("n1").capacity(cpu="4", memory="8Gi").zone("a").build()
"""

from __future__ import annotations

from typing import Any, Self

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import RawQuantity

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

_created = 0


def _next_number() -> int:
    global _created  # numbers uids so that two pods of one name differ
    _created += 1
    return _created


class _Builder:
    """Collects the object's JSON; every method returns the builder."""

    def __init__(self, name: str) -> None:
        self.json: dict[str, Any] = {"metadata": {"name": name}, "spec": {}, "status": {}}

    def label(self, key: str, value: str) -> Self:
        self.json["metadata"].setdefault("labels", {})[key] = value
        return self

    def labels(self, **labels: str) -> Self:
        for key, value in labels.items():
            self.label(key, value)
        return self

    def annotation(self, key: str, value: str) -> Self:
        self.json["metadata"].setdefault("annotations", {})[key] = value
        return self

    def uid(self, uid: str) -> Self:
        self.json["metadata"]["uid"] = uid
        return self

    def spec(self, **fields: object) -> Self:
        """Any spec field, in its JSON spelling."""
        self.json["spec"].update(fields)
        return self

    def status(self, **fields: object) -> Self:
        """Any status field, in its JSON spelling."""
        self.json["status"].update(fields)
        return self


class PodBuilder(_Builder):
    """Builds a pod with one container unless told otherwise."""

    def __init__(self, name: str, namespace: str = "default") -> None:
        super().__init__(name)
        self.json["metadata"].update(
            namespace=namespace, uid=f"uid-{namespace}-{name}-{_next_number()}"
        )
        self.json["spec"].update(
            schedulerName="default-scheduler", containers=[{"name": "c", "image": "app"}]
        )

    def build(self) -> Pod:
        return msgspec.convert(self.json, Pod)

    def request(self, resource: str, amount: RawQuantity) -> Self:
        """Resource request of the (first) container."""
        resources = self.json["spec"]["containers"][0].setdefault("resources", {})
        resources.setdefault("requests", {})[resource] = amount
        return self

    def cpu(self, amount: RawQuantity) -> Self:
        return self.request("cpu", amount)

    def memory(self, amount: RawQuantity) -> Self:
        return self.request("memory", amount)

    def image(self, image: str) -> Self:
        self.json["spec"]["containers"][0]["image"] = image
        return self

    def host_port(self, port: int, protocol: str = "TCP", ip: str = "") -> Self:
        ports = self.json["spec"]["containers"][0].setdefault("ports", [])
        ports.append({"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip})
        return self

    def container(self, **fields: object) -> Self:
        """One more container, in its JSON spelling."""
        containers = self.json["spec"]["containers"]
        containers.append({"name": f"c{len(containers)}", **fields})
        return self

    def init_container(self, **fields: object) -> Self:
        containers = self.json["spec"].setdefault("initContainers", [])
        containers.append({"name": f"i{len(containers)}", **fields})
        return self

    def on(self, node_name: str) -> Self:
        self.json["spec"]["nodeName"] = node_name
        return self

    def nominated(self, node_name: str) -> Self:
        self.json["status"]["nominatedNodeName"] = node_name
        return self

    def priority(self, priority: int) -> Self:
        self.json["spec"]["priority"] = priority
        return self

    def scheduler(self, name: str) -> Self:
        self.json["spec"]["schedulerName"] = name
        return self

    def terminating(self, at: str = "2026-01-01T00:00:00Z") -> Self:
        self.json["metadata"]["deletionTimestamp"] = at
        return self

    def gate(self, name: str) -> Self:
        self.json["spec"].setdefault("schedulingGates", []).append({"name": name})
        return self

    def node_selector(self, **labels: str) -> Self:
        self.json["spec"].setdefault("nodeSelector", {}).update(labels)
        return self

    def tolerates(
        self, key: str = "", value: str = "", effect: str = "", operator: str = ""
    ) -> Self:
        """Without a value, any value of the key is tolerated."""
        operator = operator or ("Equal" if value else "Exists")
        toleration = {"key": key, "operator": operator, "value": value, "effect": effect}
        self.json["spec"].setdefault("tolerations", []).append(toleration)
        return self

    def affinity(self, kind: str, *, required: object = None, preferred: object = None) -> Self:
        """`kind` is nodeAffinity, podAffinity or podAntiAffinity; terms in their JSON spelling."""
        target = self.json["spec"].setdefault("affinity", {}).setdefault(kind, {})
        if required is not None:
            target["requiredDuringSchedulingIgnoredDuringExecution"] = required
        if preferred is not None:
            target["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
        return self

    def pod_affinity(self, topology_key: str, **labels: str) -> Self:
        return self._pod_term("podAffinity", topology_key, labels)

    def pod_anti_affinity(self, topology_key: str, **labels: str) -> Self:
        return self._pod_term("podAntiAffinity", topology_key, labels)

    def _pod_term(self, kind: str, topology_key: str, labels: dict[str, str]) -> Self:
        terms = self.json["spec"].setdefault("affinity", {}).setdefault(kind, {})
        required = terms.setdefault("requiredDuringSchedulingIgnoredDuringExecution", [])
        required.append({"topologyKey": topology_key, "labelSelector": {"matchLabels": labels}})
        return self

    def preferred_pod_term(self, kind: str, weight: int, topology_key: str, **labels: str) -> Self:
        terms = self.json["spec"].setdefault("affinity", {}).setdefault(kind, {})
        preferred = terms.setdefault("preferredDuringSchedulingIgnoredDuringExecution", [])
        term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": labels}}
        preferred.append({"weight": weight, "podAffinityTerm": term})
        return self

    def spread(
        self,
        max_skew: int,
        topology_key: str,
        when: str = "DoNotSchedule",
        selector: object = None,
        **fields: object,
    ) -> Self:
        constraint = {
            "maxSkew": max_skew,
            "topologyKey": topology_key,
            "whenUnsatisfiable": when,
            **fields,
        }
        if selector is not None:
            constraint["labelSelector"] = selector
        self.json["spec"].setdefault("topologySpreadConstraints", []).append(constraint)
        return self

    def claim(self, name: str) -> Self:
        volumes = self.json["spec"].setdefault("volumes", [])
        volumes.append({"name": f"v{len(volumes)}", "persistentVolumeClaim": {"claimName": name}})
        return self


class NodeBuilder(_Builder):
    """Builds a ready node with 4 cores, 8 GiB and room for 110 pods."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.json["metadata"]["uid"] = f"uid-{name}-{_next_number()}"
        self.label(HOSTNAME, name)
        self.json["status"]["allocatable"] = {"cpu": "4", "memory": "8Gi", "pods": "110"}

    def build(self) -> Node:
        status = self.json["status"]
        status.setdefault("capacity", status["allocatable"])
        return msgspec.convert(self.json, Node)

    def capacity(self, **amounts: RawQuantity) -> Self:
        """Replaces the node's capacity; `pods` stays at 110 unless given."""
        self.json["status"]["allocatable"] = {"pods": "110", **amounts}
        return self

    def offers(self, resource: str, amount: RawQuantity) -> Self:
        self.json["status"]["allocatable"][resource] = amount
        return self

    def zone(self, zone: str) -> Self:
        return self.label(ZONE, zone)

    def region(self, region: str) -> Self:
        return self.label(REGION, region)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        self.json["spec"].setdefault("taints", []).append(
            {"key": key, "value": value, "effect": effect}
        )
        return self

    def unschedulable(self) -> Self:
        self.json["spec"]["unschedulable"] = True
        return self

    def image(self, *names: str, size_bytes: int) -> Self:
        self.json["status"].setdefault("images", []).append(
            {"names": list(names), "sizeBytes": size_bytes}
        )
        return self

    def declares(self, *features: str) -> Self:
        self.json["status"]["declaredFeatures"] = list(features)
        return self


def make_pod(name: str, namespace: str = "default") -> PodBuilder:
    return PodBuilder(name, namespace)


def make_node(name: str) -> NodeBuilder:
    return NodeBuilder(name)
