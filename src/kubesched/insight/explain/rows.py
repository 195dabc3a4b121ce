"""Records of single nodes, and how the chosen node compares with the others."""

from __future__ import annotations

import numpy as np

from kubesched.framework.nodes.columns import Indices, Ints
from kubesched.framework.runtime import Framework
from kubesched.framework.status import Status
from kubesched.insight.explain import details
from kubesched.insight.explain.evaluation import Evaluation, Rejections, nominated_at
from kubesched.insight.explain.model import Chosen, Failure, NodeRow, Score
from kubesched.insight.explain.reasons import ReasonCode, code_of_reason
from kubesched.insight.explain.selection import by_total

RUNNERS_UP = 3


def node_rows(framework: Framework, evaluation: Evaluation, rows: Indices) -> list[NodeRow]:
    """Records of the given rows, in the given order."""
    places = {row: at for at, row in enumerate(evaluation.feasible.tolist())}
    columns = [
        (score.plugin, score.raw.tolist(), score.normalized.tolist(), score.weighted.tolist())
        for score in evaluation.scores
    ]
    totals = None if evaluation.totals is None else evaluation.totals.tolist()
    ranks = None if evaluation.totals is None else ranks_of(evaluation.totals).tolist()
    names = evaluation.table.names
    made = []
    for row in rows.tolist():
        at = places.get(row)
        made.append(
            NodeRow(
                node=names[row],
                feasible=at is not None,
                failures=[] if at is not None else failures_at(framework, evaluation, row),
                scores={}
                if at is None
                else {
                    plugin: Score(raw=raw[at], normalized=normalized[at], weighted=weighted[at])
                    for plugin, raw, normalized, weighted in columns
                },
                total=None if at is None or totals is None else totals[at],
                rank=None if at is None or ranks is None else ranks[at],
            )
        )
    return made


def ranks_of(totals: Ints) -> Ints:
    """Ranks from 1 for the highest total; equal totals share a rank."""
    ascending = np.sort(totals)
    ranks: Ints = 1 + len(totals) - np.searchsorted(ascending, totals, side="right")
    return ranks


def failures_at(framework: Framework, evaluation: Evaluation, row: int) -> list[Failure]:
    """Every plugin's rejection of one node; reasons with different codes are separate entries."""
    failures = []
    for rejections, status in evaluation.statuses_at(row):
        rivals = (
            [pod.key for pod in nominated_at(framework, evaluation, row)]
            if rejections.rivals
            else []
        )
        for code, reasons in _by_code(status):
            failures.append(_failure(evaluation, rejections, status, code, reasons, row, rivals))
    return failures


def _by_code(status: Status) -> list[tuple[ReasonCode, list[str]]]:
    by_code: dict[str, tuple[ReasonCode, list[str]]] = {}
    for reason in status.all_reasons:
        code = code_of_reason(reason, status)
        by_code.setdefault(code.code, (code, []))[1].append(reason)
    return list(by_code.values())


def _failure(
    evaluation: Evaluation,
    rejections: Rejections,
    status: Status,
    code: ReasonCode,
    reasons: list[str],
    row: int,
    rivals: list[str],
) -> Failure:
    table, pod = evaluation.table, evaluation.pod
    return Failure(
        plugin=rejections.plugin,
        code=code.code,
        status=status.code.upstream_name,
        reasons=reasons,
        lacks=[details.on_node(table, pod, code, reason, row) for reason in reasons],
        with_nominated=rivals,
    )


def chosen_of(evaluation: Evaluation, node_name: str) -> Chosen:
    """How a node compares with the other feasible nodes."""
    names = evaluation.table.names
    ranked = [names[row] for row in by_total(evaluation)[: RUNNERS_UP + 1].tolist()]
    runners_up = [name for name in ranked if name != node_name][:RUNNERS_UP]
    row = evaluation.table.row_of.get(node_name)
    places = np.flatnonzero(evaluation.feasible == (-1 if row is None else row))
    if evaluation.totals is None or not len(places):
        return Chosen(node=node_name, runners_up=runners_up)
    totals, at = evaluation.totals, int(places[0])
    others = np.delete(totals, at)
    total = int(totals[at])
    tied = int(np.count_nonzero(others == total))
    is_best = total == int(totals.max())
    decisive, tying = _without_each(evaluation, at) if is_best else ([], [])
    return Chosen(
        node=node_name,
        total=total,
        rank=int(ranks_of(totals)[at]),
        margin=total - int(others.max()) if len(others) else None,
        tied=tied,
        decisive=decisive,
        tying=[] if tied else tying,
        runners_up=runners_up,
    )


def _without_each(evaluation: Evaluation, at: int) -> tuple[list[str], list[str]]:
    """Plugins without whose score the node would not be best, and not be the only best one.

    The node at that place is the only best one with all of them.
    """
    loses, ties = [], []
    for left_out in evaluation.scores:
        others = (score.weighted for score in evaluation.scores if score is not left_out)
        totals = sum(others, start=np.zeros(len(evaluation.feasible), dtype=np.int64))
        best = np.flatnonzero(totals == totals.max())
        if at not in best:
            loses.append(left_out.plugin)
        elif len(best) > 1:
            ties.append(left_out.plugin)
    return loses, ties
