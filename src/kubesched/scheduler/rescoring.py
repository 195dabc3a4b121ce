"""Scores a node again for opportunistic batching, beside the nodes that were scored before."""

from __future__ import annotations

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.status import Status
from kubesched.scheduler.batching import RankedNodes, Unusable


def rescored(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    table: NodeTable,
    ranking: RankedNodes,
    node_name: str,
) -> RankedNodes:
    """The nodes that are left and this one, which alone is scored; all are normalized again.

    Raises:
        Unusable: a node is gone, or a plugin failed.
    """
    names = [*ranking.names, node_name]
    if any(name not in table.row_of for name in names):
        raise Unusable("node_missing")
    rows = np.array([table.row_of[name] for name in names])
    candidates, node = NodeColumns(table, rows), NodeColumns(table, rows[-1:])
    state = state.clone()
    if run_pre_score(framework, state, pod, candidates) is not None:
        raise Unusable("prescore_error")
    plugins = [each for each in framework.score if each.name not in state.skip_score_plugins]
    raw: dict[str, list[int]] = {}
    for plugin in plugins:
        fresh = raw_scores(plugin, state, pod, node)
        if isinstance(fresh, Status):
            raise Unusable("rescore_error")
        own = fresh if isinstance(fresh, int) else int(fresh[0])
        raw[plugin.name] = [*ranking.raw_of(plugin.name), own]
    totals = np.zeros(len(names), dtype=np.int64)
    for plugin in plugins:
        scores = np.array(raw[plugin.name], dtype=np.int64)
        final = final_scores(plugin, state, pod, scores, candidates)
        if isinstance(final, Status):
            raise Unusable("normalize_error")
        totals += final.astype(np.int64) * framework.score_weights[plugin.name]
    return RankedNodes(names, totals.tolist(), None, raw)
