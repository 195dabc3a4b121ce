"""Applies a stage to a pod's status.

The stage changes container statuses. The conditions Initialized, ContainersReady, Ready (including
readiness gates) and PodReadyToStartContainers are derived from them, with the kubelet's reasons.
Fields written by others (PodScheduled, custom conditions, nominatedNodeName) are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kubesched.playground.apimachinery.objects import (
    JsonObject,
    annotations_of,
    find_condition,
    spec_of,
    status_of,
    timestamp,
    uid_of,
    with_condition,
    without_condition,
)
from kubesched.playground.kubelet.commands import exit_code_of
from kubesched.playground.kubelet.options import READY_AFTER
from kubesched.playground.kubelet.stages import ContainerChange, Transition, path

_INIT_FAILED = ContainerChange(state="terminated", reason="Error")
_INIT_CRASHED = ContainerChange(
    state="waiting", reason="CrashLoopBackOff", message="back-off restarting failed container"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod runs."""

    host_ip: str
    pod_ip: str
    """The address assigned when a stage gives the pod one."""


def is_sidecar(container: JsonObject) -> bool:
    """Whether an init container keeps running."""
    return bool(container.get("restartPolicy") == "Always")


def containers_in(pod: JsonObject, scope: str) -> list[JsonObject]:
    """The pod's containers, ordinary initContainers, or sidecars."""
    if scope == "containers":
        return spec_of(pod).get("containers") or []
    wanted = scope == "sidecars"
    return [
        init_container
        for init_container in spec_of(pod).get("initContainers") or ()
        if is_sidecar(init_container) is wanted
    ]


def pre_stop_s(pod: JsonObject) -> float:
    """Duration of the concurrent preStop hooks; only `sleep` is simulated."""
    hooks = (
        ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
        for container in spec_of(pod).get("containers") or ()
    )
    return max((float(hook.get("seconds", 0)) for hook in hooks), default=0.0)


def apply(pod: JsonObject, transition: Transition, place: Place, now: float) -> JsonObject:
    """The pod's status after the transition."""
    status = dict(status_of(pod))
    # As on a real kubelet, a pod that goes has ended before: controllers wait for that.
    ended = "Failed" if transition.delete else ""
    status["phase"] = transition.phase or ended or status.get("phase") or "Pending"
    if transition.reason:
        status["reason"] = transition.reason
    if transition.message:
        status["message"] = transition.message
    status.setdefault("startTime", timestamp(now))
    if place.host_ip:
        status.setdefault("hostIP", place.host_ip)
        status.setdefault("hostIPs", [{"ip": place.host_ip}])
    if transition.has_ip and not status.get("podIP"):
        status["podIP"] = place.pod_ip
        status["podIPs"] = [{"ip": place.pod_ip}]
    init_changes: dict[str, ContainerChange] = {}
    for container in spec_of(pod).get("initContainers") or ():
        change = transition.sidecars if is_sidecar(container) else transition.init_containers
        if change is None:
            continue
        init_changes[container["name"]] = change
        code = exit_code_of(container) if change.state == "terminated" else 0
        if code and not is_sidecar(container):
            is_final = spec_of(pod).get("restartPolicy") == "Never"
            init_changes[container["name"]] = replace(
                _INIT_FAILED if is_final else _INIT_CRASHED, exit_code=code
            )
            status["phase"] = "Failed" if is_final else status["phase"]
            break  # those behind it do not start
    if init_changes:
        _change(pod, status, "initContainers", "initContainerStatuses", init_changes, now)
    is_blocked = _not_initialized(pod, status_of(pod), status_of(pod).get("phase", "Pending"))
    ends = transition.containers is not None and transition.containers.state == "terminated"
    if transition.containers is not None and not (ends and is_blocked):  # else they never ran
        changes = {
            container["name"]: transition.containers
            for container in containers_in(pod, "containers")
        }
        _change(pod, status, "containers", "containerStatuses", changes, now)
    status["conditions"] = _conditions(pod, status, now)
    status["observedGeneration"] = pod["metadata"].get("generation", 0)
    return status


def refreshed(pod: JsonObject, now: float) -> JsonObject | None:
    """Corrected status of a running pod with outdated conditions; None if they are correct.

    Conditions depend on other writers too: readiness gates change, and the pods of a silent node
    are marked not ready. The kubelet has the final say.
    """
    status = status_of(pod)
    if status.get("phase") != "Running":
        return None
    conditions: list[JsonObject] = status.get("conditions") or []
    not_ready = _containers_not_ready(pod, status, "Running")
    is_ready = not_ready is None and _gates_not_ready(pod, conditions) is None
    known = find_condition(conditions, "Ready")
    if known is not None and (known.get("status") == "True") is is_ready:
        return None
    return {**status, "conditions": _conditions(pod, status, now)}


