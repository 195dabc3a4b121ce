"""Claims find volumes, provisioners make them where they are wanted, and nothing in use
disappears.
"""

from __future__ import annotations

import pytest

from kubesched.playground.controllers.volumes import StorageDriver

PVC, PV, SC = "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io"
SELECTED = "volume.kubernetes.io/selected-node"
ZONE = "topology.kubernetes.io/zone"


def claim(
    world, name="data", *, size="1Gi", klass="", modes=("ReadWriteOnce",), annotations=None, **spec
):
    return world.create(
        PVC,
        {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "accessModes": list(modes),
                "storageClassName": klass,
                "resources": {"requests": {"storage": size}},
                **spec,
            },
        },
    )


def volume(world, name, *, size="1Gi", klass="", modes=("ReadWriteOnce",), labels=None, **spec):
    return world.create(
        PV,
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": list(modes),
                "storageClassName": klass,
                "hostPath": {"path": f"/data/{name}"},
                **spec,
            },
        },
        "",
    )


def phase(world, resource, name):
    return world.get(resource, name).get("status", {}).get("phase")


def bound_to(world, name="data"):
    return world.get(PVC, name)["spec"].get("volumeName")


# -- static ---------------------------------------------------------------------------------------


def test_a_claim_takes_the_smallest_volume_that_satisfies_it(world):
    volume(world, "small", size="1Gi")
    volume(world, "right", size="5Gi")
    volume(world, "large", size="50Gi")
    claim(world, size="2Gi")
    world.settle()
    assert bound_to(world) == "right"
    got = world.get(PVC, "data")
    assert got["status"]["phase"] == "Bound"
    assert got["status"]["capacity"] == {"storage": "5Gi"}
    assert got["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    assert got["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
    right = world.get(PV, "right")
    assert right["status"]["phase"] == "Bound"
    assert right["spec"]["claimRef"]["uid"] == got["metadata"]["uid"]
    assert phase(world, PV, "large") == "Available"


def test_a_claim_states_the_attributes_class_that_its_volume_had_when_it_was_bound(world):
    volume(world, "v", volumeAttributesClassName="gold")
    claim(world, volumeAttributesClassName="gold")
    world.settle()
    assert world.get(PVC, "data")["status"]["currentVolumeAttributesClassName"] == "gold"
    world.api.patch(PV, None, "v", {"spec": {"volumeAttributesClassName": "silver"}})
    world.settle()
    assert world.get(PVC, "data")["status"]["currentVolumeAttributesClassName"] == "gold"


@pytest.mark.parametrize(
    "offer",
    [
        pytest.param({"size": "500Mi"}, id="too small"),
        pytest.param({"klass": "other"}, id="another class"),
        pytest.param({"modes": ("ReadOnlyMany",)}, id="without the access mode"),
        pytest.param({"volumeMode": "Block"}, id="another volume mode"),
        pytest.param({"labels": {"tier": "slow"}}, id="not selected"),
        pytest.param(
            {"claimRef": {"name": "other", "namespace": "default"}}, id="reserved for another"
        ),
    ],
)
def test_a_volume_that_does_not_satisfy_is_not_taken(world, offer):
    volume(world, "wrong", **offer)
    claim(world, selector={"matchLabels": {"tier": "fast"}} if "labels" in offer else None)
    world.settle()
    assert phase(world, PVC, "data") == "Pending"
    assert "FailedBinding" in world.reasons("data")


def test_a_waiting_claim_is_served_when_a_volume_appears(world):
    claim(world)
    world.settle()
    assert phase(world, PVC, "data") == "Pending"
    volume(world, "late")
    world.settle()
    assert bound_to(world) == "late"


def test_a_volume_reserved_by_name_goes_to_its_claim_only(world):
    volume(world, "mine", size="100Gi", claimRef={"name": "data", "namespace": "default"})
    volume(world, "better", size="1Gi")
    claim(world)
    world.settle()
    assert bound_to(world) == "mine"


def test_a_claim_that_names_its_volume_gets_that_one_or_waits(world):
    volume(world, "a", size="1Gi")
    volume(world, "b", size="9Gi")
    claim(world, volumeName="b")
    world.settle()
    assert phase(world, PVC, "data") == "Bound"
    claim(world, "second", volumeName="b")
    world.settle()
    assert phase(world, PVC, "second") == "Pending"
    claim(world, "third", volumeName="missing")
    world.settle()
    assert phase(world, PVC, "third") == "Pending"


def test_two_claims_never_share_a_volume(world):
    volume(world, "only")
    claim(world, "first")
    claim(world, "second")
    world.settle()
    assert sorted([phase(world, PVC, "first"), phase(world, PVC, "second")]) == ["Bound", "Pending"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("Retain", "Released", id="kept for the administrator"),
        pytest.param("Recycle", "Available", id="scrubbed and free again"),
        pytest.param("Delete", "Released", id="a hand-made volume has no deleter"),
    ],
)
def test_what_becomes_of_a_volume_whose_claim_is_deleted(world, policy, expected):
    volume(world, "v", persistentVolumeReclaimPolicy=policy)
    claim(world)
    world.settle()
    world.delete(PVC, "data")
    world.settle()
    assert phase(world, PV, "v") == expected


