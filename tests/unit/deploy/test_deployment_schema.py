"""Every document of the manifests and the chart has the shape of its kind: known fields, right
types, required ones there.

The shapes are those of the embedded API server (Kubernetes 1.36). A real server judges the same
documents, strictly, in tests/integration/run/test_run_permissions.py.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from kubesched.playground.apimachinery.catalog import ResourceCatalog
from kubesched.playground.apimachinery.schema.decoding import (
    ShapeError,
    check_shape,
    unknown_fields,
)
from kubesched.playground.apimachinery.schema.table import TypeRef, type_of_kind, types

MANIFESTS = Path(__file__).parents[3] / "deploy" / "manifests"
FOREIGN = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"),
    ("monitoring.coreos.com/v1", "PrometheusRule"),
}
"""The Prometheus operator's: its shape is not Kubernetes'."""

CHART_VALUES = {
    "as it comes": {},
    "with everything on": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
        "networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"port": 8888}]}]},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"role": "control"},
        "extraArgs": ["-v=2"],
        "env": [{"name": "PYTHONPATH", "value": "/plugins"}],
        "extraVolumes": [{"name": "plugins", "configMap": {"name": "my-plugins"}}],
        "extraVolumeMounts": [{"name": "plugins", "mountPath": "/plugins", "readOnly": True}],
        "podLabels": {"team": "platform"},
        "podAnnotations": {"example.com/owner": "platform"},
        "affinity": {"nodeAffinity": {}},
        "leaderElection": {"leaseDuration": "30s"},
    },
    "with everything off": {
        "podDisruptionBudget": {"enabled": False},
        "rbac": {"create": False},
        "tolerations": [],
        "priorityClassName": "",
        "resources": {},
        "config": {"profiles": None},
    },
    "under names that look like numbers": {
        "name": "123",
        "namespace": "45",
        "leaderElection": {"resourceName": "6"},
    },
    "with a percentage": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
}


def complaints(document):
    """What an API server would refuse about a document's shape."""
    api_version, kind = document.get("apiVersion", ""), document.get("kind", "")
    if (api_version, kind) in FOREIGN:
        return []
    if ResourceCatalog().find_kind(api_version, kind) is None:
        return [f"no kind {kind} in {api_version}"]
    group = api_version.rpartition("/")[0]
    result = [f"unknown field {path}" for path in unknown_fields(group, kind, document)]
    try:
        check_shape(group, kind, json.dumps(document).encode())
    except ShapeError as error:
        result.append(str(error))
        return result
    row = type_of_kind(group, kind)
    assert row is not None
    result += [f"missing {path}" for path in missing(TypeRef("object", row.name), document, "")]
    if not document.get("metadata", {}).get("name"):
        result.append("missing metadata.name")
    return result


def missing(ref, value, path):
    """Required fields that are not there."""
    if ref.shape == "object" and isinstance(value, dict):
        for field in types()[ref.name].fields.values():
            here = f"{path}.{field.name}".lstrip(".")
            if field.name in value:
                yield from missing(field.type, value[field.name], here)
            elif field.is_required:
                yield here
    elif ref.shape == "list":
        for index, item in enumerate(value or ()):
            yield from missing(ref.item, item, f"{path}[{index}]")
    elif ref.shape == "map":
        for key, item in (value or {}).items():
            yield from missing(ref.item, item, f"{path}.{key}")


def judged(files):
    return {
        f"{name}: {document.get('kind')}": result
        for name, documents in files.items()
        for document in documents
        if (result := complaints(document))
    }


def test_manifests_have_the_shape_of_their_kinds(manifests):
    assert judged(manifests) == {}


@pytest.mark.parametrize("values", CHART_VALUES.values(), ids=CHART_VALUES)
def test_the_chart_has_the_shape_of_its_kinds(chart, values):
    assert judged(chart(**values)) == {}


@pytest.mark.parametrize("values", CHART_VALUES.values(), ids=CHART_VALUES)
def test_objects_of_the_chart_have_names_of_their_own(chart, values):
    objects = [item for listed in chart(**values).values() for item in listed]
    names = [
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in objects
    ]
    assert len(set(names)) == len(names)


def test_everything_but_the_foreign_kind_is_in_the_kustomization(manifests):
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    assert (listed["apiVersion"], listed["kind"]) == (
        "kustomize.config.k8s.io/v1beta1",
        "Kustomization",
    )
    assert set(listed["resources"]) == set(manifests) - {
        "servicemonitor.yaml",
        "prometheusrule.yaml",
        "networkpolicy.yaml",
        "shadow-rbac.yaml",
        "static-pod.yaml",
    }


def changed(document, path, value):
    """A copy with another value at a path; without the field if the value is `...`."""
    made = copy.deepcopy(document)
    *parents, last = path
    place = made
    for step in parents:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return made


CONTAINER = ("spec", "template", "spec", "containers", 0)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        pytest.param((*CONTAINER, "comand"), ["x"], "comand", id="a field that is misspelt"),
        pytest.param(("spec", "replica"), 2, "spec.replica", id="a field that does not exist"),
        pytest.param(("spec", "replicas"), "two", "replicas", id="a word for a number"),
        pytest.param((*CONTAINER, "args"), "run", "args", id="a word for a list"),
        pytest.param((*CONTAINER, "args", 2), -2, "args", id="a flag that YAML reads as a number"),
        pytest.param((*CONTAINER, "name"), ..., "containers[0].name", id="no container name"),
        pytest.param(("spec", "selector"), ..., "spec.selector", id="no selector"),
        pytest.param(("metadata", "name"), ..., "metadata.name", id="no name"),
        pytest.param(("kind",), "Deploymint", "Deploymint", id="an unknown kind"),
        pytest.param(("apiVersion",), "apps/v1beta1", "apps/v1beta1", id="a version that is gone"),
        pytest.param(
            ("spec", "template", "metadata", "labels", "n"), 1, "labels", id="a number as a label"
        ),
    ],
)
def test_a_wrong_document_is_noticed(manifests, path, value, complaint):
    (document,) = manifests["deployment.yaml"]
    assert complaints(document) == []
    result = complaints(changed(document, path, value))
    assert any(complaint in item for item in result), result