def is_behind(pod: JsonObject) -> bool:
    """Whether a running pod has spec changes that the kubelet has not processed."""
    status = status_of(pod)
    generation = pod["metadata"].get("generation", 0)
    if status.get("phase") != "Running":
        return False
    return status.get("observedGeneration", 0) != generation or is_resize_pending(pod)


def is_resize_pending(pod: JsonObject) -> bool:
    """Whether the pod's new size did not fit the node."""
    return find_condition(status_of(pod).get("conditions"), "PodResizePending") is not None


def followed(pod: JsonObject, now: float, *, lacks: str = "") -> JsonObject:
    """Status after a spec change of a running pod; `lacks` names insufficient resources."""
    status = dict(status_of(pod))
    status["observedGeneration"] = pod["metadata"].get("generation", 0)
    conditions = _conditions(pod, status, now)
    if lacks:
        extra = {"observedGeneration": status["observedGeneration"]}
        status["conditions"] = with_condition(
            conditions,
            "PodResizePending",
            "True",
            now,
            reason="Deferred",
            message=lacks,
            extra=extra,
        )
    else:
        status["conditions"] = without_condition(conditions, "PodResizePending")
        for field, status_field in (
            ("containers", "containerStatuses"),
            ("initContainers", "initContainerStatuses"),
        ):
            if status.get(status_field):
                status[status_field] = _resized(pod, field, status[status_field])
    ephemeral = spec_of(pod).get("ephemeralContainers")
    if ephemeral:
        known = _by_name(status.get("ephemeralContainerStatuses"))
        running = ContainerChange(state="running", ready=False)
        status["ephemeralContainerStatuses"] = [
            known.get(container["name"]) or _container_status(pod, container, None, running, now)
            for container in ephemeral
        ]
    return status


def _resized(pod: JsonObject, field: str, statuses: list[JsonObject]) -> list[JsonObject]:
    allocated = {
        container["name"]: _allocated(container) for container in spec_of(pod).get(field) or ()
    }
    return [{**known, **allocated.get(known.get("name", ""), {})} for known in statuses]


def _allocated(container: JsonObject) -> JsonObject:
    """The resources that a container has, for its status."""
    resources = container.get("resources") or {}
    requests = resources.get("requests")
    return {"resources": resources, **({"allocatedResources": requests} if requests else {})}


# -- containers -----------------------------------------------------------------------------------


def _change(
    pod: JsonObject,
    status: JsonObject,
    spec_field: str,
    status_field: str,
    changes: dict[str, ContainerChange],
    now: float,
) -> None:
    known = {item.get("name"): item for item in status.get(status_field) or ()}
    status[status_field] = [
        _container_status(
            pod, container, known.get(container["name"]), changes.get(container["name"]), now
        )
        for container in spec_of(pod).get(spec_field) or ()
    ]


def _container_status(
    pod: JsonObject,
    container: JsonObject,
    known: JsonObject | None,
    change: ContainerChange | None,
    now: float,
) -> JsonObject:
    if change is None:
        return known if known is not None else _new_status(container)
    before = known if known is not None else _new_status(container)
    state = dict(before)
    had: JsonObject = before.get("state") or {}
    was_running = "running" in had
    ended = _ended_state(pod, change, had, now)
    if change.state == "running":
        if not was_running:
            state["state"] = {"running": {"startedAt": timestamp(now)}}
            if before.get("lastState") or "terminated" in had:
                state["restartCount"] = int(before.get("restartCount", 0)) + 1
            if "terminated" in had:
                state["lastState"] = had
            restart = int(state.get("restartCount", 0))
            state["containerID"] = f"fake://{uid_of(pod)}/{container['name']}/{restart}"
        is_ready = change.ready
        if is_ready is None:
            is_ready = was_running or READY_AFTER not in annotations_of(pod)
        state.update(ready=is_ready, started=True, **_allocated(container))
    elif change.state == "terminated":
        if "terminated" not in had:
            state["state"] = {"terminated": ended}
        # Upstream: an init container that succeeded counts as ready.
        is_done = container in containers_in(pod, "initContainers") and not ended["exitCode"]
        state.update(ready=is_done, started=False)
    else:
        if was_running or change.exit_code:
            if not was_running and before.get("lastState"):
                state["restartCount"] = int(before.get("restartCount", 0)) + 1
            state["lastState"] = {"terminated": ended}
        message = change.message.replace("{image}", container.get("image", ""))
        waiting = {"reason": change.reason, "message": message}
        state["state"] = {"waiting": {key: value for key, value in waiting.items() if value}}
        state.update(ready=False, started=False)
    return state


