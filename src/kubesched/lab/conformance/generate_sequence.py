"""Random sequences: a cluster grows, pods arrive one by one, and objects change in between.

Uses the nodes and pods of `generate`, in a form that an API server admits. Decisions that
kube-scheduler makes at random are avoided: a pod is never narrowed to several nodes by name,
because their order is random.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

from kubesched.lab.conformance import generate
from kubesched.lab.conformance.generate_admissible import OTHER_PROFILE, admissible, features_of
from kubesched.lab.conformance.generate_devices import (
    ADMIN_LABEL,
    ADMIN_NAMESPACE,
    GPU,
    devices,
    give_devices,
    gpu,
)
from kubesched.lab.conformance.generate_extenders import extended
from kubesched.lab.conformance.generate_objects import NAMESPACES, initial_objects
from kubesched.lab.conformance.generate_resizes import (
    RESIZES_WHOLE_PODS,
    kubelet_report,
    put_pod_level,
    resize,
)
from kubesched.lab.conformance.generate_terms import ZONE
from kubesched.lab.conformance.generate_workloads import configuration
from kubesched.lab.conformance.sequences import Json, Sequence, Step

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
    "profiles",
    "changes",
    "pod-level",
    "resize",
    "extenders",
    "devices",
)
"""Features that sequences exercise; decisions are tallied by these names."""

_TASTE = generate.Taste(workloads=True)

VERSION = 4
"""Generator version: a seed's meaning changes with it.

