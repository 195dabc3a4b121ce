"""`capacity` counts what creating pods one by one would count, and says what stops the next."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec
import pytest
from msgspec import structs
from planning_worlds import ONE_WORKER, deployment_manifest, pod_manifest, random_state

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import ManualClock
from kubesched.insight.explain import Verdict
from kubesched.insight.planning.capacity import _Count, count_capacity
from kubesched.insight.planning.manifests import Manifest
from kubesched.insight.planning.workloads import Workloads
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.planned_cluster import PlanError
from kubesched.testing import Cluster, make_node, make_pod


def counted(state, *manifests, **options):
    return count_capacity(state, manifests, options.pop("config", None), **options)


def workload(kind="Deployment", *, name="web", replicas=1, cpu="1", **spec):
    labels = {"app": name}
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}}
    body = {"template": template}
    if kind == "Job":
        body |= {"parallelism": replicas}
        template["spec"]["restartPolicy"] = "Never"
    else:
        body |= {"replicas": replicas, "selector": {"matchLabels": labels}}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    obj = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": body}
    return Manifest("web.yaml", 1, obj)


def nodes(count=3, cpu="4"):
    state = ClusterState("test")
    for i in range(count):
        state.put(make_node(f"n{i}").capacity(cpu=cpu, memory="8Gi").zone("abc"[i % 3]).build())
    return state


# -- against brute force -------------------------------------------------------------------------


def one_by_one(state: ClusterState, pod: Pod, most: int) -> int:
    """Create pods until one is not bound."""
    with Cluster(state, ONE_WORKER) as world:
        for number in range(most):
            meta = structs.replace(
                pod.metadata, name=f"{pod.metadata.name}-{number}", uid=f"u{number}"
            )
            world.add(structs.replace(pod, metadata=meta))
            world.settle()
            if not world.pod(meta.name, meta.namespace).spec.node_name:
                return number
        return most


def admitted(state: ClusterState, manifest: Manifest) -> Pod:
    made = []
    workloads = Workloads(state, ManualClock(), 0, lambda _change, obj: made.append(obj))
    workloads.create(manifest, replicas=1)
    workloads.run()
    return next(obj for obj in made if isinstance(obj, Pod))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_the_count_is_that_of_creating_pods_one_by_one(seed):
    rng = Random(seed)
    state = random_state(rng)
    make = pod_manifest if seed % 2 else (lambda rng: deployment_manifest(rng, 3))
    manifest = make(rng)
    expected = one_by_one(state, admitted(state, manifest), 60)
    assert counted(state, manifest, config=ONE_WORKER, limit=60).replicas == expected


# -- what is said --------------------------------------------------------------------------------


def test_every_replica_has_its_place_and_the_next_has_its_reasons():
    told = counted(nodes(), workload(cpu="1500m"))
    assert (told.replicas, told.pods, told.is_limited) == (6, 6, False)
    assert told.zones == {"a": 2, "b": 2, "c": 2}
    assert told.nodes == {"n0": 2, "n1": 2, "n2": 2}
    assert told.next.verdict is Verdict.NOT_NOW
    assert told.next.message.startswith("0/3 nodes are available: 3 Insufficient cpu. preemption:")
    assert [(each.zone, each.reasons) for each in told.next.zones] == [
        (zone, {"Insufficient cpu": 1}) for zone in "abc"
    ]


def test_counting_ends_at_the_limit():
    told = counted(nodes(), workload(), limit=5)
    assert (told.replicas, told.is_limited, told.next) == (5, True, None)


def test_workloads_count_in_the_proportion_of_their_replicas():
    told = counted(nodes(), workload(replicas=3), workload("Job", name="batch", cpu="2"))
    assert [part.per_replica for part in told.parts] == [3, 1]
    assert told.replicas == 2
    assert (
        told.pods == 10
    )  # 12 cpus: two replicas take five each, and two of the next one's three fit


def test_pending_pods_of_the_cluster_come_first():
    state = nodes(1)
    state.put(make_pod("earlier").cpu("3").build())
    state.put(make_pod("hopeless").cpu("30").build())
    told = counted(state, workload())
    assert (told.replicas, told.pending) == (1, 1)


def test_nothing_is_evicted_but_it_is_said_what_would_be():
    state = nodes(1)
    state.put(make_pod("low").cpu("4").priority(-10).on("n0").build())
    told = counted(state, workload())
    assert told.replicas == 0
    assert [victim.pod for victim in told.next.preemption.victims] == ["default/low"]


def test_a_gated_pod_waits():
    told = counted(nodes(), workload(schedulingGates=[{"name": "example.com/hold"}]))
    assert (told.replicas, told.next.verdict) == (0, Verdict.WAITING)


def test_every_replica_of_a_stateful_set_brings_its_own_claims():
    state = nodes(2)
    for i in range(3):
        state.put(_volume(f"pv-{i}", f"n{i % 2}"))
    state.put(_local_class())
    sets = workload("StatefulSet", cpu="100m")
    sets.obj["spec"] |= {"serviceName": "web", "volumeClaimTemplates": [_claim_template()]}
    told = counted(state, sets)
    assert told.replicas == 3
    assert told.next.message.startswith(
        "0/2 nodes are available: 2 node(s) didn't find available persistent volumes"
    )


def _volume(name, node):
    from kubesched.api import codec
    from kubesched.api.core_v1 import PersistentVolume

    term = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]
    }
    return codec.convert(
        {
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "local": {"path": "/data"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Available"},
        },
        PersistentVolume,
    )


def _local_class():
    from kubesched.api import codec
    from kubesched.api.storage_v1 import StorageClass

    value = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return codec.convert(value, StorageClass)


def _claim_template():
    return {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def test_the_same_seed_gives_the_same_bytes():
    state = random_state(Random(7))
    manifest = deployment_manifest(Random(7), 2)
    first, second = (msgspec.json.encode(counted(state, manifest, seed=3)) for _ in range(2))
    assert first == second


def test_the_state_is_not_changed():
    state = nodes()
    before = list(state)
    counted(state, workload())
    assert list(state) == before


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param(
            workload(cpu="1x"),
            "web.yaml:1: Deployment web: .*quantities must match",
            id="a quantity that is none",
        ),
        pytest.param(
            workload(priorityClassName="high"),
            "web.yaml:1: Deployment web: .*no PriorityClass with name high was found",
            id="a priority class that the state does not have",
        ),
        pytest.param(
            workload(schedulerName="other"),
            r"web.yaml:1: Deployment web: spec.template.spec.schedulerName: no profile of the "
            r'configuration is called "other"',
            id="a scheduler that the configuration does not know",
        ),
        pytest.param(
            Manifest(
                "d.yaml",
                4,
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}},
            ),
            "d.yaml:4: DaemonSet d: a DaemonSet has one pod per node",
            id="a workload that cannot be counted",
        ),
        pytest.param(
            Manifest("x.yaml", 1, {"apiVersion": "v1", "kind": "Podd"}),
            "x.yaml:1: kind: Podd of v1 is not known",
            id="an unknown kind beside a workload",
        ),
    ],
)
def test_input_that_makes_no_sense_is_refused_with_file_and_field(manifest, message):
    with pytest.raises(PlanError, match=message):
        counted(nodes(), workload(name="fine"), manifest)


@pytest.mark.parametrize("seed", range(12))
def test_the_short_way_gives_what_the_whole_cycle_gives(seed, monkeypatch):
    """Node by node, with ties drawn: a short cut must not spare or add a draw."""
    rng = Random(seed)
    state = random_state(rng)
    manifests = [deployment_manifest(rng, 2, "first")]
    if seed % 3 == 0:
        manifests.append(pod_manifest(rng, "second"))
    shortly = counted(state, *manifests, limit=200, seed=seed)
    monkeypatch.setattr(
        _Count, "_placing", lambda count, at, template: partial(count._place, at, template)
    )
    assert counted(state, *manifests, limit=200, seed=seed) == shortly
