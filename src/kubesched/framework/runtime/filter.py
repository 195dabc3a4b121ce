"""Filter: which nodes can take the pod, and why the others cannot.

Plugins run in order over whole columns; a node's verdict is the first rejection. Statuses are
computed on demand (`FilterOutcome.status_at`): most rejections are never reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from kubesched.api.affinity_terms import AffinityTerms
from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.engine import InTreePlugin, TopologyKeys
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.nodes.columns import Ids, Indices, Mask
from kubesched.framework.nodes.pods import PodInfo, label_key_of
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.rules import Scope
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, checked_rejections, failure, raised
from kubesched.framework.runtime.timing import timed
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts

log = get_logger(__name__)


class FilterOutcome:
    """The filters' answer over a view. If `error` is set, the other fields are meaningless."""

    __slots__ = ("_memo", "_rejections", "broken", "error", "has_hidden_errors", "passing")

    def __init__(self, passing: Mask, error: Status | None = None) -> None:
        self.passing = passing
        self.error = error
        self.broken: Mask | None = None
        """With an error: the nodes where it occurred; None if the plugin failed as a whole."""
        self.has_hidden_errors = False
        """True if a plugin failed at nodes that an earlier plugin had rejected."""
        self._rejections: list[tuple[str, Verdicts]] = []
        self._memo: dict[tuple[int, int], Status] = {}

    def add(self, plugin: str, verdicts: Verdicts) -> None:
        """Add the next plugin's verdicts; an empty name if their statuses carry the plugin."""
        self._rejections.append((plugin, verdicts))

    def status_at(self, index: int) -> Status | None:
        """The verdict on one node; None if it passes."""
        for at, (plugin, verdicts) in enumerate(self._rejections):
            code = int(verdicts.codes[index])
            if code:
                known = self._memo.get((at, code))
                if known is None:
                    status = verdicts.describe(code)
                    known = status.with_plugin(plugin) if plugin else status
                    self._memo[at, code] = known
                return known
        return None

    def classify(self, indices: Indices) -> tuple[Ids, list[Status]]:
        """The verdicts on some rejected nodes: an id per node, and the distinct statuses."""
        ids = np.full(len(indices), -1, dtype=np.int32)
        statuses: list[Status] = []
        for plugin, verdicts in self._rejections:
            codes = verdicts.codes[indices]
            undecided = np.flatnonzero((codes != 0) & (ids < 0))
            if not len(undecided):
                continue
            distinct, numbers = _distinct(codes[undecided])
            ids[undecided] = numbers + len(statuses)
            for code in distinct.tolist():
                status = verdicts.describe(int(code))
                statuses.append(status.with_plugin(plugin) if plugin else status)
        assert not len(ids) or int(ids.min()) >= 0, "a node that does not pass has a rejection"
        return ids, statuses

    def overrule(self, indices: Indices, other: FilterOutcome) -> None:
        """Put another outcome's rejections, which cover these entries, before all others."""
        failing = np.flatnonzero(~other.passing)
        if not len(failing):
            return
        ids, statuses = other.classify(failing)
        codes = np.zeros(len(self.passing), dtype=np.int32)
        codes[indices[failing]] = ids + 1
        self._rejections.insert(0, ("", Verdicts.numbered(codes, statuses)))
        self._memo.clear()
        self.passing[indices[failing]] = False


def _distinct(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Ids]:
    """The distinct values, and the index of each entry's value. Small codes need no sorting."""
    if codes.dtype.itemsize > 1:
        values, numbers = np.unique(codes, return_inverse=True)
        return values, numbers.astype(np.int32)
    small = codes.view(np.uint8)
    present = np.zeros(256, dtype=np.bool_)
    present[small] = True
    numbers = np.cumsum(present, dtype=np.int32)[small] - np.int32(1)
    return np.flatnonzero(present).astype(np.uint8).view(codes.dtype), numbers


def what_if_scope(plugin: FilterPlugin, state: CycleState, pod: Pod) -> Scope:
    """What the plugin's verdicts depend on within this attempt.

    Claims and volumes, for instance, do not change during an attempt, so a filter that reads them
    and nodes has NODE scope here although its verdicts are not cached for other pods.
    """
    try:
        rule = plugin.filter_rule(state, pod)
    except Exception as error:  # a plugin may raise anything; treated as having no rule
        log.error("Plugin failed to describe its filter", error, plugin=plugin.name, pod=pod)
        return Scope.CLUSTER
    return Scope.CLUSTER if rule is None else rule.depends_on


