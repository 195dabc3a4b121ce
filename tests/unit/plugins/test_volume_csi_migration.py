"""In-tree volumes in the terms of their CSI drivers: drivers, handles, topology, and who has handed
over what.
"""

import msgspec
import pytest
from storage_objects import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    affinity,
    csi_node,
    expression,
    pod_with,
    volume,
)

from kubesched.plugins.helper.volumes.csi_migration import (
    TranslationError,
    hands_over,
    inline_handle,
    plugin_named,
    plugin_of,
    translated_affinity,
    volume_handle,
)

EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
GCE = {"gcePersistentDisk": {"pdName": "disk"}}
AZURE = {"azureDisk": {"diskURI": "/disks/d", "kind": "Managed"}}
CINDER = {"cinder": {"volumeID": "c-1"}}
PORTWORX = {"portworxVolume": {"volumeID": "p-1"}}
EBS_ZONE, GCE_ZONE = "topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"


def spec_of(source):
    return pod_with(source).build().spec.volumes[0]


@pytest.mark.parametrize(
    ("source", "plugin", "driver", "handle"),
    [
        (EBS, "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "vol-1"),
        (
            GCE,
            "kubernetes.io/gce-pd",
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk",
        ),
        (AZURE, "kubernetes.io/azure-disk", "disk.csi.azure.com", "/disks/d"),
        (CINDER, "kubernetes.io/cinder", "cinder.csi.openstack.org", "c-1"),
        (PORTWORX, "kubernetes.io/portworx-volume", "pxd.portworx.com", "p-1"),
    ],
    ids=["EBS", "GCE PD", "Azure disk", "Cinder", "Portworx"],
)
def test_the_five_migrated_plugins(source, plugin, driver, handle):
    found = plugin_of(volume("v", **source).spec)
    assert (found.name, found.driver, found.is_migrated) == (plugin, driver, True)
    assert volume_handle(found, volume("v", **source)) == handle
    assert plugin_of(spec_of(source)) is found
    assert inline_handle(found, spec_of(source)) == handle
    assert plugin_named(plugin) is found


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"azureFile": {"shareName": "s"}}, "kubernetes.io/azure-file"),
        ({"vsphereVolume": {"volumePath": "p"}}, "kubernetes.io/vsphere-volume"),
    ],
    ids=["Azure file", "vSphere"],
)
def test_two_plugins_can_be_translated_but_are_not_in_the_schedulers_list(source, name):
    found = plugin_of(spec_of(source))
    assert (found.name, found.is_migrated) == (name, False)
    assert not hands_over(csi_node("n", migrated=[name]), found)


def test_other_volumes_have_no_plugin_to_migrate():
    assert plugin_of(volume("v", nfs={"server": "s"}).spec) is None
    assert plugin_of(volume("v", csi={"driver": "d", "volumeHandle": "h"}).spec) is None
    assert plugin_named("kubernetes.io/no-provisioner") is None


@pytest.mark.parametrize(
    ("volume_id", "handle"),
    [
        pytest.param("vol-1", "vol-1", id="bare"),
        pytest.param("aws://us-east-1a/vol-1", "vol-1", id="with its zone"),
        pytest.param("aws:///vol-1", "vol-1", id="with an empty zone"),
        pytest.param("whatever", "whatever", id="anything without a scheme is taken as it is"),
    ],
)
def test_ebs_volumes_are_known_by_their_bare_id(volume_id, handle):
    found = volume("v", awsElasticBlockStore={"volumeID": volume_id})
    assert volume_handle(plugin_of(found.spec), found) == handle


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        pytest.param({}, "zones/UNSPECIFIED", id="nothing said"),
        pytest.param({ZONE: "us-west1-a"}, "zones/us-west1-a", id="the zone"),
        pytest.param(
            {BETA_ZONE: "us-west1-b", ZONE: "us-west1-a"}, "zones/us-west1-b", id="beta comes first"
        ),
        pytest.param(
            {ZONE: "us-west1-a__us-west1-b"}, "regions/us-west1", id="several zones make a region"
        ),
    ],
)
def test_gce_disks_carry_their_place_in_the_handle(labels, handle):
    found = volume("v", labels=labels, **GCE)
    expected = f"projects/UNSPECIFIED/{handle}/disks/disk"
    assert volume_handle(plugin_of(found.spec), found) == expected


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        pytest.param(
            {"azureDisk": {"diskURI": "d", "kind": "Dedicated"}},
            "kind(Dedicated) is not supported in csi migration",
            id="an unmanaged Azure disk",
        ),
        pytest.param(
            {"awsElasticBlockStore": {"volumeID": "aws://zone/disk-1"}},
            "failed to translate Kubernetes ID to EBS Volume ID"
            " Invalid format for AWS volume (aws://zone/disk-1)",
            id="an EBS id that is none",
        ),
        pytest.param(
            {**GCE, "labels": {ZONE: "us-west1-a__west"}},
            "failed to get region from zones: zone in unexpected format,"
            " expected: {locale}-{region}-{zone}, got: west",
            id="a zone of unknown form",
        ),
        pytest.param(
            {**GCE, "labels": {ZONE: "us-west1-a__us-east1-b"}},
            "failed to get region from zones: multiple or no regions gotten from zones,"
            " got: map[us-east1:{} us-west1:{}]",
            id="zones of two regions",
        ),
    ],
)
def test_what_cannot_be_translated_says_why(fields, text):
    found = volume("v", **fields)
    with pytest.raises(TranslationError) as problem:
        translated_affinity(plugin_of(found.spec), found)
    assert str(problem.value) == text


