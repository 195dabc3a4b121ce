"""Explanations of recorded pods by `kubesched explain`, in the form of a recorded answer.

Proves that explanations agree with kube-scheduler: feasible nodes, the first rejection of every
other node, all scores and the message must match the recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.base.errors import KubeschedError
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.types import DEFAULT_SCHEDULER_NAME
from kubesched.framework.pod_status import REASON_SCHEDULER_ERROR
from kubesched.insight.explain.model import Explanation, NodeRow
from kubesched.insight.explain.selection import in_node_order
from kubesched.insight.explain.sources import explainer_of
from kubesched.lab.conformance.placements import config_of, state_of
from kubesched.lab.conformance.recordings import (
    Placement,
    RecordedAnswer,
    RecordingError,
    Rejection,
)


class ExplainedCluster:
    """A recorded cluster whose pods are explained."""

    def __init__(self, placement: Placement, gates: FeatureGates = DEFAULT_GATES) -> None:
        config = config_of(placement, gates)
        self._explainer = explainer_of(state_of(placement), config, gates=gates)
        for framework in self._explainer.assembly.frameworks.values():
            framework.post_filter.clear()  # recorded messages lack its part

    def place(self, pod: Pod) -> RecordedAnswer:
        """The explanation of the pod as an answer."""
        if not pod.spec.scheduler_name:
            spec = structs.replace(pod.spec, scheduler_name=DEFAULT_SCHEDULER_NAME)
            pod = structs.replace(pod, spec=spec)
        try:
            explanation = self._explainer.explain(pod, in_node_order)
        except KubeschedError as error:
            raise RecordingError(str(error)) from error
        if explanation.condition_reason == REASON_SCHEDULER_ERROR:
            return RecordedAnswer([], {}, {}, {}, error=explanation.message)
        return _answer(explanation)


def _answer(explanation: Explanation) -> RecordedAnswer:
    feasible = [row for row in explanation.matrix if row.feasible]
    return RecordedAnswer(
        [row.node for row in feasible],
        {row.node: row.total for row in feasible if row.total is not None},
        {
            row.node: {plugin: score.weighted for plugin, score in row.scores.items()}
            for row in feasible
        },
        {row.node: _first(row) for row in explanation.matrix if not row.feasible},
        explanation.message,
    )


def _first(row: NodeRow) -> Rejection:
    """The first rejection, where the scheduler would stop."""
    plugin, failures = next(groupby(row.failures, lambda failure: failure.plugin))
    listed = list(failures)
    reasons: Sequence[str] = [reason for failure in listed for reason in failure.reasons]
    return Rejection(plugin, listed[0].status, list(reasons))
