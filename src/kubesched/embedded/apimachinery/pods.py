"""What is asked about pods everywhere: on which node, finished, ready."""

from __future__ import annotations

from kubesched.embedded.apimachinery.objects import (
    JsonObject,
    condition,
    is_deleting,
    parse_timestamp,
    spec_of,
)

SUCCEEDED = "Succeeded"
FAILED = "Failed"


def phase_of(pod: JsonObject) -> str:
    status = pod.get("status")
    return str(status.get("phase", "")) if status else ""


def node_name_of(pod: JsonObject) -> str:
    return str(spec_of(pod).get("nodeName") or "")


def is_finished(pod: JsonObject) -> bool:
    """Whether all containers have ended for good."""
    return phase_of(pod) in (SUCCEEDED, FAILED)


def is_active(pod: JsonObject) -> bool:
    """Whether the pod counts as a replica: neither finished nor on its way out."""
    return not is_finished(pod) and not is_deleting(pod)


def is_terminating(pod: JsonObject) -> bool:
    return is_deleting(pod) and not is_finished(pod)


def ready_since(pod: JsonObject) -> float | None:
    """When the pod last became ready; None when it is not."""
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
