"""Random sequences of pod groups, for schedulers with the gates of groups on.

A sequence has a small cluster, in part filled, and a few groups one after the other: each is
created with its members, and then changed. Nodes differ in size and racks in memory, since
kube-scheduler chooses at random between placements with equal scores.
"""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance import generate_devices
from kubesched.lab.conformance.generate_objects import priority_classes
from kubesched.lab.conformance.sequences import Json, Sequence, Step, named
from kubesched.testing.control_plane import GROUP_CLAIMS, GROUP_GATES

_GATES = (GROUP_GATES[:1], GROUP_GATES[:2], GROUP_GATES)

_CONFIGURATION: Json = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
"""A failed group is soon tried again, so that a step ends with what its cluster allows."""

_DEVICES = 0.4
"""Share of sequences with devices. A pod has one claim: of several, a random one is deallocated."""

_HOST = "kubernetes.io/hostname"
_POLITE = "high-but-polite"


def group_sequence(seed: str | int) -> Sequence:
    """A sequence; it depends only on its seed."""
    return _Composer(seed).compose()


class _Composer:
    def __init__(self, seed: str | int) -> None:
        self._seed = seed
        self._random = Random(f"groups {seed}")
        self._gates = self._random.choice(_GATES)
        self._devices = Random(f"devices of groups {seed}")
        self._has_devices = self._devices.random() < _DEVICES
        self._nodes: list[str] = []
        self._fillers: list[str] = []
        self._groups = 0
        self._steps: list[Step] = []

    def compose(self) -> Sequence:
        random = self._random
        objects = priority_classes()
        if self._has_devices:
            objects += generate_devices.device_classes()
            for number in range(1, 9):
                devices = generate_devices.gpus(self._devices)[: self._devices.randint(0, 3)]
                objects += [generate_devices.slice_of(f"n{number}", devices)] if devices else []
        for _ in range(random.randint(2, 5)):
            # As steps: a scheduler that starts lists nodes in any order, and ties follow it.
            node = self._node()
            self._create(node, *self._filled(node["metadata"]["name"]), compared=False)
        objects.append(self._group("old", random.choice(("low", "")), {"basic": {}}, ""))
        if random.random() < 0.3:
            objects.append(_budget(random.randint(0, 1)))
        for _ in range(random.randint(2, 3)):
            if "CompositePodGroup" in self._gates and random.random() < 0.6:
                self._play_tree()
            else:
                self._play_group()
        gates = dict.fromkeys(self._gates, True)
        gates |= {GROUP_CLAIMS: True} if self._has_devices else {}
        return Sequence(self._steps, objects, self._seed, _CONFIGURATION, gates=gates)

    # -- the cluster -------------------------------------------------------------------------------

    def _node(self) -> Json:
        number = len(self._nodes) + 1
        name = f"n{number}"
        self._nodes.append(name)
        labels = {_HOST: name}
        if self._random.random() < 0.9:
            labels["rack"] = f"r{number % 2}"
        size = {
            "cpu": str(self._random.randint(2, 4)),
            "memory": f"{9 + number * number}Gi",
            "pods": "110",
        }
        ready = [{"type": "Ready", "status": "True"}]
        return {
            **_object("v1", "Node", name, labels=labels),
            "status": {"capacity": size, "allocatable": size, "conditions": ready},
        }

    def _filled(self, node: str) -> list[Json]:
        """Pods that run already, some of them in a group."""
        random = self._random
        pods = []
        for _ in range(random.randint(0, 3)):
            name = f"old{len(self._fillers)}"
            group = "old" if random.random() < 0.4 else ""
            priority = "" if group else random.choice(("low", "low", "middle", ""))
            pod = _pod(name, random.choice(("500m", "1")), priority, group)
            pod["metadata"]["labels"] = {"app": "old"}
            pod["spec"]["nodeName"] = node
            self._fillers.append(name)
            pods.append(pod)
        return pods

    # -- groups ------------------------------------------------------------------------------------

    def _group(self, name: str, priority: str, policy: Json, parent: str) -> Json:
        random = self._random
        spec: Json = {"schedulingPolicy": policy}
        if random.random() < 0.5:
            spec["disruptionMode"] = random.choice(({"all": {}}, {"single": {}}))
        if priority:
            spec["priorityClassName"] = priority
        if priority == _POLITE:
            spec["preemptionPolicy"] = "Never"
        if len(self._gates) > 1 and random.random() < 0.5:
            spec["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        if parent:
            spec["parentCompositePodGroupName"] = parent
        if parent or "minGroupCount" in policy.get("gang", {}):
            spec["workloadRef"] = {"workloadName": "w", "templateName": name.replace(".", "-")}
        version, kind = "v1beta1", "PodGroup"
        if "minGroupCount" in policy.get("gang", {}):
            version, kind = "v1alpha3", "CompositePodGroup"
        return {**_object(f"scheduling.k8s.io/{version}", kind, name), "spec": spec}

    def _play_group(self) -> None:
        random = self._random
        name, size = f"g{self._groups}", random.randint(1, 4)
        self._groups += 1
        minimum = max(1, size - random.choice((-1, 0, 0, 0, 1)))
        policy: Json = {"gang": {"minCount": minimum}} if random.random() < 0.8 else {"basic": {}}
        priority = random.choice(("", "low", "middle", "high", "high", _POLITE))
        group = self._group(name, priority, policy, "")
        members = self._members(name, size, priority)
        self._share_claims(group, members)
        if random.random() < 0.3:
            self._create(*members)
            self._create(group, compared=False)
        else:
            self._create(group, compared=False)
            self._create(*members)
        self._let_go(members[0])
        for _ in range(random.randint(1, 3)):
            self._change(group, members)

    def _play_tree(self) -> None:
        """A group of groups, of which enough have to start together."""
        random = self._random
        root = f"c{self._groups}"
        children = [f"g{self._groups + number}" for number in range(2)]
        self._groups += 2
        priority = random.choice(("", "middle", "high"))
        minimum = {"gang": {"minGroupCount": random.randint(1, 2)}}
        self._create(self._group(root, priority, minimum, ""), compared=False)
        last: list[Json] = []
        for child in children:
            size = random.randint(1, 2)
            policy: Json = {"gang": {"minCount": size}}
            group = self._group(child, priority, policy, root)
            last = self._members(child, size, priority)
            self._share_claims(group, last)
            self._create(group, compared=False)
            self._create(*last)
            self._let_go(last[0])
        self._change(group, last)

    def _members(self, group: str, size: int, priority: str) -> list[Json]:
        """Pods of the group; the first has a scheduling gate, so that all begin together."""
        random = self._random
        cpu = random.choice(("500m", "1", "1", "2"))
        members = [_pod(f"{group}-{number}", cpu, priority, group) for number in range(size)]
        members[0]["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        kind = random.random()
        for member in members:
            member["metadata"]["labels"] = {"app": group}
            if kind < 0.15:
                member["spec"]["affinity"] = _apart(group)
            elif kind < 0.25:
                member["spec"]["topologySpreadConstraints"] = [_spread(group)]
            elif kind < 0.35:
                member["spec"]["nodeSelector"] = {"rack": "r1"}
        if random.random() < 0.06:  # not what the group says
            members[-1]["spec"]["priorityClassName"] = "middle"
        return members

    def _share_claims(self, group: Json, members: list[Json]) -> None:
        """Let members use a claim of their group, one that they share, or one each."""
        if not self._has_devices:
            return
        random, name = self._devices, group["metadata"]["name"]
        kind = random.choice(("group", "group", "members", "each", ""))
        count = random.choice((1, 1, 2))
        if kind and kind != "each":
            self._create(generate_devices.claim_of_gpus(name, count), compared=False)
        for member in members if kind else ():
            named = name
            if kind == "each":
                named = member["metadata"]["name"]
                self._create(generate_devices.claim_of_gpus(named, 1), compared=False)
            member["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": named}]
        if kind == "group":
            group["spec"]["resourceClaims"] = members[0]["spec"]["resourceClaims"]

    # -- changes -----------------------------------------------------------------------------------

    def _change(self, group: Json, members: list[Json]) -> None:
        random = self._random
        name = group["metadata"]["name"]
        kind = random.randrange(8)
        if kind == 0 and "gang" in group["spec"]["schedulingPolicy"]:
            count = {"gang": {"minCount": random.randint(1, len(members) + 1)}}
            change = {"spec": {"schedulingPolicy": count}}
            self._step("patch", _meant(group), change)
        elif kind == 1 and self._starts_together(group, members):
            self._step("delete", _meant(group))
            self._create(group)
        elif kind == 2:
            self._step("delete", _meant(random.choice(members)))
        elif kind == 3 and self._fillers:
            gone = self._fillers.pop(random.randrange(len(self._fillers)))
            self._step("delete", _object("v1", "Pod", gone))
        elif kind == 4:
            self._create(self._node())
        elif kind == 5:
            cordoned = {"spec": {"unschedulable": random.random() < 0.7}}
            self._step("patch", _object("v1", "Node", random.choice(self._nodes)), cordoned)
        elif kind == 6:
            alone = _pod(f"{name}-alone", random.choice(("1", "2")), random.choice(("high", "")))
            self._create(alone)
        else:
            late = _pod(f"{name}-late{len(self._steps)}", "1", _priority(group), name)
            late["metadata"]["labels"] = {"app": name}
            if claims := group["spec"].get("resourceClaims"):
                late["spec"]["resourceClaims"] = claims
            self._create(late)
            members.append(late)

    @staticmethod
    def _starts_together(group: Json, members: list[Json]) -> bool:
        """Whether no member can be tried before all are there, however fast the scheduler is."""
        gang = group["spec"]["schedulingPolicy"].get("gang", {})
        return int(gang.get("minCount", 0)) >= len(members)

    def _create(self, *manifests: Json, compared: bool = True) -> None:
        """Create objects one right after the other; what comes of it is compared after the last."""
        for manifest in manifests:
            self._step("create", manifest, compared=compared and manifest is manifests[-1])

    def _let_go(self, member: Json) -> None:
        self._step("patch", _meant(member), {"spec": {"schedulingGates": []}})

    def _step(
        self, action: str, manifest: Json, patch: Json | None = None, *, compared: bool = True
    ) -> None:
        step = Step(action, manifest, patch or {}, compares_all=compared)  # type: ignore[arg-type]
        self._steps.append(step)


def _object(api_version: str, kind: str, name: str, labels: Json | None = None) -> Json:
    return named(api_version, kind, name, "" if kind == "Node" else "default", labels)


def _meant(manifest: Json) -> Json:
    return _object(manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])


def _priority(group: Json) -> str:
    return str(group["spec"].get("priorityClassName", ""))


def _pod(name: str, cpu: str, priority: str, group: str = "") -> Json:
    requests = {"cpu": cpu, "memory": "100Mi"}
    spec: Json = {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
    }
    if priority:
        spec["priorityClassName"] = priority
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {**_object("v1", "Pod", name), "spec": spec}


def _budget(allowed: int) -> Json:
    return {
        **_object("policy/v1", "PodDisruptionBudget", "budget"),
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "old"}}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
        },
    }


def _apart(group: str) -> Json:
    selector = {"matchLabels": {"app": group}}
    term = {"labelSelector": selector, "topologyKey": _HOST}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(group: str) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": _HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": group}},
    }
