"""Plays cases of the Trimaran plugins: the score of every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kubesched.framework import CycleState, PreScorePlugin, ScorePlugin
from kubesched.framework.api import Node, parse_quantity
from kubesched_plugins import trimaran
from kubesched_plugins.golden.clusters import (
    cluster_of,
    config_of,
    nodes_of,
    pod_from,
    status_json,
)
from kubesched_plugins.trimaran.metrics import NO_METRICS, Collector, Metric, Snapshot

JSON = dict[str, Any]
RECORDED_FIELDS: Final = {
    "DefaultRequestsMultiplier": "default_requests_multiplier",
    "TargetUtilization": "target_utilization",
    "SafeVarianceMargin": "safe_variance_margin",
    "SafeVarianceSensitivity": "safe_variance_sensitivity",
    "SmoothingWindowSize": "smoothing_window_size",
    "RiskLimitWeights": "risk_limit_weights",
}


class RecordedCollector(Collector[Any]):
    """Fetches nothing: metrics come from the case."""

    def __init__(
        self,
        args: trimaran.args.TrimaranArgs,
        derive: Callable[[Node, Sequence[Metric] | None], Any],
        **_about_fetching: object,
    ) -> None:
        super().__init__(args, derive)


class TargetLoadPacking(trimaran.TargetLoadPacking):
    """With recorded metrics."""

    collector_type = RecordedCollector


class LoadVariationRiskBalancing(trimaran.LoadVariationRiskBalancing):
    """With recorded metrics."""

    collector_type = RecordedCollector


class LowRiskOverCommitment(trimaran.LowRiskOverCommitment):
    """With recorded metrics."""

    collector_type = RecordedCollector


Others = LoadVariationRiskBalancing | LowRiskOverCommitment
_PLUGINS: Final[dict[str, type[ScorePlugin]]] = {
    cls.name: cls for cls in (TargetLoadPacking, LoadVariationRiskBalancing, LowRiskOverCommitment)
}


def play(recorded: JSON) -> JSON:
    name, case = recorded["plugin"], recorded["input"]
    config = config_of({name: case["args"]})
    with cluster_of(case, config, _PLUGINS[name]) as cluster:
        (plugin,) = cluster.assembly.frameworks["default-scheduler"].score
        assert isinstance(plugin, TargetLoadPacking | Others), "one of the three"
        plugin.collector.show(snapshot_of(case["metrics"]))
        pod, state = pod_from(case["pod"]), CycleState()
        answer: JSON = {"args_effective": effective(plugin)}
        if isinstance(plugin, TargetLoadPacking):
            for recent in case["recently_scheduled"]:
                bound = pod_from(recent["pod"])
                plugin.note_bound(bound, bound.spec.node_name, recent["at"])
        if isinstance(plugin, PreScorePlugin):
            answer["prescore"] = status_json(plugin.pre_score(state, pod, nodes_of(cluster, case)))
        scores = plugin.score_nodes(state, pod, nodes_of(cluster, case)).tolist()
        answer["nodes"] = [
            {"node": node["metadata"]["name"], "score": score, "score_status": status_json(None)}
            for node, score in zip(case["nodes"], scores, strict=True)
        ]
        return answer


def comparable(case: JSON) -> tuple[JSON, list[str]]:
    """The recorded answers without those of NormalizeScore, which the plugins do not have."""
    result = dict(case["result"])
    del result["normalize_status"]
    result["nodes"] = [
        {key: value for key, value in node.items() if key != "normalized"}
        for node in result["nodes"]
    ]
    return result, []


def snapshot_of(recorded: JSON) -> Snapshot:
    if recorded.get("error") or recorded["nodes"] is None:
        return NO_METRICS
    nodes = {
        node: None
        if metrics is None
        else [Metric(m["type"], m["operator"], m["value"]) for m in metrics]
        for node, metrics in recorded["nodes"].items()
    }
    return Snapshot(nodes, recorded["window_end"])


def effective(plugin: Any) -> JSON:  # noqa: ANN401  # one of the three
    """The arguments after defaulting, under Go's names."""
    args = plugin.args
    provider = args.metric_provider
    shown: JSON = {
        "MetricProvider": {
            "Type": provider.type,
            "Address": provider.address,
            "Token": provider.token,
            "InsecureSkipVerify": bool(provider.insecure_skip_verify),
        },
        "WatcherAddress": args.watcher_address or "",
    }
    for recorded, attribute in RECORDED_FIELDS.items():
        if hasattr(args, attribute):
            shown[recorded] = getattr(args, attribute)
    if hasattr(args, "default_requests"):
        requests = args.default_requests.items()
        shown["DefaultRequests"] = {key: str(parse_quantity(raw)) for key, raw in requests}
    return shown
