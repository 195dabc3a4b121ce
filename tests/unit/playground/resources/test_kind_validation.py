"""Rules of the other kinds: workloads, storage, priority classes, nodes, definitions."""

from __future__ import annotations

import pytest

from kubesched.base.errors import BadRequest, Invalid

TEMPLATE = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
SELECTOR = {"matchLabels": {"a": "b"}}


def body(spec: dict, name: str = "x", namespaced: bool = True, **more: object) -> dict:
    metadata = {"name": name, "namespace": "default"} if namespaced else {"name": name}
    return {"metadata": metadata, "spec": spec, **more}


def claim(**spec: object) -> dict:
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return body({**base, **spec})


def volume(**spec: object) -> dict:
    base = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/x"},
    }
    return body({**base, **spec}, namespaced=False)


@pytest.mark.parametrize(
    ("resource", "obj", "words"),
    [
        pytest.param(
            "deployments.apps",
            body({"template": TEMPLATE}),
            "spec.selector: Required value",
            id="a deployment without a selector",
        ),
        pytest.param(
            "deployments.apps",
            body({"selector": {"matchLabels": {"a": "x"}}, "template": TEMPLATE}),
            "`selector` does not match template `labels`",
            id="a deployment that would not find its own pods",
        ),
        pytest.param(
            "deployments.apps",
            body({"selector": SELECTOR, "template": TEMPLATE, "replicas": -1}),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            id="fewer than no replicas",
        ),
        pytest.param(
            "deployments.apps",
            body(
                {
                    "selector": SELECTOR,
                    "template": TEMPLATE,
                    "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
                }
            ),
            "may not be 0 when `maxSurge` is 0",
            id="a rollout that can never move",
        ),
        pytest.param(
            "deployments.apps",
            body(
                {
                    "selector": SELECTOR,
                    "template": {
                        **TEMPLATE,
                        "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"},
                    },
                }
            ),
            'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: '
            '"Always"',
            id="deployed pods that may end",
        ),
        pytest.param(
            "jobs.batch",
            body({"template": {"spec": TEMPLATE["spec"]}}),
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
            id="a job that never ends",
        ),
        pytest.param(
            "persistentvolumeclaims",
            claim(accessModes=[]),
            "spec.accessModes: Required value: at least 1 access mode is required",
            id="a claim without an access mode",
        ),
        pytest.param(
            "persistentvolumeclaims",
            claim(resources={}),
            r"spec.resources\[storage\]: Required value",
            id="a claim without a size",
        ),
        pytest.param(
            "persistentvolumes",
            volume(capacity={}),
            "spec.capacity: Required value",
            id="a volume without a size",
        ),
        pytest.param(
            "persistentvolumes",
            volume(nfs={"server": "s", "path": "/"}),
            "may not specify more than 1 volume type",
            id="a volume of two types",
        ),
        pytest.param(
            "storageclasses.storage.k8s.io",
            {"metadata": {"name": "x"}},
            "provisioner: Required value",
            id="a class without a provisioner",
        ),
        pytest.param(
            "poddisruptionbudgets.policy",
            body({"minAvailable": 1, "maxUnavailable": 1}),
            "minAvailable and maxUnavailable cannot be both set",
            id="a budget that says it twice",
        ),
        pytest.param(
            "poddisruptionbudgets.policy",
            body({"minAvailable": "half"}),
            "a valid percent string must be a numeric string followed by an ending '%'",
            id="a budget of half",
        ),
        pytest.param(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": "x"}, "value": 1_000_000_001},
            "maximum allowed value of a user defined priority is 1000000000",
            id="a priority above all users",
        ),
        pytest.param(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": "system-mine"}, "value": 1},
            "reserved for system use only",
            id="a class that pretends to be the system's",
        ),
        pytest.param(
            "nodes",
            {"metadata": {"name": "x"}, "spec": {"taints": [{"key": "k"}]}},
            r"taints\[0\].effect: Required value",
            id="a taint without an effect",
        ),
        pytest.param(
            "namespaces",
            {"metadata": {"name": "Not.A.Label"}},
            "a lowercase RFC 1123 label must consist of",
            id="a namespace with dots",
        ),
        pytest.param(
            "services",
            body({"ports": [{"port": 0}]}),
            "must be between 1 and 65535, inclusive",
            id="a service on port zero",
        ),
        pytest.param(
            "configmaps",
            {"metadata": {"name": "x", "namespace": "default", "labels": {"a b": "c"}}},
            'metadata.labels: Invalid value: "a b": name part must consist of',
            id="a label with a blank in it",
        ),
        pytest.param(
            "configmaps",
            {
                "metadata": {
                    "name": "x",
                    "namespace": "default",
                    "ownerReferences": [
                        {
                            "apiVersion": "v1",
                            "kind": "Pod",
                            "name": name,
                            "uid": name,
                            "controller": True,
                        }
                        for name in ("a", "b")
                    ],
                }
            },
            "Only one reference can have Controller set to true",
            id="two controllers",
        ),
        pytest.param(
            "events",
            {
                "metadata": {"name": "x", "namespace": "default"},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "elsewhere"},
            },
            'involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace',
            id="an event about another namespace",
        ),
        pytest.param(
            "leases.coordination.k8s.io",
            body({"leaseDurationSeconds": 0}),
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            id="a lease of no time",
        ),
        pytest.param(
            "customresourcedefinitions.apiextensions.k8s.io",
            body(
                {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {"plural": "things", "kind": "Thing"},
                    "versions": [{"name": "v1", "served": True, "storage": True}],
                },
                name="wrong.example.com",
                namespaced=False,
            ),
            "must be spec.names.plural.*schemas are required",
            id="a definition under another name and without a schema",
        ),
    ],
)
def test_an_object_that_breaks_a_rule_is_refused(api, resource, obj, words):
    before = api.registry.store.revision
    with pytest.raises(Invalid, match=words):
        api.create(resource, obj)
    assert api.registry.store.revision == before


