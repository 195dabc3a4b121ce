"""The pod row of `kubectl get pods`, computed as upstream does."""

from __future__ import annotations

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    parse_timestamp,
    spec_of,
    status_of,
)
from kubesched.playground.apimachinery.pods import is_ready
from kubesched.playground.handlers.tables.durations import NONE, human_duration


def status_text(pod: JsonObject) -> str:
    """The STATUS column, e.g. Pending, ContainerCreating, Init:0/1, Completed or Terminating."""
    status = status_of(pod)
    reason: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    initializing = _init_reason(pod, status)
    reason = initializing if initializing is not None else _container_reason(status, reason)
    if pod["metadata"].get("deletionTimestamp") is not None:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return reason


def _is_sidecar(spec: JsonObject, index: int) -> bool:
    containers = spec.get("initContainers") or ()
    return index < len(containers) and containers[index].get("restartPolicy") == "Always"


def _init_reason(pod: JsonObject, status: JsonObject) -> str | None:
    spec = spec_of(pod)
    count = len(spec.get("initContainers") or ())
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if _is_sidecar(spec, index) and container.get("started"):
            continue
        if ended is not None:
            return f"Init:{ended.get('reason') or _exit_text(ended)}"
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{count}"
    return None


def _exit_text(ended: JsonObject) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _container_reason(status: JsonObject, reason: str) -> str:
    has_running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = ended.get("reason") or _exit_text(ended)
        elif container.get("ready") and state.get("running") is not None:
            has_running = True
    if reason == "Completed" and has_running:
        return "Running" if is_ready({"status": status}) else "NotReady"
    return reason


def _sidecar_statuses(pod: JsonObject) -> list[JsonObject]:
    spec, status = spec_of(pod), status_of(pod)
    return [
        init_container_status
        for index, init_container_status in enumerate(status.get("initContainerStatuses") or ())
        if _is_sidecar(spec, index)
    ]


def ready_text(pod: JsonObject) -> str:
    spec, status = spec_of(pod), status_of(pod)
    total = len(spec.get("containers") or ())
    total += sum(
        1
        for init_container in spec.get("initContainers") or ()
        if init_container.get("restartPolicy") == "Always"
    )
    statuses = [*_sidecar_statuses(pod), *(status.get("containerStatuses") or ())]
    ready = sum(1 for container_status in statuses if container_status.get("ready"))
    return f"{ready}/{total}"


def restarts_text(pod: JsonObject, now: float) -> str:
    status = status_of(pod)
    statuses = [*_sidecar_statuses(pod), *(status.get("containerStatuses") or ())]
    count = sum(container_status.get("restartCount", 0) for container_status in statuses)
    last = [
        ended["finishedAt"]
        for container_status in statuses
        if (ended := (container_status.get("lastState") or {}).get("terminated"))
        and ended.get("finishedAt")
    ]
    if not count or not last:
        return str(count)
    return f"{count} ({human_duration(now - max(map(parse_timestamp, last)))} ago)"


def pod_address(pod: JsonObject) -> str:
    status = status_of(pod)
    addresses = status.get("podIPs") or ()
    ip: str = addresses[0].get("ip", "") if addresses else status.get("podIP", "")
    return ip or NONE


def readiness_gates(pod: JsonObject) -> str:
    gates = spec_of(pod).get("readinessGates") or ()
    if not gates:
        return NONE
    true = {
        condition.get("type")
        for condition in status_of(pod).get("conditions") or ()
        if condition.get("status") == "True"
    }
    return f"{sum(1 for gate in gates if gate.get('conditionType') in true)}/{len(gates)}"