def test_a_claim_whose_volume_vanishes_is_lost(world):
    volume(world, "v")
    claim(world)
    world.settle()
    world.patch(PV, "v", {"metadata": {"finalizers": None}})
    world.delete(PV, "v")
    world.settle()
    assert phase(world, PVC, "data") == "Lost"
    assert "ClaimLost" in world.reasons("data")


# -- delayed binding ------------------------------------------------------------------------------


def delayed_class(world, name="later", provisioner="kubernetes.io/no-provisioner", **fields):
    body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **fields}
    return world.create(SC, {"metadata": {"name": name}, **body}, "")


def test_a_class_that_waits_leaves_the_choice_to_the_scheduler(world):
    delayed_class(world)
    volume(world, "v", klass="later")
    claim(world, klass="later")
    world.run(60)
    assert phase(world, PVC, "data") == "Pending"
    assert world.reasons("data") == ["WaitForFirstConsumer"]
    # What the scheduler's PreBind writes: the volume reserved for the claim.
    got = world.get(PVC, "data")
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": "data",
        "namespace": "default",
        "uid": got["metadata"]["uid"],
    }
    patch = {
        "spec": {"claimRef": reference},
        "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
    }
    world.patch(PV, "v", patch)
    world.settle()
    assert phase(world, PVC, "data") == "Bound"
    assert bound_to(world) == "v"


def test_a_selected_node_does_not_make_any_free_volume_fit(stored):
    world = stored()
    volume(world, "elsewhere", klass="standard")
    claim(world, klass="standard", annotations={SELECTED: "node-1"})
    world.settle()
    assert bound_to(world).startswith("pvc-")
    assert phase(world, PV, "elsewhere") == "Available"


# -- provisioning ---------------------------------------------------------------------------------


@pytest.fixture
def stored(make_world):
    def make(**driver):
        return make_world(3, storage=(StorageDriver(**driver),))

    return make


def test_an_immediate_claim_is_provisioned_and_bound_at_once(stored):
    world = stored(binding_mode="Immediate")
    got = claim(world, klass="standard", size="3Gi")
    world.settle()
    name = f"pvc-{got['metadata']['uid']}"
    assert bound_to(world) == name
    made = world.get(PV, name)
    assert made["spec"]["capacity"] == {"storage": "3Gi"}
    assert made["spec"]["csi"] == {"driver": "csi.kubesched.io", "volumeHandle": name}
    assert made["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert made["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] == "csi.kubesched.io"
    assert world.reasons("data")[-1] == "ProvisioningSucceeded"


