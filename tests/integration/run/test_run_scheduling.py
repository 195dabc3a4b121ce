"""`kubesched run` does its work and says so as kube-scheduler does: bindings, conditions, events,
log lines, exits.
"""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
import yaml

from kubesched.api.core_v1 import Pod
from kubesched.client.patch import merge_patch

ALONE = {"leaderElection": {"leaderElect": False}}


async def test_pods_are_bound_and_everybody_is_told(cluster, run):
    await cluster.add_node("n1")
    scheduler = await run()
    await cluster.add_pod("fits")
    await cluster.add_pod("big", cpu="100")
    assert await cluster.bound("fits") == ["n1"]

    (event,) = await cluster.events("fits", "Scheduled")
    assert event["note"] == "Successfully assigned default/fits to n1"
    assert event["type"] == "Normal"
    assert event["action"] == "Binding"
    assert event["reportingController"] == "default-scheduler"
    assert event["reportingInstance"].startswith("default-scheduler-")

    message = (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: "
        "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    (event,) = await cluster.events("big", "FailedScheduling")
    assert event["note"] == message
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")
    condition = await cluster.condition("big")
    assert (condition.status, condition.reason) == ("False", "Unschedulable")
    assert condition.message == message

    bound = await scheduler.says('"Successfully bound pod to node"')
    assert bound.endswith('pod="default/fits" node="n1" evaluatedNodes=1 feasibleNodes=1')
    unfit = await scheduler.says('"Unable to schedule pod; no fit; waiting"')
    assert unfit.endswith(f'pod="default/big" err="{message}"')
    assert await scheduler.terminated() == 0


async def test_a_preemption_is_told_to_everybody(cluster, run):
    await cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata={"name": "high"},
        value=1000,
    )
    await cluster.add_node("n1", cpu="2")
    scheduler = await run(config=ALONE)
    await cluster.add_pod("victim", cpu="1500m")
    await cluster.bound("victim")
    preemptor = await cluster.add_pod("high", cpu="1500m", priorityClassName="high")
    disruption = await cluster.condition("victim", "DisruptionTarget")
    assert (disruption.status, disruption.reason) == ("True", "PreemptionByScheduler")
    assert (
        disruption.message == "default-scheduler: preempting to accommodate a higher priority pod"
    )
    (event,) = await cluster.events("victim", "Preempted")
    assert event["note"] == f"Preempted by pod {preemptor['metadata']['uid']} on node n1"
    assert (event["type"], event["action"]) == ("Normal", "Preempting")
    condition = await cluster.condition("high")
    assert condition.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")

    async def nominated():
        return (await cluster.pod("high")).status.nominated_node_name

    assert await cluster.eventually(nominated) == "n1"
    for text in (
        '"the target node for the preemption is determined" pod="default/high" node="n1"',
        '"Start the preemption asynchronously" preemptor="default/high" node="n1" numVictims=1',
        '"Preemptor Pod preempted victim Pod" preemptor="default/high" victim="default/victim"',
        '"Async Preemption finished completely" preemptor="default/high" node="n1" '
        'result="success"',
    ):
        await scheduler.says(text)


async def test_a_gated_pod_is_left_to_the_api_server(cluster, run):
    """The API server has already said why it waits; the scheduler adds nothing until the gate is
    gone.
    """
    await cluster.add_node("n1")
    await run(config=ALONE)
    await cluster.add_pod("gated", schedulingGates=[{"name": "example.com/g"}])
    await cluster.add_pod("beside")
    await cluster.bound("beside")
    condition = await cluster.condition("gated")
    assert (condition.status, condition.reason) == ("False", "SchedulingGated")
    assert condition.message == "Scheduling is blocked due to non-empty scheduling gates"
    patch = merge_patch({"spec": {"schedulingGates": None}})
    await cluster.admin.patch(Pod, "gated", "default", patch)
    assert await cluster.bound("gated") == ["n1"]


async def test_a_new_node_brings_a_waiting_pod_to_run(cluster, run):
    await cluster.add_pod("waits", cpu="6")
    await cluster.add_node("small")
    await run(config=ALONE)
    await cluster.condition("waits")
    await cluster.add_node("large", cpu="8")
    assert await cluster.bound("waits") == ["large"]


async def test_without_nodes_the_condition_says_so(cluster, run):
    await run(config=ALONE)
    await cluster.add_pod("lost")
    condition = await cluster.condition("lost")
    assert condition.message == "no nodes available to schedule pods"


async def test_pods_of_other_schedulers_are_left_alone(cluster, run):
    await cluster.add_node("n1")
    await run(config=ALONE)
    await cluster.add_pod("foreign", schedulerName="another-scheduler")
    await cluster.add_pod("ours")
    await cluster.bound("ours")
    assert (await cluster.pod("foreign")).spec.node_name == ""


async def test_a_deleted_node_with_its_pods_frees_nothing_and_breaks_nothing(cluster, run):
    for name in ("n1", "n2"):
        await cluster.add_node(name)
    scheduler = await run(config=ALONE)
    await cluster.add_pod("a")
    await cluster.bound("a")
    await cluster.admin.delete(type((await cluster.admin.list(Pod)).items[0]), "a", "default")
    await cluster.add_pod("b")
    await cluster.bound("b")
    assert "command failed" not in scheduler.log


