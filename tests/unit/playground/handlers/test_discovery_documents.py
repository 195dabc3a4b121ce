"""What the server says about itself: discovery in both forms, OpenAPI, custom definitions in
both.
"""

from __future__ import annotations

import json

import pytest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_plain_discovery_walks_from_groups_to_resources(http):
    assert (await http.get("/api"))["versions"] == ["v1"]
    groups = {each["name"]: each for each in (await http.get("/apis"))["groups"]}
    assert groups["apps"]["preferredVersion"] == {"groupVersion": "apps/v1", "version": "v1"}
    assert await http.get("/apis/apps") == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        **groups["apps"],
    }
    resources = {each["name"]: each for each in (await http.get("/api/v1"))["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/eviction"]["kind"] == "Eviction"
    assert resources["pods/eviction"]["group"] == "policy"
    assert resources["nodes"]["namespaced"] is False


async def test_aggregated_discovery_says_the_same_in_one_document(http):
    response = await http.raw("GET", "/apis", accept=AGGREGATED)
    assert "as=APIGroupDiscoveryList" in response.content_type
    groups = {each["metadata"]["name"]: each for each in json.loads(response.body)["items"]}
    apps = {each["resource"]: each for each in groups["apps"]["versions"][0]["resources"]}
    assert apps["deployments"]["responseKind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert {each["subresource"] for each in apps["deployments"]["subresources"]} == {
        "scale",
        "status",
    }
    plain = await http.get("/apis")
    assert [each["name"] for each in plain["groups"]] == list(groups)


async def test_every_openapi_document_is_complete_in_itself(http):
    index = await http.get("/openapi/v3")
    assert "api/v1" in index["paths"]
    assert "apis/apps/v1" in index["paths"]
    for name in index["paths"]:
        document = await http.get(f"/openapi/v3/{name}")
        schemas = document["components"]["schemas"]
        for reference in references(document):
            assert reference.removeprefix("#/components/schemas/") in schemas, name


def references(value) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [each for item in value.values() for each in references(item)]
    if isinstance(value, list):
        return [each for item in value for each in references(item)]
    return []


async def test_version_two_of_openapi_is_whole_too(http):
    document = await http.get("/openapi/v2")
    assert document["swagger"] == "2.0"
    for reference in references(document):
        assert reference.removeprefix("#/definitions/") in document["definitions"]


async def test_operations_tell_kubectl_that_the_server_validates_fields(http):
    document = await http.get("/openapi/v3/api/v1")
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in {each["name"] for each in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}


async def test_schemas_carry_merge_rules_and_descriptions(http):
    document = await http.get("/openapi/v3/api/v1")
    spec = document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]
    containers = spec["properties"]["containers"]
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["description"]
    assert spec["required"] == ["containers"]


def definition(plural: str = "things", **version) -> dict:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                    **version,
                }
            ],
        },
    }


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"


