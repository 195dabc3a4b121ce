"""Create, update and delete: metadata, concurrency, generations, finalizers, grace periods, dry
run.
"""

from __future__ import annotations

import re

import pytest

from kubesched.base.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from kubesched.playground.registry.rest_storage import DeleteOptions, WriteOptions
from kubesched.playground.registry.steps import at_once


def config_map(name: str = "c", **data: str) -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def test_a_new_object_gets_its_identity_from_the_server(api):
    sent = config_map(x="1")
    sent["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "generation": 99,
    }
    metadata = api.create("configmaps", sent)["metadata"]
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"]
    )
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert metadata["resourceVersion"] == str(api.registry.store.revision)


def test_what_goes_in_is_copied(api):
    sent = config_map(x="1")
    stored = api.create("configmaps", sent)
    sent["data"]["x"] = "2"
    assert stored["data"] == {"x": "1"}


def test_unknown_fields_are_kept(api, make_pod):
    pod = make_pod("p")
    pod["spec"]["inventedHere"] = {"deep": [1, 2]}
    api.create("pods", pod)
    assert api.get("pods", "default", "p")["spec"]["inventedHere"] == {"deep": [1, 2]}


def test_a_generated_name_has_five_characters_that_spell_nothing(api):
    created = api.create(
        "configmaps", {"metadata": {"generateName": "web-", "namespace": "default"}}
    )
    assert re.fullmatch(r"web-[bcdfghjklmnpqrstvwxz2456789]{5}", created["metadata"]["name"])
    assert created["metadata"]["generateName"] == "web-"


def test_a_name_can_be_taken_once(api):
    api.create("configmaps", config_map())
    with pytest.raises(AlreadyExists, match='configmaps "c" already exists'):
        api.create("configmaps", config_map())


def test_an_object_needs_a_name(api):
    with pytest.raises(
        Invalid, match=r"metadata.name: Required value: name or generateName is required"
    ):
        api.create("configmaps", {"metadata": {"namespace": "default"}})


def test_a_namespace_must_exist(api):
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        api.create("configmaps", {"metadata": {"name": "c", "namespace": "nowhere"}})


def test_nothing_new_in_a_namespace_that_is_going(api):
    api.create("namespaces", {"metadata": {"name": "doomed"}})
    api.delete("namespaces", None, "doomed")
    assert api.get("namespaces", None, "doomed")["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="because it is being terminated"):
        api.create("configmaps", {"metadata": {"name": "c", "namespace": "doomed"}})


def test_a_stale_update_is_refused_and_nothing_is_written(api):
    first = api.create("configmaps", config_map(x="1"))
    api.update("configmaps", {**first, "data": {"x": "2"}})
    with pytest.raises(Conflict, match="the object has been modified"):
        api.update("configmaps", {**first, "data": {"x": "3"}})
    assert api.get("configmaps", "default", "c")["data"] == {"x": "2"}


def test_an_update_without_a_version_wins_unconditionally(api):
    api.create("configmaps", config_map(x="1"))
    assert api.update("configmaps", config_map(x="2"))["data"] == {"x": "2"}


def test_an_update_of_another_incarnation_is_refused(api):
    api.create("configmaps", config_map())
    stranger = config_map(x="1")
    stranger["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict, match="UID in precondition"):
        api.update("configmaps", stranger)


def test_an_update_that_changes_nothing_makes_no_revision(api):
    created = api.create("configmaps", config_map(x="1"))
    before = api.registry.store.revision
    assert api.update("configmaps", created) is created
    assert api.registry.store.revision == before


def test_no_client_changes_what_the_server_keeps(api):
    created = api.create("configmaps", config_map())
    sent = {
        **created,
        "metadata": {**created["metadata"], "creationTimestamp": "1999-01-01T00:00:00Z"},
        "data": {"x": "1"},
    }
    assert (
        api.update("configmaps", sent)["metadata"]["creationTimestamp"]
        == created["metadata"]["creationTimestamp"]
    )


def test_the_generation_counts_changes_of_the_desired_state_only(api):
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    created = api.create(
        "deployments.apps", {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}
    )
    assert created["metadata"]["generation"] == 1
    labelled = api.patch("deployments.apps", "default", "d", {"metadata": {"labels": {"x": "y"}}})
    assert labelled["metadata"]["generation"] == 1
    scaled = api.patch("deployments.apps", "default", "d", {"spec": {"replicas": 2}})
    assert scaled["metadata"]["generation"] == 2
    reported = api.update_status("deployments.apps", {**scaled, "status": {"replicas": 2}})
    assert reported["metadata"]["generation"] == 2
    assert reported["status"] == {"replicas": 2}


def test_status_and_spec_are_written_through_separate_doors(api, make_pod):
    pod = make_pod("p")
    pod["status"] = {"phase": "Running"}
    created = api.create("pods", pod)
    assert created["status"]["phase"] == "Pending", "a new pod has no past"
    changed = {
        **created,
        "status": {"phase": "Running"},
        "spec": {**created["spec"], "priority": 5},
    }
    assert api.update_status("pods", changed)["spec"]["priority"] == 0
    relabelled = {**api.get("pods", "default", "p"), "status": {"phase": "Failed"}}
    assert api.update("pods", relabelled)["status"]["phase"] == "Running"


def test_an_object_with_finalizers_waits_for_them(api):
    held = config_map()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.create("configmaps", held)
    marked = api.delete("configmaps", "default", "c")
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    with pytest.raises(
        Invalid, match="no new finalizers can be added if the object is being deleted"
    ):
        api.patch(
            "configmaps",
            "default",
            "c",
            {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}},
        )
    api.patch("configmaps", "default", "c", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFound):
        api.get("configmaps", "default", "c")


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [
        pytest.param("Orphan", ["orphan"], id="orphaning waits for the garbage collector"),
        pytest.param(
            "Foreground", ["foregroundDeletion"], id="foreground deletion waits for the dependents"
        ),
    ],
)
def test_propagation_is_left_to_the_garbage_collector(api, propagation, finalizers):
    api.create("configmaps", config_map())
    marked = api.delete("configmaps", "default", "c", propagation=propagation)
    assert marked["metadata"]["finalizers"] == finalizers
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0


