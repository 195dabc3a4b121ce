"""Decoding bad input, lists, and keeping whole what we only partly understand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubesched.api import codec
from kubesched.api.codec import (
    MalformedObject,
    decode,
    decode_list,
    decode_preserved,
)
from kubesched.api.coordination_v1 import Lease
from kubesched.api.core_v1 import (
    Container,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    Toleration,
)
from kubesched.base.errors import BadRequest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            b'{"metadata":{"name":"a","namespace":"b"},"spec":{"containers":[{"name":1}]}}',
            "Pod b/a: spec.containers[0].name: expected str, got int",
            id="a field of the wrong type names object and field",
        ),
        pytest.param(
            b'{"spec":"x"}', "Pod: spec: expected object, got str", id="a nameless object"
        ),
        pytest.param(
            b'{"metadata":{"name":5}}',
            "Pod: metadata.name: expected str, got int",
            id="a broken name",
        ),
        pytest.param(b"[]", "Pod: expected object, got array", id="not an object"),
        pytest.param(b'{"spec":', "Pod: not valid JSON: input data was truncated", id="cut off"),
        pytest.param(b"", "Pod: not valid JSON: input data was truncated", id="nothing"),
        pytest.param(
            b'{"spec":{"priority":99999999999999999999999}, "metadata": 7}',
            "Pod: metadata: expected object, got int",
            id="a number that is merely large is not the problem",
        ),
    ],
)
def test_malformed_objects_are_refused_with_object_and_field(data, message):
    with pytest.raises(MalformedObject) as caught:
        decode(data, Pod)
    assert str(caught.value) == message
    assert isinstance(caught.value, BadRequest)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b'{"metadata":{"name":"\xff"}}', id="not UTF-8 inside a string"),
        pytest.param(b"[" * 100_000, id="nested too deep"),
        pytest.param(b'{"x":' * 100_000, id="nested too deep in an unknown field"),
        pytest.param(
            b'{"spec":{"volumes":[{"projected":{"sources":[' + b'{"a":' * 600, id="deep and cut off"
        ),
        pytest.param(b"NaN", id="not JSON"),
        pytest.param(b"{} {}", id="two objects"),
    ],
)
def test_no_input_gets_past_as_another_exception(data):
    with pytest.raises(MalformedObject):
        decode(data, Pod)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_object_or_malformed(data):
    try:
        result = decode(data, Pod)
    except MalformedObject:
        return
    assert isinstance(result, Pod)


def test_null_reads_as_absent_where_records_have_no_null():
    pod = decode(
        b'{"metadata":{"name":null,"generation":null,"labels":null},"spec":null,'
        b'"status":{"phase":null,"conditions":[{"type":null,"status":"True"}]}}',
        Pod,
    )
    assert pod.metadata.name == ""
    assert pod.metadata.generation == 0
    assert pod.spec == Pod().spec
    assert pod.status.conditions[0].status == "True"


def test_plain_values_convert_like_text():
    assert codec.convert({"metadata": {"name": None, "uid": "u"}}, Pod).metadata.uid == "u"
    with pytest.raises(
        MalformedObject, match=r"^Pod a: spec\.hostNetwork: expected bool, got str$"
    ):
        codec.convert({"metadata": {"name": "a"}, "spec": {"hostNetwork": "yes"}}, Pod)


def test_lists_carry_revision_and_continuation():
    result = decode_list(
        b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"tok",'
        b'"remainingItemCount":3},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}',
        Pod,
    )
    assert result.metadata.resource_version == "9"
    assert result.metadata.continue_ == "tok"
    assert result.metadata.remaining_item_count == 3
    assert [pod.metadata.name for pod in result.items] == ["a", "b"]


@pytest.mark.parametrize(
    "data", [pytest.param(b'{"items":null}', id="null"), pytest.param(b"{}", id="absent")]
)
def test_a_list_without_items_is_empty(data):
    assert decode_list(data, Pod).items == []


def test_a_bad_item_names_its_place():
    with pytest.raises(
        MalformedObject, match=r"^PodList: items\[1\]\.spec: expected object, got int$"
    ):
        decode_list(b'{"items":[{},{"spec":1}]}', Pod)


# -- whole objects -------------------------------------------------------------------------------

CLAIM = {
    "kind": "PersistentVolumeClaim",
    "apiVersion": "v1",
    "metadata": {
        "name": "c",
        "namespace": "ns",
        "annotations": {"a": "1", "b": "2"},
        "managedFields": [{"manager": "kubectl"}],
        "futureField": True,
    },
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}, "futureLimit": 5},
        "futureSpec": {"x": 1},
    },
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "Resizing", "status": "True", "future": 1}],
    },
    "futureTop": [1],
}


def test_an_unchanged_object_comes_back_as_it_was():
    preserved = decode_preserved(json.dumps(CLAIM), PersistentVolumeClaim)
    assert preserved.json() == CLAIM
    assert preserved.merged_json(preserved.record) == CLAIM


def test_changes_are_merged_and_unknown_fields_survive():
    preserved = decode_preserved(json.dumps(CLAIM), PersistentVolumeClaim)
    old = preserved.record
    changed = replace(
        old,
        metadata=replace(old.metadata, annotations={"a": "1", "c": "3"}),
        spec=replace(old.spec, volume_name="pv-1"),
    )
    merged = preserved.merged_json(changed)
    assert merged == {
        **CLAIM,
        "metadata": {**CLAIM["metadata"], "annotations": {"a": "1", "c": "3"}},
        "spec": {**CLAIM["spec"], "volumeName": "pv-1"},
    }
    again = preserved.with_record(changed)
    assert again.record == changed
    assert again.json() == merged


def test_a_field_set_back_to_its_default_disappears():
    raw = {"spec": {"claimRef": {"name": "c"}, "storageClassName": "fast", "future": 1}}
    preserved = decode_preserved(json.dumps(raw), PersistentVolume)
    old = preserved.record
    merged = preserved.merged_json(
        replace(old, spec=replace(old.spec, claim_ref=None, storage_class_name=""))
    )
    assert merged == {"spec": {"future": 1}}


def test_an_object_that_was_absent_is_written():
    preserved = decode_preserved(b'{"spec":{}}', PersistentVolume)
    old = preserved.record
    changed = replace(old, spec=replace(old.spec, claim_ref=ObjectReference(name="c", uid="u")))
    assert preserved.merged_json(changed) == {"spec": {"claimRef": {"name": "c", "uid": "u"}}}


def test_list_items_keep_their_unknown_fields():
    raw = {
        "spec": {
            "containers": [{"name": "a", "env": [1]}, {"name": "b", "env": [2]}],
            "tolerations": [{"key": "k", "future": 1}],
        }
    }
    preserved = decode_preserved(json.dumps(raw), Pod)
    spec = preserved.record.spec
    changed = replace(
        preserved.record,
        spec=replace(
            spec,
            containers=[
                Container(name="new"),
                replace(spec.containers[1], image="i"),
                spec.containers[0],
            ],
            tolerations=[*spec.tolerations, Toleration(key="l")],
        ),
    )
    assert preserved.merged_json(changed)["spec"] == {
        "containers": [
            {"name": "new"},
            {"name": "b", "env": [2], "image": "i"},
            {"name": "a", "env": [1]},
        ],
        "tolerations": [{"key": "k", "future": 1}, {"key": "l"}],
    }


def test_renewing_a_lease_keeps_what_others_wrote():
    raw = {
        "metadata": {"name": "l", "labels": {"x": "y"}},
        "spec": {"holderIdentity": "a", "newField": 1},
    }
    preserved = decode_preserved(json.dumps(raw), Lease)
    old = preserved.record
    renewed = replace(old, spec=replace(old.spec, renew_time="2026-01-01T00:00:00.000000Z"))
    assert preserved.merged_json(renewed)["spec"] == {
        "holderIdentity": "a",
        "newField": 1,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
