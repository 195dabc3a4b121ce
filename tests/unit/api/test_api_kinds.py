"""The table of kinds: names, paths, and that it agrees with the records."""

from __future__ import annotations

import pytest

from kubesched.api import core_v1, meta, resource_v1
from kubesched.api.coordination_v1 import Lease
from kubesched.api.kinds import KINDS, PODS, find_event_resource, find_kind, kind_of
from kubesched.framework.events import POD_RESOURCES, Resource

NODES, LEASES = kind_of(core_v1.Node), kind_of(Lease)
RECORDED = [kind for kind in KINDS if kind.has_record]


@pytest.mark.parametrize("kind", RECORDED, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_the_table_agrees_with_the_record(kind):
    made = kind.record()
    assert (made.kind, made.api_version) == (kind.kind, kind.api_version)
    assert kind_of(kind.record) is kind
    assert find_kind(kind.api_version, kind.kind) is kind


def test_no_two_kinds_share_a_path():
    assert len({kind.collection_path() for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.collection_path(), "/api/v1/pods", id="all pods"),
        pytest.param(
            PODS.collection_path("ns"), "/api/v1/namespaces/ns/pods", id="pods of a namespace"
        ),
        pytest.param(PODS.object_path("p", "ns"), "/api/v1/namespaces/ns/pods/p", id="a pod"),
        pytest.param(
            PODS.object_path("p", "ns", "binding"),
            "/api/v1/namespaces/ns/pods/p/binding",
            id="its binding",
        ),
        pytest.param(NODES.object_path("n"), "/api/v1/nodes/n", id="a node"),
        pytest.param(NODES.object_path("n", "ns"), "/api/v1/nodes/n", id="a node has no namespace"),
        pytest.param(
            LEASES.object_path("l", "kube-system"),
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l",
            id="an object of a group",
        ),
        pytest.param(
            PODS.object_path("a/b", "x y"),
            "/api/v1/namespaces/x%20y/pods/a%2Fb",
            id="odd names are escaped",
        ),
    ],
)
def test_paths(path, expected):
    assert path == expected


def test_a_path_needs_a_name_and_a_namespace():
    with pytest.raises(ValueError, match="pods: an object needs a name"):
        PODS.object_path("", "ns")
    with pytest.raises(ValueError, match='pods "p": a namespaced object needs a namespace'):
        PODS.object_path("p")


def test_unknown_kinds():
    assert find_kind("v1", "Widget") is None
    assert find_kind("v1", "Secret") is None, "a kind without a record cannot be decoded"
    with pytest.raises(LookupError, match="PartialObjectMetadata is not the record"):
        kind_of(meta.PartialObjectMetadata)
    with pytest.raises(LookupError, match="PodSpec is not the record of an API kind"):
        kind_of(core_v1.PodSpec)
    with pytest.raises(LookupError, match=r"is '', not plural\.version\.group"):
        kind_of(meta.CustomObject)


def test_core_and_resource_claims_are_told_apart():
    assert kind_of(resource_v1.ResourceClaim).resource == "resourceclaims.resource.k8s.io"
    with pytest.raises(LookupError):
        kind_of(core_v1.ResourceClaim)


def test_every_resource_of_cluster_events_is_a_kind():
    names = {value for name, value in vars(Resource).items() if name.isupper()}
    names -= {Resource.ANY, *POD_RESOURCES}
    assert {name for name in names if find_event_resource(name) is None} == set()


def test_groups_and_kinds_are_listed_by_name():
    plurals = [(kind.group, kind.version, kind.plural) for kind in KINDS]
    assert plurals == sorted(plurals)
