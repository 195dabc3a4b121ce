"""Claims of pods are made from templates, reserved while they are used, and released afterwards.

The scheduler's part (allocation, finalizer, reservation) is played by the tests.
"""

from __future__ import annotations

import pytest

from kubesched.api.resource_v1 import FINALIZER, POD_CLAIM_NAME_ANNOTATION
from kubesched.config import features
from kubesched.playground.controllers.pod_group_protection import POD_GROUPS
from kubesched.playground.controllers.resource_claims import CLAIMS, TEMPLATES

REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0"}
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


@pytest.fixture
def world(make_world):
    world = make_world()
    world.is_scheduling = False
    return world


def make_template(world, **metadata):
    spec = {"metadata": metadata, "spec": REQUESTS}
    return world.create(TEMPLATES, {"metadata": {"name": "one-gpu"}, "spec": spec})


def make_claim(world, name="shared"):
    return world.create(CLAIMS, {"metadata": {"name": name}, "spec": REQUESTS})


def allocate(world, claim, *pods):
    """What the scheduler writes: finalizer, then allocation and reservations."""
    name = claim["metadata"]["name"]
    world.patch(CLAIMS, name, {"metadata": {"finalizers": [FINALIZER]}})
    current = world.get(CLAIMS, name)
    consumers = [
        {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for pod in pods
    ]
    status = {"allocation": {"devices": {"results": [RESULT]}}}
    if consumers:
        status["reservedFor"] = consumers
    world.api.update_status(CLAIMS, {**current, "status": status})


def only_claim(world):
    (claim,) = world.list(CLAIMS)
    return claim


def consumers(claim):
    return [entry["name"] for entry in claim["status"].get("reservedFor") or ()]


def start(world, pod):
    """Bind the pod and let it run."""
    metadata = pod["metadata"]
    world.api.bind("default", metadata["name"], "node-0")
    world.run(5)


def test_a_template_becomes_a_claim_of_the_pod(world):
    make_template(world, labels={"team": "a"}, annotations={"why": "training"})
    pod = world.pod("train", resourceClaims=FROM_TEMPLATE)
    world.settle()
    claim = only_claim(world)
    metadata = claim["metadata"]
    assert metadata["name"].startswith("train-gpu-")
    assert metadata["labels"] == {"team": "a"}
    assert metadata["annotations"] == {"why": "training", POD_CLAIM_NAME_ANNOTATION: "gpu"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "train",
            "uid": pod["metadata"]["uid"],
            "controller": True,
        }
    ]
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert world.get("pods", "train")["status"]["resourceClaimStatuses"] == [
        {"name": "gpu", "resourceClaimName": metadata["name"]}
    ]


def test_long_names_are_cut_in_proportion(world):
    make_template(world)
    world.pod("p" * 60, resourceClaims=FROM_TEMPLATE)
    world.settle()
    # 65 characters with both hyphens: 60*57//65 of the pod's name, 3*57//65 of the entry's.
    assert only_claim(world)["metadata"]["generateName"] == f"{'p' * 52}-gp"


def test_a_pod_waits_for_its_template(world):
    world.pod("train", resourceClaims=FROM_TEMPLATE)
    world.run(1)
    assert world.list(CLAIMS) == []
    event = next(
        event for event in world.list("events") if event["reason"] == "FailedResourceClaimCreation"
    )
    assert event["message"] == (
        'PodResourceClaim gpu: resource claim template "one-gpu":'
        ' resourceclaimtemplate.resource.k8s.io "one-gpu" not found'
    )
    make_template(world)
    world.settle()
    assert only_claim(world)


def test_a_claim_that_is_deleted_is_made_again(world):
    make_template(world)
    world.pod("train", resourceClaims=FROM_TEMPLATE)
    world.settle()
    first = only_claim(world)["metadata"]["name"]
    world.delete(CLAIMS, first)
    world.settle()
    second = only_claim(world)["metadata"]["name"]
    assert second != first
    statuses = world.get("pods", "train")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": second}]


def test_a_claim_whose_recording_was_lost_is_found_again(world, lose_write):
    make_template(world)
    world.pod("train", resourceClaims=FROM_TEMPLATE)
    with lose_write(2) as lost:
        world.run(2)
    assert lost.happened
    claim = only_claim(world)
    statuses = world.get("pods", "train")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]


