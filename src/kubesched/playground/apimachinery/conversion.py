"""Conversion of kinds that are served in two forms and stored in one.

Events are stored as core v1, HorizontalPodAutoscalers as `autoscaling/v2`, pod groups and workloads
as `scheduling.k8s.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Callable

from kubesched.playground.apimachinery.autoscaler_v1 import autoscaler_from_v1, autoscaler_to_v1
from kubesched.playground.apimachinery.objects import JsonObject

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
    """Convert a stored event to `events.k8s.io/v1`."""
    renamed = {_TO_EVENTS_V1.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = "events.k8s.io/v1"
    return renamed


def event_from_events_v1(event: JsonObject) -> JsonObject:
    """Convert an `events.k8s.io/v1` event to its stored form."""
    renamed = {_TO_CORE.get(key, key): value for key, value in event.items()}
    renamed["apiVersion"] = "v1"
    return renamed


def _with_version(api_version: str) -> Callable[[JsonObject], JsonObject]:
    """A conversion between versions with the same fields."""
    return lambda obj: {**obj, "apiVersion": api_version}


_GROUPS_V1ALPHA3 = "scheduling.k8s.io/v1alpha3"
_SAME_FIELDS = (_with_version("scheduling.k8s.io/v1beta1"), _with_version(_GROUPS_V1ALPHA3))
CONVERTED: dict[tuple[str, str], tuple[Callable[[JsonObject], JsonObject], ...]] = {
    ("events.k8s.io/v1", "Event"): (event_from_events_v1, event_to_events_v1),
    ("autoscaling/v1", "HorizontalPodAutoscaler"): (autoscaler_from_v1, autoscaler_to_v1),
    (_GROUPS_V1ALPHA3, "PodGroup"): _SAME_FIELDS,
    (_GROUPS_V1ALPHA3, "Workload"): _SAME_FIELDS,
}
"""Conversions to and from the stored form, by API version and kind."""
