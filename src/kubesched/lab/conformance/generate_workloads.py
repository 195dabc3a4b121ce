"""Random owners of pods, and configurations (see `generate`)."""

from __future__ import annotations

from random import Random

from kubesched.lab.conformance.generate_terms import ZONE, node_affinity
from kubesched.lab.conformance.sequences import Json

_VERSION = "kubescheduler.config.k8s.io/v1"
_OWNERS = (
    ("v1", "ReplicationController", "rc"),
    ("apps/v1", "ReplicaSet", "rs"),
    ("apps/v1", "StatefulSet", "ss"),
    ("batch/v1", "Job", "job"),
    ("apps/v1beta1", "ReplicaSet", "rs"),
)


def owner_references(random: Random) -> list[Json]:
    """The pod's owner; it need not exist."""
    api_version, kind, name = random.choice(_OWNERS)
    controls = random.randint(1, 100) <= 85
    return [
        {"apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": controls}
    ]


def configuration(random: Random) -> Json:
    """A configuration with one profile, arguments for some plugins and other weights."""
    resources = random.sample(("cpu", "memory", "ephemeral-storage", "example.com/gpu"), 3)
    args: dict[str, Json] = {
        "NodeResourcesFit": _fit_args(random, resources),
        "NodeResourcesBalancedAllocation": {
            "resources": [{"name": name, "weight": 1} for name in resources]
        },
        "NodeAffinity": {"addedAffinity": node_affinity(random)},
        "PodTopologySpread": _spread_args(random),
        "InterPodAffinity": {
            "hardPodAffinityWeight": random.choice((0, 1, 50, 100)),
            "ignorePreferredTermsOfExistingPods": bool(random.randint(0, 1)),
        },
    }
    profile: Json = {
        "schedulerName": "default-scheduler",
        "pluginConfig": [
            {"name": name, "args": {"apiVersion": _VERSION, "kind": f"{name}Args", **told}}
            for name, told in args.items()
            if random.randint(0, 1)
        ],
    }
    if random.randint(0, 1):
        profile["plugins"] = _other_plugins(random)
    return {"apiVersion": _VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}


def _other_plugins(random: Random) -> Json:
    weighted = random.choice(("ImageLocality", "NodeResourcesFit", "InterPodAffinity"))
    dropped = random.choice(("TaintToleration", "NodeAffinity", "PodTopologySpread"))
    return {
        "score": {
            "enabled": [{"name": weighted, "weight": random.randint(1, 9)}],
            "disabled": [{"name": dropped}],
        },
        "filter": {"disabled": [{"name": random.choice(("NodePorts", "NodeName", dropped))}]},
    }


def _fit_args(random: Random, names: list[str]) -> Json:
    strategy: Json = {
        "type": random.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        "resources": [{"name": name, "weight": random.randint(1, 9)} for name in names],
    }
    if strategy["type"] == "RequestedToCapacityRatio":
        utilizations = sorted(random.sample(range(101), random.randint(1, 4)))
        strategy["requestedToCapacityRatio"] = {
            "shape": [{"utilization": at, "score": random.randint(0, 10)} for at in utilizations]
        }
    args: Json = {"scoringStrategy": strategy}
    if random.randint(0, 1):
        args["ignoredResources"] = ["example.com/fpga"]
    if random.randint(0, 1):
        args["ignoredResourceGroups"] = [random.choice(("example.com", "other.example"))]
    return args


def _spread_args(random: Random) -> Json:
    if random.randint(0, 2) == 0:
        return {"defaultingType": "System"}
    keys = random.sample((ZONE, "kubernetes.io/hostname", "disk"), random.randint(0, 2))
    return {
        "defaultingType": "List",
        "defaultConstraints": [
            {
                "maxSkew": random.randint(1, 3),
                "topologyKey": key,
                "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
            }
            for key in keys
        ],
    }
