"""Server-side apply: ownership, conflicts, force, removal of what is no longer said, and its
algebra.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.base.clock import ManualClock
from kubesched.base.errors import BadRequest, Conflict, ServerError
from kubesched.playground.apimachinery.managed_fields.paths import (
    from_fields_v1,
    kind_layout,
    paths_of,
    to_fields_v1,
)
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.client.local import LocalApi
from kubesched.playground.registry.patching import apply_object
from kubesched.playground.registry.rest_storage import WriteOptions
from kubesched.playground.registry.steps import at_once


def apply(
    api: LocalApi,
    config: dict,
    manager: str = "alice",
    *,
    force: bool = False,
    subresource: str = "",
) -> dict:
    resource = api.registry.catalog.find_kind(config["apiVersion"], config["kind"])
    assert resource is not None
    namespace = "default" if resource.namespaced else ""
    steps = apply_object(
        api.registry,
        resource,
        namespace,
        config["metadata"]["name"],
        lambda: json.loads(json.dumps(config)),
        WriteOptions(manager=manager),
        force=force,
        subresource=subresource,
    )
    entry, _is_new = at_once(steps)
    api.registry.store.check_invariants()
    return entry.obj


def owners(api: LocalApi, resource: str, name: str) -> dict[tuple[str, str], set[str]]:
    info = api.registry.catalog.get(resource)
    entry = api.registry.get(info, "default" if info.namespaced else "", name)
    return {
        (each.name, each.operation): {"/".join(path) for path in each.paths()}
        for each in entry.managers
    }


def config_map(**data: str) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def deployment(*containers: dict, replicas: int | None = 3, **labels: str) -> dict:
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": list(containers)},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": labels},
        "spec": spec,
    }


A, B = {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}


def test_applying_creates_what_is_not_there(api):
    created = apply(api, config_map(x="1"))
    assert created["data"] == {"x": "1"}
    assert owners(api, "configmaps", "c") == {("alice", "Apply"): {"f:data/f:x"}}


def test_applying_the_same_again_changes_nothing(api, clock):
    first = apply(api, deployment(A, B))
    clock.advance(60)
    second = apply(api, deployment(A, B))
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_what_the_owner_no_longer_says_goes(api):
    apply(api, config_map(x="1", y="2"))
    assert apply(api, config_map(x="1"))["data"] == {"x": "1"}


def test_a_container_its_owner_drops_goes_with_its_defaults(api):
    apply(api, deployment(A, B))
    result = apply(api, deployment(A))
    assert [each["name"] for each in result["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_what_another_manager_owns_too_stays(api):
    apply(api, config_map(x="1", y="2"), "alice")
    apply(api, config_map(y="2"), "bob")
    assert apply(api, config_map(x="1"), "alice")["data"] == {"x": "1", "y": "2"}
    assert owners(api, "configmaps", "c")["bob", "Apply"] == {"f:data/f:y"}


def test_changing_a_field_of_another_manager_is_a_conflict_that_names_it(api):
    apply(api, deployment(A), "alice")
    with pytest.raises(Conflict) as caught:
        apply(api, deployment({"name": "a", "image": "a:2"}, replicas=5), "bob")
    assert caught.value.message == (
        'Apply failed with 2 conflicts: conflicts with "alice":\n'
        '- .spec.replicas\n- .spec.template.spec.containers[name="a"].image'
    )
    causes = caught.value.details["causes"]
    assert [each["reason"] for each in causes] == ["FieldManagerConflict"] * 2
    assert api.get("deployments.apps", "default", "web")["spec"]["replicas"] == 3, (
        "nothing was written"
    )


def test_agreeing_on_a_value_is_no_conflict(api):
    apply(api, config_map(x="1"), "alice")
    apply(api, config_map(x="1"), "bob")
    assert set(owners(api, "configmaps", "c")) == {("alice", "Apply"), ("bob", "Apply")}


def test_force_takes_the_field_over(api):
    apply(api, config_map(x="1", y="1"), "alice")
    assert apply(api, config_map(x="2"), "bob", force=True)["data"] == {"x": "2", "y": "1"}
    assert owners(api, "configmaps", "c") == {
        ("alice", "Apply"): {"f:data/f:y"},
        ("bob", "Apply"): {"f:data/f:x"},
    }


def test_an_update_takes_over_what_it_changes(api):
    apply(api, deployment(A), "alice")
    api.as_manager("kubectl").patch("deployments.apps", "default", "web", {"spec": {"replicas": 7}})
    assert "f:spec/f:replicas" not in owners(api, "deployments.apps", "web")["alice", "Apply"]
    assert owners(api, "deployments.apps", "web")["kubectl", "Update"] == {"f:spec/f:replicas"}
    with pytest.raises(Conflict, match=r'conflict with "kubectl" using apps/v1: \.spec\.replicas'):
        apply(api, deployment(A), "alice")


def test_scaling_is_owned_under_its_subresource(api):
    apply(api, deployment(A), "alice")
    api.as_manager("kubectl").patch(
        "deployments.apps", "default", "web", {"spec": {"replicas": 7}}, subresource="scale"
    )
    with pytest.raises(
        Conflict, match='conflict with "kubectl" with subresource "scale" using apps/v1'
    ):
        apply(api, deployment(A), "alice")


def test_leaving_a_field_to_another_manager(api):
    apply(api, deployment(A, replicas=3), "alice")
    api.as_manager("autoscaler").patch(
        "deployments.apps", "default", "web", {"spec": {"replicas": 7}}
    )
    assert apply(api, deployment(A, replicas=None), "alice")["spec"]["replicas"] == 7


def test_an_object_without_managed_fields_belongs_to_before_first_apply(api):
    api.as_manager("").create("configmaps", config_map(x="1"), "default")
    with pytest.raises(Conflict, match=r'conflict with "before-first-apply" using v1: \.data\.x'):
        apply(api, config_map(x="2"))
    apply(api, config_map(x="2"), force=True)


def test_status_is_applied_through_its_subresource_only(api, make_pod):
    api.create("pods", make_pod("p"))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "status": {"message": "hello"},
    }
    apply(api, pod, "alice")
    assert "message" not in api.get("pods", "default", "p")["status"]
    apply(api, pod, "alice", subresource="status")
    assert api.get("pods", "default", "p")["status"]["message"] == "hello"


def test_two_managers_share_a_list_of_conditions(api, make_pod):
    api.create("pods", make_pod("p"))

    def condition(kind: str) -> dict:
        conditions = [{"type": kind, "status": "True"}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "status": {"conditions": conditions},
        }

    apply(api, condition("example.com/a"), "alice", subresource="status")
    apply(api, condition("example.com/b"), "bob", subresource="status")
    found = api.get("pods", "default", "p")["status"]["conditions"]
    assert [each["type"] for each in found] == ["example.com/a", "example.com/b"]


def test_an_applied_object_may_not_bring_its_own_account(api):
    config = config_map(x="1")
    config["metadata"]["managedFields"] = [{"manager": "me"}]
    with pytest.raises(BadRequest, match="managedFields must be nil"):
        apply(api, config)


@pytest.mark.parametrize("precondition", [{"resourceVersion": "1"}, {"uid": "another-uid"}])
def test_a_configuration_meant_for_another_version_is_a_conflict(api, precondition):
    apply(api, config_map(x="1"))
    config = config_map(x="2")
    config["metadata"] |= precondition
    with pytest.raises(Conflict):
        apply(api, config)
    assert api.get("configmaps", "default", "c")["data"] == {"x": "1"}


PORT = {"port": {"type": "integer"}, "name": {"type": "string"},
        "protocol": {"type": "string", "default": "TCP"}}  # fmt: skip
PORTS = {"type": "array", "items": {"type": "object", "properties": PORT},
         "x-kubernetes-list-type": "map",
         "x-kubernetes-list-map-keys": ["port", "protocol"]}  # fmt: skip
TAGS = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
POINT = {"type": "object", "x-kubernetes-map-type": "atomic",
         "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}  # fmt: skip


def test_custom_objects_are_applied_field_by_field(api):
    lists = {}
    api.create(
        "customresourcedefinitions.apiextensions.k8s.io",
        {
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                                "properties": {"ports": PORTS, "tags": TAGS, "point": POINT},
                            }
                        },
                    }
                ],
            },
        },
    )

    def thing(**spec: object) -> dict:
        return {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t"},
            "spec": spec,
            **lists,
        }

    apply(api, thing(a={"x": 1, "y": 2}, items=[1, 2]))
    result = apply(api, thing(a={"x": 1}, items=[3]))
    assert result["spec"] == {"a": {"x": 1}, "items": [3]}
    lists = {"ports": [{"port": 80, "name": "a"}], "tags": ["x"]}
    apply(api, thing(), "alice")
    lists = {"ports": [{"port": 80, "protocol": "UDP"}], "tags": ["x", "y"], "point": {"x": 1}}
    result = apply(api, thing(), "bob")
    assert [port["protocol"] for port in result["ports"]] == ["TCP", "UDP"]
    assert result["tags"] == ["x", "y"]
    lists = {"ports": [{"port": 80, "name": "b"}]}
    with pytest.raises(Conflict, match=r'\.ports\[port=80,protocol="TCP"\]\.name'):
        apply(api, thing(), "bob")
    lists = {"point": {"y": 1}}
    with pytest.raises(Conflict, match=r"\.point"):
        apply(api, thing(), "alice")


data = st.dictionaries(st.sampled_from("pqrs"), st.sampled_from("01"), max_size=4)


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(["alice", "bob"]), data), min_size=1, max_size=6))
def test_after_a_forced_apply_the_object_says_what_its_owners_say(steps):
    api = LocalApi.in_memory(clock=ManualClock(), rng=random.Random(1))
    wishes: dict[str, dict[str, str]] = {}
    for manager, wanted in steps:
        result = apply(api, {**config_map(), "data": wanted}, manager, force=True)
        wishes[manager] = wanted
        for other in wishes:
            if other != manager:
                # Whoever is overruled has lost the field for good.
                wishes[other] = {
                    key: value
                    for key, value in wishes[other].items()
                    if wanted.get(key, value) == value
                }
        expected: dict[str, str] = {}
        for each in wishes.values():
            expected.update(each)
        assert (result.get("data") or {}) == expected


POD = {
    "metadata": {"name": "p", "labels": {"a": "1"}, "finalizers": ["x/y"], "annotations": {}},
    "spec": {
        "containers": [
            {"name": "c", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "1"}}}
        ],
        "tolerations": [{"key": "k"}],
        "nodeSelector": {"disk": "ssd"},
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def test_a_field_set_survives_its_encoding():
    layout = kind_layout(type_of_kind("", "Pod"))
    paths = paths_of(layout, POD)
    assert from_fields_v1(to_fields_v1(paths)) == paths


def test_field_sets_are_written_as_upstream_writes_them():
    fields = to_fields_v1(paths_of(kind_layout(type_of_kind("", "Pod")), POD))
    assert fields["f:metadata"]["f:finalizers"] == {'v:"x/y"': {}}
    assert fields["f:spec"]["f:tolerations"] == {}, "an atomic list is one piece"
    assert fields["f:spec"]["f:nodeSelector"] == {}, "an atomic map is one piece"
    container = fields["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert container["."] == {}
    assert 'k:{"containerPort":80,"protocol":"TCP"}' in container["f:ports"], (
        "left-out keys count with their default"
    )


def test_an_unknown_field_cannot_be_applied(api):
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "nope": 1}
    with pytest.raises(ServerError) as raised:
        apply(api, config)
    assert raised.value.message == (
        "failed to create typed patch object (default/c; v1, Kind=ConfigMap):"
        " .nope: field not declared in schema"
    )
