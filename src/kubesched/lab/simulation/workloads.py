"""Objects of the simulated cluster: small nodes, so that pods compete, and mixes of pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kubesched.playground.apimachinery.objects import JsonObject

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
ZONES = ("a", "b", "c")
GATE = "example.com/wait"
APPS = ("web", "db")
TEAMS = ("red", "blue")
"""Labels of the namespace."""
CLAIM_COUNT = 16
CLAIM_TEMPLATES = ("one", "two", "either", "all", "part", "alike")
"""Kinds of resource claims."""
EXTENDED_RESOURCE = "example.com/gpu"
"""Served by devices."""
SHARED_CLAIMS = ("team-1", "team-2", "team-3")
PRIORITIES = {"low": 10, "middle": 100, "high": 1000}
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
TAINT = {"key": "example.com/maintenance", "value": "yes", "effect": "NoSchedule"}


def node_labels(random: Random) -> JsonObject:
    return {"disk": random.choice(("ssd", "hdd")), ZONE: random.choice(ZONES)}


def node(name: str, random: Random) -> JsonObject:
    """A node for a handful of pods."""
    room = {
        "cpu": str(random.choice((2, 3, 4))),
        "memory": "4Gi",
        "pods": str(random.choice((4, 6, 110))),
    }
    return {
        "metadata": {
            "name": name,
            "labels": {
                HOSTNAME: name,
                ZONE: random.choice(ZONES),
                "disk": random.choice(("ssd", "hdd")),
            },
        },
        "spec": {},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def requests(random: Random) -> JsonObject:
    return {
        "cpu": f"{random.choice((100, 250, 500, 1000, 1500))}m",
        "memory": f"{random.choice((64, 256, 512))}Mi",
    }


def _pod(name: str, random: Random) -> JsonObject:
    container = {"name": "c", "image": "app", "resources": {"requests": requests(random)}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": random.choice(APPS)}},
        "spec": {"containers": [container]},
    }


def _plain(pod: JsonObject, random: Random) -> None:
    spec = pod["spec"]
    if random.random() < 0.3:
        spec["nodeSelector"] = {"disk": random.choice(("ssd", "hdd"))}
    if random.random() < 0.2:
        spec["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]


def _affinity(pod: JsonObject, random: Random) -> None:
    app = random.choice(APPS)
    term = {
        "topologyKey": random.choice((HOSTNAME, ZONE)),
        "labelSelector": {"matchLabels": {"app": app}},
    }
    if random.random() < 0.3:
        term["namespaceSelector"] = {"matchLabels": {"team": random.choice(TEAMS)}}
    kind = random.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
    pod["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _spread(pod: JsonObject, random: Random) -> None:
    pod["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": random.choice((1, 2)),
            "topologyKey": random.choice((HOSTNAME, ZONE)),
            "whenUnsatisfiable": random.choice(
                ("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")
            ),
            "labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}},
        }
    ]


def _ports(pod: JsonObject, random: Random) -> None:
    port = random.choice((8080, 8081))
    pod["spec"]["containers"][0]["ports"] = [
        {"containerPort": port, "hostPort": port, "protocol": "TCP"}
    ]


def _priorities(pod: JsonObject, random: Random) -> None:
    never = "-never" if random.random() < 0.1 else ""
    pod["spec"]["priorityClassName"] = random.choice(tuple(PRIORITIES)) + never


def _gates(pod: JsonObject, random: Random) -> None:
    if random.random() < 0.7:
        pod["spec"]["schedulingGates"] = [{"name": GATE}]


def _volumes(pod: JsonObject, random: Random) -> None:
    """Few claims for many pods: some are shared."""
    claims = random.sample(range(1, CLAIM_COUNT + 1), random.choice((1, 1, 2)))
    pod["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}}
        for number in claims
    ]


def _devices(pod: JsonObject, random: Random) -> None:
    """Mostly claims, else an extended resource."""
    if random.random() < 0.75:
        _claims(pod, random)
        return
    resources = pod["spec"]["containers"][0]["resources"]
    amount = {EXTENDED_RESOURCE: random.choice(("1", "1", "2"))}
    resources.update(requests=resources["requests"] | amount, limits=amount)


def wants_extended_resource(pod: JsonObject) -> bool:
    return EXTENDED_RESOURCE in pod["spec"]["containers"][0]["resources"].get("limits", {})


def _claims(pod: JsonObject, random: Random) -> None:
    """Usually the pod's own claims, occasionally a shared one."""
    entries: list[JsonObject] = [
        {"name": f"d{number}", "resourceClaimTemplateName": random.choice(CLAIM_TEMPLATES)}
        for number in range(random.choice((1, 1, 2)))
    ]
    if random.random() < 0.3:
        entries[0] = {"name": "d0", "resourceClaimName": random.choice(SHARED_CLAIMS)}
    pod["spec"]["resourceClaims"] = entries


