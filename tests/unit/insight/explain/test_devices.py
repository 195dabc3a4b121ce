"""What is said about devices: one world for each reason, and agreement with the allocator on random
clusters.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from device_worlds import (
    BAD,
    DRIVER,
    GPU,
    NUMA,
    Built,
    attribute,
    gpus,
    held,
    node,
    pod,
    random_world,
)
from dra_objects import claim, device, device_class, exactly, first_available, resource_slice
from explaining import explain, explainer
from msgspec import structs

from kubesched.api.core_v1 import PodResourceClaimStatus
from kubesched.api.resource_v1 import ResourceClaim, ResourceSlice
from kubesched.framework.nodes.pods import PodInfo
from kubesched.insight.explain import device_trials, devices
from kubesched.insight.explain.evaluation import evaluate
from kubesched.insight.explain.fixes.claims import ClaimChanges
from kubesched.insight.explain.model import Verdict
from kubesched.insight.explain.waiting import in_words
from kubesched.plugins.dynamic_resources.manager import manager_of
from kubesched.plugins.dynamic_resources.structured.allocated_state import AllocatedState
from kubesched.plugins.dynamic_resources.structured.allocator import Allocator
from kubesched.plugins.dynamic_resources.structured.failures import AllocationError
from kubesched.plugins.dynamic_resources.structured.selectors import DeviceContent
from kubesched.testing import make_pod


def told(asked, *objects, **options):
    return explain(pod("p", asked.metadata.name), asked, GPU, *objects, **options)


def obstacles(asked, *objects):
    """The obstacles of the only request on the only node."""
    (need,) = told(asked, node("n"), *objects).devices
    (nodes,) = need.nodes
    return nodes.obstacles


def test_a_selector_says_how_many_devices_it_matches_and_what_values_there_are():
    wanted = f'{attribute("model")} == "h100"'
    asked = claim("c", exactly("gpu", selectors=[wanted]))
    found = told(asked, *(each for name in ("a", "b") for each in (node(name), gpus(name, 8))))
    assert found.verdict is Verdict.NEVER
    (need,) = found.devices
    assert (need.claim, need.request, need.wants) == ("default/c", "gpu", "1 device of class gpu")
    assert (need.devices, need.of_class, need.matching, need.in_use) == (16, 16, 0, 0)
    by_class, by_request = need.selectors
    assert (by_class.source, by_class.matches, by_class.devices) == ("class gpu", 16, 16)
    assert (by_request.expression, by_request.matches, by_request.devices) == (wanted, 0, 16)
    assert by_request.values == {"model": ["a100"]}
    (nodes,) = need.nodes
    assert (nodes.nodes, nodes.never) == (["a", "b"], True)
    assert nodes.obstacles == ["no device of the class matches the selectors"]
    assert nodes.pools == [f"{DRIVER}/a: 8"]


def test_a_node_that_would_not_help_is_not_said_to_be_taken_by_others():
    """A new node has no such device either; that another pod finds room there is beside the
    point.
    """
    asked = claim("c", exactly("gpu", selectors=[f'{attribute("model")} == "h100"']))
    rival = claim("d", exactly("gpu"))
    busy = held("h", ("n", "gpu-0"), pods=["u"])
    objects = [rival, pod("rival", "d"), node("n"), gpus("n", 1), busy, pod("u", "h", node="n")]
    found = told(asked, *objects, fix=True)
    assert found.fixes == []
    assert not any("take the room first" in note for note in found.notes)


def test_devices_in_use_are_listed_with_claims_and_pods():
    objects = [node("n"), gpus("n", 2), held("h", ("n", "gpu-0"), ("n", "gpu-1"), pods=["train"])]
    found = told(claim("c", exactly("gpu")), *objects)
    assert found.verdict is Verdict.NOT_NOW
    (need,) = found.devices
    assert [(one.device, one.claim, one.pods) for one in need.holders] == [
        (f"{DRIVER}/n/gpu-0", "default/h", ["default/train"]),
        (f"{DRIVER}/n/gpu-1", "default/h", ["default/train"]),
    ]
    (nodes,) = need.nodes
    assert (nodes.matching, nodes.free, nodes.never) == (2, 0, False)
    assert nodes.obstacles == ["2 of 2 matching devices in use"]
    assert found.matrix[0].failures[0].lacks == ["request gpu: 2 of 2 matching devices in use"]
    assert "2 of 2 devices match, 2 of these are in use" in found.reasons[0].detail


def test_a_device_taint():
    tainted = device("gpu-0", taints=[BAD])
    assert obstacles(claim("c", exactly()), gpus("n", tainted)) == [
        "device taint bad=yes:NoSchedule (x1)"
    ]


def test_a_constraint_and_the_values_of_the_devices():
    asked = claim("c", exactly("r", 3), constraints=[{"matchAttribute": NUMA}])
    assert obstacles(asked, gpus("n", 4)) == [
        f"matchAttribute {NUMA}: the devices have 0 (x2), 1 (x2)"
    ]


def test_a_counter_that_partitions_share():
    def partition(name, amount):
        used = [{"counterSet": "gpu-0", "counters": {"memory": {"value": amount}}}]
        return device(name, consumesCounters=used)

    slices = [
        gpus("n", partition("half", "40Gi"), partition("rest", "20Gi"), count=2),
        resource_slice(
            "counters", pool="n", count=2, nodeName="n",
            sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "50Gi"}}}],
        ),
    ]  # fmt: skip
    asked = claim("c", exactly("r", selectors=[f'device.driver == "{DRIVER}"']))
    assert told(asked, node("n"), *slices).verdict is Verdict.FITS
    used = held("h", ("n", "half"))
    (need,) = told(asked, node("n"), *slices, used).devices
    assert need.nodes[0].obstacles == [
        "1 of 2 matching devices in use",
        "counter gpu-0/memory: a device takes 20Gi, 10Gi left",
    ]


def test_capacity_that_is_left():
    shared = device("gpu-0", allowMultipleAllocations=True, capacity={"memory": {"value": "80Gi"}})
    asked = claim("c", exactly("r", capacity={"requests": {"memory": "60Gi"}}))
    used = held("h", ("n", "gpu-0"), shareID="s", consumedCapacity={"memory": "40Gi"})
    assert obstacles(asked, gpus("n", shared), used) == [
        "1 of 1 matching devices in use",
        "capacity memory: 60Gi wanted, at most 40Gi left",
    ]
    (need,) = told(asked, node("n"), gpus("n", shared), used).devices
    assert need.wants == "1 device of class gpu with 60Gi memory"


def test_requests_that_fail_only_together():
    asked = claim("c", exactly("a", 2), exactly("b", 2))
    (need,) = told(asked, node("n"), gpus("n", 3)).devices
    assert need.request == "b"
    assert need.nodes[0].obstacles == ["devices are left only without c/a"]
    assert need.nodes[0].never


def test_every_alternative_of_a_request_is_told():
    asked = claim("c", first_available("gpu", exactly("many", 4), exactly("few", 3)))
    found = told(asked, node("n"), gpus("n", 2))
    assert [(need.request, need.nodes[0].obstacles) for need in found.devices] == [
        ("gpu/many", ["2 of 4 wanted devices match"]),
        ("gpu/few", ["2 of 3 wanted devices match"]),
    ]


def test_nodes_without_devices_and_other_classes():
    other = resource_slice("other", device("nic"), pool="m", nodeName="m", driver="nic.example.com")
    (need,) = told(claim("c", exactly()), node("n"), node("m"), other).devices
    assert [(one.nodes, one.obstacles) for one in need.nodes] == [
        (["n"], ["no devices"]),
        (["m"], ["no device of class gpu"]),
    ]


def test_a_pool_with_missing_slices():
    (need,) = told(claim("c", exactly()), node("n"), gpus("n", 2, count=2)).devices
    assert need.nodes[0].obstacles == [
        "no devices",
        f"pool {DRIVER}/n is incomplete: not all of its slices are published",
    ]


def test_a_selector_that_fails_says_why():
    asked = claim("c", exactly(selectors=[f"{attribute('wattage')} > 300"]))
    found = told(asked, node("n"), gpus("n", 1))
    (failure,) = found.matrix[0].failures
    assert "no such key: wattage" in failure.reasons[0]


def test_an_extended_resource_that_devices_back():
    backed = device_class(
        "gpu-x", f'device.driver == "{DRIVER}"', extendedResourceName="example.com/gpu"
    )
    found = explain(make_pod("p").request("example.com/gpu", "3"), node("n"), gpus("n", 2), backed)
    (need,) = found.devices
    assert need.nodes[0].obstacles == ["2 of 3 wanted devices match"]


def test_a_search_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(device_trials, "SEARCH_S", -1.0)
    found = told(claim("c", exactly("r", 3)), node("n"), gpus("n", 2))
    assert found.devices == []
    assert devices.NOT_WORKED_OUT in found.notes
    assert found.verdict is Verdict.NOT_NOW


def test_events_are_told_in_words():
    found = told(claim("c", exactly()), node("n"))
    assert "resource.k8s.io/ResourceClaim/Add" in found.woken_by[0].events
    assert not any("/" in words for waker in found.woken_by for words in waker.words)
    assert in_words("resource.k8s.io/ResourceSlice/Update") == "a resource slice changes"
    assert in_words("queues.v1.example.com/Add") == "a queues is created"
    assert in_words("storage.k8s.io/CSIStorageCapacity/Add") == "a storage capacity is created"


# -- agreement with the allocator ------------------------------------------------------------------


def _brute_counts(dra, slices, request):
    """Devices by how far they get: all, of the class, matching."""
    counts = Counter()
    for one in slices:
        for each in one.spec.devices or ():
            content = DeviceContent(one.spec.driver, each)
            stages = [dra.device_class(request.device_class_name).spec.selectors, request.selectors]
            counts["devices"] += 1
            for stage, selectors in zip(("of_class", "matching"), stages, strict=True):
                if not all(
                    dra.selectors.matches(s.cel.expression, content) for s in selectors or ()
                ):
                    break
                counts[stage] += 1
    return counts


@pytest.mark.parametrize("seed", range(60))
def test_what_is_said_agrees_with_the_allocator(seed):
    asked, objects = random_world(seed)
    explaining = explainer(asked, *objects, pod("p", "c"))
    found = explaining.explain(pod("p", "c").build())
    framework = explaining.assembly.frameworks["default-scheduler"]
    dra, listers, table = (
        manager_of(framework.handle),
        framework.handle.listers,
        explaining.assembly.table,
    )
    untainted = replace(dra.features, device_taints=False)
    idle = Allocator(untainted, AllocatedState(), dra.device_class, dra.pools, dra.selectors, str)

    def could(name):
        try:
            return idle.solve(table.nodes[table.row_of[name]], [asked]) is not None
        except AllocationError:
            return False

    is_failing = any(reason.code == "PluginError" for reason in found.reasons)
    if found.verdict is not Verdict.FITS and not is_failing:
        assert (found.verdict is Verdict.NEVER) == (not any(map(could, table.row_of)))
    slices = listers.of(ResourceSlice).list()
    requests = {
        name: one
        for request in listers.of(ResourceClaim).get("default", "c").spec.devices.requests
        for name, one in (
            [(request.name, request.exactly)]
            if request.exactly
            else [(f"{request.name}/{sub.name}", sub) for sub in request.first_available]
        )
    }
    for need in found.devices:
        counts = _brute_counts(dra, slices, requests[need.request])
        assert (need.devices, need.of_class, need.matching) == (
            counts["devices"],
            counts["of_class"],
            counts["matching"],
        )
        assert sum(len(one.nodes) for one in need.nodes) <= table.node_count
        assert sum(one.matching * len(one.nodes) for one in need.nodes) <= need.matching
        for one in need.nodes:
            assert one.never == (not could(one.nodes[0]))
            assert one.obstacles


# -- fixes -----------------------------------------------------------------------------------------


def changes_of(asked, *objects):
    """The changes of claims for every rejected node, with what explains the pod."""
    explaining = explainer(asked, *objects, pod("p", "c"))
    framework = explaining.assembly.frameworks["default-scheduler"]
    evaluation = evaluate(framework, PodInfo(pod("p", "c").build()))
    finder = ClaimChanges(framework, evaluation)
    table = explaining.assembly.table
    return [
        (table.names[row], change)
        for row in evaluation.rows.tolist()
        if row not in evaluation.feasible
        for change in finder.changes(row, "DynamicResources").get("", ())
    ]


def applied(change, asked, *objects):
    """The objects after a change, as lists of finished objects."""
    kept = [Built(each.build() if hasattr(each, "build") else each) for each in (asked, *objects)]
    gone = {
        (type(each), each.metadata.name)
        for each in (*change.deleted, *change.leaving, *change.stored)
    }
    left = [each for each in kept if (type(each.obj), each.obj.metadata.name) not in gone]
    return [*left, *map(Built, change.stored)]


def test_changes_of_a_claim_that_would_help():
    asked = claim("c", exactly("r", 2), constraints=[{"matchAttribute": NUMA}])
    objects = [
        GPU,
        node("n"),
        gpus("n", 3),
        held("h", ("n", "gpu-0"), pods=["u"]),
        pod("u", "h", node="n"),
    ]
    assert [(change.kind, change.text) for _, change in changes_of(asked, *objects)] == [
        ("FewerDevices", "1 instead of 2 devices for request r in claim c"),
        ("DropDeviceConstraint", f"without the constraint on {NUMA} in claim c"),
        ("ReleaseDevices", "delete default/u, which holds devices"),
    ]


def test_a_request_for_more_devices_than_a_claim_may_have():
    """The API server does not bound the count; what is tried is."""
    asked = claim("c", exactly("r", 2**62))
    texts = [change.text for _, change in changes_of(asked, GPU, node("n"), gpus("n", 3))]
    assert texts == [f"3 instead of {2**62} devices for request r in claim c"]


def test_the_claim_of_a_group_is_not_edited():
    """A template's change does not reach it, and its group keeps it while its pods come and go."""
    objects = [GPU, node("n"), gpus("n", 1)]
    asked = claim("c", exactly("r", 2))
    assert [change.kind for _, change in changes_of(asked, *objects)] == ["FewerDevices"]
    owner = {"kind": "PodGroup", "name": "g", "uid": "g", "controller": True}
    asked = claim("c", exactly("r", 2), meta={"ownerReferences": [owner]})
    assert changes_of(asked, *objects) == []


