"""Plays cases of PreemptionToleration: who is exempt, victims per node, PostFilter."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from kubesched.framework import (
    SKIP,
    Code,
    CycleState,
    NodeToStatus,
    PostFilterPlugin,
    PostFilterResult,
    Status,
)
from kubesched.framework.api import Pod, PodDisruptionBudget, PriorityClass
from kubesched.testing import Cluster
from kubesched_plugins.golden.clusters import (
    cluster_of,
    config_of,
    nodes_of,
    pod_from,
    status_json,
)
from kubesched_plugins.preemption_toleration import PreemptionToleration

JSON = dict[str, Any]
_CODES: Final = {code.upstream_name: code for code in Code}
_COMPARED: Final = (
    "args_effective",
    "eligible_to_preempt",
    "exempted",
    "select_victims",
    "postfilter_nominated_node_seen",
    "postfilter_result_is_nil",
    "postfilter_status",
)


def play(recorded: JSON) -> JSON:
    name, case = recorded["plugin"], recorded["input"]
    others: list[object] = [msgspec.convert(pc, PriorityClass) for pc in case["priorityclasses"]]
    others += [msgspec.convert(pdb, PodDisruptionBudget) for pdb in case["poddisruptionbudgets"]]
    others += [pod_from(pod) for pod in (*case["nominated_pods"], case["pod"])]
    config = config_of({name: case["args"]}, "NodeResourcesFit")
    with cluster_of(case, config, PreemptionToleration, others) as cluster:
        framework = cluster.assembly.frameworks["default-scheduler"]
        (plugin,) = framework.post_filter
        assert isinstance(plugin, PreemptionToleration), "the only one"
        assert plugin.preemption is not None, "built by a whole scheduler"
        plugin.now = datetime.fromisoformat(case["now"]).timestamp
        pod = pod_from(case["pod"])
        statuses = statuses_of(recorded["result"])
        state = pre_filtered(cluster, case)
        reason = plugin.why_not_eligible(state, pod, statuses)
        answer: JSON = {
            "args_effective": {
                "MinCandidateNodesPercentage": plugin.args.min_candidate_nodes_percentage,
                "MinCandidateNodesAbsolute": plugin.args.min_candidate_nodes_absolute,
            },
            "eligible_to_preempt": {"ok": not reason, "message": reason},
            "exempted": [_exempted(plugin, manifest, case["pod"]) for manifest in case["pods"]],
        }
        names = [node["metadata"]["name"] for node in case["nodes"]]
        answer["select_victims"] = [
            victims_json(node, plugin.preemption.try_node(state, pod, node)) for node in names
        ]
        if not recorded["result"]["feasible_nodes"]:
            result, status = post_filter(plugin, cluster, state, pod, statuses)
            nominating = None if result is None else result.nominating_info
            nominated = "" if nominating is None else nominating.node_name
            answer["postfilter_nominated_node_seen"] = [nominated]
            answer["postfilter_result_is_nil"] = result is None
            # Releases after the recorded one add a text to success.
            is_success = status is None or status.is_success
            answer["postfilter_status"] = status_json(None if is_success else status)
        return answer


def comparable(case: JSON) -> tuple[JSON, list[str]]:
    """Without what the other plugins of the recorded framework said."""
    return {key: value for key, value in case["result"].items() if key in _COMPARED}, []


def statuses_of(result: JSON) -> NodeToStatus:
    """The recorded verdicts of the filters."""
    failed = result["framework_prefilter"]
    if failed["code"] != "Success":
        return NodeToStatus(absent_status=_status(failed))
    verdicts = result["framework_filter"].items()
    return NodeToStatus(
        {name: _status(found) for name, found in verdicts if found["code"] != "Success"}
    )


def _status(recorded: JSON) -> Status:
    return Status(_CODES[recorded["code"]], tuple(recorded["reasons"]))


def pre_filtered(cluster: Cluster, case: JSON) -> CycleState:
    state, pod, nodes = CycleState(), pod_from(case["pod"]), nodes_of(cluster, case)
    plugins = cluster.assembly.frameworks["default-scheduler"].pre_filter
    skipped = {plugin.name for plugin in plugins if plugin.pre_filter(state, pod, nodes) is SKIP}
    state.skip_filter_plugins = frozenset(skipped)
    return state


def victims_json(node_name: str, found: Any) -> JSON:  # noqa: ANN401  # victims or a Status
    rejected = found if isinstance(found, Status) else None
    pods = () if rejected is not None else found.pods
    return {
        "node": node_name,
        "victims": [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods],
        "pdb_violations": 0 if rejected is not None else found.pdb_violations,
        "status": status_json(rejected),
    }


def post_filter(
    plugin: PostFilterPlugin,
    cluster: Cluster,
    state: CycleState,
    pod: Pod,
    statuses: NodeToStatus,
) -> tuple[PostFilterResult | None, Status | None]:
    answer = plugin.post_filter(state, pod, statuses)
    if not isinstance(answer, tuple):
        answer = cluster.loop.run(answer)
    return answer


def _exempted(plugin: PreemptionToleration, victim: JSON, preemptor: JSON) -> JSON:
    pod = pod_from(victim)
    found = plugin.exempted(pod, pod_from(preemptor))
    answer: JSON = {"victim": f"{pod.metadata.namespace}/{pod.metadata.name}"}
    if isinstance(found, Status):
        return {**answer, "exempted": False, "error": found.message}
    return {**answer, "exempted": found}