def resource_claim_names(pod: JsonObject) -> list[str]:
    """Names of the pod's resource claims, as far as they are known."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {status["name"]: status.get("resourceClaimName") for status in statuses}
    names = (
        entry.get("resourceClaimName") or made.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
    )
    return [name for name in names if name]


def claim_names(pod: JsonObject) -> list[str]:
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    ]


def budget(app: str, min_available: int) -> JsonObject:
    """A disruption budget for an application."""
    return {
        "metadata": {"name": f"keep-{app}", "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


def pod_group(name: str, member: JsonObject, size: int, random: Random) -> JsonObject:
    """A group for pods like this one; few need more of them than there are."""
    minimum = random.choice((size, size, size, size, max(size - 1, 1), size + 1))
    gang = {"gang": {"minCount": minimum}}
    spec: JsonObject = {
        "schedulingPolicy": {"basic": {}} if random.random() < 0.15 else gang,
        "disruptionMode": {random.choice(("single", "all")): {}},
    }
    if random.random() < 0.4:
        spec["schedulingConstraints"] = {"topology": [{"key": random.choice((ZONE, "disk"))}]}
    priority_class = member["spec"].get("priorityClassName")
    if priority_class is not None and random.random() < 0.95:  # else the group is invalid
        spec["priorityClassName"] = priority_class
        spec["preemptionPolicy"] = PREEMPTION_POLICIES[priority_class.endswith("-never")]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def share_claims(group: JsonObject, member: JsonObject, random: Random) -> None:
    """Let the group have claims of its members, which share them."""
    _claims(member, random)
    claims = member["spec"]["resourceClaims"]
    group["spec"]["resourceClaims"] = claims[: random.choice((1, len(claims)))]


def composites(group: JsonObject, member: JsonObject, random: Random) -> list[JsonObject]:
    """A composite for groups with this one's priority, its child, and perhaps a root above it."""
    spec, asked = group["spec"], {"priorityClassName", "preemptionPolicy"}
    priority_class = member["spec"].get("priorityClassName")
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
        spec["preemptionPolicy"] = PREEMPTION_POLICIES[priority_class.endswith("-never")]
    spec["workloadRef"] = {"workloadName": "w", "templateName": "t"}
    made: list[JsonObject] = []
    for level in ("c", "root")[: random.choice((1, 2))]:
        name = f"{level}-{priority_class or 'default'}"
        (made[-1]["spec"] if made else spec)["parentCompositePodGroupName"] = name
        gang = {"gang": {"minGroupCount": random.choice((1, 1, 2))}}
        composite: JsonObject = {
            "schedulingPolicy": {"basic": {}} if random.random() < 0.3 else gang,
            "disruptionMode": {random.choice(("single", "all")): {}},
            "workloadRef": spec["workloadRef"],
            **{field: spec[field] for field in sorted(asked & spec.keys())},
        }
        if random.random() < 0.3:
            composite["schedulingConstraints"] = {"topology": [{"key": ZONE}]}
        made.append({"metadata": {"name": name, "namespace": "default"}, "spec": composite})
    return made


def group_name(pod: JsonObject) -> str:
    name: str = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    return name


MIXES: dict[str, Callable[[JsonObject, Random], None]] = {
    "plain": _plain,
    "affinity": _affinity,
    "spread": _spread,
    "ports": _ports,
    "priorities": _priorities,
    "gates": _gates,
    "volumes": _volumes,
    "devices": _devices,
}


def pod(name: str, mixes: Sequence[str], random: Random) -> JsonObject:
    """A pod of one of the mixes, rarely of two."""
    made = _pod(name, random)
    for mix in random.sample(mixes, 2 if len(mixes) > 1 and random.random() < 0.25 else 1):
        MIXES[mix](made, random)
    return made


SCRIPTS = "kubernetes κυβερνήτης Кубернетес クーベネティス 🚢\U0010ffff \u2028 \u202e é"


def oddly(made: JsonObject, random: Random) -> JsonObject:
    """Add parts that make an object large or hard to decode."""
    text = SCRIPTS * random.choice((1, 40, 2_000))
    made["metadata"]["annotations"] = {"example.com/text": text}
    if "containers" in made["spec"]:
        more = [{"name": f"c{number}", "image": "app"} for number in range(random.choice((0, 60)))]
        made["spec"]["containers"] += more
        made["spec"].setdefault("tolerations", []).extend(
            {"key": f"example.com/{number}", "operator": "Exists"}
            for number in range(random.choice((0, 200)))
        )
    else:
        made["status"]["images"] = [
            {"names": [f"registry.example.com/image-{number}:1"], "sizeBytes": number * 10**7}
            for number in range(50)
        ]
    return made


def priority_classes() -> list[JsonObject]:
    return [
        {"metadata": {"name": name + suffix}, "value": value, "preemptionPolicy": policy}
        for name, value in PRIORITIES.items()
        for suffix, policy in zip(("", "-never"), PREEMPTION_POLICIES, strict=True)
    ]
