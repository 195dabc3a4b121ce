"""The two ways to write a new event are the same: straight from what is known of it, and through
its record.
"""

import random

from encoded_events import encode_event
from hypothesis import given
from hypothesis import strategies as st

from kubesched.api.events_v1 import Event
from kubesched.client.event_series import EventEntry, Reporter

TEXTS = st.text(st.characters(max_codepoint=0x17F), max_size=140)
NAMES = st.sampled_from(["web", "web-5d5f7c8b9c-x7k2p", "not a name", "w" * 120, "wéb", ""])
TIMES = st.floats(min_value=0, max_value=4e9)


@given(
    identity=st.tuples(TEXTS, NAMES, NAMES, TEXTS, TEXTS, TEXTS, st.sampled_from(["", "spec"])),
    texts=st.tuples(TEXTS, TEXTS, TEXTS),
    note=st.one_of(TEXTS, st.integers(0, 1100).map("ä".__mul__)),
    observed=TIMES,
    nanos=st.integers(0, 2**63),
)
def test_a_new_event_is_encoded_as_its_record_is(identity, texts, note, observed, nanos):
    controller, reason, action = texts
    reporter = Reporter(controller, f"{controller}-host", is_legacy=False)
    key = (reporter, "Normal", reason, action, identity, None, "")
    entry = EventEntry(key, note, observed, nanos)
    entry.give_name(random.Random(1))
    record = entry.to_record(is_series=False)
    assert isinstance(record, Event)
    assert entry.to_protobuf() == encode_event(record)
    assert entry.namespace == record.metadata.namespace


def test_legacy_events_and_events_about_two_objects_need_their_record():
    identity = ("Pod", "ns", "web", "u1", "v1", "42", "")
    for is_legacy, related in ((True, None), (False, identity)):
        reporter = Reporter("sched", "", is_legacy=is_legacy)
        entry = EventEntry((reporter, "Normal", "Why", "", identity, related, ""), "note", 1.0, 1)
        assert entry.to_protobuf() is None


def test_a_name_is_given_once():
    identity = ("Pod", "ns", "not a name", "u1", "v1", "42", "")
    key = (Reporter("s", "", is_legacy=False), "Normal", "Why", "", identity, None, "")
    entry = EventEntry(key, "note", 1.0, 1)
    rng = random.Random(1)
    entry.give_name(rng)
    name = entry.name
    entry.give_name(rng)
    assert entry.name == name
