"""StatefulSets keep names, order and storage."""

from __future__ import annotations

import json

import pytest

from kubesched.base.errors import Invalid
from kubesched.playground.controllers.replicaset import BURST_REPLICAS
from kubesched.playground.controllers.volumes import StorageDriver

S = "statefulsets.apps"
PVC = "persistentvolumeclaims"


def names(world):
    return [pod["metadata"]["name"] for pod in world.pods()]


def set_image(world, image):
    world.patch(
        S,
        "web",
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}},
    )


def images(world):
    return [pod["spec"]["containers"][0]["image"] for pod in world.pods()]


def claim_template(name="data"):
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def test_pods_come_one_after_the_other(world):
    world.workload(S, replicas=3, serviceName="web")
    world.settle()
    assert names(world) == ["web-0"]
    world.run(2.1)
    assert names(world)[:2] == ["web-0", "web-1"]
    world.run(10)
    assert names(world) == ["web-0", "web-1", "web-2"]
    status = world.get(S, "web")["status"]
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (3, 3, 3)
    assert status["currentRevision"] == status["updateRevision"]
    assert status["updatedReplicas"] == status["currentReplicas"] == 3


def test_no_pod_comes_before_its_predecessor_is_ready(world):
    world.is_scheduling = False
    world.workload(S, replicas=3)
    world.run(60)
    assert names(world) == ["web-0"]


def test_parallel_pods_come_in_bursts(world):
    world.is_scheduling = False
    world.workload(S, replicas=120, podManagementPolicy="Parallel")
    world.settle()
    assert len(names(world)) == 120
    assert world.get(S, "web")["status"]["replicas"] == 120
    world.workload(S, "huge", replicas=2**31 - 1, podManagementPolicy="Parallel")
    for looks in (1, 2):
        world.cast["statefulset"].sync("default/huge")
        assert len(names(world)) == 120 + looks * BURST_REPLICAS


def test_parallel_pods_come_at_once(world):
    world.is_scheduling = False
    world.workload(S, replicas=3, podManagementPolicy="Parallel")
    world.settle()
    assert names(world) == ["web-0", "web-1", "web-2"]


