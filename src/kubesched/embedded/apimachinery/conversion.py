"""Events exist once and are served under two groups whose field names differ; the core form is what is stored."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import JsonObject

_TO_EVENTS_V1 = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_TO_CORE = {there: here for here, there in _TO_EVENTS_V1.items()}


def event_to_events_v1(event: JsonObject) -> JsonObject:
    """A stored event as `events.k8s.io/v1` shows it."""
    renamed = {_TO_EVENTS_V1.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = "events.k8s.io/v1"
    return renamed


def event_from_events_v1(event: JsonObject) -> JsonObject:
    """An `events.k8s.io/v1` event in the form that is stored."""
    renamed = {_TO_CORE.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = "v1"
    return renamed
