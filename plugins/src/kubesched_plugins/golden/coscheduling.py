"""Plays cases of Coscheduling: the order of the queue, and calls one after another."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from kubesched.framework import CycleState, NodeToStatus, PodInfo, QueuedPodInfo, Wait
from kubesched.framework.api import Pod
from kubesched.testing import Cluster
from kubesched_plugins.coscheduling import Coscheduling, PodGroup
from kubesched_plugins.golden.clusters import cluster_of, config_of, nodes_of, pod_from, status_json

JSON = dict[str, Any]


def play(recorded: JSON) -> JSON:
    name, case = recorded["plugin"], recorded["input"]
    others: list[object] = [msgspec.convert(group, PodGroup) for group in case["podgroups"]]
    others += [pod_from(pod) for pod in case["pods"] if not pod["spec"].get("nodeName")]
    config = config_of({name: case["args"]}).replace('{"name": "PrioritySort"}, ', "")
    with cluster_of(case, config, Coscheduling, others) as cluster:
        (plugin,) = cluster.assembly.frameworks["default-scheduler"].permit
        assert isinstance(plugin, Coscheduling), "the only one"
        args = plugin.args
        return {
            "args_effective": {
                "PermitWaitingTimeSeconds": args.permit_waiting_time_seconds,
                "PodGroupBackoffSeconds": args.pod_group_backoff_seconds,
                "PodGroupRejectPercentage": args.pod_group_reject_percentage,
            },
            "less": less(plugin, case),
            "steps": [_step(plugin, cluster, case, step) for step in case["steps"]],
            "less_after_steps": less(plugin, case),
        }


def comparable(case: JSON) -> tuple[JSON, list[str]]:
    """With amounts in the reason as Kubernetes writes them, not as Go prints its structs."""
    for step in case["result"]["steps"]:
        if "status" in step:
            step["status"]["reasons"] = [_plain(reason) for reason in step["status"]["reasons"]]
    return case["result"], []


def _plain(reason: str) -> str:
    def written(match: re.Match[str]) -> str:
        return match[1] + {"-3": "m", "0": ""}[match[2]]

    return re.sub(r"\{\{(\d+) (\S+)\} \{<nil>\}  \w+\}", written, reason)


def less(plugin: Coscheduling, case: JSON) -> list[list[bool]]:
    def queued(entry: JSON) -> QueuedPodInfo:
        first = datetime.fromisoformat(entry["initial_attempt"]).timestamp()
        return QueuedPodInfo(PodInfo(pod_from(entry["pod"])), first, first)

    infos = [queued(entry) for entry in case["queue"]]
    return [[plugin.less(a, b) for b in infos] for a in infos]


def _step(plugin: Coscheduling, cluster: Cluster, case: JSON, step: JSON) -> JSON:
    namespace, _, name = step["pod"].partition("/")
    pod, state, events = cluster.pod(name, namespace), CycleState(), list[JSON]()
    waiting = plugin.handle.waiting_pods
    assert waiting is not None, "built by a whole scheduler"
    waiting.remove(pod.metadata.uid)
    cluster.clock.advance(1e-3)  # two failures are not at the same time
    answer: JSON = {"op": step["op"], "pod": step["pod"], "events": events}
    if step["op"] == "prefilter":
        answer["status"] = status_json(plugin.pre_filter(state, pod, nodes_of(cluster, case)))
    elif step["op"] == "unreserve":
        plugin.unreserve(state, pod, step["node"])
    elif step["op"] == "postfilter":
        result, status = plugin.post_filter(state, pod, NodeToStatus())
        answer["status"], answer["result_is_nil"] = status_json(status), result is None
    else:
        found = plugin.permit(state, pod, step["node"])
        answer["activated"] = sorted(state.pods_to_activate.pods)
        answer["wait_seconds"] = found.timeout_s if isinstance(found, Wait) else 0
        if isinstance(found, Wait):
            answer["status"] = {"code": "Wait", "reasons": [found.reason] if found.reason else []}
            waiting.add(pod, {plugin.name: 600.0})  # recorded ones do not end by themselves
        else:
            answer["status"] = status_json(found)
    for held in waiting:
        if held.outcome is not None:
            waiting.remove(held.pod.metadata.uid)
            kind = "allow" if held.outcome.is_success else "reject"
            message = held.outcome.message
            events.append({"event": kind, "pod": _name(held.pod), "message": message})
    groups = (msgspec.convert(group, PodGroup) for group in case["podgroups"])
    answer["assigned_counts_after"] = {
        _name(group): len(plugin.groups[_name(group)].assigned) for group in groups
    }
    return answer


def _name(obj: Pod | PodGroup) -> str:
    return f"{obj.metadata.namespace}/{obj.metadata.name}"