def test_a_bound_pod_gets_its_reservation(world):
    claim = make_claim(world)
    allocate(world, claim)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    pod = world.pod("train", resourceClaims=entry)
    world.settle()
    assert consumers(world.get(CLAIMS, "shared")) == []
    start(world, pod)
    assert consumers(world.get(CLAIMS, "shared")) == ["train"]


def test_a_shared_claim_is_deallocated_when_its_last_pod_ends(world):
    claim = make_claim(world)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    pods = [world.pod(name, resourceClaims=entry) for name in ("a", "b")]
    allocate(world, claim, *pods)
    for pod in pods:
        start(world, pod)
    world.delete("pods", "a")
    world.run(60)
    assert consumers(world.get(CLAIMS, "shared")) == ["b"]
    world.delete("pods", "b")
    world.run(60)
    left = world.get(CLAIMS, "shared")
    assert left["status"] == {}
    assert "finalizers" not in left["metadata"] or left["metadata"]["finalizers"] == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_claim_of_a_finished_pod_is_deleted(world, phase):
    make_template(world)
    pod = world.pod("train", resourceClaims=FROM_TEMPLATE, restartPolicy="Never")
    world.settle()
    allocate(world, only_claim(world), pod)
    world.patch("pods", "train", {"status": {"phase": phase}}, subresource="status")
    world.settle()
    assert world.list(CLAIMS) == []


def test_a_deleted_pod_takes_its_generated_claim_along(world):
    make_template(world)
    pod = world.pod("train", resourceClaims=FROM_TEMPLATE)
    world.settle()
    allocate(world, only_claim(world), pod)
    start(world, pod)
    assert consumers(only_claim(world)) == ["train"]
    world.delete("pods", "train")
    world.run(60)
    assert world.list(CLAIMS) == []


def test_a_pod_deleted_before_it_had_a_node_releases_its_claim(world):
    claim = make_claim(world)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    pod = world.pod("train", resourceClaims=entry)
    allocate(world, claim, pod)
    world.delete("pods", "train")
    world.settle()
    assert world.get(CLAIMS, "shared")["status"] == {}


def test_a_deleted_claim_stays_while_it_is_reserved(world):
    claim = make_claim(world)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    pod = world.pod("train", resourceClaims=entry)
    allocate(world, claim, pod)
    start(world, pod)
    world.delete(CLAIMS, "shared")
    world.run(5)
    assert world.exists(CLAIMS, "shared")
    world.delete("pods", "train")
    world.run(60)
    assert not world.exists(CLAIMS, "shared")


def test_an_unreserved_claim_is_deallocated_before_it_goes(world):
    claim = make_claim(world)
    allocate(world, claim)
    world.delete(CLAIMS, "shared")
    world.settle()
    assert not world.exists(CLAIMS, "shared")


def test_reservations_of_other_consumers_are_left_alone(world):
    claim = make_claim(world)
    allocate(world, claim)
    current = world.get(CLAIMS, "shared")
    other = {"apiGroup": "example.com", "resource": "jobs", "name": "x", "uid": "u"}
    status = {**current["status"], "reservedFor": [other]}
    world.api.update_status(CLAIMS, {**current, "status": status})
    world.run(5)
    assert consumers(world.get(CLAIMS, "shared")) == ["x"]


@pytest.mark.parametrize("number", range(1, 9))
def test_a_lost_write_changes_nothing_in_the_end(world, lose_write, number):
    make_template(world)
    with lose_write(number):
        pod = world.pod("train", resourceClaims=FROM_TEMPLATE)
        world.run(5)
        allocate(world, only_claim(world), pod)
        start(world, pod)
        world.delete("pods", "train")
        world.run(60)
    assert world.list(CLAIMS) == []


# -- claims of pod groups --------------------------------------------------------------------------


@pytest.fixture
def grouped(make_world):
    gates = features.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")
    world = make_world(gates=gates)
    world.is_scheduling = False
    return world


def make_group(world, entries=FROM_TEMPLATE, name="g"):
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    spec = {**policy, "resourceClaims": entries}
    return world.create(POD_GROUPS, {"metadata": {"name": name}, "spec": spec})


def member(world, name, entries=FROM_TEMPLATE):
    group = {"schedulingGroup": {"podGroupName": "g"}}
    return world.pod(name, resourceClaims=entries, **group)