Without `devices` a seed means the same as in version 3; without `pod-level`, `resize` and
`extenders` as well, the same as in version 2.
"""


def sequence(seed: str | int, pods: int, features: Collection[str] = FEATURES) -> Sequence:
    """A sequence with about `pods` decisions; it depends only on its arguments."""
    return _Composer(seed, frozenset(features)).compose(pods)


class _Composer:
    def __init__(self, seed: str | int, features: frozenset[str]) -> None:
        self._seed = seed
        random = self._random = Random(f"sequence {seed}")
        more = self._more = Random(f"sequence {seed}: more")
        """For the features of version 3, so that earlier draws do not change."""
        self._features = features - {
            # Not in every sequence: each would mask the others.
            name
            for name, share in (("pod-level", 0.5), ("resize", 0.5), ("extenders", 0.4))
            if more.random() >= share and len(features) > 2
        }
        dice = self._dice = Random(f"sequence {seed}: devices")
        """For devices, so that earlier draws do not change."""
        if dice.random() >= 0.6 and len(features) > 2:
            self._features -= {"devices"}
        self._slices: dict[str, Json] = {}
        self._gone_slices: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._gone_nodes: dict[str, Json] = {}
        self._pods: list[str] = []
        self._made: dict[str, Json] = {}
        """Pods by key, as created."""
        self._pod_level: set[str] = set()
        """Names of pods with pod-level resources."""
        self._gated: list[Json] = []
        self._budgets: list[Json] = []
        self._steps: list[Step] = []
        self._hard = random.random() < 0.5
        """Whether nodes fill up, so that priorities matter."""

    def compose(self, pods: int) -> Sequence:
        random = self._random
        objects = initial_objects(random, self._features)
        self._budgets = [
            manifest for manifest in objects if manifest["kind"] == "PodDisruptionBudget"
        ]
        if "devices" in self._features:
            objects += self._devices(objects)
        for _ in range(random.randint(4, 16)):
            self._add_node()
        for number in range(pods):
            if {"devices", "changes"} <= self._features and self._dice.random() < 0.1:
                self._change_slices()
            if "changes" in self._features and random.random() < 0.16:
                self._change()
            if "resize" in self._features and self._more.random() < 0.25:
                self._resize_pod()
            self._add_pod(f"p{number:04}")
            if self._gated and random.random() < 0.5:
                self._let_go(self._gated.pop(0))
        configuration = self._configuration()
        if "extenders" not in self._features:
            return Sequence(self._steps, objects, self._seed, configuration)
        configuration, extenders = extended(self._more, configuration, str(self._seed))
        return Sequence(self._steps, objects, self._seed, configuration, extenders)

    def _configuration(self) -> Json:
        """Two profiles: the default, and one with other arguments and weights."""
        if "profiles" not in self._features:
            return {}
        made = configuration(self._random)
        other = {**made["profiles"][0], "schedulerName": OTHER_PROFILE}
        return {**made, "profiles": [{"schedulerName": "default-scheduler"}, other]}

    # -- nodes -------------------------------------------------------------------------------------

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
        if "resize" in self._features:
            status["declaredFeatures"] = [RESIZES_WHOLE_PODS]
        if self._hard and status["allocatable"].get("cpu") not in (None, "0", "500m"):
            status["allocatable"] = {**status["allocatable"], "cpu": "4"}
        self._nodes[name] = node
        self._steps.append(Step("create", {"apiVersion": "v1", "kind": "Node", **node}))

    def _change(self) -> None:
        changes = (
            self._delete_pod,
            self._delete_pod,
            self._relabel_pod,
            self._finish_pod,
            self._relabel_node,
            self._taint_node,
            self._cordon_node,
            self._resize_node,
            self._change_images,
            self._relabel_namespace,
            self._change_budget,
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
        api_version: str = "v1",
        **more: Any,  # noqa: ANN401  # fields of Step
    ) -> None:
        meant = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
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

    def _change_images(self) -> None:
        if "images" in self._features:
            self._patch_node({"status": {"images": generate.node_images(self._random)}}, "status")

    def _relabel_namespace(self) -> None:
        labels = {"env": self._random.choice(("prod", "test", None))}
        name = self._random.choice(NAMESPACES)
        self._patch("Namespace", {"name": name}, {"metadata": {"labels": labels}})

    def _change_budget(self) -> None:
        if self._budgets:
            metadata = self._random.choice(self._budgets)["metadata"]
            change = {"status": {"disruptionsAllowed": self._random.randint(0, 2)}}
            self._patch("PodDisruptionBudget", metadata, change, "status", "policy/v1")

    def _delete_node(self) -> None:
        if len(self._nodes) < 4:
            return
        name = self._random.choice(list(self._nodes))
        self._gone_nodes[name] = self._nodes.pop(name)
        meant = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self._steps.append(Step("delete", meant))

    def _bring_node_back(self) -> None:
        """Re-create a deleted node, whose pods may still exist."""
        if not self._gone_nodes:
            return
        name = self._random.choice(list(self._gone_nodes))
        node = self._nodes[name] = self._gone_nodes.pop(name)
        self._steps.append(Step("create", {"apiVersion": "v1", "kind": "Node", **node}))

    # -- devices -----------------------------------------------------------------------------------

    def _devices(self, objects: list[Json]) -> list[Json]:
        for manifest in objects:
            if manifest["kind"] == "Namespace" and manifest["metadata"]["name"] == ADMIN_NAMESPACE:
                manifest["metadata"].setdefault("labels", {})[ADMIN_LABEL] = "true"
        made = devices(self._dice, NAMESPACES)
        self._slices = {
            manifest["metadata"]["name"]: manifest
            for manifest in made
            if manifest["kind"] == "ResourceSlice"
        }
        return made

    def _change_slices(self) -> None:
        """Delete, restore or republish a slice with other devices."""
        dice = self._dice
        kind = dice.random()
        if self._gone_slices and kind < 0.3:
            name = dice.choice(list(self._gone_slices))
            manifest = self._slices[name] = self._gone_slices.pop(name)
            self._steps.append(Step("create", manifest))
            return
        name = dice.choice(list(self._slices))
        manifest = self._slices[name]
        metadata = {"name": name}
        if kind < 0.5 and len(self._slices) > 1:
            self._gone_slices[name] = self._slices.pop(name)
            meant = {
                "apiVersion": manifest["apiVersion"],
                "kind": "ResourceSlice",
                "metadata": metadata,
            }
            self._steps.append(Step("delete", meant))
            return
        spec = manifest["spec"]
        pool = {**spec["pool"], "generation": spec["pool"]["generation"] + 1}
        if "devices" not in spec or dice.random() < 0.3:
            change: Json = {"pool": pool}
        elif spec["driver"] == GPU:
            change = {"pool": pool, "devices": [gpu(dice, n) for n in range(dice.randint(1, 4))]}
        else:
            change = {"pool": pool, "devices": list(reversed(spec["devices"]))}
        self._slices[name] = {**manifest, "spec": {**spec, **change}}
        self._patch(
            "ResourceSlice",
            metadata,
            {"spec": change},
            api_version=manifest["apiVersion"],
        )

    # -- pods --------------------------------------------------------------------------------------

    def _add_pod(self, name: str) -> None:
        pod = admissible(generate.pod(self._random, name, _TASTE), self._features, self._random)
        if self._hard and "resources" not in pod["spec"]:
            for container in pod["spec"]["containers"][:1]:
                container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = "700m"
                container["resources"].setdefault("limits", {}).pop("cpu", None)
        key = f"{pod['metadata']['namespace']}/{name}"
        if "pod-level" in self._features and self._more.random() < 0.2:
            self._pod_level |= {name} if put_pod_level(self._more, pod) else set()
        self._pods.append(key)
        self._made[key] = pod
        has_devices = "devices" in self._features and give_devices(self._dice, pod)
        if "changes" in self._features and self._random.random() < 0.03 and not has_devices:
            # Placed by another scheduler, whether or not it fits.
            pod["spec"]["nodeName"] = self._random.choice(list(self._nodes))
            self._steps.append(Step("create", pod))
            return
        if "gates" in self._features and self._random.random() < 0.04:
            pod["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
            self._gated.append(pod)
        self._steps.append(Step("create", pod, features=self._features_of(pod)))

    def _features_of(self, pod: Json) -> tuple[str, ...]:
        by_pod_level = pod["metadata"]["name"] in self._pod_level
        return features_of(pod) + (("pod-level",) if by_pod_level else ())

    def _let_go(self, pod: Json) -> None:
        self._patch(
            "Pod",
            {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
            {"spec": {"schedulingGates": []}},
            features=self._features_of(pod),
        )

    def _resize_pod(self) -> None:
        """Resize a recent pod, placed or pending; the kubelet may report on it."""
        if not self._pods:
            return
        random, key = self._more, self._more.choice(self._pods[-30:])
        pod = self._made[key]
        namespace, name = key.split("/")
        metadata = {"namespace": namespace, "name": name}
        change = resize(random, pod)
        if change is not None:
            self._patch("Pod", metadata, change, "resize", features=("resize",))
        if "schedulingGates" not in pod["spec"] and random.random() < 0.6:
            self._patch("Pod", metadata, kubelet_report(random, pod), "status")

    def _finish_pod(self) -> None:
        waiting = {pod["metadata"]["name"] for pod in self._gated}
        if self._pods and (pod := self._some_pod())["name"] not in waiting:
            phase = self._random.choice(("Succeeded", "Failed"))
            self._patch("Pod", pod, {"status": {"phase": phase}}, "status")

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