def test_background_deletion_after_foreground_lets_go(api):
    api.create("configmaps", config_map())
    api.delete("configmaps", "default", "c", propagation="Foreground")
    api.delete("configmaps", "default", "c", propagation="Background")
    with pytest.raises(NotFound):
        api.get("configmaps", "default", "c")


def test_a_pod_that_runs_nowhere_goes_at_once(api, make_pod):
    api.create("pods", make_pod("p"))
    api.delete("pods", "default", "p")
    with pytest.raises(NotFound):
        api.get("pods", "default", "p")


def bound_pod(api, make_pod) -> None:
    api.create("nodes", {"metadata": {"name": "n"}})
    api.create("pods", make_pod("p", terminationGracePeriodSeconds=40))
    api.bind("default", "p", "n")


def test_a_bound_pod_gets_its_grace_period(api, make_pod, clock):
    bound_pod(api, make_pod)
    marked = api.delete("pods", "default", "p")["metadata"]
    assert (marked["deletionTimestamp"], marked["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:40Z",
        40,
    )
    assert marked["generation"] == 2
    clock.advance(5)
    shorter = api.delete("pods", "default", "p", grace_period_s=10)["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:15Z",
        10,
    )
    longer = api.delete("pods", "default", "p", grace_period_s=100)["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 10, "a deletion can be hastened, not put off"


def test_a_pod_is_forced_out_without_grace(api, make_pod):
    bound_pod(api, make_pod)
    api.delete("pods", "default", "p", grace_period_s=0)
    with pytest.raises(NotFound):
        api.get("pods", "default", "p")


def test_a_finished_pod_needs_no_grace(api, make_pod):
    bound_pod(api, make_pod)
    api.patch("pods", "default", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    api.delete("pods", "default", "p")
    with pytest.raises(NotFound):
        api.get("pods", "default", "p")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"uid": "other"}, "the UID in the precondition", id="another incarnation"),
        pytest.param(
            {"resource_version": "1"},
            "the ResourceVersion in the precondition",
            id="another version",
        ),
    ],
)
def test_a_failed_precondition_keeps_the_object(api, options, words):
    api.create("configmaps", config_map())
    with pytest.raises(Conflict, match=words):
        api.delete("configmaps", "default", "c", **options)
    assert api.get("configmaps", "default", "c")


