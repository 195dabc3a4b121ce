"""LimitRanges and ResourceQuotas: defaults, bounds, charging and counting.

Messages are kube-apiserver 1.36's.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import quantity
from kubesched.base.errors import Forbidden
from kubesched.playground.controllers.resource_quota import RESYNC_S
from kubesched.playground.registry.rest_storage import WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.resources.admission.quota_usage import pod_total


def pod(name, *resources, init=(), **spec):
    containers = [
        {"name": f"c{i}", "image": "i", "resources": own} for i, own in enumerate(resources)
    ]
    if init:
        spec["initContainers"] = [
            {"name": f"i{i}", "image": "i", **own} for i, own in enumerate(init)
        ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": containers, **spec},
    }


def cpu(request, limit=None):
    resources = {"requests": {"cpu": request}}
    return {**resources, "limits": {"cpu": limit}} if limit else resources


@pytest.fixture
def ranged(api):
    limits = [
        {"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m", "memory": "1Mi"},
         "default": {"memory": "64Mi"}, "maxLimitRequestRatio": {"cpu": "4"}},
        {"type": "Pod", "max": {"cpu": "3"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]  # fmt: skip
    metadata = {"name": "lr", "namespace": "default"}
    api.create("limitranges", {"metadata": metadata, "spec": {"limits": limits}})
    return api


def test_a_range_completes_its_own_defaults(ranged):
    [item, *_] = ranged.get("limitranges", "default", "lr")["spec"]["limits"]
    assert item["default"] == {"cpu": "2", "memory": "64Mi"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "64Mi"}


def test_containers_get_the_defaults_and_a_note(ranged):
    created = ranged.create("pods", pod("p", cpu("1", "1"), {}))
    [first, second] = created["spec"]["containers"]
    assert first["resources"]["limits"] == {"cpu": "1", "memory": "64Mi"}
    assert created["metadata"]["annotations"]["kubernetes.io/limit-ranger"].startswith(
        "LimitRanger plugin set: memory request for container c0; memory limit for container c0"
    )
    assert second["resources"]["requests"] == {"cpu": "2", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        pytest.param(
            [cpu("50m", "3")],
            "[minimum cpu usage per Container is 100m, but request is 50m, maximum cpu usage per "
            "Container is 2, but limit is 3,"
            " cpu max limit to request ratio per Container is 4, but provided ratio is 60.000000]",
            id="a container out of every bound",
        ),
        pytest.param(
            [cpu("2"), cpu("1500m", "1500m")],
            "maximum cpu usage per Pod is 3, but limit is 3500m",
            id="a pod that is too large as a whole",
        ),
    ],
)
def test_pods_out_of_bounds_are_refused(ranged, resources, words):
    with pytest.raises(Forbidden, match=re.escape(f'pods "p" is forbidden: {words}')):
        ranged.create("pods", pod("p", *resources))


def test_claims_out_of_bounds_are_refused(ranged):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": spec}
    words = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"
    with pytest.raises(Forbidden, match=words):
        ranged.create("persistentvolumeclaims", claim)


@pytest.fixture
def quoted(make_world):
    def make(hard, **spec):
        world = make_world()
        world.is_scheduling = False
        world.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})
        world.settle()
        return world

    return make


def used(world):
    return world.get("resourcequotas", "q")["status"]["used"]


SMALL = {"requests": {"cpu": "600m"}, "limits": {"memory": "100Mi"}}


def test_pods_are_charged_refused_and_given_back(quoted):
    world = quoted({"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})
    assert used(world) == {"pods": "0", "requests.cpu": "0", "limits.memory": "0"}
    world.create("pods", pod("a", SMALL))
    assert used(world) == {"pods": "1", "requests.cpu": "600m", "limits.memory": "100Mi"}
    words = (
        "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, "
        "limited: requests.cpu=1"
    )
    with pytest.raises(Forbidden, match=words):
        world.create("pods", pod("b", SMALL))
    assert used(world)["pods"] == "1"
    world.delete("pods", "a", grace_period_s=0)
    world.run(2)
    assert used(world) == {"pods": "0", "requests.cpu": "0", "limits.memory": "0"}


def test_a_quota_on_cpu_wants_every_container_to_ask(quoted):
    world = quoted({"requests.cpu": "1", "limits.memory": "1Gi"})
    words = "failed quota: q: must specify limits.memory for: c0; requests.cpu for: c0"
    with pytest.raises(Forbidden, match=words):
        world.create("pods", pod("a", {}))


def test_finished_pods_do_not_count(quoted):
    world = quoted({"pods": "1", "count/pods": "5"})
    world.create("pods", pod("a", {}))
    world.patch("pods", "a", {"status": {"phase": "Succeeded"}}, subresource="status")
    world.run(2)
    assert used(world) == {"pods": "0", "count/pods": "1"}
    world.create("pods", pod("b", {}))


def test_any_kind_can_be_counted(quoted):
    world = quoted({"count/deployments.apps": "1", "services.nodeports": "1", "configmaps": "2"})
    world.deployment("one", replicas=0)
    with pytest.raises(
        Forbidden,
        match=re.escape("requested: count/deployments.apps=1, used: count/deployments.apps=1"),
    ):
        world.deployment("two", replicas=0)
    service = {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    world.create("services", {"metadata": {"name": "a"}, **service})
    with pytest.raises(Forbidden, match=r"services\.nodeports"):
        world.create("services", {"metadata": {"name": "b"}, **service})
    world.create("services", {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}]}})
    with pytest.raises(Forbidden, match=r"services\.nodeports"):
        world.patch("services", "b", {"spec": {"type": "NodePort"}})


def test_a_dry_run_is_judged_and_not_charged(quoted):
    world = quoted({"pods": "1"})
    registry = world.registry
    resource, made = registry.catalog.get("pods"), {"apiVersion": "v1", "kind": "Pod"}
    made |= pod("a", {})
    at_once(registry.create(resource, "default", made, WriteOptions(dry_run=True)))
    assert used(world) == {"pods": "0"}


@pytest.mark.parametrize(
    ("scope", "charged"),
    [
        pytest.param({"scopes": ["BestEffort"]}, ["plain"], id="best effort"),
        pytest.param({"scopes": ["NotBestEffort"]}, ["asking", "ending"], id="not best effort"),
        pytest.param({"scopes": ["Terminating"]}, ["ending"], id="with a deadline"),
        pytest.param(
            {
                "scopeSelector": {
                    "matchExpressions": [
                        {
                            "scopeName": "PriorityClass",
                            "operator": "In",
                            "values": ["system-node-critical"],
                        }
                    ]
                }
            },
            [],
            id="by class",
        ),
    ],
)
def test_scopes_choose_the_pods(quoted, scope, charged):
    world = quoted({"pods": "9"}, **scope)
    for name, body in (
        ("plain", pod("plain", {})),
        ("asking", pod("asking", cpu("1"))),
        ("ending", pod("ending", cpu("1"), activeDeadlineSeconds=60)),
    ):
        before = int(used(world)["pods"])
        world.create("pods", body)
        assert int(used(world)["pods"]) - before == (name in charged), name


def test_pods_that_look_into_other_namespaces_have_a_scope(quoted):
    scope = {"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}
    world = quoted({"pods": "9"}, scopeSelector={"matchExpressions": [scope]})
    term = {"labelSelector": {}, "topologyKey": "zone"}
    for name, own, count in (("near", {}, "0"), ("far", {"namespaces": ["other"]}, "1")):
        weighted = [{"weight": 1, "podAffinityTerm": {**term, **own}}]
        group = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        world.create("pods", pod(name, {}, affinity={"podAntiAffinity": group}))
        assert used(world) == {"pods": count}


def test_a_pod_that_gets_a_deadline_moves_to_the_other_scope(quoted):
    world = quoted({"pods": "1"}, scopes=["NotTerminating"])
    spec = {"hard": {"pods": "1"}, "scopes": ["Terminating"]}
    world.create("resourcequotas", {"metadata": {"name": "ending"}, "spec": spec})
    world.settle()
    world.create("pods", pod("a", {}))
    world.patch("pods", "a", {"spec": {"activeDeadlineSeconds": 60}})
    assert world.get("resourcequotas", "ending")["status"]["used"] == {"pods": "1"}
    world.run(2)
    assert used(world) == {"pods": "0"}


def test_claims_count_for_the_attributes_class_they_want_and_have(quoted):
    selector = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    world = quoted({"persistentvolumeclaims": "1"}, scopeSelector={"matchExpressions": [selector]})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeAttributesClassName": "gold",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    world.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    assert used(world) == {"persistentvolumeclaims": "1"}
    with pytest.raises(Forbidden, match="exceeded quota"):
        world.create("persistentvolumeclaims", {"metadata": {"name": "d"}, "spec": spec})
    silver = {**spec, "volumeAttributesClassName": "silver"}
    world.create("persistentvolumeclaims", {"metadata": {"name": "d"}, "spec": silver})
    current = {"status": {"currentVolumeAttributesClassName": "gold"}}
    world.patch("persistentvolumeclaims", "d", current, subresource="status")
    world.run(2)
    assert used(world) == {"persistentvolumeclaims": "2"}


def test_devices_are_counted_by_class_and_alternatives_by_the_largest(quoted):
    devices = "gpu.deviceclass.resource.k8s.io/devices"
    world = quoted({devices: "40", "count/resourceclaims.resource.k8s.io": "2"})
    claims = "resourceclaims.resource.k8s.io"
    choices = [
        {"name": "a", "deviceClassName": "gpu", "allocationMode": "All"},
        {"name": "b", "deviceClassName": "gpu", "count": 3},
    ]
    requests = [
        {"name": "one", "firstAvailable": choices},
        {"name": "two", "exactly": {"deviceClassName": "gpu", "count": 2}},
    ]
    spec = {"devices": {"requests": requests}}
    world.create(claims, {"metadata": {"name": "c"}, "spec": spec})
    assert used(world) == {devices: "34", "count/resourceclaims.resource.k8s.io": "1"}
    with pytest.raises(Forbidden, match="exceeded quota"):
        world.create(claims, {"metadata": {"name": "d"}, "spec": spec})
    world.delete(claims, "c")
    world.run(2)
    assert used(world)[devices] == "0"


def test_an_overwritten_status_is_restored(quoted):
    world = quoted({"pods": "2"})
    world.create("pods", pod("a", {}))
    world.patch("resourcequotas", "q", {"status": {"hard": {"pods": "7"}}}, subresource="status")
    world.run(1)
    assert world.get("resourcequotas", "q")["status"]["hard"] == {"pods": "2"}
    world.patch("resourcequotas", "q", {"status": {"used": {"pods": "0"}}}, subresource="status")
    world.run(RESYNC_S)
    assert used(world) == {"pods": "1"}


def test_a_deployment_stops_at_the_quota_and_goes_on_when_it_grows(quoted):
    world = quoted({"pods": "2"})
    world.deployment("web", replicas=4)
    world.run(5)
    assert len(world.active_pods()) == 2
    world.patch("resourcequotas", "q", {"spec": {"hard": {"pods": "4"}}})
    world.run(120)
    assert len(world.active_pods()) == 4
    assert used(world) == {"pods": "4"}


AMOUNTS = st.integers(0, 50)
CONTAINER = st.fixed_dictionaries({"request": AMOUNTS, "is_sidecar": st.booleans()})


@given(
    main=st.lists(AMOUNTS, min_size=1, max_size=3),
    init=st.lists(CONTAINER, max_size=4),
    overhead=AMOUNTS,
)
def test_the_total_of_a_pod_is_its_largest_moment(main, init, overhead):
    """Step through the pod's life: init containers one by one, sidecars staying on, then everything
    that runs.
    """

    def container(amount, *, is_sidecar=False):
        body = {"resources": {"requests": {"cpu": f"{amount}m"}}}
        return {**body, "restartPolicy": "Always"} if is_sidecar else body

    spec = {
        "containers": [container(amount) for amount in main],
        "initContainers": [container(own["request"], is_sidecar=own["is_sidecar"]) for own in init],
        "overhead": {"cpu": f"{overhead}m"},
    }
    sidecars, largest = 0, 0
    for own in init:
        largest = max(largest, sidecars + own["request"])
        sidecars += own["request"] if own["is_sidecar"] else 0
    largest = max(largest, sidecars + sum(main)) + overhead
    assert pod_total(spec, "requests")["cpu"] == quantity.parse(f"{largest}m")
