"""Protobuf bodies: what kubectl really sends, and any object through an encoder of our own and
back.
"""

from __future__ import annotations

import base64
import contextlib
import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.protobuf import ProtobufError
from kubesched.playground.apimachinery.schema.protobuf import MAGIC, decode_protobuf
from kubesched.playground.apimachinery.schema.table import Field, TypeRef, type_of_kind, types

# `kubectl create deployment web --image=nginx:1.2 --replicas=3` (client 1.32), as it went over the
# wire.
KUBECTL_CREATE_DEPLOYMENT = base64.b64decode(
    "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50Eq8BCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEn4IAxIMCgoKA2Fw"
    "cBIDd2ViGmQKHAoAEgAaACIAKgAyADgAQgBaCgoDYXBwEgN3ZWISRBImCgVuZ2lueBIJbmdpbng6MS4yKgBCAGoAcgCAAQCIAQCQ"
    "AQCiAQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIgIKACgAOAAaDAgAEAAYACAAKAA4ABoAIgA="
)


def test_what_kubectl_sends_is_read_without_the_zeros_it_pads_with():
    decoded = decode_protobuf(KUBECTL_CREATE_DEPLOYMENT)
    assert (decoded["apiVersion"], decoded["kind"]) == ("apps/v1", "Deployment")
    assert decoded["metadata"] == {"name": "web", "labels": {"app": "web"}}
    spec = decoded["spec"]
    assert (spec["replicas"], spec["selector"]) == (3, {"matchLabels": {"app": "web"}})
    template = spec["template"]
    assert template["metadata"] == {"labels": {"app": "web"}}
    assert template["spec"]["containers"] == [
        {"name": "nginx", "image": "nginx:1.2", "resources": {}}
    ]
    assert "paused" not in spec


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while True:
        byte, value = value & 0x7F, value >> 7
        if not value:
            return out + bytes([byte])
        out += bytes([byte | 0x80])


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode_scalar(number: int, name: str, value) -> bytes:
    if name == "string":
        return block(number, value.encode())
    if name == "bytes":
        return block(number, base64.b64decode(value))
    if name in ("int32", "int64", "boolean"):
        return varint(number << 3) + varint(int(value))
    if name == "number":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if name == "Quantity":
        return block(number, block(1, value.encode()))
    if name == "IntOrString":
        if isinstance(value, str):
            return block(number, varint(1 << 3) + varint(1) + block(3, value.encode()))
        return block(number, varint(1 << 3) + varint(0) + varint(2 << 3) + varint(value))
    if name == "any":
        return block(number, block(1, json.dumps(value).encode()))
    if name == "Schema":
        return block(number, encode_message("apiextensions.JSONSchemaProps", value))
    if name == "SchemaOrArray":
        return block(number, encode_scalar(1, "Schema", value))
    if name == "SchemaOrBool":
        allows = varint(1 << 3) + varint(value is not False)
        schema = encode_scalar(2, "Schema", value) if isinstance(value, dict) else b""
        return block(number, allows + schema)
    raise AssertionError(name)


def encode_value(number: int, ref: TypeRef, value) -> bytes:
    if ref.shape == "object":
        return block(number, encode_message(ref.name, value))
    return encode_scalar(number, ref.name, value)


def encode_field(number: int, field: Field, value) -> bytes:
    if field.type.shape == "list":
        return b"".join(encode_value(number, field.type.item, each) for each in value)
    if field.type.shape == "map":
        entries = ((key, encode_value(2, field.type.item, each)) for key, each in value.items())
        return b"".join(block(number, block(1, key.encode()) + body) for key, body in entries)
    return encode_value(number, field.type, value)


def encode_message(identity: str, obj: dict) -> bytes:
    out = b""
    embedded: dict[int, bytes] = {}
    for name, value in obj.items():
        field = types()[identity].fields[name]
        if len(field.number) == 1:
            out += encode_field(field.number[0], field, value)
        else:
            embedded[field.number[0]] = embedded.get(field.number[0], b"") + encode_field(
                field.number[1], field, value
            )
    return out + b"".join(block(number, body) for number, body in embedded.items())


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    return (
        MAGIC
        + block(1, block(1, api_version.encode()) + block(2, kind.encode()))
        + block(2, message)
    )


def objects(ref: TypeRef, depth: int) -> st.SearchStrategy:
    if ref.shape == "list":
        return st.lists(objects(ref.item, depth - 1), min_size=1, max_size=2)
    if ref.shape == "map":
        return st.dictionaries(
            st.text("ab", max_size=2), objects(ref.item, depth - 1), min_size=1, max_size=2
        )
    if ref.shape == "object":
        fields = {
            name: objects(field.type, depth - 1)
            for name, field in types()[ref.name].fields.items()
            if field.number and not _is_beyond(field.type, depth)
        }
        return st.fixed_dictionaries({}, optional=fields)
    return {
        "string": st.text("xyz", min_size=1, max_size=3),
        "bytes": st.binary(min_size=1, max_size=4).map(lambda raw: base64.b64encode(raw).decode()),
        "int32": st.integers(1, 2**31 - 1),
        "int64": st.integers(1, 2**40),
        "boolean": st.just(True),
        "number": st.floats(0.5, 8),
        "Quantity": st.sampled_from(["1", "500m", "2Gi"]),
        "IntOrString": st.integers(1, 99) | st.just("25%"),
    }[ref.name]