def test_a_dry_run_leaves_no_trace(api):
    registry = api.registry
    resource = registry.catalog.get("configmaps")
    before = registry.store.revision
    dry = WriteOptions(dry_run=True)
    made = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(x="1")}
    answer = at_once(registry.create(resource, "default", made, dry))
    assert answer.obj["metadata"]["uid"]
    assert registry.store.revision == before
    api.create("configmaps", config_map(x="1"))
    before = registry.store.revision
    changed = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(x="2")}
    answer = at_once(registry.update(resource, "default", "c", changed, dry))
    assert answer.obj["data"] == {"x": "2"}
    registry.delete(resource, "default", "c", DeleteOptions(dry_run=True))
    assert registry.store.revision == before
    assert api.get("configmaps", "default", "c")["data"] == {"x": "1"}
    registry.store.check_invariants()


def test_scaling_changes_the_replicas_and_nothing_else(api):
    labels = {"a": "b"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    api.create(
        "deployments.apps", {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}
    )
    scaled = api.patch(
        "deployments.apps", "default", "d", {"spec": {"replicas": 4}}, subresource="scale"
    )
    assert scaled["spec"]["replicas"] == 4
    with pytest.raises(Invalid, match=r"spec.replicas: Invalid value: -1"):
        api.patch(
            "deployments.apps", "default", "d", {"spec": {"replicas": -1}}, subresource="scale"
        )


def test_a_patch_cannot_rename(api):
    api.create("configmaps", config_map())
    with pytest.raises(BadRequest, match="does not match the name on the URL"):
        api.patch("configmaps", "default", "c", {"metadata": {"name": "d"}})


def test_subscribers_first_see_what_exists_then_what_happens(api):
    api.create("configmaps", config_map("a"))
    seen: list[tuple[str, str, bool]] = []
    stop = api.subscribe(
        "configmaps",
        lambda kind, obj, old: (
            seen.append((kind, obj["metadata"]["name"], old is not None))
            if obj["metadata"]["namespace"] == "default"
            else None
        ),
    )
    api.patch("configmaps", "default", "a", {"data": {"x": "1"}})
    api.delete("configmaps", "default", "a")
    stop()
    api.create("configmaps", config_map("b"))
    assert seen == [("ADDED", "a", False), ("MODIFIED", "a", True), ("DELETED", "a", True)]


@pytest.mark.parametrize("version", ["0", "", None])
def test_a_version_of_zero_means_any(api, version):
    created = api.create("configmaps", config_map(x="1"))
    update = config_map(x="2")
    if version is not None:
        update["metadata"]["resourceVersion"] = version
    assert api.update("configmaps", update)["data"] == {"x": "2"}
    patch = {"metadata": {"resourceVersion": version}, "data": {"x": "3"}}
    patched = api.patch("configmaps", "default", created["metadata"]["name"], patch)
    assert patched["data"] == {"x": "3"}


@pytest.mark.parametrize("version", ["0", None])
def test_some_kinds_want_a_version(api, version):
    api.create("leases.coordination.k8s.io", {"metadata": {"name": "l", "namespace": "default"}})
    update = {"metadata": {"name": "l", "namespace": "default", "resourceVersion": version}}
    if version is None:
        del update["metadata"]["resourceVersion"]
    wanted = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    with pytest.raises(Invalid, match=wanted):
        api.update("leases.coordination.k8s.io", update)


@pytest.mark.parametrize(
    ("resource", "kept"),
    [
        pytest.param("replicasets.apps", (), id="most kinds take the metadata along"),
        pytest.param("deployments.apps", ("labels",), id="a deployment keeps its labels"),
        pytest.param("pods", ("ownerReferences",), id="a pod keeps its owners"),
    ],
)
def test_a_status_write_may_change_metadata(api, make_pod, resource, kept):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}
    pod = make_pod("x")
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod["spec"]}
    workload = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    body = pod if resource == "pods" else {"metadata": dict(pod["metadata"]), "spec": workload}
    api.create(resource, body)
    changed = {"labels": {"new": "1"}, "annotations": {"new": "1"}, "ownerReferences": [owner]}
    patch = {"metadata": changed}
    written = api.patch(resource, "default", "x", patch, subresource="status")["metadata"]
    for field, value in changed.items():
        assert (written.get(field) == value) is (field not in kept)


def test_the_status_of_a_custom_resource_takes_no_metadata_along(api):
    names = {"plural": "widgets", "kind": "Widget"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    version["subresources"] = {"status": {}}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    api.create("widgets.example.com", {"metadata": {"name": "w", "namespace": "default"}})
    patch = {"metadata": {"labels": {"new": "1"}}, "status": {"ready": 1}}
    written = api.patch("widgets.example.com", "default", "w", patch, subresource="status")
    assert written["status"] == {"ready": 1}
    assert "labels" not in written["metadata"]
