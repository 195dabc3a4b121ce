"""Measured end to end: each way of releasing pods, both schedulers on real control planes, and
failures that explain.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kubesched.base.errors import KubeschedError
from kubesched.lab.benchmarking import operations as ops
from kubesched.lab.benchmarking.catalogue import find
from kubesched.lab.benchmarking.end_to_end.driving import Pace, Release
from kubesched.lab.benchmarking.end_to_end.run import (
    EndToEndOptions,
    run_end_to_end,
)
from kubesched.lab.benchmarking.workload_files import load
from kubesched.lab.contestants import Contestant
from kubesched.testing.control_plane import ASSETS_VARIABLE, find_assets


def basic():
    (workload,) = find(["Basic/tiny"])
    return workload


async def measured(workload, **options):
    told = []
    result = await run_end_to_end(
        workload, EndToEndOptions(repeats=1, **options), lambda text: told.append(text)
    )
    assert told, "progress is reported"
    return result


@pytest.mark.parametrize(
    "pace",
    [
        pytest.param(Pace(), id="pods come while the scheduler is at work"),
        pytest.param(Pace(pods_per_s=100.0), id="pods come at a rate"),
        pytest.param(Pace(release=Release.DRAINED), id="pods are there before the scheduler"),
    ],
)
async def test_every_pod_and_every_event_is_counted(pace):
    (result,) = await measured(basic(), pace=pace)
    assert (result.pods, result.attempts) == (100, 100)
    seen = result.end_to_end
    assert seen.events == 100, "each pod has its event, however late"
    assert seen.release == pace.release.value
    assert seen.pods_per_s_with_events > 0
    if not pace.pods_per_s:
        assert result.pods_per_s >= seen.pods_per_s_with_events
    else:
        assert result.pods_per_s < 1.5 * pace.pods_per_s


async def test_claims_that_wait_for_a_consumer_get_their_volumes():
    (workload,) = find(["WaitingClaims/tiny"])
    (result,) = await measured(workload)
    assert result.pods == workload.params["measurePods"]


async def test_groups_are_served_where_the_workload_has_them(tmp_path):
    (tmp_path / "group.yaml").write_text(
        "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: 'g-{{.Index}}'}\n"
        "spec: {schedulingPolicy: {gang: {minCount: 3}}, priority: 7}\n"
    )
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: 'p-{{.Index}}'}\n"
        "spec: {priority: 7, schedulingGroup: {podGroupName: 'g-{{DivideInt .Index 3}}'}, "
        "containers: [{name: c, image: i}]}\n"
    )
    (tmp_path / "workloads.yaml").write_text(
        "- name: Gangs\n  featureGates: {GenericWorkload: true}\n  workloads: [{name: one}]\n"
        "  workloadTemplate:\n  - {opcode: createNodes, count: 2}\n"
        "  - {opcode: createNamespaces, prefix: a, count: 1}\n"
        "  - {opcode: createPodGroups, count: 2, namespace: a-0, templatePath: group.yaml}\n"
        "  - {opcode: createPods, count: 6, namespace: a-0, podTemplatePath: pod.yaml, "
        "collectMetrics: true}\n"
    )
    (workload,) = load(tmp_path / "workloads.yaml")
    (result,) = await measured(workload)
    assert (result.pods, result.end_to_end.events) == (6, 6)


@pytest.mark.real
@pytest.mark.timeout(300)
async def test_both_schedulers_take_turns_on_real_control_planes():
    if not os.environ.get(ASSETS_VARIABLE):
        pytest.skip(f"needs etcd, kube-apiserver and kube-scheduler in ${ASSETS_VARIABLE}")
    assets = find_assets()
    both = (Contestant.kubesched(), Contestant.kube_scheduler(assets))
    result = await measured(basic(), assets=assets, contestants=both)
    assert [item.contestant for item in result] == ["kubesched", "kube-scheduler"]
    for item in result:
        assert item.control_plane == "real"
        assert item.pods == 100
        assert item.end_to_end.events == 100
        assert item.sli_ms.p99 > 0
        assert item.end_to_end.etcd.max_rss_bytes > 0
        assert item.api_server.cpu_s > 0
    ours, theirs = (item.decision_cpu for item in result)
    assert ours is None, "measured in core mode, on request"
    assert theirs is not None, "its profile was read"


async def test_a_scheduler_that_ends_is_quoted_and_its_log_kept():
    broken = Contestant(
        "broken", (sys.executable, "-c", "raise SystemExit('no such flag')"), "", ""
    )
    with pytest.raises(KubeschedError, match="broken ended with 1: no such flag") as failed:
        await measured(basic(), contestants=(broken,))
    folder = str(failed.value).rpartition("logs are kept in ")[2]
    assert "no such flag" in (await asyncio.to_thread(Path(folder, "broken.log").read_text))


async def test_pods_that_do_not_fit_are_not_waited_for_for_ever():
    workload = basic()
    steps = tuple(op for op in workload.ops if not isinstance(op, ops.CreateNodes))
    with pytest.raises(KubeschedError, match="none was in the last 2 s"):
        await measured(replace(workload, ops=steps), pace=Pace(stall_s=2.0))