def test_a_class_a_toleration_and_a_claim_without_users():
    broken = device_class("none", "false")
    asked = claim("c", exactly("r", class_name="none"))
    found = changes_of(
        asked, GPU, broken, node("n"), gpus("n", device("gpu-0", taints=[BAD]), device("gpu-1"))
    )
    assert [change.text for _, change in found] == [
        "device class gpu instead of none for request r in claim c"
    ]
    tainted = gpus("n", device("gpu-0", taints=[BAD]), device("gpu-1"))
    found = changes_of(
        claim("c", exactly("r")), GPU, node("n"), tainted, held("idle", ("n", "gpu-1"))
    )
    assert [change.text for _, change in found] == [
        "tolerate device taint bad:NoSchedule for request r in claim c",
        "delete claim default/idle, which holds devices",
    ]
    assert found[-1][1].commands == ("kubectl delete resourceclaim idle -n default",)


def test_a_generated_claim_is_changed_in_its_template():
    using = pod("p", "c").build()
    entry = structs.replace(
        using.spec.resource_claims[0],
        name="gpu",
        resource_claim_name=None,
        resource_claim_template_name="t",
    )
    statuses = [PodResourceClaimStatus(name="gpu", resource_claim_name="c")]
    using = structs.replace(
        using,
        spec=structs.replace(using.spec, resource_claims=[entry]),
        status=structs.replace(using.status, resource_claim_statuses=statuses),
    )
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "uid": using.metadata.uid,
        "controller": True,
    }
    asked = claim("c", exactly("r", 2), meta={"ownerReferences": [owner]})
    found = explain(Built(using), asked, GPU, node("n"), gpus("n", 1), fix=True)
    first, second = found.fixes[0].commands
    assert first.startswith(
        "kubectl get resourceclaimtemplate t -n default -o json | kubectl patch --local"
    )
    assert '"path":"/spec/spec/devices/requests/0/exactly/count","value":1' in first
    assert second == "kubectl get pod p -n default -o json | kubectl replace --force -f -"


@pytest.mark.parametrize("seed", range(60))
def test_a_change_that_is_suggested_makes_the_node_fit(seed):
    asked, objects = random_world(seed)
    for name, change in changes_of(asked, *objects):
        found = explain(pod("p", "c"), *applied(change, asked, *objects))
        assert name in [row.node for row in found.matrix if row.feasible], change.text