class CaringPlugins:
    """What filters depend on in what-ifs: the plugins that track pods, and which pods."""

    def __init__(self, framework: Framework, state: CycleState, pod: Pod) -> None:
        skipped = state.skip_filter_plugins
        self._state, self._pod = state, pod
        self._plugins = [
            p for p in framework.pre_filter if p.has_extensions and p.name not in skipped
        ]
        self._known: dict[Hashable, tuple[TopologyKeys, AffinityTerms | None]] = {}
        """By labels and identity of the terms, which a class shares; the entry keeps them alive."""
        scopes = {
            p: what_if_scope(p, state, pod) for p in framework.filter if p.name not in skipped
        }
        self.pod_dependent = [p for p, scope in scopes.items() if scope is not Scope.NODE]
        """The filters whose verdict on a node can change when pods are added or removed."""
        asked = {p.name for p in self._plugins}
        self.can_tell = all(
            p.filters_columns and (p.name in asked or scope is not Scope.CLUSTER)
            for p, scope in scopes.items()
        )
        """True if all filters that are not row-local implement `keys_affected_by`."""
        self.are_row_local = self.can_tell and not self._plugins
        """True if a node's verdict depends only on that node and its pods, and is in columns."""

    def care(self, pod: PodInfo) -> bool:
        return self.keys_affected_by(pod) != set()

    def keys_affected_by(self, pod: PodInfo) -> TopologyKeys:
        """The topology keys in whose domains a pod may change verdicts."""
        terms = None if pod.pod.spec.affinity is None else pod.affinity_terms
        alike = (pod.label_key or label_key_of(pod.pod), id(terms))
        known = self._known.get(alike)
        if known is None:
            known = self._known[alike] = (self._ask(pod), terms)
        return known[0]

    def _ask(self, pod: PodInfo) -> TopologyKeys:
        asked = [p for p in self._plugins if isinstance(p, InTreePlugin)]
        answers = [p.keys_affected_by(self._state, self._pod, pod) for p in asked]
        return union(answers) if len(asked) == len(self._plugins) else None


def union(answers: Sequence[TopologyKeys]) -> TopologyKeys:
    return None if None in answers else {key for keys in answers for key in keys or ()}


def run_filters(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    nodes: NodeColumns,
    plugins: list[FilterPlugin] | None = None,
    passing: Mask | None = None,
) -> FilterOutcome:
    """Run the (given) Filter plugins over a view; `passing` may exclude nodes beforehand."""
    outcome = FilterOutcome(nodes.alive.copy() if passing is None else passing)
    nodes.candidates = outcome.passing  # updated in place below
    skipped, timer, length = state.skip_filter_plugins, state.timer, len(nodes)
    for plugin in framework.filter if plugins is None else plugins:
        if plugin.name in skipped:
            continue
        try:
            if not plugin.filters_columns:
                ask = timed(timer, plugin, "Filter", _one_by_one)
                answer = ask(plugin, state, pod, nodes, outcome.passing)
            elif timer is None:
                answer = plugin.filter_nodes(state, pod, nodes)
            else:
                answer = timer.call(plugin, "Filter", plugin.filter_nodes, state, pod, nodes)
            if answer is None:
                continue
            if not isinstance(answer, Verdicts):
                status = as_status(plugin, answer)
                if status is None or status.is_success:
                    continue
                if not status.is_rejected:
                    outcome.error = failure(_prefix(plugin), status, plugin=plugin.name)
                    return outcome
                answer = Verdicts.reject(np.ones(length, dtype=np.bool_), status)
            rejected = checked_rejections(plugin, answer, length)
            if answer.broken is not None:
                broken = answer.broken & outcome.passing
                if broken.any():
                    outcome.broken = broken
                    status = answer.describe(int(answer.codes[broken.argmax()]))
                    outcome.error = failure(_prefix(plugin), status, plugin=plugin.name)
                    return outcome
                outcome.has_hidden_errors = True
        except Exception as error:  # a plugin failure fails only this attempt
            outcome.error = raised(_prefix(plugin), error, plugin=plugin.name)
            return outcome
        if rejected.any():
            outcome.add(plugin.name, answer)
            np.greater(outcome.passing, rejected, out=outcome.passing)
            if not outcome.passing.any():
                break
    return outcome


def _prefix(plugin: FilterPlugin) -> str:
    return f'running "{plugin.name}" filter plugin: '


def _one_by_one(
    plugin: FilterPlugin, state: CycleState, pod: Pod, nodes: NodeColumns, passing: Mask
) -> Verdicts | Status | None:
    """Call a per-node plugin for every remaining node."""
    codes = np.zeros(len(nodes), dtype=np.int32)
    statuses: list[Status] = []
    remaining = np.flatnonzero(passing)
    for index, info in zip(remaining.tolist(), nodes.infos(remaining), strict=True):
        status = as_status(plugin, plugin.filter(state, pod, info))
        if status is None or status.is_success:
            continue
        if not status.is_rejected:
            return status
        statuses.append(status)
        codes[index] = len(statuses)
    return Verdicts.numbered(codes, statuses) if statuses else None
