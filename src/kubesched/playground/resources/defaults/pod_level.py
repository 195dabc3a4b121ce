"""Defaults of a pod's own requests and limits, from those of its containers."""

from __future__ import annotations

from kubesched.api import quantity
from kubesched.playground.apimachinery.objects import JsonObject
from kubesched.playground.resources.admission.quota_usage import Totals, pod_total

_OVERCOMMITTED = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"


def default_pod_level_resources(spec: JsonObject, *, with_limits: bool) -> None:
    """Complete the requests and limits of a pod that has any.

    In upstream's order: limits of huge pages, requests, other limits. Without `with_limits`,
    requests are completed only beside limits, and no others are set.
    """
    resources = spec.get("resources") or {}
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    if not limits and not requests:
        return
    containers = {field: spec.get(field) for field in ("containers", "initContainers")}
    asked, allowed = pod_total(containers, "requests"), pod_total(containers, "limits")
    for name, amount in allowed.items():
        if name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, str(amount))
    if limits or with_limits:
        for name in _OVERCOMMITTED:
            if name in asked:
                requests.setdefault(name, str(asked[name]))
        for name, amount in limits.items():
            if name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES):
                requests.setdefault(name, amount)
    if with_limits:
        _default_limits(spec, requests, limits, allowed)
    filled = {"requests": requests, "limits": limits}
    spec["resources"] = {**resources, **{side: own for side, own in filled.items() if own}}


def _default_limits(
    spec: JsonObject, requests: JsonObject, limits: JsonObject, allowed: Totals
) -> None:
    """Limit what every container limits, to the sum, or to the pod's request if that is more."""
    own = [
        (container.get("resources") or {}).get("limits") or {}
        for field in ("containers", "initContainers", "ephemeralContainers")
        for container in spec.get(field) or ()
    ]
    for name, amount in requests.items():
        is_supported = name in _OVERCOMMITTED or name.startswith(_HUGE_PAGES)
        if name not in limits and is_supported and all(name in each for each in own):
            limits[name] = str(max(allowed[name], quantity.parse(amount)))
