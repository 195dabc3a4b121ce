"""Sequences at random: a cluster grows, pods arrive one after the other, and things change in between.

Built from `generate`'s nodes and pods, brought into a shape that an API server admits. What kube-scheduler itself
decides at random is left out: a pod is never narrowed to more than one node by name, because the order of those nodes
is random there.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

from kubesched.conformance import generate
from kubesched.conformance.generate_objects import CLAIMS, PRIORITIES, surroundings
from kubesched.conformance.generate_terms import ZONE
from kubesched.conformance.sequences import Json, Sequence, Step

FEATURES = (
    "resources",
    "node-affinity",
    "taints",
    "pod-affinity",
    "topology-spread",
    "default-spread",
    "ports",
    "images",
    "priorities",
    "gates",
    "volumes",
    "changes",
)
"""What sequences can put to the test; decisions are tallied by these names."""

_TASTE = generate.Taste(workloads=True)
_NOT_OVERCOMMITTED = ("example.com/gpu", "example.com/fpga", "hugepages-2Mi")


def sequence(seed: str | int, pods: int, features: Collection[str] = FEATURES) -> Sequence:
    """A sequence that asks for about `pods` decisions; it depends on its arguments only."""
    return _Composer(Random(f"sequence {seed}"), frozenset(features)).compose(seed, pods)


class _Composer:
    def __init__(self, random: Random, features: frozenset[str]) -> None:
        self._random = random
        self._features = features
        self._nodes: dict[str, Json] = {}
        self._gone_nodes: dict[str, Json] = {}
        self._pods: list[str] = []
        self._gated: list[Json] = []
        self._steps: list[Step] = []
        self._hard = random.random() < 0.5
        """Whether nodes get full, so that priorities matter."""

    def compose(self, seed: str | int, pods: int) -> Sequence:
        random = self._random
        objects = surroundings(random, self._features)
        for _ in range(random.randint(4, 16)):
            self._add_node()
        for number in range(pods):
            if "changes" in self._features and random.random() < 0.12:
                self._change()
            self._add_pod(f"p{number:04}")
            if self._gated and random.random() < 0.5:
                self._let_go(self._gated.pop(0))
        return Sequence(self._steps, objects, seed)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _add_node(self) -> None:
        name = f"n{len(self._nodes) + len(self._gone_nodes):03}"
        node = generate.node(self._random, name)
        if "taints" not in self._features:
            node["spec"] = {}
        seen = {(t["key"], t["effect"]): t for t in node["spec"].get("taints", ())}
        if seen:
            node["spec"]["taints"] = list(seen.values())
        status = node["status"]
        status.pop("declaredFeatures", None)
        if self._hard and status["allocatable"].get("cpu") not in (None, "0", "500m"):
            status["allocatable"] = {**status["allocatable"], "cpu": "4"}
        self._nodes[name] = node
        self._steps.append(Step("create", {"apiVersion": "v1", "kind": "Node", **node}))

    def _change(self) -> None:
        changes = (
            self._delete_pod,
            self._delete_pod,
            self._relabel_pod,
            self._relabel_node,
            self._taint_node,
            self._cordon_node,
            self._resize_node,
            self._add_node,
            self._delete_node,
            self._bring_node_back,
        )
        self._random.choice(changes)()

    def _patch(
        self,
        kind: str,
        metadata: Json,
        change: Json,
        subresource: str = "",
        **more: Any,  # noqa: ANN401  # fields of Step
    ) -> None:
        meant = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
        self._steps.append(Step("patch", meant, change, subresource, **more))

    def _patch_node(self, change: Json, subresource: str = "") -> None:
        name = self._random.choice(list(self._nodes))
        self._patch("Node", {"name": name}, change, subresource)

    def _relabel_node(self) -> None:
        random = self._random
        key, values = random.choice(
            (
                (ZONE, ("z1", "z2", "z3", None)),
                ("topology.kubernetes.io/region", ("r1", "r2", None)),
                ("disk", ("ssd", "hdd", None)),
                ("gen", ("1", "5", None)),
            )
        )
        self._patch_node({"metadata": {"labels": {key: random.choice(values)}}})

    def _taint_node(self) -> None:
        if "taints" not in self._features:
            return
        taint = {"key": "dedicated", "value": self._random.choice(("a", "b"))}
        effect = self._random.choice(("NoSchedule", "PreferNoSchedule"))
        taints = self._random.choice(([], [{**taint, "effect": effect}]))
        self._patch_node({"spec": {"taints": taints}})

    def _cordon_node(self) -> None:
        self._patch_node({"spec": {"unschedulable": self._random.choice((True, False, None))}})

    def _resize_node(self) -> None:
        amounts = {"cpu": self._random.choice(("2", "4", "9")), "pods": "30"}
        self._patch_node({"status": {"allocatable": amounts}}, "status")

    def _delete_node(self) -> None:
        if len(self._nodes) < 4:
            return
        name = self._random.choice(list(self._nodes))
        self._gone_nodes[name] = self._nodes.pop(name)
        meant = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self._steps.append(Step("delete", meant))

    def _bring_node_back(self) -> None:
        """Under the name of one that is gone, whose pods may still be there."""
        if not self._gone_nodes:
            return
        name = self._random.choice(list(self._gone_nodes))
        node = self._nodes[name] = self._gone_nodes.pop(name)
        self._steps.append(Step("create", {"apiVersion": "v1", "kind": "Node", **node}))

    # -- pods ------------------------------------------------------------------------------------------------------

    def _add_pod(self, name: str) -> None:
        pod = admissible(generate.pod(self._random, name, _TASTE), self._features, self._random)
        if self._hard and "resources" not in pod["spec"]:
            for container in pod["spec"]["containers"][:1]:
                container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = "700m"
                container["resources"].setdefault("limits", {}).pop("cpu", None)
        self._pods.append(f"{pod['metadata']['namespace']}/{name}")
        if "gates" in self._features and self._random.random() < 0.04:
            pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
            self._gated.append(pod)
        self._steps.append(Step("create", pod, features=features_of(pod)))

    def _let_go(self, pod: Json) -> None:
        self._patch(
            "Pod",
            {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
            {"spec": {"schedulingGates": []}},
            features=features_of(pod),
        )

    def _some_pod(self) -> Json:
        namespace, name = self._random.choice(self._pods).split("/")
        return {"namespace": namespace, "name": name}

    def _delete_pod(self) -> None:
        if self._pods:
            meant = {"apiVersion": "v1", "kind": "Pod", "metadata": self._some_pod()}
            self._steps.append(Step("delete", meant))

    def _relabel_pod(self) -> None:
        if self._pods:
            labels = {"app": self._random.choice(("web", "db", "cache", None))}
            self._patch("Pod", self._some_pod(), {"metadata": {"labels": labels}})


# -- what an API server admits -----------------------------------------------------------------------------------------


def admissible(pod: Json, features: Collection[str], random: Random) -> Json:
    """The generated pod with only the wanted features, and nothing in it that an API server refuses."""
    spec, metadata = pod["spec"], pod["metadata"]
    metadata.pop("uid", None)
    spec["terminationGracePeriodSeconds"] = 0
    for name in ("overhead", "hostNetwork", "hostUsers", "volumes"):
        spec.pop(name, None)
    pod_level = spec.pop("resources", None)
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    seen_ports: set[tuple[int, str]] = set()
    for container in containers:
        _tidy_container(container, features, seen_ports)
    if pod_level and "resources" in features:
        _put_pod_level(spec, containers, random)
    if "taints" in features:
        spec["tolerations"] = [_tidy_toleration(t) for t in spec.get("tolerations", ())]
    else:
        spec.pop("tolerations", None)
    if "default-spread" not in features:
        metadata.pop("ownerReferences", None)
    if "topology-spread" not in features:
        spec.pop("topologySpreadConstraints", None)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _tidy_constraint(constraint)
    _tidy_affinity(spec, features)
    if "priorities" in features and random.random() < 0.4:
        spec["priorityClassName"] = random.choice(PRIORITIES)
    if "volumes" in features and random.random() < 0.12:
        claim = {"claimName": random.choice(CLAIMS)}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _tidy_container(
    container: Json, features: Collection[str], seen_ports: set[tuple[int, str]]
) -> None:
    container.pop("restartPolicyRules", None)
    if container.get("restartPolicy") != "Always":
        container.pop("restartPolicy", None)
    if "images" not in features:
        container["image"] = "reg.example/a:1"
    requests = container.get("resources", {}).get("requests", {})
    if "resources" not in features:
        for name in _NOT_OVERCOMMITTED:
            requests.pop(name, None)
    if "hugepages-2Mi" in requests:
        requests.setdefault("memory", "64Mi")
    limits = {name: requests[name] for name in _NOT_OVERCOMMITTED if name in requests}
    if limits:
        container["resources"]["limits"] = limits
    ports = []
    for port in container.pop("ports", ()) if "ports" in features else ():
        key = (port["hostPort"], port.get("protocol", "TCP"))
        # In one pod a port may be asked for once.
        if key not in seen_ports:
            seen_ports.add(key)
            ports.append(port)
    container.pop("ports", None)
    if ports:
        container["ports"] = ports


def _put_pod_level(spec: Json, containers: list[Json], random: Random) -> None:
    """The pod's own requests; containers ask for less than the pod, here for nothing of the same."""
    for container in containers:
        requests = container.get("resources", {}).get("requests", {})
        if any(name in requests for name in _NOT_OVERCOMMITTED):
            return
        for name in ("cpu", "memory"):
            requests.pop(name, None)
    spec["resources"] = {
        "requests": {
            "cpu": random.choice(("100m", "1", "1500m")),
            "memory": random.choice(("100Mi", "1Gi")),
        }
    }


