"""kubectl and pod groups on the playground: gangs are bound or wait, and their objects live as long
as their pods.
"""

from __future__ import annotations

import pytest
import yaml

from kubesched.app.playground import PlaygroundSettings, playground
from kubesched.config import features

GATES = (
    "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true,"
    "WorkloadWithJob=true"
)
GROUP = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}


@pytest.fixture
async def running(tmp_path):
    settings = PlaygroundSettings(
        kubeconfig=tmp_path / "kubeconfig", nodes=2, gates=features.parse(GATES)
    )
    async with playground(settings) as result:
        yield result.cluster


def group(name, min_count):
    spec = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    return {**GROUP, "metadata": {"name": name}, "spec": spec}


def members(name, numbers):
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "labels": {"gang": name}},
            "spec": {
                "containers": [{"name": "c", "image": "train"}],
                "schedulingGroup": {"podGroupName": name},
            },
        }
        for number in numbers
    ]


async def apply(kubectl, *objects):
    await kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def rows(outcome):
    return [line.split()[:-1] for line in outcome.out.splitlines()]  # without the age


async def test_a_gang_waits_until_it_is_complete_and_leaves_with_its_pods(
    running, kubectl, eventually
):
    api = running.api
    await apply(kubectl, group("gang", 3), *members("gang", range(2)))
    # A pod that came later is placed, the two that came before it wait for the third.
    await kubectl("run", "alone", "--image=web")
    await kubectl("wait", "pod/alone", "--for=condition=PodScheduled", "--timeout=240s")
    assert not any(pod["spec"].get("nodeName") for pod in api.list("pods", "default", "gang")[0])
    assert rows(await kubectl("get", "podgroups")) == [
        ["NAME", "POLICY", "WORKLOAD", "STATUS"],
        ["gang", "Gang", "<none>", "Pending"],
    ]

    await apply(kubectl, *members("gang", [2]))
    await kubectl(
        "wait", "podgroup/gang", "--for=condition=PodGroupInitiallyScheduled", "--timeout=240s"
    )
    assert rows(await kubectl("get", "podgroup", "gang", "--no-headers")) == [
        ["gang", "Gang", "<none>", "Scheduled"]
    ]
    await kubectl("wait", "pods", "-l", "gang=gang", "--for=condition=Ready", "--timeout=240s")

    await kubectl("delete", "podgroup", "gang", "--wait=false")
    kept = api.get("podgroups.scheduling.k8s.io", "default", "gang")["metadata"]
    assert "deletionTimestamp" in kept
    await kubectl("delete", "pods", "-l", "gang=gang", "--timeout=240s")
    await kubectl("wait", "podgroup/gang", "--for=delete", "--timeout=240s")


async def test_a_job_is_scheduled_as_a_gang(running, kubectl):
    pod = {"containers": [{"name": "c", "image": "train"}], "restartPolicy": "Never"}
    spec = {
        "parallelism": 3,
        "completions": 3,
        "scheduling": {"schedulingPolicy": {"gang": {}}},
        "template": {"spec": pod},
    }
    metadata = {"name": "train"}
    await apply(
        kubectl, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    )
    await kubectl("wait", "job/train", "--for=jsonpath={.status.ready}=3", "--timeout=240s")
    (group,) = (await kubectl("get", "podgroups", "-o", "json")).json["items"]
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    await kubectl(
        "wait", "podgroups", "--all", "--for=condition=PodGroupInitiallyScheduled", "--timeout=240s"
    )
    await kubectl("delete", "job", "train", "--timeout=240s")
    await kubectl("wait", "podgroups", "--all", "--for=delete", "--timeout=240s")


async def test_kubectl_knows_the_kinds(running, kubectl):
    reference = {"workloadName": "training", "templateName": "workers"}
    template = {"name": "workers", "schedulingPolicy": {"basic": {}}}
    await apply(
        kubectl,
        {
            **GROUP,
            "kind": "Workload",
            "metadata": {"name": "training"},
            "spec": {"podGroupTemplates": [template]},
        },
        {
            "apiVersion": "scheduling.k8s.io/v1alpha3",
            "kind": "CompositePodGroup",
            "metadata": {"name": "all"},
            "spec": {"workloadRef": reference, "schedulingPolicy": {"gang": {"minGroupCount": 1}}},
        },
    )
    assert rows(await kubectl("get", "compositepodgroups")) == [
        ["NAME", "POLICY", "WORKLOAD"],
        ["all", "Gang", "training"],
    ]
    assert rows(await kubectl("get", "workloads")) == [["NAME"], ["training"]]
    explained = (await kubectl("explain", "podgroup.spec.schedulingPolicy.gang.minCount")).out
    assert "The fewest pods that are placed together." in explained
    refused = await kubectl.run(
        "patch",
        "compositepodgroup",
        "all",
        "--type=merge",
        "-p",
        '{"spec":{"schedulingPolicy":{"gang":{"minGroupCount":2}}}}',
    )
    assert "spec.schedulingPolicy: Invalid value: null: field is immutable" in refused.err


async def test_a_gang_shares_a_claim_that_is_made_for_it(tmp_path, kubectl, eventually):
    """One device per node: all members go where the claim of their group has its device."""
    gates = features.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")
    settings = PlaygroundSettings(kubeconfig=tmp_path / "kubeconfig", nodes=3, gates=gates)
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    resource = {"apiVersion": "resource.k8s.io/v1"}
    slices = [
        {
            **resource,
            "kind": "ResourceSlice",
            "metadata": {"name": f"s{number}"},
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": f"node-{number}",
                "pool": {"name": f"node-{number}", "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}],
            },
        }
        for number in range(3)
    ]
    entries = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    gang = group("gang", 3)
    gang["spec"]["resourceClaims"] = entries
    pods = members("gang", range(3))
    for pod in pods:
        pod["spec"]["resourceClaims"] = entries
    async with playground(settings) as running:
        api = running.cluster.api
        device_class = {**resource, "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
        template = {**resource, "kind": "ResourceClaimTemplate", "metadata": {"name": "one"}}
        template["spec"] = {"spec": {"devices": {"requests": requests}}}
        await apply(kubectl, device_class, *slices, template, gang, *pods)
        await kubectl("wait", "pods", "-l", "gang=gang", "--for=condition=Ready", "--timeout=240s")
        (claim,) = api.list("resourceclaims.resource.k8s.io", "default")[0]
        nodes = {pod["spec"]["nodeName"] for pod in api.list("pods", "default", "gang")[0]}
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert nodes == {result["pool"]}
        (user,) = claim["status"]["reservedFor"]
        assert (user["resource"], user["name"]) == ("podgroups", "gang")

        await kubectl("delete", "pods", "-l", "gang=gang", "--timeout=240s")
        await kubectl("delete", "podgroup", "gang", "--timeout=240s")
        await eventually(
            running.cluster,
            lambda: not api.list("resourceclaims.resource.k8s.io", "default")[0],
            "the claim leaves with its group",
        )