def _is_beyond(ref: TypeRef, depth: int) -> bool:
    while ref.item is not None:
        if ref.item.shape in ("list", "map"):
            return True
        ref = ref.item
    return ref.name in ("any", "Time", "MicroTime") or (ref.shape == "object" and depth <= 0)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(
        [("", "v1", "Pod"), ("apps", "apps/v1", "Deployment"), ("", "v1", "Node")]
    ),
)
def test_any_object_survives_the_way_through_protobuf(data, kind):
    group, api_version, name = kind
    found = type_of_kind(group, name)
    obj = data.draw(objects(TypeRef("object", found.name), 4))
    body = envelope(api_version, name, encode_message(found.name, obj))
    assert decode_protobuf(body) == {"apiVersion": api_version, "kind": name, **obj}


def test_zero_of_a_pointer_is_said_and_zero_of_a_plain_field_is_not():
    spec = types()["apps.DeploymentSpec"].fields
    message = encode_field(2, types()["apps.Deployment"].fields["spec"], {})
    zeros = (
        varint(spec["replicas"].number[0] << 3)
        + varint(0)
        + varint(spec["paused"].number[0] << 3)
        + varint(0)
    )
    message = block(types()["apps.Deployment"].fields["spec"].number[0], zeros)
    assert decode_protobuf(envelope("apps/v1", "Deployment", message))["spec"] == {"replicas": 0}


THING = {
    "type": "object",
    "required": ["spec"],
    "x-kubernetes-validations": [{"rule": "self.spec.size > 0", "message": "too small"}],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0, "maximum": 1.5, "default": 0},
                "on": {"type": "boolean", "default": False},
                "color": {"type": "string", "enum": ["red", None], "nullable": True},
                "parts": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "closed": {"type": "object", "additionalProperties": False},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "port": {
                    "x-kubernetes-int-or-string": True,
                    "anyOf": [{"type": "integer"}, {"type": "string"}],
                },
            },
        }
    },
}


def definition(**version):
    versions = [
        {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": THING}},
        {"name": "v2", "schema": {"openAPIV3Schema": THING}, **version},
    ]
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions}
    return {"metadata": {"name": "things.example.com"}, "spec": spec}


def definition_body(obj):
    name = "CustomResourceDefinition"
    body = encode_message(f"apiextensions.{name}", obj)
    return envelope("apiextensions.k8s.io/v1", name, body)


def test_a_definition_keeps_its_schema():
    decoded = decode_protobuf(definition_body(definition()))
    assert decoded["spec"]["versions"] == definition()["spec"]["versions"]


async def test_a_version_that_is_not_served_is_not_found(http):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    media_type = "application/vnd.kubernetes.protobuf"
    body = definition_body(definition())
    status, made = await http.call("POST", path, body, content_type=media_type)
    assert (status, made["spec"]["versions"][1]["served"]) == (201, False)
    things = "/apis/example.com/{}/things"
    assert (await http.call("GET", things.format("v1")))[0] == 200
    assert (await http.call("GET", things.format("v2")))[0] == 404
    made["spec"]["versions"][0]["served"] = False
    assert (await http.call("PUT", f"{path}/things.example.com", made))[0] == 200
    assert (await http.call("GET", things.format("v1")))[0] == 404
    assert (await http.call("DELETE", f"{path}/things.example.com"))[0] == 200
    assert (await http.call("GET", f"{path}/things.example.com"))[0] == 404


def test_times_are_written_as_text_and_zero_times_left_out():
    number = types()["core.Pod"].fields["metadata"].number[0]
    created = types()["meta.ObjectMeta"].fields["creationTimestamp"].number[0]
    moment = varint(1 << 3) + varint(1_767_225_600)
    body = envelope("v1", "Pod", block(number, block(created, moment)))
    assert decode_protobuf(body)["metadata"] == {"creationTimestamp": "2026-01-01T00:00:00Z"}
    in_year_one = varint(1 << 3) + varint((1 << 64) - 62_135_596_800)
    for zero in (b"", in_year_one):
        body = envelope("v1", "Pod", block(number, block(created, zero)))
        assert decode_protobuf(body)["metadata"] == {}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"{}", "the prefix is missing", id="JSON under the wrong name"),
        pytest.param(MAGIC + b"\x0a\xff", "a number does not end", id="cut off"),
        pytest.param(MAGIC + b"\x0b", "wire type 3 is unknown", id="an ancient wire type"),
        pytest.param(
            MAGIC + b"\x08" + b"\xff" * 11, "a number does not end", id="an endless number"
        ),
        pytest.param(envelope("v1", "Unicorn", b""), 'no kind "Unicorn"', id="an unknown kind"),
        pytest.param(
            envelope("v1", "Pod", b"\x08\x01"), "wrong wire type", id="a number for a message"
        ),
    ],
)
def test_bytes_that_are_no_object_are_refused(body, words):
    with pytest.raises(ProtobufError, match=words):
        decode_protobuf(body)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_garbage_never_does_anything_else(noise):
    with contextlib.suppress(ProtobufError):
        decode_protobuf(MAGIC + noise)


async def test_a_protobuf_body_creates_the_object(http):
    path = "/apis/apps/v1/namespaces/default/deployments"
    status, created = await http.call(
        "POST", path, KUBECTL_CREATE_DEPLOYMENT, content_type="application/vnd.kubernetes.protobuf"
    )
    assert (status, created["spec"]["replicas"], created["spec"]["strategy"]["type"]) == (
        201,
        3,
        "RollingUpdate",
    )
    status, answer = await http.call(
        "POST", path, b"junk", content_type="application/vnd.kubernetes.protobuf"
    )
    assert (status, answer["reason"]) == (400, "BadRequest")
