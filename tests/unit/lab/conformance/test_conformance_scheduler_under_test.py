"""What a scheduler's metrics tell of the events it has handled."""

from kubesched.lab.conformance.scheduler_under_test import SchedulerUnderTest

PAGE = b"""\
# TYPE scheduler_event_handling_duration_seconds histogram
scheduler_event_handling_duration_seconds_bucket{event="UpdateNodeAnnotation",le="+Inf"} 99
scheduler_event_handling_duration_seconds_sum{event="UpdateNodeAnnotation"} 0.25
scheduler_event_handling_duration_seconds_count{event="NodeAdd"} 12
scheduler_event_handling_duration_seconds_count{event="UpdateNodeAnnotation"} 1.2e+01
scheduler_pending_pods{queue="active"} 3
"""


class Metrics:
    def __init__(self, page):
        self._page = page

    async def get_raw(self, path):
        assert path == "/metrics"
        return self._page


async def test_events_are_counted_by_what_their_label_contains():
    scheduler = SchedulerUnderTest(None, Metrics(PAGE))
    assert await scheduler.events_handled(b"NodeAnnotation") == 12
    assert await scheduler.events_handled(b"Node") == 24


async def test_an_event_that_never_happened_counts_as_none():
    assert await SchedulerUnderTest(None, Metrics(b"")).events_handled(b"NodeAnnotation") == 0