def test_a_claim_without_a_class_gets_the_default_one(stored):
    world = stored(binding_mode="Immediate")
    world.create(
        PVC,
        {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    world.settle()
    assert world.get(PVC, "data")["spec"]["storageClassName"] == "standard"
    assert phase(world, PVC, "data") == "Bound"


def test_a_delayed_claim_is_provisioned_where_the_scheduler_says(stored):
    world = stored()
    claim(world, klass="standard")
    world.run(60)
    assert world.list(PV) == []
    zone = world.get("nodes", "node-1")["metadata"]["labels"][ZONE]
    world.patch(PVC, "data", {"metadata": {"annotations": {SELECTED: "node-1"}}})
    world.settle()
    assert phase(world, PVC, "data") == "Bound"
    [made] = world.list(PV)
    [term] = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": ZONE, "operator": "In", "values": [zone]}]


def test_a_node_outside_the_allowed_topologies_is_handed_back_to_the_scheduler(stored):
    world = stored()
    only = [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-c"]}]}]
    delayed_class(world, provisioner="csi.kubesched.io", allowedTopologies=only)
    claim(world, klass="later", annotations={SELECTED: "node-0"})
    world.settle()
    assert SELECTED not in world.get(PVC, "data")["metadata"].get("annotations", {})
    assert "ProvisioningFailed" in world.reasons("data")
    world.patch(PVC, "data", {"metadata": {"annotations": {SELECTED: "node-2"}}})
    world.settle()
    assert phase(world, PVC, "data") == "Bound"


def test_every_node_says_which_drivers_it_has_and_how_many_volumes_it_takes(stored):
    world = stored(volumes_per_node=7)
    entry = world.get("csinodes.storage.k8s.io", "node-0")["spec"]["drivers"]
    assert entry == [
        {
            "name": "csi.kubesched.io",
            "nodeID": "node-0",
            "topologyKeys": [ZONE],
            "allocatable": {"count": 7},
        }
    ]
    assert (
        world.get("csidrivers.storage.k8s.io", "csi.kubesched.io")["spec"]["storageCapacity"]
        is False
    )
    world.delete("nodes", "node-0")
    world.settle()
    assert not world.exists("csinodes.storage.k8s.io", "node-0")


def test_a_provisioned_volume_is_deleted_with_its_claim(stored):
    world = stored(binding_mode="Immediate")
    claim(world, klass="standard")
    world.settle()
    world.delete(PVC, "data")
    world.settle()
    assert world.list(PV) == []


def test_a_volume_of_a_retaining_class_is_kept(stored):
    world = stored(binding_mode="Immediate", reclaim_policy="Retain")
    claim(world, klass="standard")
    world.settle()
    world.delete(PVC, "data")
    world.settle()
    assert [each["status"]["phase"] for each in world.list(PV)] == ["Released"]


def test_a_class_that_does_not_exist_is_named(world):
    claim(world, klass="typo")
    world.settle()
    assert phase(world, PVC, "data") == "Pending"
    assert "ProvisioningFailed" in world.reasons("data")


def test_binding_survives_the_loss_of_any_write(stored, lose_write):
    """Fail the first write, then the second, … until nothing fails; the claim is bound every
    time.
    """
    for number in range(1, 100):
        world = stored(binding_mode="Immediate")
        claim(world, klass="standard")
        with lose_write(number) as lost:
            world.run(5)
        assert phase(world, PVC, "data") == "Bound", number
        assert len(world.list(PV)) == 1
        if not lost.happened:
            break
    assert 5 < number < 99


# -- ephemeral ------------------------------------------------------------------------------------


def ephemeral_pod(world, name="user"):
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "resources": {"requests": {"storage": "1Gi"}},
        }
    }
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    return world.pod(name, volumes=volumes)


def test_an_ephemeral_volume_lives_and_dies_with_its_pod(stored):
    world = stored(binding_mode="Immediate")
    ephemeral_pod(world)
    world.run(5)
    assert phase(world, PVC, "user-scratch") == "Bound"
    world.delete("pods", "user")
    world.run(10)
    assert world.list(PVC) == []
    assert world.list(PV) == []


def test_a_claim_of_that_name_with_another_owner_is_not_taken(stored):
    world = stored(binding_mode="Immediate")
    mine = claim(world, "user-scratch", klass="standard")
    ephemeral_pod(world)
    world.settle()
    assert world.get(PVC, "user-scratch")["metadata"]["uid"] == mine["metadata"]["uid"]
    assert "EphemeralVolumeConflict" in world.reasons("user")


# -- protection -----------------------------------------------------------------------------------


def test_a_claim_in_use_waits_for_its_pod(world):
    volume(world, "v")
    claim(world)
    world.pod("user", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    world.run(10)
    world.delete(PVC, "data")
    world.run(10)
    assert world.get(PVC, "data")["metadata"]["deletionTimestamp"]
    world.delete("pods", "user")
    world.run(10)
    assert not world.exists(PVC, "data")


def test_a_bound_volume_waits_for_its_claim(world):
    volume(world, "v")
    claim(world)
    world.settle()
    world.delete(PV, "v")
    world.settle()
    assert world.exists(PV, "v")
    world.delete(PVC, "data")
    world.settle()
    assert not world.exists(PV, "v")


def test_an_unused_claim_goes_at_once(world):
    claim(world)
    world.settle()
    world.delete(PVC, "data")
    world.settle()
    assert not world.exists(PVC, "data")


@pytest.mark.parametrize(
    "named",
    [
        pytest.param({}, id="the volume names the claim"),
        pytest.param({"volumeName": "mine"}, id="both name each other"),
    ],
)
def test_a_volume_reserved_by_hand_is_bound_whatever_its_class(world, named):
    volume = {
        "metadata": {"name": "mine"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gold",
            "hostPath": {"path": "/d"},
            "claimRef": {"namespace": "default", "name": "c"},
        },
    }
    world.create("persistentvolumes", volume)
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "silver",
        **named,
    }
    world.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    world.settle()
    claim = world.get("persistentvolumeclaims", "c")
    assert (claim["spec"]["volumeName"], claim["status"]["phase"]) == ("mine", "Bound")
