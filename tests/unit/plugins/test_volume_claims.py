"""What pods and claims say about volumes: flags, names, ownership, classes, the signature's
fragment.
"""

import msgspec
import pytest
from storage_objects import EPHEMERAL, claim, csi, pod_with, volume

from kubesched.api.core_v1 import Pod
from kubesched.api.pod_volumes import (
    CLAIM,
    DISK,
    INLINE_CSI,
    MIGRATABLE,
    volume_uses,
)
from kubesched.api.pod_volumes import EPHEMERAL as EPHEMERAL_FLAG
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.plugins.helper.volumes import claims
from kubesched.testing import make_pod


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        pytest.param("claim", CLAIM, id="a claim"),
        pytest.param(EPHEMERAL, EPHEMERAL_FLAG, id="a generic ephemeral volume"),
        pytest.param({"gcePersistentDisk": {"pdName": "d"}}, DISK | MIGRATABLE, id="a GCE disk"),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "v"}}, DISK | MIGRATABLE, id="an EBS volume"
        ),
        pytest.param({"iscsi": {"iqn": "i"}}, DISK, id="iSCSI cannot be translated"),
        pytest.param({"rbd": {"image": "i"}}, DISK, id="RBD cannot be translated"),
        pytest.param({"azureDisk": {"diskURI": "d"}}, MIGRATABLE, id="an Azure disk"),
        pytest.param({"azureFile": {"shareName": "s"}}, MIGRATABLE, id="an Azure file share"),
        pytest.param({"cinder": {"volumeID": "v"}}, MIGRATABLE, id="a Cinder volume"),
        pytest.param({"vsphereVolume": {"volumePath": "v"}}, MIGRATABLE, id="a vSphere disk"),
        pytest.param({"portworxVolume": {"volumeID": "v"}}, MIGRATABLE, id="a Portworx volume"),
        pytest.param({"csi": {"driver": "d"}}, INLINE_CSI, id="an inline CSI volume"),
        pytest.param({"projected": {}}, 0, id="a token"),
        pytest.param({"configMap": {"name": "c"}}, 0, id="a ConfigMap"),
        pytest.param({"secret": {"secretName": "s"}}, 0, id="a Secret"),
        pytest.param({"emptyDir": {}}, 0, id="scratch space"),
        pytest.param({"hostPath": {"path": "/"}}, 0, id="a path on the node"),
        pytest.param({"nfs": {"server": "s"}}, 0, id="NFS"),
    ],
)
def test_flags_name_what_placement_depends_on(source, flags):
    pod = pod_with({"projected": {}}, source).build()
    assert volume_uses(pod.spec.volumes) == flags
    assert PodInfo(pod).volume_uses == flags
    assert claims.uses_of(CycleState(), pod) == flags


def test_flags_of_a_class_are_looked_at_once():
    state = CycleState()
    state.class_memo = {}
    pod = pod_with("a").build()
    assert claims.uses_of(state, pod) == CLAIM
    (known,) = state.class_memo.values()
    assert known == CLAIM
    state.class_memo.update(dict.fromkeys(state.class_memo, DISK))
    assert claims.uses_of(state, pod) == DISK


def test_a_pod_info_keeps_its_flags_when_it_is_assumed():
    info = PodInfo(pod_with("a").build())
    assert info.volume_uses == CLAIM
    assert info.assumed_on("n").volume_uses == CLAIM


def test_claims_are_listed_in_the_pods_order_with_repeats_and_generated_names():
    pod = pod_with("b", EPHEMERAL, {"emptyDir": {}}, "a", "b", name="web").build()
    assert claims.claim_uses(pod) == [
        ("b", False),
        ("web-v1", True),
        ("a", False),
        ("b", False),
    ]
    assert claims.direct_claims(pod) == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("owner", "namespace", "problem"),
    [
        pytest.param("uid-p", "default", None, id="the pod controls it"),
        pytest.param(
            "other",
            "default",
            "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
            id="another owner controls it",
        ),
        pytest.param(
            None,
            "default",
            "PVC default/p-v0 was not created for pod default/p (pod is not owner)",
            id="no owner controls it",
        ),
        pytest.param(
            "uid-p",
            "else",
            "PVC else/p-v0 was not created for pod default/p (pod is not owner)",
            id="it is in another namespace",
        ),
    ],
)
def test_an_ephemeral_claim_belongs_to_the_pod_it_was_made_for(owner, namespace, problem):
    pod = pod_with(EPHEMERAL, uid="uid-p").build()
    assert claims.ownership_problem(pod, claim("p-v0", namespace, owner=owner)) == problem


