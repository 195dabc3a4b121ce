"""Plays cases of CapacityScheduling: PreFilter, victims per node, PostFilter."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubesched.framework import SKIP, CycleState, Status
from kubesched.framework.api import PodDisruptionBudget
from kubesched_plugins.capacity_scheduling import (
    STATE_KEY,
    Amounts,
    CapacityScheduling,
    ElasticQuota,
    PreFilterState,
)
from kubesched_plugins.golden.clusters import cluster_of, config_of, nodes_of, pod_from, status_json
from kubesched_plugins.golden.preemption import post_filter, statuses_of, victims_json

JSON = dict[str, Any]
_PLAIN: Final = {
    "MilliCPU": "cpu",
    "Memory": "memory",
    "EphemeralStorage": "ephemeral-storage",
    "AllowedPodNumber": "pods",
}
_COMPARED: Final = (
    "eligible_to_preempt",
    "postfilter_nominated_node_seen",
    "postfilter_result_is_nil",
    "postfilter_status",
    "prefilter",
    "select_victims",
    "state",
)


def play(recorded: JSON) -> JSON:
    name, case = recorded["plugin"], recorded["input"]
    others: list[object] = [msgspec.convert(each, ElasticQuota) for each in case["elasticquotas"]]
    others += [msgspec.convert(pdb, PodDisruptionBudget) for pdb in case["poddisruptionbudgets"]]
    others += [pod_from(pod) for pod in (*case["nominated_pods"], case["pod"])]
    config = config_of({name: None}, "NodeResourcesFit")
    with cluster_of(case, config, CapacityScheduling, others) as cluster:
        framework = cluster.assembly.frameworks["default-scheduler"]
        (plugin,) = framework.post_filter
        assert isinstance(plugin, CapacityScheduling), "the only one"
        assert plugin.preemption is not None, "built by a whole scheduler"
        pod, nodes, state = pod_from(case["pod"]), nodes_of(cluster, case), CycleState()
        said = {each.name: each.pre_filter(state, pod, nodes) for each in framework.pre_filter}
        skipped = (name for name, answer in said.items() if answer is SKIP)
        state.skip_filter_plugins = frozenset(skipped)
        own = said[name]
        assert own is None or isinstance(own, Status), "it narrows no nodes"
        statuses = statuses_of(recorded["result"])
        reason = plugin.why_not_eligible(state, pod, statuses)
        answer: JSON = {
            "prefilter": status_json(own),
            "state": _state_json(state.read(STATE_KEY)),
            "eligible_to_preempt": {"ok": not reason, "message": reason},
            "select_victims": [
                victims_json(node, plugin.preemption.try_node(state, pod, node))
                for node in (each["metadata"]["name"] for each in case["nodes"])
            ],
        }
        if not recorded["result"]["feasible_nodes"]:
            result, status = post_filter(plugin, cluster, state, pod, statuses)
            nominating = None if result is None else result.nominating_info
            nominated = "" if nominating is None else nominating.node_name
            answer["postfilter_nominated_node_seen"] = [nominated]
            answer["postfilter_result_is_nil"] = result is None
            # Releases after the recorded one add a text to success.
            is_success = status is None or status.is_success
            answer["postfilter_status"] = status_json(None if is_success else status)
        return _without_errors(answer, recorded["result"])


def comparable(case: JSON) -> tuple[JSON, list[str]]:
    """Without what other plugins said, and where the original removed a pod twice and failed."""
    result = case["result"]
    skipped = [
        f"select_victims[{at}]: {found['status']['reasons'][0]}"
        for at, found in enumerate(result["select_victims"])
        if found["status"]["code"] == "Error"
    ]
    if skipped and "postfilter_status" in result:
        skipped.append("PostFilter, which depends on it")
    compared = {key: value for key, value in result.items() if key in _COMPARED}
    return _without_errors(compared, result), skipped


def _without_errors(answer: JSON, recorded: JSON) -> JSON:
    failed = [found["status"]["code"] == "Error" for found in recorded["select_victims"]]
    victims = zip(answer["select_victims"], failed, strict=True)
    kept = {key: answer[key] for key in answer if not (any(failed) and key.startswith("postf"))}
    return {**kept, "select_victims": [found for found, is_error in victims if not is_error]}


def _state_json(found: PreFilterState) -> JSON:
    return {
        "podReq": _amounts_json(found.request),
        "nominatedPodsReqInEQWithPodReq": _amounts_json(found.with_nominated_in_quota),
        "nominatedPodsReqWithPodReq": _amounts_json(found.with_nominated),
        "quotas": {
            namespace: {
                "min": _amounts_json(quota.min),
                "max": _amounts_json(quota.max),
                "used": _amounts_json(quota.used),
                "usedOverMin": quota.is_over_min(),
            }
            for namespace, quota in found.quotas.by_namespace.items()
        },
    }


def _amounts_json(amounts: Amounts) -> JSON:
    scalars = {name: amounts[name] for name in amounts if name not in _PLAIN.values()}
    plain = {field: amounts.get(name, 0) for field, name in _PLAIN.items()}
    return {**plain, "ScalarResources": scalars or None}
