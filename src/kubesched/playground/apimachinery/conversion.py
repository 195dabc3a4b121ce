"""Conversion of kinds that are served in two forms and stored in one.

Events are stored as core v1, HorizontalPodAutoscalers as `autoscaling/v2`, pod groups and workloads
as `scheduling.k8s.io/v1beta1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


def _renaming(
    api_version: str, names: Mapping[str, str] = {}
) -> Callable[[JsonObject], JsonObject]:
    """A conversion between versions whose fields differ at most in their names."""
    return lambda obj: {
        **{names.get(key, key): value for key, value in obj.items()},
        "apiVersion": api_version,
    }


_EVENTS = (_renaming("v1", _TO_CORE), _renaming("events.k8s.io/v1", _TO_EVENTS_V1))
_GROUPS_V1ALPHA3 = "scheduling.k8s.io/v1alpha3"
_SAME_FIELDS = (_renaming("scheduling.k8s.io/v1beta1"), _renaming(_GROUPS_V1ALPHA3))
CONVERTED: dict[tuple[str, str], tuple[Callable[[JsonObject], JsonObject], ...]] = {
    ("events.k8s.io/v1", "Event"): _EVENTS,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): (autoscaler_from_v1, autoscaler_to_v1),
    (_GROUPS_V1ALPHA3, "PodGroup"): _SAME_FIELDS,
    (_GROUPS_V1ALPHA3, "Workload"): _SAME_FIELDS,
}
"""Conversions to and from the stored form, by API version and kind."""
