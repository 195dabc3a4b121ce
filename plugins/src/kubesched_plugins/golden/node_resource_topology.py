"""Plays cases of NodeResourceTopologyMatch: Filter and Score of every node."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from kubesched.framework import CycleState
from kubesched_plugins.golden.clusters import (
    cluster_of,
    config_of,
    nodes_of,
    pod_from,
    status_json,
)
from kubesched_plugins.node_resource_topology import NodeResourceTopologyMatch
from kubesched_plugins.node_resource_topology.args import NodeResourceTopologyMatchArgs
from kubesched_plugins.node_resource_topology.topology import NodeResourceTopology

JSON = dict[str, Any]
SUCCESS = status_json(None)


def play(recorded: JSON) -> JSON:
    name, case = recorded["plugin"], recorded["input"]
    zones = [msgspec.convert(each, NodeResourceTopology) for each in case["noderesourcetopologies"]]
    with cluster_of(
        case, config_of({name: case["args"]}), NodeResourceTopologyMatch, zones
    ) as cluster:
        (plugin,) = cluster.assembly.frameworks["default-scheduler"].score
        assert isinstance(plugin, NodeResourceTopologyMatch), "the only one"
        state, pod, nodes = CycleState(), pod_from(case["pod"]), nodes_of(cluster, case)
        verdicts = plugin.filter_nodes(state, pod, nodes)
        scores = np.broadcast_to(plugin.score_nodes(state, pod, nodes), len(nodes)).tolist()
        codes = [0] * len(nodes) if verdicts is None else verdicts.codes.tolist()
        answers = []
        for node, code, score in zip(recorded["result"]["nodes"], codes, scores, strict=True):
            status = verdicts.describe(code) if verdicts is not None and code else None
            answer = {"node": node["node"], "filter": status_json(status)}
            if "score_panic" not in node:
                answer |= {"score": score, "score_status": SUCCESS, "normalized": score}
            answers.append(answer)
        return {
            "args_effective": effective(plugin.args),
            "prefilter": SUCCESS,
            "nodes": answers,
        }


def comparable(case: JSON) -> tuple[JSON, list[str]]:
    """All but the scores at which the original panicked."""
    nodes = case["result"]["nodes"]
    panics = [
        f"nodes[{at}].score: the original panicked"
        for at, node in enumerate(nodes)
        if "score_panic" in node
    ]
    compared = [{key: node[key] for key in node if key != "score_panic"} for node in nodes]
    return {**case["result"], "nodes": compared}, panics


def effective(args: NodeResourceTopologyMatchArgs) -> JSON:
    strategy, cache = args.scoring_strategy, args.cache
    return {
        "ScoringStrategy": {
            "Type": strategy.type,
            "Resources": [
                {"Name": each.name, "Weight": each.weight} for each in strategy.resources or ()
            ],
        },
        "CacheResyncPeriodSeconds": args.cache_resync_period_seconds or 0,
        "DiscardReservedNodes": args.discard_reserved_nodes,
        "Cache": {
            "ForeignPodsDetect": cache.foreign_pods_detect,
            "ResyncMethod": cache.resync_method,
            "InformerMode": cache.informer_mode,
            "ResyncScope": cache.resync_scope,
        },
        "PreemptionMode": args.preemption_mode,
    }
