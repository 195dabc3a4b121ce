"""Kinds that are kept although nothing acts on them: served like any other, with a word to the
client.
"""

from __future__ import annotations

import json

import pytest

from kubesched.playground.apimachinery.catalog import BUILT_IN, STORED_ONLY

EXAMPLES = {
    "horizontalpodautoscalers.autoscaling": {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}
    },
    "ingresses.networking.k8s.io": {
        "spec": {
            "rules": [
                {
                    "host": "a.example",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "web", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ]
        }
    },
    "networkpolicies.networking.k8s.io": {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
}


@pytest.mark.parametrize(
    "resource", [row for row in BUILT_IN if row.key in STORED_ONLY], ids=lambda row: row.key
)
async def test_it_is_stored_listed_and_the_client_is_told(http, resource):
    root = f"/apis/{resource.group}/{resource.version}"
    path = (
        f"{root}/namespaces/default/{resource.plural}"
        if resource.namespaced
        else f"{root}/{resource.plural}"
    )
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "x"},
        **EXAMPLES.get(resource.key, {}),
    }
    response = await http.raw("POST", f"{path}?fieldValidation=Strict", body)
    assert response.status == 201, response.body
    warning = (response.headers or {})["Warning"]
    assert warning == f'299 - "{resource.kind}: stored, nothing acts on it here"'
    stored = await http.get(f"{path}/x")
    for field, value in EXAMPLES.get(resource.key, {}).items():
        assert stored[field] == value
    assert [item["metadata"]["name"] for item in (await http.get(path))["items"]] == ["x"]
    json.dumps(await http.get(path, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))


def test_only_served_kinds_are_named():
    assert STORED_ONLY - {row.key for row in BUILT_IN} == set()
