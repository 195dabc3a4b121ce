"""HorizontalPodAutoscalers as `autoscaling/v1`; they are stored as `autoscaling/v2`.

v1 has one target, CPU as a percentage of the request. As in Kubernetes, annotations carry the other
fields of v2.
"""

from __future__ import annotations

import json
from typing import Any

from kubesched.playground.apimachinery.objects import JsonObject

API_VERSION = "autoscaling/v1"
_TARGET, _CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_PREFIX = "autoscaling.alpha.kubernetes.io/"
_CARRIED = (
    ("spec", "metrics", "metrics"),
    ("spec", "behavior", "behavior"),
    ("status", "currentMetrics", "current-metrics"),
    ("status", "conditions", "conditions"),
)
"""Part, field and annotation of each v2 field that v1 lacks."""


def autoscaler_to_v1(autoscaler: JsonObject) -> JsonObject:
    """Convert a stored autoscaler to `autoscaling/v1`."""
    spec, status = dict(autoscaler.get("spec", {})), dict(autoscaler.get("status", {}))
    annotations = dict(autoscaler.get("metadata", {}).get("annotations") or {})
    for field, kind, old, part in (
        ("metrics", "target", _TARGET, spec),
        ("currentMetrics", "current", _CURRENT, status),
    ):
        cpu = [metric for metric in part.get(field) or () if _utilization(metric, kind) is not None]
        if cpu:
            part[old] = _utilization(cpu[0], kind)
            part[field] = [metric for metric in part[field] if metric is not cpu[0]]
    for name, field, annotation in _CARRIED:
        value = (spec if name == "spec" else status).pop(field, None)
        if value:
            annotations[_PREFIX + annotation] = json.dumps(value)
    return _rebuilt(autoscaler, API_VERSION, spec, status, annotations)


def autoscaler_from_v1(autoscaler: JsonObject) -> JsonObject:
    """Convert an `autoscaling/v1` autoscaler to its stored form."""
    metadata = autoscaler.get("metadata") or {}
    parts = autoscaler.get("spec") or {}, autoscaler.get("status") or {}
    given = metadata.get("annotations") or {}
    if not all(isinstance(part, dict) for part in (*parts, given)):
        return {**autoscaler, "apiVersion": "autoscaling/v2"}  # field validation rejects it
    spec, status, annotations = dict(parts[0]), dict(parts[1]), dict(given)
    for name, field, annotation in _CARRIED:
        value = _loaded(annotations.get(_PREFIX + annotation))
        if isinstance(value, dict if field == "behavior" else list):
            (spec if name == "spec" else status)[field] = value
            del annotations[_PREFIX + annotation]
    for field, kind, old, part in (
        ("metrics", "target", _TARGET, spec),
        ("currentMetrics", "current", _CURRENT, status),
    ):
        percent = part.pop(old, None)
        if percent is not None:
            value = {"averageUtilization": percent}
            named = {
                "name": "cpu",
                kind: {"type": "Utilization", **value} if kind == "target" else value,
            }
            others = part.get(field)
            others = others if isinstance(others, list) else []
            part[field] = [{"type": "Resource", "resource": named}, *others]
    return _rebuilt(autoscaler, "autoscaling/v2", spec, status, annotations)


def _utilization(metric: JsonObject, kind: str) -> Any:  # noqa: ANN401  # as the client wrote it
    resource = metric.get("resource") or {}
    return (
        resource.get(kind, {}).get("averageUtilization") if resource.get("name") == "cpu" else None
    )


def _loaded(text: object) -> Any:  # noqa: ANN401  # any JSON
    """The JSON value of an annotation; None if it is not JSON, and stays an annotation."""
    try:
        return json.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _rebuilt(
    autoscaler: JsonObject,
    api_version: str,
    spec: JsonObject,
    status: JsonObject,
    annotations: JsonObject,
) -> JsonObject:
    metadata = dict(autoscaler.get("metadata") or {})
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    parts = {"spec": spec, "status": status}
    kept = {name: part for name, part in parts.items() if part or name in autoscaler}
    return {**autoscaler, "apiVersion": api_version, "metadata": metadata, **kept}
