"""What a scheduler's metrics tell of the events it has handled."""

from kubesched.lab.conformance.play import events_handled

PAGE = b"""\
# TYPE scheduler_event_handling_duration_seconds histogram
scheduler_event_handling_duration_seconds_bucket{event="UpdateNodeAnnotation",le="+Inf"} 99
scheduler_event_handling_duration_seconds_sum{event="UpdateNodeAnnotation"} 0.25
scheduler_event_handling_duration_seconds_count{event="NodeAdd"} 12
scheduler_event_handling_duration_seconds_count{event="UpdateNodeAnnotation"} 1.2e+01
scheduler_pending_pods{queue="active"} 3
"""


def test_events_are_counted_by_what_their_label_contains():
    assert events_handled(PAGE, b"NodeAnnotation") == 12
    assert events_handled(PAGE, b"Node") == 24


def test_an_event_that_never_happened_counts_as_none():
    assert events_handled(b"", b"NodeAnnotation") == 0
