"""Common queries about pods: node, finished, ready, required affinity."""

from __future__ import annotations

import msgspec

from kubesched.api.core_v1 import Pod, Taint, Toleration
from kubesched.api.node_selectors import RequiredNodeAffinity
from kubesched.playground.apimachinery.objects import (
    JsonObject,
    condition,
    is_deleting,
    parse_timestamp,
    spec_of,
    status_of,
    with_condition,
)

SUCCEEDED = "Succeeded"
FAILED = "Failed"


def phase_of(pod: JsonObject) -> str:
    status = pod.get("status")
    return str(status.get("phase", "")) if status else ""


def node_name_of(pod: JsonObject) -> str:
    return str(spec_of(pod).get("nodeName") or "")


def is_finished(pod: JsonObject) -> bool:
    """Whether all containers have terminated for good."""
    return phase_of(pod) in (SUCCEEDED, FAILED)


def is_active(pod: JsonObject) -> bool:
    """Whether the pod counts as a replica: neither finished nor terminating."""
    return not is_finished(pod) and not is_deleting(pod)


def is_terminating(pod: JsonObject) -> bool:
    return is_deleting(pod) and not is_finished(pod)


def ready_since(pod: JsonObject) -> float | None:
    """When the pod last became ready; None if it is not ready."""
    entry = condition(pod, "Ready")
    if entry is None or entry.get("status") != "True":
        return None
    since = entry.get("lastTransitionTime")
    return parse_timestamp(since) if since else 0.0


def is_ready(pod: JsonObject) -> bool:
    status = pod.get("status")
    for entry in (status.get("conditions") or ()) if status else ():
        if entry.get("type") == "Ready":
            return bool(entry.get("status") == "True")
    return False


def required_affinity(pod_spec: JsonObject) -> RequiredNodeAffinity:
    """The pod's nodeSelector and required node affinity."""
    relevant = {key: pod_spec[key] for key in ("nodeSelector", "affinity") if pod_spec.get(key)}
    return RequiredNodeAffinity(msgspec.convert({"spec": relevant}, Pod))


def taints_of(node: JsonObject) -> list[Taint]:
    return msgspec.convert(spec_of(node).get("taints") or [], list[Taint])


def tolerations_of(pod_spec: JsonObject) -> list[Toleration]:
    return msgspec.convert(pod_spec.get("tolerations") or [], list[Toleration])


def disrupted(
    pod: JsonObject, now: float, reason: str, message: str, extra: JsonObject | None = None
) -> list[JsonObject]:
    """The pod's conditions with one that tells its owner why it goes."""
    known, name = status_of(pod).get("conditions"), "DisruptionTarget"
    return with_condition(known, name, "True", now, reason=reason, message=message, extra=extra)
