"""Pending pods: where and since when they wait, why, and which events would requeue them.

A running scheduler's queue provides all of this. For other clusters the pods' PodScheduled
conditions hold the scheduler's last message. Pods wait since they were created: the queue's own
timestamp is renewed after every failed attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.api.times import parse_time
from kubesched.framework.groups.states import GroupKey, group_of
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.pod_status import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from kubesched.insight.explain.explainer import condition_of
from kubesched.insight.explain.fixes.commands import template_owner
from kubesched.insight.explain.waiting import woken_by
from kubesched.scheduler.factory import Assembly
from kubesched.scheduler.queue.contents import Queued
from kubesched.scheduler.queue.unschedulable import GATED

LIMIT: Final = 5000
"""Maximum number of listed pods; the counts include all."""
ACTIVE, BACKOFF, UNSCHEDULABLE, INCOMPLETE, PENDING, PERMIT, OTHER = (
    "active",
    "backoff",
    "unschedulable",
    "incomplete",
    "pending",
    "permit",
    "other",
)
PLACES: Final = (ACTIVE, BACKOFF, UNSCHEDULABLE, GATED, INCOMPLETE, PENDING, PERMIT, OTHER)
"""Where pods wait, in display order. `incomplete`: for their PodGroup; `pending`: for the others of
their group, which are being tried; `permit`: for a Permit plugin; `other`: another scheduler."""


def of_other_schedulers(assembly: Assembly) -> list[Pod]:
    """The pods that other schedulers are to place; reads all pods."""
    listers = handle_of(assembly).listers
    pods = listers.of(Pod).list() if listers is not None else []
    return [pod for pod in pods if not pod.spec.node_name and _is_of_another(assembly, pod)]


def queued_pods(assembly: Assembly, others: Sequence[Pod]) -> dict[str, Any]:
    """The queue of a running scheduler, and the pods that other schedulers are to place."""
    entries = assembly.scheduler.queue.entries()
    waiting = list(assembly.waiting_pods)
    handle = handle_of(assembly)
    counts = Counter(queued.place for queued in entries)
    counts[PERMIT], counts[OTHER] = len(waiting), len(others)
    now, wall = handle.clock.monotonic(), handle.clock.now()

    @cache  # few combinations of plugins serve all pods
    def wakes(plugins: tuple[str, ...]) -> list[str]:
        wakers = woken_by(assembly.hints, plugins)
        return list(dict.fromkeys(name for waker in wakers for name in waker.words))

    listed = [_entry(handle, queued, now, wall) for queued in entries[:LIMIT]]
    for row in listed:
        row["wokenBy"] = wakes(tuple(row["plugins"]))
    for waiting_pod in waiting[: LIMIT - len(listed)]:
        why = f"for permission by {', '.join(waiting_pod.pending_plugins())}"
        listed.append({**_pod(handle, waiting_pod.pod), "place": PERMIT, "why": why})
    listed += [_from_condition(assembly, pod) for pod in others[: LIMIT - len(listed)]]
    return {"counts": {place: counts[place] for place in PLACES}, "pods": listed}


def handle_of(assembly: Assembly) -> Handle:
    """What the plugins of every profile share."""
    return next(iter(assembly.frameworks.values())).handle


def _is_of_another(assembly: Assembly, pod: Pod) -> bool:
    return pod.spec.scheduler_name not in assembly.frameworks


def _entry(handle: Handle, queued: Queued, now: float, wall: float) -> dict[str, Any]:
    place, info, expires, gate = queued
    row = _pod(handle, info.pod_info.pod) | {
        "place": place,
        "attempts": info.attempts,
        "plugins": sorted(info.rejector_plugins),
    }
    if gate is not None:
        row["why"] = _gates(gate.pod_info.pod) or f"held back by {gate.gating_plugin}"
        row["plugins"] = [gate.gating_plugin]
    elif place == INCOMPLETE:
        row["why"] = f"{row['group']}, or a group above it, does not exist"
    if expires is not None and expires > now:
        row["retryAt"] = round(wall + (expires - now), 3)
    return row


def pending_pods(assembly: Assembly, pods: Iterable[Pod]) -> dict[str, Any]:
    """Pods without a node, with the data of their conditions."""
    rows = [_from_condition(assembly, pod) for pod in pods if not pod.spec.node_name]
    counts = Counter(row["place"] for row in rows)
    rows.sort(key=lambda row: (PLACES.index(row["place"]), -row["priority"], row["since"]))
    return {"counts": {place: counts[place] for place in PLACES}, "pods": rows[:LIMIT]}


def _from_condition(assembly: Assembly, pod: Pod) -> dict[str, Any]:
    row = _pod(handle_of(assembly), pod)
    condition = condition_of(pod)
    if pod.spec.scheduling_gates:
        row |= {"place": GATED, "why": _gates(pod)}
    elif _is_of_another(assembly, pod):
        row |= {"place": OTHER, "why": f"for the scheduler {pod.spec.scheduler_name}"}
    elif condition is not None and condition.reason == REASON_UNSCHEDULABLE:
        row["place"] = UNSCHEDULABLE
    elif condition is not None and condition.reason == REASON_SCHEDULER_ERROR:
        row["place"] = BACKOFF
    else:
        row["place"] = ACTIVE
    return row


def _pod(handle: Handle, pod: Pod) -> dict[str, Any]:
    condition = condition_of(pod)
    created = pod.metadata.creation_timestamp
    requests = PodInfo(pod).requests
    group = group_of(pod) if handle.groups is not None else None
    why = condition.message if condition is not None else ""
    return {
        "pod": key_of(pod.metadata),
        "workload": workload_of(handle, pod),
        "group": "" if group is None else f"PodGroup/{group.name}",
        "cpu": requests.milli_cpu,
        "memory": requests.memory,
        "priority": pod.spec.priority or 0,
        "nominated": pod.status.nominated_node_name or "",
        "since": _seconds(str(created)) if created else 0.0,
        "attempts": None,
        "plugins": [],
        "wokenBy": [],
        "why": why if group is None else _told_of(handle, group) or why,
    }


def _told_of(handle: Handle, key: GroupKey) -> str:
    """What the condition of a pod group says; its pods have reasons of their own."""
    group = None if handle.groups is None else handle.groups.find(key)
    conditions = [] if group is None else group.status.conditions or []
    return next((it.message for it in conditions if it.type == "PodGroupInitiallyScheduled"), "")


def workload_of(handle: Handle, pod: Pod) -> str:
    """`KIND/NAME` of the object from whose template the pod was made; empty if it has none."""
    return "/".join(template_owner(pod, handle.listers) or ())


def _gates(pod: Pod) -> str:
    names = [gate.name for gate in pod.spec.scheduling_gates or ()]
    return f"scheduling gates: {', '.join(names)}" if names else ""


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        return 0.0  # dumps may contain invalid times
