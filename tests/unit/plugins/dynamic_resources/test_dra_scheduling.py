"""DynamicResources in a whole scheduler: devices are allocated, written, shared, given back.

Classes here have no selectors. What the API server's answers may do to PreBind is in
`test_dra_binding`.
"""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from dra_objects import (
    allocation,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    plain,
    resource_slice,
)
from msgspec import convert, structs

from kubesched.api.resource_v1 import AllocatedDeviceStatus, ResourceClaim
from kubesched.base.errors import ServerError
from kubesched.config.features import FeatureGates, defaults, from_map
from kubesched.config.versions import Versions
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Action, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.plugins.dynamic_resources.plugin import STATE, DynamicResources
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod


class Started:
    """A harness with nodes and objects in it."""

    def __init__(self, *objects, nodes=("n1",), config=None, gates=None):
        self._harness = Cluster(config=config, **({} if gates is None else {"gates": gates}))
        self._objects, self._nodes = objects, nodes

    def __enter__(self):
        harness = self._harness
        for each in self._objects:
            harness.put(each)
        for name in self._nodes:
            node = name if not isinstance(name, str) else make_node(name).build()
            harness.add(node)
        return harness

    def __exit__(self, *failure):
        self._harness.close()


def pod(name, *claims, **spec):
    entries = [{"name": f"e{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    return make_pod(name).uid(f"uid-{name}").spec(resourceClaims=entries, **spec).build()


def current(harness, name, namespace="default"):
    return harness.listers.of(ResourceClaim).get(namespace, name)


def was_deallocated(harness, is_allocated=False):
    """Whether the claim "c" lost its devices by a write; it may have got others since."""
    writes = [obj for obj in harness.client.written if obj.metadata.name == "c"]
    states = [is_allocated, *(obj.status.allocation is not None for obj in writes)]
    return (True, False) in pairwise(states)


def held(harness, name):
    return [each.device for each in current(harness, name).status.allocation.devices.results]


def test_a_pod_gets_its_devices_written_with_finalizer_and_reservation():
    with Started(device_class(), resource_slice("s", "a"), claim("c")) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        assert harness.client.bindings == {"default/p": "n1"}
        stored = current(harness, "c")
        assert stored.metadata.finalizers == ["resource.kubernetes.io/delete-protection"]
        assert plain(stored.status) == {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "r", "driver": "gpu.example.com", "pool": "s", "device": "a"}
                    ]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                            ]
                        }
                    ]
                },
                "allocationTimestamp": "2026-01-01T00:00:00Z",
            },
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}],
        }


def test_two_pods_never_get_one_device():
    objects = [device_class(), resource_slice("s", "a"), claim("c1"), claim("c2")]
    with Started(*objects) as harness:
        harness.add(pod("p1", "c1"))
        harness.add(pod("p2", "c2"))
        harness.settle()
        assert harness.client.bindings == {"default/p1": "n1"}
        assert harness.condition("p2") == (
            "Unschedulable",
            "0/1 nodes are available: 1 cannot allocate all claims. "
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        )


def test_profiles_share_what_is_in_flight():
    config = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: second