def test_an_owner_that_is_no_controller_does_not_own_a_claim():
    made = claim("p-v0", owner="uid-p")
    reference = msgspec.structs.replace(made.metadata.owner_references[0], controller=None)
    meta = msgspec.structs.replace(made.metadata, owner_references=[reference])
    assert claims.ownership_problem(
        pod_with(EPHEMERAL, uid="uid-p").build(), msgspec.structs.replace(made, metadata=meta)
    )


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        pytest.param({"storage_class": "gold"}, "gold", id="the field"),
        pytest.param({"storage_class": None}, "", id="nothing"),
        pytest.param(
            {"storage_class": "gold", "annotations": {claims.BETA_STORAGE_CLASS: "old"}},
            "old",
            id="the legacy annotation wins",
        ),
        pytest.param(
            {"storage_class": "gold", "annotations": {claims.BETA_STORAGE_CLASS: ""}},
            "",
            id="an empty legacy annotation wins too",
        ),
    ],
)
def test_the_class_of_claims_and_volumes(fields, name):
    assert claims.class_of_claim(claim("c", **fields)) == name
    if fields["storage_class"] is not None:
        assert claims.class_of_volume(volume("v", **fields)) == name


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"volume": "v"}, True, id="volume and annotation"),
        pytest.param({"volume": "v", "bound": False}, False, id="a volume asked for by name"),
        pytest.param({"bound": True}, False, id="the annotation alone"),
        pytest.param(
            {"volume": "v", "bound": False, "annotations": {claims.BIND_COMPLETED: ""}},
            True,
            id="the annotation's value does not matter",
        ),
    ],
)
def test_a_claim_is_fully_bound_when_it_names_a_volume_and_says_so(fields, expected):
    assert claims.is_fully_bound(claim("c", **fields)) is expected


@pytest.mark.parametrize(
    ("reserved", "expected"),
    [
        pytest.param(None, False, id="no owner"),
        pytest.param(("c", "uid-default-c"), True, id="name and UID"),
        pytest.param(("c", ""), True, id="name alone, by hand"),
        pytest.param(("c", "other"), False, id="an earlier claim of that name"),
        pytest.param(("d", ""), False, id="another claim"),
    ],
)
def test_a_volume_is_bound_to_the_claim_it_names(reserved, expected):
    assert claims.is_bound_to(volume("v", reserved=reserved), claim("c")) is expected


def test_the_signature_holds_every_source_but_configuration_sorted_and_without_names():
    sources = ({"secret": {"secretName": "s"}}, "b", {"configMap": {"name": "c"}}, "a")
    fragment = claims.volumes_fragment(pod_with(*sources).build())
    assert fragment == {
        "v1.Pod.Spec.Volumes.NonSyntheticSources()": [
            '{"persistentVolumeClaim":{"claimName":"a"}}',
            '{"persistentVolumeClaim":{"claimName":"b"}}',
        ]
    }
    again = claims.volumes_fragment(pod_with("a", "b").build())
    assert again == fragment
    assert claims.volumes_fragment(make_pod("p").build()) == {
        "v1.Pod.Spec.Volumes.NonSyntheticSources()": []
    }


def test_quantities_that_are_missing_are_zero():
    assert claims.requested_storage(claim("c", size=None)).is_zero()
    assert claims.storage_capacity(volume("v", size=None, csi=csi())).is_zero()


def test_a_pod_without_volumes_uses_nothing():
    assert claims.uses_of(CycleState(), Pod()) == 0
    assert claims.claim_uses(Pod()) == []
