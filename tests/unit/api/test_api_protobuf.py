"""Bindings and events as protobuf: the bytes on the wire, what is left to JSON, and reading a
Status back.

The expected bytes are written out by hand from the field numbers of the API's .proto files.
"""

from __future__ import annotations

import contextlib

import pytest
from encoded_events import encode_event
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api import protobuf
from kubesched.api.core_v1 import ObjectReference
from kubesched.api.events_v1 import Event, EventSeries
from kubesched.api.meta import ObjectMeta
from kubesched.api.status import StatusCause, StatusDetails

BINDING = (
    b"k8s\0"
    b"\x0a\x0d\x0a\x02v1\x12\x07Binding"
    b"\x12\x1f"
    b"\x0a\x0d\x0a\x03web\x1a\x02ns*\x02u1"
    b"\x12\x0e\x0a\x04Node\x1a\x06node-7"
)

EVENT = Event(
    metadata=ObjectMeta(name="web.17f", namespace="ns"),
    event_time="2026-01-02T03:04:05.000007Z",
    reporting_controller="sched",
    reporting_instance="sched-h",
    action="Binding",
    reason="Scheduled",
    regarding=ObjectReference(
        kind="Pod", namespace="ns", name="web", uid="u1", api_version="v1", resource_version="42"
    ),
    note="Successfully assigned ns/web to node-7",
    type="Normal",
)
EVENT_BYTES = (
    b"k8s\0"
    b"\x0a\x19\x0a\x10events.k8s.io/v1\x12\x05Event"
    b"\x12\x8c\x01"
    b"\x0a\x0d\x0a\x07web.17f\x1a\x02ns"
    b"\x22\x05sched"
    b"\x2a\x07sched-h"
    b"\x32\x07Binding"
    b"\x3a\x09Scheduled"
    b"\x42\x1c\x0a\x03Pod\x12\x02ns\x1a\x03web\x22\x02u1\x2a\x02v1\x32\x0242\x3a\x00"
    b"\x5a\x06Normal"
    b"\x12\x09\x08\xa5\xeb\xdc\xca\x06\x10\xd8\x36"
    b"\x52\x26Successfully assigned ns/web to node-7"
)


def test_a_binding_is_an_enveloped_message():
    assert protobuf.encode_binding("ns", "web", "u1", "node-7") == BINDING


def test_an_event_is_an_enveloped_message():
    assert encode_event(EVENT) == EVENT_BYTES


def changed(**fields):
    return Event(**{name: getattr(EVENT, name) for name in EVENT.__struct_fields__} | fields)


def test_a_note_may_be_long_and_in_any_script():
    note = "0/5 nodes are available: " + "ä" * 300
    encoded = encode_event(changed(note=note))
    assert encoded is not None
    assert encoded.endswith(b"\x52\xf1\x04" + note.encode())


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("n" * 128, "web", "u1", "node-7"), id="a long namespace"),
        pytest.param(("ns", "w" * 128, "u1", "node-7"), id="a long name"),
        pytest.param(("ns", "web", "u1", "n" * 128), id="a long node name"),
        pytest.param(("n" * 60, "w" * 60, "u" * 40, "node-7"), id="names that are long together"),
        pytest.param(("ns", "wéb", "u1", "node-7"), id="letters beyond ASCII"),
    ],
)
def test_what_does_not_fit_the_template_is_left_to_json(names):
    assert protobuf.encode_binding(*names) is None


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"series": EventSeries(count=2)}, id="a series"),
        pytest.param({"related": ObjectReference(kind="Node", name="n")}, id="a related object"),
        pytest.param({"event_time": None}, id="no time"),
        pytest.param({"reason": "r" * 128}, id="a long reason"),
        pytest.param({"metadata": ObjectMeta(name="w" * 200, namespace="ns")}, id="a long name"),
    ],
)
def test_unusual_events_are_left_to_json(fields):
    assert encode_event(changed(**fields)) is None


@given(
    st.lists(st.text(st.characters(max_codepoint=0x17F), max_size=140), min_size=4, max_size=4),
)
def test_whatever_is_encoded_reads_back_as_it_was(names):
    namespace, name, uid, node_name = names
    encoded = protobuf.encode_binding(namespace, name, uid, node_name)
    if encoded is None:
        return
    binding = protobuf.Message(encoded[4:]).message(2)
    metadata, target = binding.message(1), binding.message(2)
    assert (metadata.text(3), metadata.text(1), metadata.text(5)) == (namespace, name, uid)
    assert (target.text(1), target.text(3)) == ("Node", node_name)


@given(st.one_of(st.integers(0, 2**63), st.integers(0, 63).map(lambda bits: 2**bits - 1)))
def test_numbers_of_any_length_read_back(number):
    encoded = protobuf.varint(number)
    assert protobuf._read_varint(encoded, 0) == (number, len(encoded))
    assert len(encoded) == max(1, -(-number.bit_length() // 7))


# Reading.

STATUS = (
    b"k8s\0"
    b"\x0a\x0c\x0a\x02v1\x12\x06Status"
    b"\x12\x4c"
    b"\x0a\x06\x0a\x00\x12\x00\x1a\x00"
    b"\x12\x07Failure"
    b"\x1a\x0ano, really"
    b"\x22\x08Conflict"
    b"\x2a\x20\x0a\x03web\x12\x00\x1a\x04pods\x22\x0d\x0a\x03Why\x12\x02it\x1a\x02at\x28\x05\x32\x00"
    b"\x30\x99\x03"
    b"\x1a\x00\x22\x00"
)


def test_a_status_is_read_with_its_details():
    status = protobuf.decode_status(STATUS)
    assert (status.status, status.message, status.reason) == ("Failure", "no, really", "Conflict")
    assert status.code == 409
    assert status.details == StatusDetails(
        name="web",
        kind="pods",
        causes=[StatusCause(reason="Why", message="it", field="at")],
        retry_after_seconds=5,
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"kind":"Status"}', id="JSON"),
        pytest.param(BINDING, id="another kind"),
        pytest.param(STATUS[:40], id="a message cut short"),
        pytest.param(b"k8s\0\x0a\xff", id="a length cut short"),
        pytest.param(b"k8s\0\x0a\x05\x0b\x01\x02\x03\x04", id="an unknown wire type"),
        pytest.param(b"k8s\0\x08\x01", id="a number where a message belongs"),
        pytest.param(b"k8s\0" + b"\x80" * 20, id="a number without an end"),
    ],
)
def test_anything_else_is_refused_by_name(data):
    with pytest.raises(protobuf.ProtobufError):
        protobuf.decode_status(data)


@given(st.binary(max_size=60))
def test_no_bytes_break_the_reader(data):
    with contextlib.suppress(protobuf.ProtobufError):
        protobuf.decode_status(b"k8s\0" + data)
