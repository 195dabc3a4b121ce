"""Schemas of custom resource definitions: wrong types are refused, CEL rules are stored and not
evaluated.
"""

from __future__ import annotations

import pytest

from kubesched.base.errors import BadRequest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WARNING = '299 - "x-kubernetes-validations: stored, the rules are not evaluated here"'
RULED = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]},
    },
}


def definition(spec):
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "rules", "kind": "Rule"}
    body = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "rules.example.com"},
        "spec": body,
    }


async def test_rules_are_stored_and_the_client_is_told(http):
    created = await http.raw("POST", DEFINITIONS, definition(RULED))
    assert (created.status, created.headers) == (201, {"Warning": WARNING})
    path = f"{DEFINITIONS}/rules.example.com"
    stored = await http.get(path)
    schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["spec"] == RULED
    updated = await http.raw("PUT", path, stored)
    assert (updated.status, updated.headers) == (200, {"Warning": WARNING})
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Rule",
        "metadata": {"name": "x"},
        "spec": {"a": 1},
    }
    broken = await http.raw("POST", "/apis/example.com/v1/namespaces/default/rules", body)
    assert (broken.status, broken.headers) == (201, None)


async def test_a_definition_without_rules_has_no_warning(http):
    created = await http.raw("POST", DEFINITIONS, definition({"type": "object"}))
    assert (created.status, created.headers) == (201, None)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object", "properties": []}, id="properties"),
        pytest.param({"type": "object", "properties": {"a": 5}}, id="a property"),
        pytest.param({"type": "object", "maxProperties": True}, id="a limit"),
        pytest.param({"type": "array", "items": {"type": "string", "maxLength": "x"}},
                     id="an item"),
        pytest.param({"type": "object", "required": "a"}, id="required"),
    ],
)  # fmt: skip
def test_a_schema_of_the_wrong_types_is_refused(api, schema):
    with pytest.raises(BadRequest, match="into Go struct field JSONSchemaProps"):
        api.create("customresourcedefinitions.apiextensions.k8s.io", definition(schema))