def thing(name: str, **spec) -> dict:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_a_custom_kind_is_served_as_soon_as_it_is_defined(http):
    created = await http.post(DEFINITIONS, definition(subresources={"status": {}}))
    conditions = {each["type"]: each["status"] for each in created["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    body = await http.post(THINGS, thing("t", color="red", deep={"list": [1, {"x": None}]}))
    assert body["spec"]["color"] == "red"
    resources = {each["name"] for each in (await http.get("/apis/example.com/v1"))["resources"]}
    assert resources == {"things", "things/status"}
    document = await http.get("/openapi/v3/apis/example.com/v1")
    assert "com.example.v1.Thing" in document["components"]["schemas"]
    status, answer = await http.call(
        "PATCH", f"{THINGS}/t", {}, content_type="application/strategic-merge-patch+json"
    )
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")


PRESERVED = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        pytest.param(PRESERVED, None, id="an open schema lists no fields"),
        pytest.param(
            {"type": "object", "properties": {"spec": {**PRESERVED, "properties": {"a": {}}}}},
            {"x-kubernetes-preserve-unknown-fields": True},
            id="an open field has no type",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {
                    "spec": {
                        "type": "object",
                        "required": ["a", "b"],
                        "properties": {
                            "a": {"type": "string", "nullable": True},
                            "b": {"type": "array", "items": {"anyOf": [], "type": "string"}},
                            "c": {"type": "array", "items": {}, "nullable": True},
                        },
                    }
                },
            },
            {
                "type": "object",
                "required": ["b"],
                "properties": {
                    "a": {},
                    "b": {"type": "array", "items": {"type": "string"}},
                    "c": {},
                },
            },
            id="what version 2 does not know is left out",
        ),
    ],
)
async def test_custom_schemas_in_openapi_version_two(http, schema, shown):
    await http.post(DEFINITIONS, definition(schema={"openAPIV3Schema": schema}))
    published = (await http.get("/openapi/v2"))["definitions"]["com.example.v1.Thing"]
    gvk = {"group": "example.com", "version": "v1", "kind": "Thing"}
    assert published["x-kubernetes-group-version-kind"] == [gvk]
    if shown is None:
        assert "properties" not in published
        return
    assert set(published["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert published["properties"]["spec"] == shown
    third = await http.get("/openapi/v3/apis/example.com/v1")
    properties = third["components"]["schemas"]["com.example.v1.Thing"]["properties"]
    assert properties["spec"] == schema["properties"]["spec"]


async def test_custom_columns_are_printed(http):
    columns = [
        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
        {
            "name": "Ready",
            "type": "string",
            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
        },
        {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await http.post(DEFINITIONS, definition(additionalPrinterColumns=columns))
    body = thing("t", color="red")
    body["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    await http.post(THINGS, body)
    table = await http.get(THINGS, accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    assert [each["name"] for each in table["columnDefinitions"]] == [
        "Name",
        "Color",
        "Ready",
        "Since",
    ]
    assert table["rows"][0]["cells"] == ["t", "red", "True", "0s"]


async def test_versions_of_a_kind_share_their_objects(http):
    body = definition()
    body["spec"]["versions"].append(
        {**body["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    )
    await http.post(DEFINITIONS, body)
    await http.post(THINGS, thing("t"))
    other = await http.get("/apis/example.com/v1beta1/namespaces/default/things/t")
    assert other["apiVersion"] == "example.com/v1beta1"
    listed = await http.get("/apis/example.com/v1beta1/things")
    assert listed["items"][0]["apiVersion"] == "example.com/v1beta1"


async def test_a_definition_goes_with_its_objects_and_after_them(http):
    await http.post(DEFINITIONS, definition())
    held = thing("t")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await http.post(THINGS, held)
    await http.call("DELETE", f"{DEFINITIONS}/things.example.com")
    status, left = await http.call("GET", f"{THINGS}/t")
    assert (status, "deletionTimestamp" in left["metadata"]) == (200, True)
    patch = {"metadata": {"finalizers": None}}
    await http.call("PATCH", f"{THINGS}/t", patch, content_type="application/merge-patch+json")
    for path in (f"{DEFINITIONS}/things.example.com", THINGS, "/apis/example.com/v1"):
        status, _ = await http.call("GET", path)
        assert status == 404, path


@pytest.mark.parametrize(
    "path", ["/openapi/v3/apis/nope/v1", "/apis/nope", "/apis/apps/v9", "/api/v2"]
)
async def test_documents_of_what_is_not_served_do_not_exist(http, path):
    status, answer = await http.call("GET", path)
    assert (status, answer["reason"]) == (404, "NotFound")


@pytest.mark.parametrize("path", ["/version", "/version/"])
async def test_the_version_is_found_with_and_without_a_slash(http, path):
    assert (await http.get(path))["gitVersion"] == "v1.37.0"


@pytest.mark.parametrize("path", ["/api/v1/nosuch", "/api/v1/namespaces/default/pods/p/nosuch"])
async def test_an_unknown_path_has_empty_details(http, path):
    """kubectl reads `details` of a 404 without looking whether it is there."""
    status, body = await http.call("GET", path)
    assert status == 404
    assert body["details"] == {}
