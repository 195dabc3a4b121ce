"""The OpenAPI 2 document as protobuf: everything the JSON form says is in it, where gnostic's
message has a place for it.
"""

from __future__ import annotations

import json

from kubesched.playground.handlers.openapi.protobuf import MEDIA_TYPE

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"size": {"type": "integer", "default": 3, "minimum": 1}},
                    }
                },
            }
        ],
    },
}


def fields(data):
    """(number, value) pairs of a message; lengths and numbers are varints."""

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 0x80:
                return value, at

    pairs, at = [], 0
    while at < len(data):
        tag, at = varint(at)
        value, at = varint(at)
        if tag & 7 == 2:
            value, at = data[at : at + value], at + value
        pairs.append((tag >> 3, value))
    return pairs


def one(data, number):
    return next(value for found, value in fields(data) if found == number)


def named(data, number):
    return {
        one(value, 1).decode(): one(value, 2) for found, value in fields(data) if found == number
    }


async def document(http):
    response = await http.raw("GET", "/openapi/v2", accept=MEDIA_TYPE)
    assert response.status == 200
    assert response.content_type == MEDIA_TYPE.replace("@", ".")
    return response.body


async def test_definitions_are_those_of_the_json_document(http):
    body = await document(http)
    plain = await http.get("/openapi/v2")
    assert one(body, 1) == b"2.0"
    assert list(named(one(body, 9), 1)) == list(plain["definitions"])
    assert one(body, 8) == b""
    assert plain["paths"] == {}


async def test_a_schema_keeps_types_references_and_extensions(http):
    body = await document(http)
    definitions = named(one(body, 9), 1)
    pod = definitions["io.k8s.api.core.v1.Pod"]
    assert one(one(pod, 22), 1) == b"object"
    properties = named(one(pod, 25), 1)
    assert one(properties["spec"], 1) == b"#/definitions/io.k8s.api.core.v1.PodSpec"
    kinds = json.loads(one(named(pod, 31)["x-kubernetes-group-version-kind"], 2))
    assert kinds == [{"group": "", "version": "v1", "kind": "Pod"}]
    containers = named(one(definitions["io.k8s.api.core.v1.PodSpec"], 25), 1)["containers"]
    assert one(named(containers, 31)["x-kubernetes-patch-merge-key"], 2) == b'"name"'


async def test_custom_resources_are_described_and_not_patched_strategically(http):
    await http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION)
    definitions = named(one(await document(http), 9), 1)
    size = named(one(definitions["com.example.v1.Widget"], 25), 1)["size"]
    assert one(one(size, 5), 2) == b"3"
    described = await http.get("/openapi/v3/apis/example.com/v1")
    patch = described["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"][
        "patch"
    ]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    assert "application/merge-patch+json" in patch["requestBody"]["content"]


async def test_other_forms_are_refused(http):
    response = await http.raw("GET", "/openapi/v2", accept="text/html")
    assert response.status == 406