def _tidy_toleration(toleration: Json) -> Json:
    if toleration["operator"] == "Gt" or "key" not in toleration:
        toleration = {**toleration, "operator": "Exists"}
    if toleration["operator"] == "Exists":
        toleration.pop("value", None)
    return toleration


def _tidy_constraint(constraint: Json) -> None:
    """A key may not be selected by value and by the pod's own value at once."""
    selector = constraint.get("labelSelector", {})
    selected = {*selector.get("matchLabels", ())}
    selected |= {each["key"] for each in selector.get("matchExpressions", ())}
    if selected & set(constraint.get("matchLabelKeys", ())):
        del constraint["matchLabelKeys"]


def _tidy_affinity(spec: Json, features: Collection[str]) -> None:
    affinity = spec.get("affinity", {})
    if "node-affinity" not in features:
        affinity.pop("nodeAffinity", None)
        spec.pop("nodeSelector", None)
    if "pod-affinity" not in features:
        affinity.pop("podAffinity", None)
        affinity.pop("podAntiAffinity", None)
    required = affinity.get("nodeAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = required["nodeSelectorTerms"] if required else []
    if len(terms) > 1:
        # Upstream: several terms by name leave several nodes, in random order.
        for term in terms:
            term.pop("matchFields", None)


def features_of(pod: Json) -> tuple[str, ...]:
    """The features that a pod puts to the test."""
    spec = pod["spec"]
    affinity = spec.get("affinity", {})
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    found = {
        "resources": "resources" in spec or any("resources" in c for c in containers),
        "node-affinity": "nodeAffinity" in affinity or "nodeSelector" in spec,
        "taints": bool(spec.get("tolerations")),
        "pod-affinity": "podAffinity" in affinity or "podAntiAffinity" in affinity,
        "topology-spread": "topologySpreadConstraints" in spec,
        "default-spread": "ownerReferences" in pod["metadata"],
        "ports": any("ports" in c for c in containers),
        "images": len({c["image"] for c in containers}) > 1,
        "priorities": "priorityClassName" in spec,
        "gates": "schedulingGates" in spec,
        "volumes": "volumes" in spec,
    }
    return tuple(name for name, present in found.items() if present)