def recorded(obj):
    statuses = (obj.get("status") or {}).get("resourceClaimStatuses") or ()
    return [status["resourceClaimName"] for status in statuses]


def of_group(world, name="g"):
    uid = world.get(POD_GROUPS, name)["metadata"]["uid"]
    return {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": uid}


def test_a_group_has_one_claim_for_all_its_pods(grouped):
    """Pods before the group wait for it; a pod whose entry differs gets a claim of its own."""
    make_template(grouped)
    member(grouped, "early")
    grouped.settle()
    assert grouped.list(CLAIMS) == []
    make_group(grouped)
    member(grouped, "late")
    other = [{"name": "other", "resourceClaimTemplateName": "one-gpu"}]
    member(grouped, "different", other)
    grouped.settle()
    owners = {
        claim["metadata"]["ownerReferences"][0]["name"]: claim["metadata"]["name"]
        for claim in grouped.list(CLAIMS)
    }
    assert owners.keys() == {"g", "different"}
    assert owners["g"].startswith("g-gpu-")
    assert recorded(grouped.get(POD_GROUPS, "g")) == [owners["g"]]
    assert recorded(grouped.get("pods", "early")) == [owners["g"]]
    assert recorded(grouped.get("pods", "late")) == [owners["g"]]
    assert recorded(grouped.get("pods", "different")) == [owners["different"]]


def test_a_group_waits_for_its_template(grouped):
    make_group(grouped)
    member(grouped, "a")
    grouped.settle()
    events = [event["message"] for event in grouped.list("events")]
    problem = 'resource claim template "one-gpu": resourceclaimtemplate.resource.k8s.io'
    assert f'PodGroupResourceClaim gpu: {problem} "one-gpu" not found' in events
    make_template(grouped)
    grouped.settle()
    assert recorded(grouped.get("pods", "a")) == [only_claim(grouped)["metadata"]["name"]]


def test_a_claim_of_a_group_that_is_deleted_is_made_again(grouped):
    make_template(grouped)
    make_group(grouped)
    member(grouped, "a")
    grouped.settle()
    first = only_claim(grouped)["metadata"]["name"]
    grouped.delete(CLAIMS, first)
    grouped.settle()
    second = only_claim(grouped)["metadata"]["name"]
    assert second != first
    assert recorded(grouped.get(POD_GROUPS, "g")) == [second]
    assert recorded(grouped.get("pods", "a")) == [second]


def test_a_bound_member_gets_the_reservation_of_its_group(grouped):
    claim = make_claim(grouped)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    make_group(grouped, entry)
    pods = [member(grouped, name, entry) for name in ("a", "b")]
    allocate(grouped, claim)
    for pod in pods:
        start(grouped, pod)
    assert only_claim(grouped)["status"]["reservedFor"] == [of_group(grouped)]


def test_the_reservation_of_a_group_ends_with_it(grouped):
    """Not with its pods."""
    claim = make_claim(grouped)
    entry = [{"name": "gpu", "resourceClaimName": "shared"}]
    make_group(grouped, entry)
    pod = member(grouped, "a", entry)
    allocate(grouped, claim)
    start(grouped, pod)
    grouped.delete("pods", "a")
    grouped.run(60)
    assert consumers(only_claim(grouped)) == ["g"]
    grouped.delete(POD_GROUPS, "g")
    grouped.run(5)
    left = only_claim(grouped)
    assert "allocation" not in left["status"]
    assert not left["metadata"].get("finalizers")


def test_a_group_that_was_replaced_keeps_nothing(grouped):
    claim = make_claim(grouped)
    make_group(grouped, [{"name": "gpu", "resourceClaimName": "shared"}])
    allocate(grouped, claim)
    stored = only_claim(grouped)
    stale = {**of_group(grouped), "uid": "another"}
    status = {**stored["status"], "reservedFor": [stale, of_group(grouped)]}
    grouped.api.update_status(CLAIMS, {**stored, "status": status})
    grouped.settle()
    assert only_claim(grouped)["status"]["reservedFor"] == [of_group(grouped)]


def test_a_deleted_group_takes_its_generated_claim_along(grouped):
    make_template(grouped)
    make_group(grouped)
    grouped.settle()
    grouped.delete(POD_GROUPS, "g")
    grouped.run(5)
    assert grouped.list(CLAIMS) == []