def _new_status(container: JsonObject) -> JsonObject:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "PodInitializing"}},
        "lastState": {},
    }


def _ended_state(
    pod: JsonObject, change: ContainerChange, had: JsonObject, now: float
) -> JsonObject:
    exit_code = change.exit_code
    if change.exit_code_from:
        for value in path(change.exit_code_from).values(pod):
            if str(value).isdecimal():
                exit_code = min(255, int(str(value)))
    started = (had.get("running") or {}).get("startedAt") or timestamp(now)
    is_waiting = change.state == "waiting"
    reason = change.reason if not is_waiting else ("Error" if exit_code else "Completed")
    state = {
        "exitCode": exit_code,
        "reason": reason or ("Error" if exit_code else "Completed"),
        "startedAt": started,
        "finishedAt": timestamp(now),
    }
    if change.message and not is_waiting:
        state["message"] = change.message
    return state


# -- conditions -----------------------------------------------------------------------------------


def _conditions(pod: JsonObject, status: JsonObject, now: float) -> list[JsonObject]:
    phase = status["phase"]
    generation = pod["metadata"].get("generation", 0)
    conditions: list[JsonObject] = list(status.get("conditions") or ())

    def put(condition_type: str, problem: tuple[str, str] | None) -> None:
        nonlocal conditions
        reason, message = problem if problem is not None else ("", "")
        conditions = with_condition(
            conditions,
            condition_type,
            "True" if problem is None else "False",
            now,
            reason=reason,
            message=message,
            extra={"lastProbeTime": None, "observedGeneration": generation},
        )

    put("PodScheduled", None)
    has_sandbox = bool(status.get("podIP")) and phase in ("Pending", "Running")
    put("PodReadyToStartContainers", None if has_sandbox else ("", ""))
    put("Initialized", _not_initialized(pod, status, phase))
    not_ready = _containers_not_ready(pod, status, phase)
    put("ContainersReady", not_ready)
    put("Ready", not_ready or _gates_not_ready(pod, conditions))
    return conditions


def _not_initialized(pod: JsonObject, status: JsonObject, phase: str) -> tuple[str, str] | None:
    if phase == "Succeeded":
        return None
    statuses = _by_name(status.get("initContainerStatuses"))
    incomplete = []
    for container in spec_of(pod).get("initContainers") or ():
        known = statuses.get(container["name"], {})
        ended = (known.get("state") or {}).get("terminated")
        is_done = known.get("started") if is_sidecar(container) else ended and not ended["exitCode"]
        if not is_done and not (is_sidecar(container) and phase != "Pending"):
            incomplete.append(container["name"])
    return _names_problem("ContainersNotInitialized", "incomplete", incomplete)


def _containers_not_ready(
    pod: JsonObject, status: JsonObject, phase: str
) -> tuple[str, str] | None:
    if phase == "Succeeded":
        return "PodCompleted", ""
    if phase == "Failed":
        return "PodFailed", ""
    known = {
        **_by_name(status.get("containerStatuses")),
        **_by_name(status.get("initContainerStatuses")),
    }
    serving = [*containers_in(pod, "sidecars"), *containers_in(pod, "containers")]
    unready = [
        container["name"]
        for container in serving
        if not known.get(container["name"], {}).get("ready")
    ]
    return _names_problem("ContainersNotReady", "unready", unready)


def _names_problem(reason: str, what: str, names: Sequence[str]) -> tuple[str, str] | None:
    if not names:
        return None
    return reason, f"containers with {what} status: [{' '.join(names)}]"


def _gates_not_ready(pod: JsonObject, conditions: list[JsonObject]) -> tuple[str, str] | None:
    messages = []
    for gate in spec_of(pod).get("readinessGates") or ():
        known = find_condition(conditions, gate["conditionType"])
        name = gate["conditionType"]
        if known is None:
            messages.append(
                f'corresponding condition of pod readiness gate "{name}" does not exist.'
            )
        elif known.get("status") != "True":
            messages.append(
                f'the status of pod readiness gate "{name}" is not "True", but'
                f" {known.get('status')}"
            )
    return ("ReadinessGatesNotReady", ", ".join(messages)) if messages else None


def _by_name(statuses: Iterable[JsonObject] | None) -> dict[str, JsonObject]:
    return {status["name"]: status for status in statuses or ()}
