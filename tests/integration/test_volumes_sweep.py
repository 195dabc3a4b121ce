"""Every single API call of volume bindings fails or takes the scheduler with it, and nothing is
lost, leaked or bound twice.

A small story with static and provisioned claims runs in virtual time against the embedded API
server with its own volume controllers; production code schedules. The n-th call that binding makes
goes wrong, for every n and in every way.
"""

from __future__ import annotations

import re
from random import Random

import pytest
from call_sweep import WAYS, options

from kubesched.app.simulated import SimulatedProcess
from kubesched.insight.state.virtual_loop import LoopClock
from kubesched.lab.simulation.faults import CallFault
from kubesched.lab.simulation.run import simulate
from kubesched.lab.simulation.world import Scenario
from kubesched.playground.controller_manager import CONTROLLER_NAMES, ControllerOptions, start_all
from kubesched.playground.controllers.volumes import StorageDriver

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
PLAYERS = {"persistentvolume-binder", "volume-protection", "csi-publisher", "provisioner"}
DRIVER = StorageDriver(name="csi.example.com", storage_class="dynamic")
BINDING_CALL = re.compile(
    r"/(persistentvolumes|persistentvolumeclaims)/[^/?]+$|/pods/[^/?]+/(binding|status)$"
)
MAX_CALLS = 100
DEFAULT = "/api/v1/namespaces/default"
TURN_S = (0.05, 0.4)
"""How long controllers take to notice things."""


def node(name, zone):
    room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "spec": {},
        "status": {"allocatable": room, "capacity": room},
    }


def local_class():
    return {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_volume(name, host):
    expression = {"key": HOSTNAME, "operator": "In", "values": [host]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "local",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
        },
    }


def claim(name, storage_class):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }


def pod(name, *claims):
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": "500m"}}}
    volumes = [{"name": item, "persistentVolumeClaim": {"claimName": item}} for item in claims]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "volumes": volumes},
    }


CLAIMS = {"s1": "local", "s2": "local", "d1": "dynamic", "d2": "dynamic"}

STORY = Scenario(
    name="volumes",
    duration_s=120.0,
    steps=(
        (0.0, "nodes", node("n1", "a")),
        (0.0, "nodes", node("n2", "b")),
        (0.0, "storageclasses.storage.k8s.io", local_class()),
        (0.0, "persistentvolumes", local_volume("v1", "n1")),
        (0.0, "persistentvolumes", local_volume("v2", "n2")),
        *((0.0, "persistentvolumeclaims", claim(name, kind)) for name, kind in CLAIMS.items()),
        (2.0, "pods", pod("both", "s1", "d1")),
        (0.0, "pods", pod("static", "s2")),
        (0.0, "pods", pod("dynamic", "d2")),
    ),
)
"""Three pods: one with a local and a provisioned volume, one with either."""


class Spoiler:
    """Counts the calls of bindings and spoils one of them."""

    def __init__(self, number, way):
        self.left, self.way = number, way
        self.hit = ""
        self.world = None

    def prepare(self, world):
        self.world = world
        world.scenario = STORY
        world.processes.on_call = self.on_call
        self.play(world)

    def play(self, world):
        """Run the embedded volume controllers in the simulation's time."""
        loop, random = world._loop, Random(7)
        controllers = start_all(
            world.cluster.api,
            LoopClock(loop),
            random,
            ControllerOptions(
                disabled=frozenset(CONTROLLER_NAMES) - PLAYERS, storage=(DRIVER,), events=False
            ),
        )

        def turn():
            controllers.settle()
            loop.call_later(random.uniform(*TURN_S), turn)

        turn()

    def on_call(self, process, request):
        path = request.target.partition("?")[0]
        if not BINDING_CALL.search(path):
            return None
        self.left -= 1
        if self.left != 0:
            return None
        self.hit = f"{request.method} {path}"
        fault: CallFault = WAYS[self.way]
        if self.way.startswith("crash"):
            for incarnation in self.world.processes.alive():
                if incarnation.name == process:
                    self.world.processes.crash_now(incarnation, fault)
        return fault


def run(number, way):
    spoiler = Spoiler(number, way)
    outcome = simulate(1, SimulatedProcess, options=options(STORY), prepare=spoiler.prepare)
    return spoiler, outcome


def complaints(world):
    """What is wrong with the storage at the end; empty when all is well."""
    api = world.cluster.api
    pods = {item["metadata"]["name"]: item for item in api.list("pods")[0]}
    claims = {item["metadata"]["name"]: item for item in api.list("persistentvolumeclaims")[0]}
    volumes = {volume["metadata"]["name"]: volume for volume in api.list("persistentvolumes")[0]}
    wrong = []
    for name, item in pods.items():
        if not item["spec"].get("nodeName"):
            conditions = item.get("status", {}).get("conditions", [])
            wrong.append(f"pod {name} was not placed: {conditions}")
    for name, item in claims.items():
        volume = volumes.get(item["spec"].get("volumeName", ""))
        annotations = item["metadata"].get("annotations", {})
        if volume is None or BIND_COMPLETED not in annotations:
            wrong.append(f"claim {name} is not bound")
            continue
        reference = volume["spec"].get("claimRef", {})
        if reference.get("uid") != item["metadata"]["uid"]:
            wrong.append(f"claim {name} and volume {volume['metadata']['name']} disagree")
    users = {
        volume["name"]: item for item in pods.values() for volume in item["spec"].get("volumes", ())
    }
    for name, item in volumes.items():
        owner = item["spec"].get("claimRef", {}).get("name")
        if owner is None or claims[owner]["spec"].get("volumeName") != name:
            wrong.append(f"volume {name} serves no claim")
            continue
        terms = item["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = terms[0]["matchExpressions"]
        host = users[owner]["spec"].get("nodeName", "")
        labels = api.get("nodes", None, host)["metadata"]["labels"] if host else {}
        if labels.get(expression["key"]) not in expression["values"]:
            wrong.append(f"volume {name} cannot be reached from {host}")
    if len(volumes) != len(CLAIMS):
        wrong.append(f"{len(volumes)} volumes for {len(CLAIMS)} claims: {sorted(volumes)}")
    return wrong


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("cut off")])
def test_any_call_of_a_volume_binding_may_fail(way: str) -> None:
    broken, spoilt = [], []
    for number in range(1, MAX_CALLS):
        spoiler, outcome = run(number, way)
        result = [str(outcome.violation)] if not outcome.is_good else complaints(spoiler.world)
        if result:
            broken.append(f"call {number} ({spoiler.hit}): {'; '.join(result)}")
        if not spoiler.hit:
            break
        spoilt.append(spoiler.hit)
    assert not broken, "\n".join(broken)
    assert len(spoilt) < MAX_CALLS - 1, "the story makes more calls than were tried"
    # Two volumes reserved, two claims given a node, three pods told where they are expected, and
    # bound.
    expected = {
        *(f"PUT /api/v1/persistentvolumes/{name}" for name in ("v1", "v2")),
        *(f"PUT {DEFAULT}/persistentvolumeclaims/{name}" for name in ("d1", "d2")),
        *(f"PATCH {DEFAULT}/pods/{name}/status" for name in ("both", "static", "dynamic")),
        *(f"POST {DEFAULT}/pods/{name}/binding" for name in ("both", "static", "dynamic")),
    }
    assert expected <= set(spoilt), "a sweep that leaves a call out"