def test_a_pod_knows_who_it_is(world):
    world.workload(S, replicas=1, serviceName="svc", ordinals={"start": 5})
    world.run(5)
    [pod] = world.pods()
    revision = world.get(S, "web")["status"]["updateRevision"]
    assert pod["metadata"]["name"] == "web-5"
    of_node = {"topology.kubernetes.io/region": "region-1", "topology.kubernetes.io/zone": "zone-a"}
    assert pod["metadata"]["labels"] == of_node | {
        "app": "web",
        "apps.kubernetes.io/pod-index": "5",
        "statefulset.kubernetes.io/pod-name": "web-5",
        "controller-revision-hash": revision,
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-5", "svc")


def test_shrinking_removes_the_last_pod_first_and_one_at_a_time(world):
    world.workload(S, replicas=3)
    world.run(20)
    world.patch(S, "web", {"spec": {"replicas": 1}})
    world.settle()
    deleting = [
        pod["metadata"]["name"] for pod in world.pods() if pod["metadata"].get("deletionTimestamp")
    ]
    assert deleting == ["web-2"]
    world.run(20)
    assert names(world) == ["web-0"]


def test_a_lost_pod_comes_back_under_its_name(world):
    world.workload(S, replicas=2)
    world.run(20)
    before = world.get("pods", "web-0")["metadata"]["uid"]
    world.delete("pods", "web-0")
    world.run(20)
    assert world.get("pods", "web-0")["metadata"]["uid"] != before
    assert names(world) == ["web-0", "web-1"]


def test_a_pod_that_ended_is_replaced_under_its_name(world):
    world.workload(S, replicas=1)
    world.run(10)
    world.patch("pods", "web-0", {"status": {"phase": "Failed"}}, subresource="status")
    world.run(20)
    assert world.get("pods", "web-0")["status"]["phase"] == "Running"


def test_an_update_goes_from_the_last_pod_to_the_first(world):
    world.workload(S, replicas=3)
    world.run(20)
    set_image(world, "web:2")
    order = []
    for _ in range(200):
        world.run(0.5)
        current = [
            name
            for name, image in zip(names(world), images(world), strict=True)
            if image == "web:2"
        ]
        order += [name for name in current if name not in order]
    assert order == ["web-2", "web-1", "web-0"]
    status = world.get(S, "web")["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert len(world.list("controllerrevisions.apps")) == 2


def test_at_most_one_pod_is_missing_during_an_update(world):
    world.workload(S, replicas=3)
    world.run(20)
    set_image(world, "web:2")
    for _ in range(200):
        world.run(0.25)
        ready = [
            pod
            for pod in world.active_pods()
            if any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in pod["status"].get("conditions", ())
            )
        ]
        assert len(ready) >= 2
    assert images(world) == ["web:2"] * 3


def test_pods_below_the_partition_keep_the_old_template(world):
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    world.workload(S, replicas=3, updateStrategy=rolling)
    world.run(20)
    set_image(world, "web:2")
    world.run(30)
    assert images(world) == ["web:1", "web:1", "web:2"]
    world.delete("pods", "web-0")
    world.run(30)
    assert images(world) == ["web:1", "web:1", "web:2"]
    status = world.get(S, "web")["status"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
    assert status["currentRevision"] != status["updateRevision"]


def test_on_delete_waits_for_the_user(world):
    world.workload(S, replicas=2, updateStrategy={"type": "OnDelete"})
    world.run(20)
    set_image(world, "web:2")
    world.run(30)
    assert images(world) == ["web:1", "web:1"]
    world.delete("pods", "web-1")
    world.run(20)
    assert images(world) == ["web:1", "web:2"]


def test_going_back_renumbers_the_old_revision(world):
    world.workload(S, replicas=1)
    world.run(10)
    first = world.get(S, "web")["status"]["updateRevision"]
    set_image(world, "web:2")
    world.run(20)
    set_image(world, "web:1")
    world.run(20)
    assert world.get(S, "web")["status"]["updateRevision"] == first
    revisions = {
        r["metadata"]["name"]: r["revision"] for r in world.list("controllerrevisions.apps")
    }
    assert revisions[first] == 3
    assert len(revisions) == 2


def test_unused_revisions_beyond_the_limit_go(world):
    world.workload(S, replicas=1, revisionHistoryLimit=1)
    for version in range(2, 6):
        world.run(10)
        set_image(world, f"web:{version}")
    world.run(20)
    world.patch(S, "web", {"metadata": {"annotations": {"look": "again"}}})
    world.settle()
    assert len(world.list("controllerrevisions.apps")) == 2


# -- storage --------------------------------------------------------------------------------------


@pytest.fixture
def stored(make_world):
    return make_world(3, storage=(StorageDriver(binding_mode="Immediate"),))


def test_every_pod_has_claims_of_its_own_that_outlive_it(stored):
    stored.workload(S, replicas=2, volumeClaimTemplates=[claim_template()])
    stored.run(20)
    claims = [claim["metadata"]["name"] for claim in stored.list(PVC)]
    assert claims == ["data-web-0", "data-web-1"]
    assert all(claim["status"]["phase"] == "Bound" for claim in stored.list(PVC))
    volumes = stored.get("pods", "web-1")["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}} in volumes
    stored.patch(S, "web", {"spec": {"replicas": 0}})
    stored.run(20)
    assert stored.pods() == []
    assert len(stored.list(PVC)) == 2


def test_claims_go_with_their_pod_when_the_policy_says_so(stored):
    stored.workload(
        S,
        replicas=2,
        volumeClaimTemplates=[claim_template()],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Delete", "whenDeleted": "Retain"},
    )
    stored.run(20)
    stored.patch(S, "web", {"spec": {"replicas": 1}})
    stored.run(20)
    assert [claim["metadata"]["name"] for claim in stored.list(PVC)] == ["data-web-0"]


def test_claims_go_with_the_set_when_the_policy_says_so(stored):
    stored.workload(
        S,
        replicas=1,
        volumeClaimTemplates=[claim_template()],
        persistentVolumeClaimRetentionPolicy={"whenScaled": "Retain", "whenDeleted": "Delete"},
    )
    stored.run(20)
    stored.delete(S, "web")
    stored.run(40)
    assert stored.list(PVC) == []
    assert stored.list("persistentvolumes") == []


def test_a_container_mounts_a_claim_template(world):
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    mount = {"name": "data", "mountPath": "/data"}
    container = {"name": "main", "image": "db:1", "volumeMounts": [mount]}
    pod = {"containers": [container]}
    world.workload("statefulsets.apps", "db", pod=pod, volumeClaimTemplates=[claim], replicas=1)
    mount["name"] = "other"
    with pytest.raises(Invalid, match=r'volumeMounts\[0\]\.name: Not found: "other"'):
        world.workload("statefulsets.apps", "x", pod=pod, volumeClaimTemplates=[claim])


def test_revisions_have_sorted_keys(world):
    world.workload("statefulsets.apps", "db", replicas=0)
    world.settle()
    [revision] = world.list("controllerrevisions.apps")
    encoded = json.dumps(revision["data"])
    assert encoded == json.dumps(revision["data"], sort_keys=True)
