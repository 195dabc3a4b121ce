"""Extenders in the matrix: the feasible nodes they reject, and the scores they add.

Extenders are called only on request (`kubesched explain --ask-extenders`), through the production
code.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from kubesched.framework.diagnosis import Diagnosis
from kubesched.framework.extenders import Extender
from kubesched.framework.status import Status, unresolvable
from kubesched.insight.explain.evaluation import PASSES, Evaluation, PluginScores, Rejections
from kubesched.insight.explain.reasons import EXTENDER
from kubesched.scheduler.algorithm import Feasible, SchedulingAlgorithm
from kubesched.scheduler.extended_algorithm import ExtendedAlgorithm

LEFT_OUT = unresolvable("an extender left the node out and gave no reason")


async def ask_extenders(evaluation: Evaluation, extenders: Sequence[Extender]) -> None:
    """Narrow the feasible nodes and add one score column per extender."""
    pod = evaluation.pod
    interested = [extender for extender in extenders if extender.is_interested(pod.pod)]
    if not interested or not len(evaluation.feasible):
        return
    algorithm = ExtendedAlgorithm(SchedulingAlgorithm(evaluation.table, Random(0)), interested)
    before = evaluation.feasible
    answer = await algorithm.filter(pod, Feasible(before, Diagnosis()), interested)
    if isinstance(answer, Status):
        _reject(evaluation, before, [answer] * len(before))
        evaluation.feasible, evaluation.totals = before[:0], None
        evaluation.scores.clear()
        return
    kept, _ = answer
    is_kept = np.isin(before, kept.rows)
    gone = before[~is_kept]
    statuses = kept.diagnosis.node_to_status
    _reject(evaluation, gone, [statuses.get(evaluation.table.names[row]) for row in gone.tolist()])
    evaluation.feasible = before[is_kept]
    for scores in evaluation.scores:
        scores.raw, scores.normalized = scores.raw[is_kept], scores.normalized[is_kept]
        scores.weighted = scores.weighted[is_kept]
    if evaluation.totals is not None:
        evaluation.totals = evaluation.totals[is_kept]
        await _add_points(evaluation, algorithm, interested)


def _reject(evaluation: Evaluation, rows: np.ndarray[Any, Any], statuses: list[Status]) -> None:
    if len(rows):
        ids = np.full(evaluation.table.high_water, PASSES, dtype=np.int32)
        ids[rows] = np.arange(len(rows))
        told = [status if status.all_reasons else LEFT_OUT for status in statuses]
        tagged = [answer.with_plugin(EXTENDER) for answer in told]
        evaluation.rejections.append(Rejections(EXTENDER, ids, tagged))


async def _add_points(
    evaluation: Evaluation, algorithm: ExtendedAlgorithm, interested: Sequence[Extender]
) -> None:
    for extender in interested:
        if not extender.is_prioritizer or evaluation.totals is None:
            continue
        before = evaluation.totals
        totals, _ = await algorithm.prioritized(
            evaluation.pod, evaluation.feasible, before, [extender]
        )
        points = totals - before
        evaluation.scores.append(PluginScores(extender.name, points, points, points))
        evaluation.totals = totals
