"""StatefulSets, DaemonSets and Jobs end as asked after any handling, and keep their promises on the
way.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

RELAXED = settings(
    max_examples=12,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a cluster takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

POD_STEPS = (
    st.tuples(st.just("kill"), st.integers(0, 20)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.4, 1.3, 5.0])),
    st.tuples(st.just("restart"), st.just(0)),
)


def is_ready(pod) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def disturb(world, kind, value):
    """What may happen to any workload's pods."""
    if kind in ("kill", "delete") and world.pods():
        name = world.pods()[value % len(world.pods())]["metadata"]["name"]
        if kind == "delete":
            world.delete("pods", name)
        else:
            world.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")
    elif kind == "wait":
        world.run(value)
    elif kind == "restart":
        world.restart()


def set_image(world, resource, version):
    containers = [{"name": "main", "image": f"web:{version}"}]
    world.patch(resource, "web", {"spec": {"template": {"spec": {"containers": containers}}}})


@given(
    replicas=st.integers(0, 4),
    parallel=st.booleans(),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("scale"), st.integers(0, 5)),
            st.tuples(st.just("image"), st.integers(1, 3)),
            *POD_STEPS,
        ),
        max_size=8,
    ),
)
@RELAXED
def test_a_stateful_set_comes_to_its_ordinals_in_order(make_world, replicas, parallel, steps):
    resource = "statefulsets.apps"
    world = make_world(2, events=False)
    policy = "Parallel" if parallel else "OrderedReady"
    created = []

    def watch(kind, pod, old):
        if kind == "ADDED":
            ready = {each["metadata"]["name"] for each in world.pods() if is_ready(each)}
            ordinal = int(pod["metadata"]["name"].rpartition("-")[2])
            created.append((ordinal, {f"web-{i}" for i in range(ordinal)} <= ready))

    world.api.subscribe("pods", watch, replay=False)
    world.workload(resource, replicas=replicas, podManagementPolicy=policy)
    wanted, version = replicas, 1
    for kind, value in steps:
        if kind == "scale":
            wanted = value
            world.patch(resource, "web", {"spec": {"replicas": value}})
        elif kind == "image":
            version = value
            set_image(world, resource, value)
        else:
            disturb(world, kind, value)
    world.run(180)
    assert [pod["metadata"]["name"] for pod in world.pods()] == [f"web-{i}" for i in range(wanted)]
    assert all(is_ready(pod) for pod in world.pods())
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} <= {f"web:{version}"}
    status = world.get(resource, "web")["status"]
    assert status["replicas"] == status["availableReplicas"] == wanted
    if not parallel:
        assert all(in_order for _, in_order in created)


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("image"), st.integers(1, 3)),
            st.tuples(st.just("label"), st.integers(0, 3)),
            st.tuples(st.just("unlabel"), st.integers(0, 3)),
            *POD_STEPS,
        ),
        max_size=8,
    ),
    surge=st.booleans(),
)
@RELAXED
def test_a_daemon_set_covers_exactly_the_nodes_it_selects(make_world, steps, surge):
    resource = "daemonsets.apps"
    world = make_world(4, events=False)
    rolling = {"maxSurge": 1, "maxUnavailable": 0} if surge else {"maxUnavailable": 1}
    world.workload(
        resource,
        pod={"nodeSelector": {"role": "worker"}},
        updateStrategy={"type": "RollingUpdate", "rollingUpdate": rolling},
    )
    labelled, version = set(), 1
    for kind, value in steps:
        if kind == "image":
            version = value
            set_image(world, resource, value)
        elif kind in ("label", "unlabel"):
            node = f"node-{value}"
            role = "worker" if kind == "label" else None
            world.patch("nodes", node, {"metadata": {"labels": {"role": role}}})
            labelled = labelled | {node} if role else labelled - {node}
        else:
            disturb(world, kind, value)
    world.run(300)
    assert sorted(pod["spec"]["nodeName"] for pod in world.pods()) == sorted(labelled)
    assert all(is_ready(pod) for pod in world.pods())
    assert {pod["spec"]["containers"][0]["image"] for pod in world.pods()} <= {f"web:{version}"}
    status = world.get(resource, "web")["status"]
    assert status["desiredNumberScheduled"] == status["numberReady"] == len(labelled)
    assert status["numberMisscheduled"] == 0


@pytest.mark.slow
@given(
    completions=st.integers(1, 4),
    parallelism=st.integers(1, 3),
    indexed=st.booleans(),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("parallelism"), st.integers(0, 3)),
            st.tuples(st.just("suspend"), st.booleans()),
            *POD_STEPS,
        ),
        max_size=6,
    ),
)
@RELAXED
def test_a_job_counts_every_pod_once_and_finishes(
    make_world, completions, parallelism, indexed, steps
):
    resource = "jobs.batch"
    world = make_world(2, events=False)
    succeeded: set[str] = set()
    world.api.subscribe(
        "pods",
        lambda kind, pod, old: (
            succeeded.add(pod["metadata"]["uid"])
            if pod.get("status", {}).get("phase") == "Succeeded"
            else None
        ),
    )
    world.create(
        resource,
        {
            "metadata": {"name": "web"},
            "spec": {
                "completions": completions,
                "parallelism": parallelism,
                "completionMode": "Indexed" if indexed else "NonIndexed",
                "backoffLimit": 100,
                "template": world.template(restartPolicy="Never"),
            },
        },
    )
    for kind, value in steps:
        if kind in ("parallelism", "suspend"):
            world.patch(resource, "web", {"spec": {kind: value}})
        elif kind == "kill":
            running = world.active_pods()
            if running:
                name = running[value % len(running)]["metadata"]["name"]
                world.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")
        else:
            disturb(world, kind, value)
        status = world.get(resource, "web").get("status", {})
        assert status.get("succeeded", 0) <= len(succeeded)
    world.patch(resource, "web", {"spec": {"parallelism": 2, "suspend": False}})
    world.run(3600)
    status = world.get(resource, "web")["status"]
    assert any(each["type"] == "Complete" for each in status["conditions"])
    assert status["uncountedTerminatedPods"] == {}
    assert completions <= status["succeeded"] <= len(succeeded)
    assert all("finalizers" not in pod["metadata"] for pod in world.pods())
    if indexed:
        assert status["succeeded"] == completions