def test_managed_azure_disks_may_be_spelled_in_any_case():
    found = volume("v", azureDisk={"diskURI": "d", "kind": "managed"})
    assert volume_handle(plugin_of(found.spec), found) == "d"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({**EBS}, None, id="nothing said, nothing added"),
        pytest.param(
            {**EBS, "reach": affinity([expression(ZONE, "a")])},
            affinity([expression(EBS_ZONE, "a")]),
            id="the zone key is replaced",
        ),
        pytest.param(
            {**GCE, "reach": affinity([expression(BETA_ZONE, "a"), expression("disk", "ssd")])},
            affinity([expression(GCE_ZONE, "a"), expression("disk", "ssd")]),
            id="the beta zone key too, other keys stay",
        ),
        pytest.param(
            {**EBS, "reach": affinity([expression(ZONE, "a"), expression(BETA_ZONE, "b")])},
            affinity([expression(EBS_ZONE, "a"), expression(BETA_ZONE, "b")]),
            id="of both generations only the general one",
        ),
        pytest.param(
            {**EBS, "labels": {ZONE: "a__b"}},
            affinity([expression(EBS_ZONE, "a", "b")]),
            id="zones of a label become affinity",
        ),
        pytest.param(
            {
                **EBS,
                "labels": {ZONE: "a"},
                "reach": affinity([expression("x", "1")], [expression("y", "2")]),
            },
            affinity(
                [expression("x", "1"), expression(EBS_ZONE, "a")],
                [expression("y", "2"), expression(EBS_ZONE, "a")],
            ),
            id="a label's zones join every term",
        ),
        pytest.param(
            {**EBS, "labels": {ZONE: "b"}, "reach": affinity([expression(ZONE, "a")])},
            affinity([expression(EBS_ZONE, "a")]),
            id="affinity comes before labels",
        ),
        pytest.param(
            {**EBS, "reach": affinity([expression(BETA_ZONE, "a"), expression(BETA_REGION, "r")])},
            affinity([expression(EBS_ZONE, "a"), expression(REGION, "r")]),
            id="the beta region becomes the general one",
        ),
        pytest.param(
            {**EBS, "labels": {ZONE: "a"}, "reach": affinity([expression(BETA_REGION, "r")])},
            affinity([expression(BETA_REGION, "r"), expression(EBS_ZONE, "a")]),
            id="but not beside a general zone label",
        ),
        pytest.param(
            {**AZURE, "reach": affinity([expression(ZONE, "a")])},
            affinity([expression(ZONE, "a")]),
            id="Azure keeps its affinity",
        ),
        pytest.param({**PORTWORX, "labels": {ZONE: "a"}}, None, id="Portworx has no topology"),
        pytest.param({**EBS, "labels": {ZONE: " __ "}}, None, id="zones of nothing but blanks"),
    ],
)
def test_topology_is_rewritten_for_the_driver(fields, expected):
    found = volume("v", **fields)
    translated = translated_affinity(plugin_of(found.spec), found)
    assert (None if translated is None else msgspec.to_builtins(translated)) == expected


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(None, False, id="no CSINode"),
        pytest.param(csi_node("n"), False, id="nothing listed"),
        pytest.param(csi_node("n", migrated=["kubernetes.io/gce-pd"]), False, id="another plugin"),
        pytest.param(
            csi_node("n", migrated=["kubernetes.io/gce-pd", "kubernetes.io/aws-ebs"]),
            True,
            id="this one among others",
        ),
    ],
)
def test_a_node_has_handed_over_what_its_annotation_lists(node, expected):
    assert hands_over(node, plugin_named("kubernetes.io/aws-ebs")) is expected
