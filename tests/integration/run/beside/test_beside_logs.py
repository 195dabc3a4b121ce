"""The same story in the log of either scheduler: the lines people search for, at the same level,
with the same keys.

Both write JSON at `-v=5`, where each line says its level; what is left out at a lower `-v` is told
in `test_logs`.
"""

from __future__ import annotations

import json
import signal

import pytest
import yaml

pytestmark = pytest.mark.real

REAL = pytest.mark.parametrize(
    "cluster", [pytest.param("real", marks=pytest.mark.real)], indirect=True
)

ABOUT_SCHEDULING = (
    "app/",
    "cache/cache.go",
    "cache/node_tree.go",
    "defaultbinder/",
    "defaultpreemption/",
    "leaderelection/",
    "options/configfile.go",
    "preemption/",
    "queue/",
    "runtime/",
    "scheduler/",
)
"""Where kube-scheduler's sources write these lines; the others come from its libraries."""

NOT_OURS = {
    "Golang settings",
    # How plugins and batches came to what they say: other code, other steps
    # (docs/reference/logs.md).
    "Check the potential node for preemption",
    "Dry run the preemption",
    "OpportunisticBatch found unusable state",
    "OpportunisticBatch no node hint available for pod",
    "OpportunisticBatch set cycle state",
    "Pods are potential preemption victims on node",
    "SignPod can't sign pod due to plugin",
    # Only for events during an attempt, which is one step here: `test_queue_transitions`.
    "Checking event for in-flight pod",
    "Event received while entities are in flight",
}

SAME_VALUES = {
    "Add event for node",
    "Added node to NodeTree",
    "Async Preemption finished completely",
    "Attempting to schedule pod",
    "Delete event for node",
    "No preemption candidate is found; preemption is not helpful for scheduling",
    "Entity moved to an internal scheduling queue",
    "Entity moved to an internal scheduling queue, because it is gated",
    "Pod moved to an internal scheduling queue",
    "Preemption will not help schedule pod on any node",
    "Preemptor Pod preempted victim Pod",
    "Removed node from NodeTree",
    "Start the preemption asynchronously",
    "Status after running PostFilter plugins for pod",
    "Status after running PreEnqueue plugin",
    "Successfully acquired lease",
    "Successfully bound pod to node",
    "Unable to schedule pod; no fit; waiting",
    "Updating pod condition and nominated node name",
    "the target node for the preemption is determined",
}
"""Lines of which everything is compared, not only the keys."""

VARYING = {"ts", "caller", "logger", "schedulingCycle"}


async def story(cluster, scheduler, prefix):
    """A node, a pod that fits, one that never does, a gated one, a preemption, another node; then
    they all go.
    """

    async def delete(kind, name):
        await cluster.admin._write("DELETE", f"/api/v1/{kind}/{name}?gracePeriodSeconds=0", b"")

    async def nominated():
        return (await cluster.pod(f"{prefix}-high")).status.nominated_node_name

    zone = "topology.kubernetes.io/zone"
    await cluster.add_node(f"{prefix}-n1", cpu="2", labels={zone: "a"})
    await cluster.add_pod(f"{prefix}-fits", cpu="1500m")
    await cluster.bound(f"{prefix}-fits")
    await cluster.add_pod(f"{prefix}-big", cpu="100")
    await cluster.condition(f"{prefix}-big")
    await cluster.add_pod(f"{prefix}-gated", schedulingGates=[{"name": "example.com/g"}])
    await cluster.add_pod(f"{prefix}-high", cpu="1500m", priorityClassName="high")
    await cluster.eventually(nominated)
    await scheduler.says("Async Preemption finished completely")
    await delete("namespaces/default/pods", f"{prefix}-fits")
    await cluster.bound(f"{prefix}-high")
    await cluster.add_node(f"{prefix}-n2", cpu="4", labels={zone: "b"})
    await cluster.add_pod(f"{prefix}-two", cpu="3")
    await cluster.bound(f"{prefix}-two")
    # The deletion has brought the large one back; nothing is to be under way when the pods go.
    await scheduler.says(
        f'(?s)("Unable to schedule pod; no fit; waiting"[^\n]*"{prefix}-big".*){{2}}'
    )
    for name in ("big", "gated", "high", "two"):
        await delete("namespaces/default/pods", f"{prefix}-{name}")
    for name in ("n1", "n2"):
        await delete("nodes", f"{prefix}-{name}")


