"""With WorkloadWithJob, a Job gets a Workload and a PodGroup before its first pod."""

from __future__ import annotations

import pytest

from kubesched.base.errors import Invalid
from kubesched.config import features

GATES = features.parse("GenericWorkload=true,WorkloadWithJob=true")
GROUPS, WORKLOADS = "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"


@pytest.fixture
def world(make_world):
    world = make_world(gates=GATES)
    world.is_scheduling = False
    return world


def job(parallelism=3, scheduling=None, metadata=None, **template):
    spec = {"containers": [{"name": "c", "image": "train"}], "restartPolicy": "Never", **template}
    body = {"parallelism": parallelism, "completions": parallelism, "template": {"spec": spec}}
    if scheduling is not None:
        body["scheduling"] = scheduling
    return {"metadata": {"name": "train", **(metadata or {})}, "spec": body}


def create(world, body):
    world.api.create("jobs.batch", body, "default")
    world.settle()


def gang(min_count=None):
    return {"schedulingPolicy": {"gang": {} if min_count is None else {"minCount": min_count}}}


def only(world, resource):
    (found,) = world.list(resource)
    return found


def owners(obj):
    return [
        (owner["kind"], owner.get("controller", False))
        for owner in obj["metadata"]["ownerReferences"]
    ]


def test_the_pods_of_a_job_are_a_group(world):
    create(world, job(scheduling={**gang(), "disruptionMode": {"all": {}}}))
    workload, group = only(world, WORKLOADS), only(world, GROUPS)
    assert workload["spec"]["controllerRef"] == {
        "apiGroup": "batch",
        "kind": "Job",
        "name": "train",
    }
    (template,) = workload["spec"]["podGroupTemplates"]
    assert template["name"] == "train-pgt-0"
    assert template["schedulingPolicy"] == {"gang": {"minCount": 3}}
    workload_name, name = workload["metadata"]["name"], group["metadata"]["name"]
    assert workload_name.startswith("train-")
    assert name.startswith(f"{workload_name}-train-pgt-0-")
    assert group["spec"] == {
        "workloadRef": {"workloadName": workload_name, "templateName": "train-pgt-0"},
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priority": 0,
    }
    assert owners(workload) == [("Job", True)]
    assert owners(group) == [("Job", True), ("Workload", False)]
    pods = world.list("pods")
    assert len(pods) == 3
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {name}
    reasons = {event["reason"]: event["message"] for event in world.list("events")}
    assert reasons["WorkloadCreated"] == f"Created Workload {workload_name} for Job train"
    assert reasons["PodGroupCreated"] == f"Created PodGroup {name} for Job train"


def test_a_job_that_says_nothing_is_a_basic_group(world):
    create(world, job())
    assert only(world, GROUPS)["spec"]["schedulingPolicy"] == {"basic": {}}


def test_a_changed_minimum_is_passed_on(world):
    create(world, job(scheduling=gang(3)))
    changed = {"spec": {"scheduling": gang(2)}}
    world.api.patch("jobs.batch", "default", "train", changed)
    world.settle()
    expected = {"gang": {"minCount": 2}}
    assert only(world, GROUPS)["spec"]["schedulingPolicy"] == expected
    (template,) = only(world, WORKLOADS)["spec"]["podGroupTemplates"]
    assert template["schedulingPolicy"] == expected


def test_pods_that_name_a_group_keep_it(world):
    create(world, job(schedulingGroup={"podGroupName": "mine"}))
    assert world.list(GROUPS) == world.list(WORKLOADS) == []
    groups = [pod["spec"]["schedulingGroup"] for pod in world.list("pods")]
    assert groups == [{"podGroupName": "mine"}] * 3


def test_a_job_of_a_controller_gets_a_group_from_its_workload(world):
    parent = {"apiVersion": "example.com/v1", "kind": "Training", "name": "t", "uid": "u"}
    owned = {"ownerReferences": [{**parent, "controller": True}]}
    reference = {"apiGroup": "example.com", "kind": "Training", "name": "t"}
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    world.api.create(
        WORKLOADS,
        {
            "metadata": {"name": "w"},
            "spec": {"controllerRef": reference, "podGroupTemplates": [template]},
        },
        "default",
    )
    annotations = {"scheduling.k8s.io/group-template-name": "workers"}
    world.api.create("jobs.batch", job(metadata={**owned, "annotations": annotations}), "default")
    world.cast["job"].process()
    group = only(world, GROUPS)
    assert group["spec"]["workloadRef"] == {"workloadName": "w", "templateName": "workers"}
    assert owners(group) == [("Job", True)]
    template["schedulingPolicy"] = {"gang": {"minCount": 1}}
    world.api.patch(WORKLOADS, "default", "w", {"spec": {"podGroupTemplates": [template]}})
    world.api.patch("jobs.batch", "default", "train", {"metadata": {"labels": {"a": "b"}}})
    world.cast["job"].process()
    assert only(world, GROUPS)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 1}}


@pytest.mark.parametrize("runs", [True, False])
def test_what_was_made_for_a_job_goes_with_it(world, runs):
    world.is_scheduling = runs
    create(world, job())
    world.run(600)
    world.api.delete("jobs.batch", "default", "train", propagation="Background")
    world.run(600)
    assert [world.list(name) for name in (WORKLOADS, GROUPS, "pods")] == [[], [], []]


@pytest.mark.parametrize(
    ("scheduling", "text"),
    [
        (
            gang(4),
            "spec.scheduling.schedulingPolicy.gang.minCount: Invalid value: 4: must not be greater"
            " than parallelism (3)",
        ),
        (
            {"schedulingPolicy": {"basic": {}, "gang": {}}},
            'spec.scheduling.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly'
            " one of: `basic`, `gang`",
        ),
    ],
)
def test_what_a_job_must_not_say(world, scheduling, text):
    with pytest.raises(Invalid) as error:
        create(world, job(scheduling=scheduling))
    assert error.value.message.endswith(f"is invalid: {text}")


@pytest.mark.parametrize(
    ("scheduling", "text"),
    [
        (
            {"schedulingPolicy": {"gang": None, "basic": {}}},
            "spec.scheduling.schedulingPolicy: Invalid value: null: the basic/gang policy variant "
            "is"
            " immutable after creation; only schedulingPolicy.gang.minCount may be updated",
        ),
        (None, "spec.scheduling: Invalid value: null: field cannot be cleared once set"),
        (
            {"disruptionMode": {"all": {}}},
            "spec.scheduling.disruptionMode: Invalid value: null: field is immutable",
        ),
    ],
)
def test_what_cannot_be_changed(world, scheduling, text):
    create(world, job(scheduling=gang()))
    with pytest.raises(Invalid) as error:
        world.api.patch("jobs.batch", "default", "train", {"spec": {"scheduling": scheduling}})
    assert error.value.message.endswith(f"is invalid: {text}")


def test_without_the_gate_nothing_is_made(make_world):
    world = make_world(gates=features.parse("GenericWorkload=true"))
    create(world, job(scheduling=gang()))
    assert "scheduling" not in only(world, "jobs.batch")["spec"]
    assert world.list(GROUPS) == []
