"""Derives the verdict, its sentence and the reasons over all nodes from the matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kubesched.framework.nodes.columns import Indices, Mask
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.views import BulkWhatIfColumns
from kubesched.framework.rules import Scope
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import run_filters, what_if_scope
from kubesched.framework.status import Status
from kubesched.insight.explain import details
from kubesched.insight.explain.evaluation import PASSES, Evaluation, Rejections
from kubesched.insight.explain.model import (
    Chosen,
    NodeCounts,
    Preemption,
    Reason,
    Verdict,
    WaitingFor,
)
from kubesched.insight.explain.reasons import code_of_reason
from kubesched.plugins.registry import IN_TREE


def reasons_of(evaluation: Evaluation) -> list[Reason]:
    """Every distinct reason with the nodes it rejects, the most frequent first."""
    counts = evaluation.failure_counts
    rows_by_reason: dict[tuple[str, str, str], list[int]] = {}
    codes: dict[tuple[str, str, str], tuple[str, str]] = {}
    for rejections in evaluation.rejections:
        for reason, status, rows in _by_reason(rejections):
            code = code_of_reason(reason, status)
            for detail in details.split(evaluation.table, evaluation.pod, code, reason, rows):
                key = (rejections.plugin, reason, detail.text)
                codes[key] = code.code, detail.remedy or code.remedy
                tally = rows_by_reason.setdefault(key, [0, 0])
                tally[0] += int(np.count_nonzero(detail.rows))
                tally[1] += int(np.count_nonzero(detail.is_whole & (counts == 1)))
    listed = [
        Reason(
            plugin=plugin,
            code=codes[plugin, reason, text][0],
            reason=reason,
            detail=text,
            nodes=nodes,
            only_reason=only,
            remedy=codes[plugin, reason, text][1],
        )
        for (plugin, reason, text), (nodes, only) in rows_by_reason.items()
    ]
    return sorted(listed, key=lambda reason: (-reason.nodes, -reason.only_reason, reason.reason))


def _by_reason(rejections: Rejections) -> Iterator[tuple[str, Status, Mask]]:
    """Each reason a plugin gives, a status that contains it, and its rows."""
    statuses: dict[str, list[int]] = {}
    for at, status in enumerate(rejections.statuses):
        for reason in status.all_reasons:
            statuses.setdefault(reason, []).append(at)
    for reason, numbers in statuses.items():
        rows = np.isin(rejections.ids, numbers)
        if rows.any():
            yield reason, rejections.statuses[numbers[0]], rows


def is_hopeless(
    framework: Framework, evaluation: Evaluation, without_devices: Mask | None = None
) -> bool:
    """Whether every node would reject the pod even if it were empty, untainted and not cordoned.

    Only in-tree plugins count: others may keep state of their own, which emptied nodes still have.
    `without_devices` are rows whose devices could not serve the pod's claims if they were idle.
    """
    hopeless = np.zeros(evaluation.table.high_water, dtype=np.bool_)
    if without_devices is not None:
        hopeless |= without_devices
    rejecting = [each for each in evaluation.rejections if each.plugin in IN_TREE]
    for rejections in rejecting:
        lasting = [
            any(code_of_reason(reason, status).is_lasting for reason in status.all_reasons)
            for status in rejections.statuses
        ]
        hopeless |= np.array([*lasting, False])[rejections.ids]
    rows = evaluation.rows[~hopeless[evaluation.rows]]
    asked = {each.plugin for each in rejecting} - {s.plugin for s in evaluation.pod_statuses}
    for plugin in framework.filter:
        if not len(rows):
            return True
        if plugin.name not in asked:
            continue
        if what_if_scope(plugin, evaluation.state, evaluation.pod.pod) is not Scope.ROW:
            continue
        emptied = emptied_columns(evaluation.table, rows)
        outcome = run_filters(framework, evaluation.state, evaluation.pod.pod, emptied, [plugin])
        if outcome.error is None:
            rows = rows[outcome.passing]
    return not len(rows)


def emptied_columns(table: NodeTable, rows: Indices) -> BulkWhatIfColumns:
    """The nodes' columns without any pods."""
    return BulkWhatIfColumns(
        table,
        rows,
        requested_delta=lambda line: -table.requested[line].array[rows],
        pods_delta=-table.pod_count.array[rows],
        removed=lambda index: list(table.pods[int(rows[index])].values()),
        ports=lambda _index: set(),
    )


def rejected_rows(evaluation: Evaluation) -> Mask:
    """Rows that some plugin rejects."""
    rejected = np.zeros(evaluation.table.high_water, dtype=np.bool_)
    for rejections in evaluation.rejections:
        rejected |= rejections.ids != PASSES
    return rejected


def summary_of(
    verdict: Verdict,
    nodes: NodeCounts,
    waits: Sequence[WaitingFor],
    chosen: Chosen | None,
    preemption: Preemption | None,
    group: str = "",
) -> str:
    """One or two sentences, beginning with the verdict; `group` says what its pod group lacks."""
    if verdict is Verdict.PLACED and chosen is not None:
        return _placed(chosen, nodes)
    if verdict is Verdict.WAITING:
        listed = "; ".join(
            f"{wait.what} ({wait.plugin})" if wait.plugin else wait.what for wait in waits
        )
        then = f" {_of(nodes)} would take it otherwise." if nodes.feasible else ""
        return f"waiting: {listed}.{then}"
    if verdict is Verdict.FITS and chosen is not None:
        return _fits(chosen, nodes)
    if not nodes.total:
        return "not now. There are no nodes."
    if verdict is Verdict.NEVER:
        return (
            f"never. {_none(nodes)} could take it "
            "even if it were empty, untainted and not cordoned."
        )
    if group:
        return f"not now. {_of(nodes)} would take it alone; {group}"
    if nodes.feasible:  # the filters pass, but another step failed
        return "not now. The attempt fails with an error and is repeated after a pause."
    if preemption is not None:
        count = len(preemption.victims)
        pods = "1 pod" if count == 1 else f"{count} pods"
        return (
            f"not now. {_none(nodes)} takes it; "
            f"the scheduler would evict {pods} from {preemption.node}."
        )
    return (
        f"not now. {_none(nodes)} takes it; it is tried again when something changes that can help."
    )


def _placed(chosen: Chosen, nodes: NodeCounts) -> str:
    if chosen.rank is None:
        return f"placed on {chosen.node}, which would not take it now."
    standing = f"rank {chosen.rank} of {nodes.feasible} feasible nodes, total {chosen.total}"
    if chosen.rank == 1 and chosen.tied:
        standing += f", tied with {chosen.tied} other{'s' if chosen.tied > 1 else ''}"
    elif chosen.rank == 1 and chosen.margin is not None:
        standing += f", ahead by {chosen.margin}"
    return f"placed on {chosen.node}: {standing}."


def _fits(chosen: Chosen, nodes: NodeCounts) -> str:
    if chosen.rank is None or chosen.rank > 1:
        return (
            f"fits. {_of(nodes)} would take it; "
            f"{chosen.node} is tried first, as it is nominated there."
        )
    if chosen.tied:
        return (
            f"fits. {_of(nodes)} would take it; "
            f"{chosen.tied + 1} share the highest total, {chosen.total}."
        )
    return (
        f"fits. {_of(nodes)} would take it; "
        f"{chosen.node} is the best with a total of {chosen.total}."
    )


def _of(nodes: NodeCounts) -> str:
    return f"{nodes.feasible} of {nodes.total} nodes"


def _none(nodes: NodeCounts) -> str:
    return f"No node of {nodes.total}"
