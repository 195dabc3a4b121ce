"""Random sequences: a cluster grows, pods arrive one by one, and objects change in between.

Decisions that kube-scheduler makes at random are avoided: a pod is never narrowed to several nodes
by name, because their order is random.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance import generate
from kubesched.lab.conformance.generate_devices import GPU, devices, give_devices, gpus
from kubesched.lab.conformance.generate_objects import NAMESPACES, PRIORITIES, initial_objects
from kubesched.lab.conformance.generate_terms import ZONE, chance
from kubesched.lab.conformance.generate_volumes import pod_volumes
from kubesched.lab.conformance.generate_workloads import configuration
from kubesched.lab.conformance.sequences import Json, Sequence, Step

VERSION = 6
"""Generator version: a seed's meaning changes with it."""

OTHER_PROFILE = "other-scheduler"
"""Name of the second profile, for pods that request it."""


def sequence(seed: str | int, pods: int, *, changes: bool = True) -> Sequence:
    """A sequence with about `pods` decisions; it depends only on its arguments.

    Without `changes`, no step changes or removes what an earlier one made.
    """
    return _Composer(seed, changes).compose(pods)


class _Composer:
    def __init__(self, seed: str | int, changes: bool) -> None:
        self._seed = seed
        self._changes = changes
        random = self._random = Random(f"sequence {seed}")
        # Not in every sequence: each would mask what else decides.
        self._has_devices = chance(random, 60)
        self._hard = chance(random, 50)
        """Whether nodes fill up, so that priorities matter."""
        self._slices: dict[str, Json] = {}
        self._gone_slices: dict[str, Json] = {}
        self._nodes: dict[str, Json] = {}
        self._gone_nodes: dict[str, Json] = {}
        self._pods: list[str] = []
        self._gated: list[Json] = []
        self._budgets: list[Json] = []
        self._steps: list[Step] = []

    def compose(self, pods: int) -> Sequence:
        random = self._random
        objects = initial_objects(random)
        if self._has_devices:
            objects += devices(random, NAMESPACES)
        self._budgets = [made for made in objects if made["kind"] == "PodDisruptionBudget"]
        self._slices = {
            made["metadata"]["name"]: made for made in objects if made["kind"] == "ResourceSlice"
        }
        for _ in range(random.randint(4, 16)):
            self._add_node()
        for number in range(pods):
            if self._changes and self._has_devices and chance(random, 10):
                self._change_slices()
            if self._changes and chance(random, 16):
                self._change()
            self._add_pod(f"p{number:04}")
            if self._gated and chance(random, 50):
                self._let_go(self._gated.pop(0))
        # Two profiles: the default, and one with other arguments and weights.
        made = configuration(random)
        other = {**made["profiles"][0], "schedulerName": OTHER_PROFILE}
        configured = {**made, "profiles": [{"schedulerName": "default-scheduler"}, other]}
        return Sequence(self._steps, objects, self._seed, configured)

    # -- nodes -------------------------------------------------------------------------------------

    def _add_node(self) -> None:
        name = f"n{len(self._nodes) + len(self._gone_nodes):03}"
        node = self._nodes[name] = generate.node(self._random, name)
        status = node["status"]
        if self._hard and status["allocatable"].get("cpu") not in (None, "0", "500m"):
            status["allocatable"] = {**status["allocatable"], "cpu": "4"}
        self._steps.append(Step("create", node))

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
    ) -> None:
        meant = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        self._steps.append(Step("patch", meant, change, subresource))

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
        if len(self._nodes) >= 4:
            name = self._random.choice(list(self._nodes))
            self._gone_nodes[name] = self._nodes.pop(name)
            self._delete("v1", "Node", {"name": name})

    def _delete(self, api_version: str, kind: str, metadata: Json) -> None:
        meant = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        self._steps.append(Step("delete", meant))

    def _bring_node_back(self) -> None:
        """Re-create a deleted node, whose pods may still exist."""
        if self._gone_nodes:
            name = self._random.choice(list(self._gone_nodes))
            node = self._nodes[name] = self._gone_nodes.pop(name)
            self._steps.append(Step("create", node))

    def _change_slices(self) -> None:
        """Delete, restore or republish a slice with other devices."""
        random = self._random
        kind = random.random()
        if self._gone_slices and kind < 0.3:
            name = random.choice(list(self._gone_slices))
            manifest = self._slices[name] = self._gone_slices.pop(name)
            self._steps.append(Step("create", manifest))
            return
        name = random.choice(list(self._slices))
        manifest = self._slices[name]
        if kind < 0.5 and len(self._slices) > 1:
            self._gone_slices[name] = self._slices.pop(name)
            self._delete(manifest["apiVersion"], "ResourceSlice", {"name": name})
            return
        spec = manifest["spec"]
        change: Json = {"pool": {**spec["pool"], "generation": spec["pool"]["generation"] + 1}}
        if chance(random, 70):
            others = gpus(random) if spec["driver"] == GPU else list(reversed(spec["devices"]))
            change["devices"] = others
        self._slices[name] = {**manifest, "spec": {**spec, **change}}
        version = manifest["apiVersion"]
        self._patch("ResourceSlice", {"name": name}, {"spec": change}, api_version=version)

    # -- pods --------------------------------------------------------------------------------------

    def _add_pod(self, name: str) -> None:
        random = self._random
        pod = generate.pod(random, name)
        spec = pod["spec"]
        if chance(random, 40):
            spec["priorityClassName"] = random.choice(PRIORITIES)
        if chance(random, 30):
            spec["schedulerName"] = OTHER_PROFILE
        if chance(random, 18):
            spec["volumes"] = pod_volumes(random)
            if chance(random, 60):
                # Makes volumes the deciding constraint more often.
                spec.pop("affinity", None)
                spec.pop("topologySpreadConstraints", None)
        if self._hard and "resources" not in spec:
            container = spec["containers"][0]
            container.setdefault("resources", {}).setdefault("requests", {})["cpu"] = "700m"
        self._pods.append(f"{pod['metadata']['namespace']}/{name}")
        has_devices = self._has_devices and give_devices(random, pod)
        if self._changes and not has_devices and chance(random, 3):
            # Placed by another scheduler, whether or not it fits.
            spec["nodeName"] = random.choice(list(self._nodes))
        elif chance(random, 4):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
            self._gated.append(pod)
        self._steps.append(Step("create", pod))

    def _let_go(self, pod: Json) -> None:
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
        self._patch("Pod", metadata, {"spec": {"schedulingGates": []}})

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
            self._delete("v1", "Pod", self._some_pod())

    def _relabel_pod(self) -> None:
        if self._pods:
            labels = {"app": self._random.choice(("web", "db", "cache", None))}
            self._patch("Pod", self._some_pod(), {"metadata": {"labels": labels}})