async def test_a_polite_signal_without_leader_election_ends_with_1(cluster, run):
    scheduler = await run(config=ALONE)
    await scheduler.says('"Handlers synced"')
    assert await scheduler.terminated() == 1
    assert '"command failed" err="finished without leader elect"' in scheduler.log


async def test_a_polite_signal_with_leader_election_releases_the_lease(cluster, run):
    scheduler = await run()
    await scheduler.says('"Successfully acquired lease"')
    lease = await cluster.lease()
    identity = lease["spec"]["holderIdentity"]
    assert "_" in identity
    assert lease["spec"]["leaseDurationSeconds"] == 15
    assert await scheduler.terminated() == 0
    spec = (await cluster.lease())["spec"]
    assert spec.get("holderIdentity", "") == ""
    assert spec["leaseDurationSeconds"] == 1
    assert '"Requested to terminate, exiting"' in scheduler.log
    listed = json.loads(await cluster.admin.get_raw("/api/v1/namespaces/kube-system/events"))
    notes = [
        (event["message"], event["source"]["component"])
        for event in listed["items"]
        if event["reason"] == "LeaderElection"
    ]
    assert (f"{identity} became leader", "default-scheduler") in notes
    assert (f"{identity} stopped leading", "default-scheduler") in notes


async def test_a_polite_signal_ends_a_standby_too(cluster, run):
    leader = await run()
    await leader.says('"Successfully acquired lease"')
    standby = await run()
    await standby.says('"Attempting to acquire leader lease')
    assert await standby.terminated() == 0
    assert leader.process.returncode is None


async def test_completed_configuration_is_written_and_nothing_is_scheduled(cluster, run, tmp_path):
    path = tmp_path / "written.yaml"
    scheduler = await run(f"--write-config-to={path}", "--leader-elect-lease-duration=20s")
    assert await scheduler.ended() == 0
    written = yaml.safe_load(path.read_text())
    assert written["kind"] == "KubeSchedulerConfiguration"
    assert written["leaderElection"]["leaseDuration"] == "20s"
    assert written["profiles"][0]["schedulerName"] == "default-scheduler"


async def test_usr2_dumps_and_compares(cluster, run):
    await cluster.add_node("n1")
    scheduler = await run(config=ALONE)
    await cluster.add_pod("a")
    await cluster.add_pod("big", cpu="100")
    await cluster.bound("a")
    await cluster.condition("big")
    scheduler.send(signal.SIGUSR2)
    await scheduler.says(
        '"Dump of scheduling queue" summary="activeQ:0; backoffQ:0; unschedulableEntities:1"'
    )
    await scheduler.says("name: big, namespace: default")
    await scheduler.says("Node name: n1")
    assert "Cache mismatch" not in scheduler.log
    assert "contradicts itself" not in scheduler.log
    assert "do not agree" not in scheduler.log
    assert scheduler.process.returncode is None


async def test_json_logs_have_upstreams_keys(cluster, run):
    await cluster.add_node("n1")
    scheduler = await run("--logging-format=json", config=ALONE)
    await cluster.add_pod("a")
    await cluster.bound("a")
    line = json.loads(await scheduler.says("Successfully bound pod to node"))
    assert line["pod"] == {"name": "a", "namespace": "default"}
    assert (line["node"], line["v"], line["evaluatedNodes"]) == ("n1", 2, 1)


@pytest.mark.parametrize("count", [150])
async def test_many_pods_are_spread_and_none_is_lost(cluster, run, count):
    for number in range(5):
        await cluster.add_node(f"n{number}", cpu="8")
    await asyncio.gather(*(cluster.add_pod(f"p{number}") for number in range(count)))
    await run(config=ALONE)
    nodes = await cluster.bound(*(f"p{number}" for number in range(count)))
    assert {name: nodes.count(name) for name in set(nodes)} == {
        f"n{n}": count // 5 for n in range(5)
    }


async def test_groups_that_are_not_served_are_named_and_nothing_is_scheduled(cluster, run):
    """As kube-scheduler: without its groups a scheduler could bind a part of a gang."""
    await cluster.add_node("n1")
    await cluster.add_pod("plain")
    scheduler = await run("--feature-gates=GenericWorkload=true", config=ALONE)
    if cluster.embedded is None:  # its role for schedulers lacks what is not served
        told = await scheduler.says('"Still waiting for the state of the cluster"')
        assert 'cannot list resource \\"podgroups\\"' in told
    else:
        told = await scheduler.says('"Resource is not served"')
        assert 'type="podgroups.scheduling.k8s.io"' in told
        assert "--runtime-config=scheduling.k8s.io/v1beta1=true" in told
    assert (await cluster.pod("plain")).spec.node_name == ""
    await scheduler.terminated()
    assert (await cluster.pod("plain")).spec.node_name == ""
    assert scheduler.log.count('"Resource is not served"') == (cluster.embedded is not None)