"""
    objects = [device_class(), resource_slice("s", "a"), claim("c1"), claim("c2")]
    with Started(*objects, config=config) as harness:
        harness.add(pod("p1", "c1"))
        harness.add(pod("p2", "c2", schedulerName="second"))
        harness.settle()
        assert len(harness.client.bindings) == 1


def test_pods_share_a_claim_where_its_devices_are():
    objects = [device_class(), resource_slice("s", "a"), claim("c")]
    with Started(*objects, nodes=("n0", "n1", "n2")) as harness:
        harness.add(pod("p1", "c"))
        harness.settle()
        harness.add(pod("p2", "c"))
        harness.settle()
        assert harness.client.bindings == {"default/p1": "n1", "default/p2": "n1"}
        assert [each.name for each in current(harness, "c").status.reserved_for] == ["p1", "p2"]


def test_a_claim_that_is_being_allocated_for_another_pod_has_to_be_waited_for():
    with Started(device_class(), resource_slice("s", "a"), claim("c")) as harness:
        harness.client.before["write"] = _refuse
        harness.add(pod("p1", "c"))
        harness.add(pod("p2", "c"))
        harness.settle()
        assert harness.condition("p2")[1].startswith(
            "0/1 nodes are available: resource claim default/c is in the process of being "
            "allocated."
        )


def _refuse(_obj):
    raise ServerError("no room")


def test_a_failed_write_gives_the_devices_back():
    objects = [device_class(), resource_slice("s", "a"), claim("c1"), claim("c2")]
    with Started(*objects) as harness:
        harness.client.before["write"] = _refuse
        harness.add(pod("p1", "c1"))
        harness.settle()
        assert harness.client.bindings == {}
        harness.client.before.clear()
        harness.add(pod("p2", "c2"))
        harness.settle()
        assert harness.client.bindings == {"default/p2": "n1"}


def test_a_failed_binding_removes_the_reservation_and_keeps_the_allocation():
    with Started(device_class(), resource_slice("s", "a"), claim("c")) as harness:
        failures = [ServerError("later")]

        def fail_once(_pod, _node):
            if failures:
                raise failures.pop()

        harness.client.before["bind_pod"] = fail_once
        harness.add(pod("p", "c"))
        harness.settle()
        assert current(harness, "c").status.reserved_for is None
        assert held(harness, "c") == ["a"]
        harness.advance(60)
        assert harness.client.bindings == {"default/p": "n1"}
        assert [each.name for each in current(harness, "c").status.reserved_for] == ["p"]


def on_a_node_that_is_gone(**status):
    only = {"key": "metadata.name", "operator": "In", "values": ["gone"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    return {"allocation": allocation(("r", "s", "a"), nodeSelector=selector), **status}


def test_an_unused_allocation_on_another_node_is_given_up():
    stuck = claim("c", status=on_a_node_that_is_gone())
    with Started(device_class(), resource_slice("s", "a"), stuck) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        assert harness.condition("p")[1].startswith(
            "0/1 nodes are available: 1 resourceclaim not available on the node. "
            "deallocation of ResourceClaim completed"
        )
        assert was_deallocated(harness, is_allocated=True)


def test_a_pod_is_told_of_the_deallocation_although_it_is_tried_again_at_once():
    """Conformance, sequence 20261117/16: the next attempt's condition replaced this one before it
    was sent.
    """
    stuck = claim("c", status=on_a_node_that_is_gone())
    with Started(device_class(), stuck) as harness:
        changed = harness.assembly.handlers.generic(Resource.RESOURCE_CLAIM, Action.UPDATE)
        harness.listers.of(ResourceClaim).subscribe(changed)
        harness.settle()
        harness.add(pod("p", "c"))
        harness.settle()
        told = [patch["status"]["conditions"][0]["message"] for _, patch in harness.client.patches]
        preemption = (
            "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        )
        assert told == [
            "0/1 nodes are available: 1 resourceclaim not available on the node. "
            f"deallocation of ResourceClaim completed, {preemption}",
            f"0/1 nodes are available: 1 cannot allocate all claims. {preemption}",
        ]


def test_a_refused_deallocation_is_tried_again_after_a_backoff():
    """Nothing has changed, so no event wakes the pod."""
    own = [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    stuck = claim("c", status=on_a_node_that_is_gone(reservedFor=own))
    with Started(device_class(), resource_slice("s", "a"), stuck) as harness:
        harness.client.before["write"] = _refuse
        harness.add(pod("p", "c"))
        harness.settle()
        text = "0/1 nodes are available: 1 resourceclaim not available on the node. no room"
        assert harness.condition("p") == ("Unschedulable", text)
        assert harness.place_in_queue("p") == "backoff"
        harness.client.before.clear()
        harness.advance(2)
        assert was_deallocated(harness, is_allocated=True)


@pytest.mark.parametrize("is_used_by_others", [True, False])
def test_an_allocation_that_others_use_stays(is_used_by_others):
    users = [{"resource": "pods", "name": "other", "uid": "other"}] if is_used_by_others else []
    nowhere = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
        ]
    }
    status = {"allocation": allocation(("r", "s", "a"), nodeSelector=nowhere), "reservedFor": users}
    with Started(device_class(), claim("c", status=status)) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        assert (current(harness, "c").status.allocation is not None) is is_used_by_others


def test_a_missing_class_or_claim_keeps_the_pod_waiting():
    with Started(claim("c")) as harness:
        harness.add(pod("p1", "c"))
        harness.add(pod("p2", "missing"))
        harness.settle()
        assert harness.condition("p1")[1].startswith(
            "0/1 nodes are available: request r: device class gpu does not exist. preemption: "
        )
        assert harness.place_in_queue("p2") == "gated"


def test_better_alternatives_make_better_nodes():
    wants = first_available("r", exactly("big", count=2), exactly("small"))
    objects = [
        device_class(),
        resource_slice("s0", "a", nodeName="n0"),
        resource_slice("s1", "a", "b", nodeName="n1"),
        resource_slice("s2", "a", nodeName="n2"),
        claim("c", wants),
    ]
    with Started(*objects, nodes=("n0", "n1", "n2")) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        assert harness.client.bindings == {"default/p": "n1"}


# -- extended resources ----------------------------------------------------------------------------

GPU = "example.com/gpu"


def gpu_pod(name, count=1):
    containers = [
        {"name": "main", "resources": {"requests": {GPU: str(count)}, "limits": {GPU: str(count)}}}
    ]
    return make_pod(name).uid(f"uid-{name}").spec(containers=containers).build()


def test_extended_resources_are_served_by_a_claim():
    objects = [device_class(extendedResourceName=GPU), resource_slice("s", "a", "b")]
    with Started(*objects) as harness:
        harness.add(gpu_pod("p", 2))
        harness.settle()
        assert harness.client.bindings == {"default/p": "n1"}
        (special,) = harness.listers.of(ResourceClaim).list()
        assert held(harness, special.metadata.name) == ["a", "b"]
        assert [each.name for each in special.status.reserved_for] == ["p"]
        written = [patch["status"] for _, patch in harness.client.patches]
        assert {
            "extendedResourceClaimStatus": {
                "requestMappings": [
                    {
                        "containerName": "main",
                        "resourceName": GPU,
                        "requestName": "container-0-request-0",
                    }
                ],
                "resourceClaimName": special.metadata.name,
            }
        } in written


def test_a_device_plugin_on_the_node_needs_no_claim():
    offering = make_node("n1").capacity(**{GPU: "1"}).build()
    with Started(device_class(extendedResourceName=GPU), nodes=[offering]) as harness:
        harness.add(gpu_pod("p"))
        harness.settle()
        assert harness.client.bindings == {"default/p": "n1"}
        assert harness.find(ResourceClaim, "default", "p-extended-resources-x") is None


def test_a_failed_binding_deletes_the_special_claim():
    objects = [device_class(extendedResourceName=GPU), resource_slice("s", "a")]
    with Started(*objects) as harness:
        harness.client.before["bind_pod"] = lambda _pod, _node: _refuse(None)
        harness.add(gpu_pod("p"))
        harness.settle()
        assert harness.find(ResourceClaim, "default", "p-extended-resources-x") is None
        harness.client.before["bind_pod"] = lambda _pod, _node: None
        harness.add(gpu_pod("q"))
        harness.settle()
        assert harness.client.bindings == {"default/q": "n1"}


def test_a_special_claim_left_behind_is_deleted_first():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    annotation = {"resource.kubernetes.io/extended-resource-claim": "true"}
    stale = claim(
        "p-extended-resources-x", meta={"ownerReferences": [owner], "annotations": annotation}
    )
    objects = [device_class(extendedResourceName=GPU), resource_slice("s", "a"), stale]
    with Started(*objects) as harness:
        harness.add(gpu_pod("p"))
        harness.settle()
        assert (
            "1 cannot schedule extended resource claim. deletion of ResourceClaim completed"
            in (harness.condition("p")[1])
        )
        assert harness.find(ResourceClaim, "default", "p-extended-resources-x") is None


def test_the_gate_leaves_extended_resources_to_device_plugins():
    objects = [device_class(extendedResourceName=GPU), resource_slice("s", "a")]
    gates = from_map({"DRAExtendedResource": False}, Versions(emulated="1.36"))
    with Started(*objects, gates=gates) as harness:
        harness.add(gpu_pod("p"))
        harness.settle()
        assert harness.condition("p")[1].startswith(
            "0/1 nodes are available: 1 Insufficient example.com/gpu."
        )


@pytest.mark.parametrize(
    ("gates", "listed"),
    [
        pytest.param(FeatureGates(), True, id="1.37"),
        pytest.param(FeatureGates(versions=Versions(emulated="1.36")), False, id="emulating (X3)"),
        pytest.param(defaults("1.36"), False, id="1.36"),
    ],
)
def test_taint_rules_are_listed_where_the_release_has_them_on(gates, listed):
    names = {kind.__name__ for kind in DynamicResources.kinds_to_list(gates)}
    assert any(name.startswith("DeviceTaintRule") for name in names) is listed


# -- binding conditions ----------------------------------------------------------------------------

SLOW = device("a", bindingConditions=["ready"], bindingFailureConditions=["broken"])


def reported(stored, **conditions):
    """The claim with what the driver says about its device."""
    status = convert(
        {
            "driver": "gpu.example.com",
            "pool": "s",
            "device": "a",
            "conditions": [
                {"type": kind, "status": "True", "reason": "Driver", "message": text}
                for kind, text in conditions.items()
            ],
        },
        AllocatedDeviceStatus,
    )
    return structs.replace(stored, status=structs.replace(stored.status, devices=[status]))


def test_binding_waits_for_the_conditions():
    with Started(device_class(), resource_slice("s", SLOW), claim("c")) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        assert harness.client.bindings == {}
        assert (
            "Normal",
            "BindingConditionsPending",
            "default/p",
            "waiting for binding conditions for device on node n1",
        ) in harness.events
        harness.put(reported(current(harness, "c"), ready="fine"))
        harness.settle()
        assert harness.client.bindings == {"default/p": "n1"}


def test_a_failure_condition_fails_the_binding_and_frees_the_device():
    with Started(device_class(), resource_slice("s", SLOW), claim("c")) as harness:
        harness.add(pod("p", "c"))
        harness.settle()
        harness.put(reported(current(harness, "c"), broken="smoke"))
        harness.settle()
        assert harness.client.bindings == {}
        assert harness.condition("p") == (
            "SchedulerError",
            'running PreBind plugin "DynamicResources": device binding failed: claim=c, '
            'reason=Driver, message="smoke"',
        )
        harness.advance(60)
        assert was_deallocated(harness)


# -- nodes in groups and one by one ----------------------------------------------------------------


def judged(world, plugin, pod, rows):
    """Per node: why it is rejected, or the devices that the pod would get there."""
    state, table = CycleState(), world.assembly.table
    plugin.pre_filter(state, pod, NodeColumns(table))
    found = {}
    for some in rows:
        view = NodeColumns(table, np.array(some))
        verdicts = plugin.filter_nodes(state, pod, view)
        for at in range(len(view)):
            code = 0 if verdicts is None else int(verdicts.codes[at])
            name = view.name_at(at)
            if code:
                found[name] = verdicts.describe(code).message
                continue
            chosen = state.read(STATE).allocation_on(name)
            found[name] = None if chosen is None else (plain(chosen.results), chosen.mappings)
    return found, state.read(STATE).unavailable


@pytest.mark.parametrize("seed", range(40))
def test_nodes_judged_together_get_what_each_gets_alone(seed):
    """Also if they differ in what device plugins serve of the pod's extended resources."""
    random = Random(seed)
    resources = ["example.com/a", "example.com/b"]
    classes = [device_class(f"k{n}", extendedResourceName=name) for n, name in enumerate(resources)]
    objects = [*classes, device_class()]
    nodes = []
    for number in range(6):
        name = f"n{number}"
        devices = [f"d{each}" for each in range(random.randint(0, 3))]
        if devices:
            objects.append(resource_slice(f"s-{name}", *devices, nodeName=name))
        served = {each: str(random.randint(0, 2)) for each in resources if random.random() < 0.4}
        nodes.append(make_node(name).capacity(cpu="8", memory="8Gi", pods="10", **served).build())
    where = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]}
        ]
    }
    used = {"allocation": {**allocation(("r", "s-n1", "d0")), "nodeSelector": where}}
    objects.append(claim("used", status=used))
    objects.append(claim("new"))
    wanted = random.sample(["used", "new"], random.randint(0, 2))
    asked = {name: str(random.randint(1, 2)) for name in resources if random.random() < 0.6}
    limits = {"requests": asked, "limits": asked}
    containers = [{"name": "c", "image": "x", "resources": limits}]
    using = pod("p", *wanted, containers=containers)
    with Started(*objects, nodes=nodes) as world:
        plugin = next(
            each
            for framework in world.assembly.frameworks.values()
            for each in framework.plugins
            if isinstance(each, DynamicResources)
        )
        world.assembly.table.refresh()
        rows = [world.assembly.table.row_of[each.metadata.name] for each in nodes]
        together = judged(world, plugin, using, [rows])
        assert together == judged(world, plugin, using, [[row] for row in rows])


@pytest.mark.parametrize(
    "left",
    [
        pytest.param((), id="the device is gone"),
        pytest.param(("x", "a"), id="another device has its position"),
    ],
)
def test_devices_that_changed_since_filter_are_not_taken(left):
    """Events of slices are not parked while an extender is awaited."""
    with Started(device_class(), resource_slice("s", "a"), claim("c")) as harness:
        plugin = next(
            it
            for it in harness.assembly.frameworks["default-scheduler"].plugins
            if isinstance(it, DynamicResources)
        )
        state, tried = CycleState(), pod("p", "c")
        view = NodeColumns(harness.assembly.table)
        plugin.pre_filter(state, tried, view)
        assert plugin.filter_nodes(state, tried, view) is None
        harness.put(resource_slice("s", *left))
        refused = plugin.reserve(state, tried, "n1")
        assert refused.message == "claim allocation not found for node"