def shapes(lines):
    """Message -> the levels and sets of keys it comes with."""
    results = {}
    for line in lines:
        keys = frozenset(line) - {"msg", "v"} - VARYING
        results.setdefault(line["msg"], set()).add((line.get("v"), keys))
    return results


def values(lines, prefix):
    """Everything that is said in the lines compared in full."""
    results = set()
    for line in lines:
        if line["msg"] in SAME_VALUES:
            told = {key: value for key, value in line.items() if key not in VARYING}
            results.add(json.dumps(told, sort_keys=True).replace(f"{prefix}-", ""))
    return results


def only(lines, message):
    (line,) = (line for line in lines if line["msg"] == message)
    return line


@REAL
async def test_lines_people_search_for_are_kube_schedulers(cluster, contestant):
    await cluster.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        apiVersion="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata={"name": "high"},
        value=1000,
    )
    said = {}
    for kind in ("theirs", "ours"):
        scheduler = await contestant(kind, "--logging-format=json", "-v=5", kind=kind)
        await cluster.eventually(scheduler.is_ready)
        await story(cluster, scheduler, kind)
        for name in ("n1", "n2"):
            await scheduler.says(f'Removed node from NodeTree.*"{kind}-{name}"')
        assert await scheduler.kill(signal.SIGTERM) == 0
        said[kind] = scheduler.lines()
    theirs, ours = said["theirs"], said["ours"]

    wanted = shapes(
        line
        for line in theirs
        if line["caller"].startswith(ABOUT_SCHEDULING) and line["msg"] not in NOT_OURS
    )
    missing = wanted.keys() - shapes(ours).keys()
    assert missing == set()
    own_keys = {"Starting Kubernetes Scheduler": {"kubesched", "python"}}
    given = shapes(
        {key: line[key] for key in line.keys() - own_keys.get(line["msg"], set())} for line in ours
    )
    different = {
        message: (wanted[message], given[message])
        for message in wanted
        if wanted[message] != given[message]
    }
    assert different == {}
    assert wanted.keys() >= SAME_VALUES
    assert values(theirs, "theirs") == values(ours, "ours")


@REAL
async def test_the_configuration_and_the_plugins_in_the_log_are_kube_schedulers(
    cluster, contestant
):
    configs, plugins = [], []
    for kind in ("theirs", "ours"):
        scheduler = await contestant(kind, "--logging-format=json", "-v=2", kind=kind)
        await cluster.eventually(scheduler.is_ready)
        assert await scheduler.kill(signal.SIGTERM) == 0
        lines = scheduler.lines()
        configs.append(yaml.safe_load(only(lines, "Using component config")["config"]))
        plugins.append(only(lines, "the scheduler starts to work with those plugins")["Plugins"])
    # Here every node is looked at unless a file says otherwise (docs/limits.md).
    assert configs[0].pop("percentageOfNodesToScore") == 0
    assert configs[1].pop("percentageOfNodesToScore") == 100
    assert configs[1] == configs[0]
    # Placements belong to gang scheduling, which is not there yet (docs/limits.md); MultiPoint is
    # expanded by now.
    for point in ("PlacementGenerate", "PlacementScore", "MultiPoint"):
        plugins[0].pop(point)
        plugins[1].pop(point, None)
    assert plugins[1] == plugins[0]


@REAL
async def test_the_written_configuration_is_kube_schedulers(
    cluster, programs, contestant, tmp_path
):
    written = []
    for kind in ("theirs", "ours"):
        path = tmp_path / f"{kind}-written.yaml"
        scheduler = await contestant(kind, f"--write-config-to={path}", kind=kind, serves=False)
        assert await scheduler.process.wait() == 0
        written.append(path.read_text())
    theirs, ours = written
    assert "percentageOfNodesToScore: 0\n" in theirs
    assert ours == theirs.replace(
        "percentageOfNodesToScore: 0\n", "percentageOfNodesToScore: 100\n"
    )