@pytest.mark.parametrize(
    ("resource", "obj", "patch", "words"),
    [
        pytest.param(
            "deployments.apps",
            body({"selector": SELECTOR, "template": TEMPLATE}),
            {
                "spec": {
                    "selector": {"matchLabels": {"a": None, "x": "y"}},
                    "template": {"metadata": {"labels": {"x": "y"}}},
                }
            },
            "spec.selector: Invalid value: .*: field is immutable",
            id="a selector",
        ),
        pytest.param(
            "statefulsets.apps",
            body({"selector": SELECTOR, "template": TEMPLATE, "serviceName": "s"}),
            {"spec": {"serviceName": "t"}},
            "updates to statefulset spec for fields other than",
            id="the service of a stateful set",
        ),
        pytest.param(
            "jobs.batch",
            body({"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}),
            {"spec": {"completions": 5}},
            "spec.completions: Invalid value: 5: field is immutable",
            id="the completions of a job",
        ),
        pytest.param(
            "persistentvolumeclaims",
            claim(),
            {"spec": {"accessModes": ["ReadOnlyMany"]}},
            "spec is immutable after creation",
            id="the access modes of a claim",
        ),
        pytest.param(
            "persistentvolumes",
            volume(),
            {"spec": {"hostPath": {"path": "/y"}}},
            "spec.persistentvolumesource is immutable after creation",
            id="the source of a volume",
        ),
        pytest.param(
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": "x"}, "value": 1},
            {"value": 2},
            "value: Forbidden: may not be changed in an update",
            id="the value of a priority class",
        ),
        pytest.param(
            "storageclasses.storage.k8s.io",
            {"metadata": {"name": "x"}, "provisioner": "p"},
            {"provisioner": "q"},
            "provisioner: Invalid value: .*: field is immutable",
            id="the provisioner of a class",
        ),
        pytest.param(
            "configmaps",
            {
                "metadata": {"name": "x", "namespace": "default"},
                "data": {"a": "1"},
                "immutable": True,
            },
            {"data": {"a": "2"}},
            "field is immutable when `immutable` is set",
            id="an immutable config map",
        ),
    ],
)
def test_what_is_fixed_stays(api, resource, obj, patch, words):
    api.create(resource, obj)
    namespace = obj["metadata"].get("namespace")
    with pytest.raises(Invalid, match=words):
        api.patch(resource, namespace, "x", patch)


def test_a_value_of_the_wrong_type_is_named_by_its_path(api):
    with pytest.raises(
        BadRequest,
        match=r"cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of "
        r"type int32",
    ):
        api.create("deployments.apps", body({"replicas": "three"}))


def test_a_binder_may_fill_in_a_claims_volume(api):
    api.create("persistentvolumeclaims", claim())
    bound = api.patch("persistentvolumeclaims", "default", "x", {"spec": {"volumeName": "v"}})
    assert bound["spec"]["volumeName"] == "v"
    with pytest.raises(Invalid, match="spec is immutable"):
        api.patch("persistentvolumeclaims", "default", "x", {"spec": {"volumeName": "w"}})
