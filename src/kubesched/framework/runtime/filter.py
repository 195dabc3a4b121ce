"""Filter: which nodes can take the pod, and why the others cannot.

Plugins run in order over whole columns; a node's verdict is the first rejection. What a rejection says is worked
out only when somebody asks (`FilterOutcome.status_at`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import FilterPlugin
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, checked_codes, failure, raised
from kubesched.framework.runtime.pre_filter import run_add_pod
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts
from kubesched.snapshot.columns import Ids, Mask
from kubesched.snapshot.pods import PodInfo
from kubesched.snapshot.views import NodeColumns

Indices = np.ndarray[Any, np.dtype[np.intp]]


class FilterOutcome:
    """The filters' answer over a view. `error` set: something broke and the rest means nothing."""

    __slots__ = ("_memo", "_rejections", "error", "passing")

    def __init__(self, passing: Mask, error: Status | None = None) -> None:
        self.passing = passing
        self.error = error
        self._rejections: list[tuple[FilterPlugin, Verdicts]] = []
        self._memo: dict[tuple[int, int], Status] = {}

    def add(self, plugin: FilterPlugin, verdicts: Verdicts) -> None:
        self._rejections.append((plugin, verdicts))

    def status_at(self, index: int) -> Status | None:
        """The verdict on one node: None when it passes."""
        for at, (plugin, verdicts) in enumerate(self._rejections):
            code = int(verdicts.codes[index])
            if code:
                known = self._memo.get((at, code))
                if known is None:
                    known = self._memo[at, code] = verdicts.describe(code).with_plugin(plugin.name)
                return known
        return None

    def classify(self, indices: Indices) -> tuple[Ids, list[Status]]:
        """The verdicts on some rejected nodes: distinct statuses, and for each node which of them it is."""
        ids = np.full(len(indices), -1, dtype=np.int32)
        statuses: list[Status] = []
        for plugin, verdicts in self._rejections:
            codes = verdicts.codes[indices]
            undecided = np.flatnonzero((codes != 0) & (ids < 0))
            if not len(undecided):
                continue
            distinct, numbers = _distinct(codes[undecided])
            ids[undecided] = numbers + len(statuses)
            statuses.extend(
                verdicts.describe(int(code)).with_plugin(plugin.name) for code in distinct.tolist()
            )
        assert not len(ids) or int(ids.min()) >= 0, (
            "a node that does not pass was rejected by somebody"
        )
        return ids, statuses


def _distinct(codes: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Ids]:
    """The distinct values, and for each entry which of them it is. Small codes need no sorting."""
    if codes.dtype.itemsize > 1:
        values, numbers = np.unique(codes, return_inverse=True)
        return values, numbers.astype(np.int32)
    small = codes.view(np.uint8)
    present = np.zeros(256, dtype=np.bool_)
    present[small] = True
    numbers = np.cumsum(present, dtype=np.int32)[small] - np.int32(1)
    return np.flatnonzero(present).astype(np.uint8).view(codes.dtype), numbers


def lifts(plugin: FilterPlugin) -> bool:
    """Does the plugin look at one node at a time?"""
    return type(plugin).filter_nodes is FilterPlugin.filter_nodes


def run_filters(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    nodes: NodeColumns,
    plugins: list[FilterPlugin] | None = None,
    passing: Mask | None = None,
) -> FilterOutcome:
    """Run the (given) Filter plugins over a view; `passing` may rule out nodes beforehand."""
    outcome = FilterOutcome(nodes.alive.copy() if passing is None else passing)
    for plugin in framework.filter if plugins is None else plugins:
        if plugin.name in state.skip_filter_plugins:
            continue
        try:
            answer = (
                _one_by_one(plugin, state, pod, nodes, outcome.passing)
                if lifts(plugin)
                else plugin.filter_nodes(state, pod, nodes)
            )
            if answer is None:
                continue
            if not isinstance(answer, Verdicts):
                status = as_status(plugin, answer)
                if status is None or status.is_success:
                    continue
                if not status.is_rejected:
                    outcome.error = failure(
                        f'running "{plugin.name}" filter plugin: ', status, plugin=plugin.name
                    )
                    return outcome
                answer = Verdicts.reject(np.ones(len(nodes), dtype=np.bool_), status)
            codes = checked_codes(plugin, answer, len(nodes))
            if answer.broken is not None and (broken := answer.broken & outcome.passing).any():
                status = answer.describe(int(codes[broken.argmax()]))
                outcome.error = failure(
                    f'running "{plugin.name}" filter plugin: ', status, plugin=plugin.name
                )
                return outcome
        except Exception as error:  # a plugin's fault is this attempt's failure, nothing more
            outcome.error = raised(
                f'running "{plugin.name}" filter plugin: ', error, plugin=plugin.name
            )
            return outcome
        if codes.any():
            outcome.add(plugin, answer)
            outcome.passing &= ~codes if codes.dtype.kind == "b" else codes == 0
            if not outcome.passing.any():
                break
    return outcome


def _one_by_one(
    plugin: FilterPlugin, state: CycleState, pod: Pod, nodes: NodeColumns, passing: Mask
) -> Verdicts | Status | None:
    """Call a per-node plugin for every node that survived so far."""
    codes = np.zeros(len(nodes), dtype=np.int32)
    statuses: list[Status] = []
    for index in np.flatnonzero(passing).tolist():
        status = as_status(plugin, plugin.filter(state, pod, nodes.info_at(index)))
        if status is None or status.is_success:
            continue
        if not status.is_rejected:
            return status
        statuses.append(status)
        codes[index] = len(statuses)
    return Verdicts(codes, lambda code: statuses[code - 1]) if statuses else None


def filter_with_nominated_pods(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeColumns
) -> FilterOutcome:
    """Run the filters; nodes with nominated pods of equal or higher priority must pass with and without them."""
    outcome = run_filters(framework, state, pod.pod, nodes)
    if outcome.error is not None or framework.handle.nominator is None:
        return outcome
    for name in framework.handle.nominator.nominated_nodes():
        row = nodes.table.row_of.get(name)
        index = None if row is None else _index_of(nodes, row)
        if index is None:
            continue
        # Upstream: the pass with nominated pods comes first and its rejection is the one reported, so a node that
        # fails without them is looked at again as well: the wording can differ.
        rival = filter_one_with_nominated(framework, state, pod, nodes, index)
        if rival is None:
            continue
        if rival.error is not None:
            outcome.error = rival.error
            return outcome
        _replace(outcome, index, rival, len(nodes))
    return outcome


def filter_one_with_nominated(
    framework: Framework, state: CycleState, pod: PodInfo, nodes: NodeColumns, index: int
) -> FilterOutcome | None:
    """The first pass for one node: the verdict with its nominated pods on it; None when there are none to add.

    The second pass, without them, is what the column filters have answered already.
    """
    nominator = framework.handle.nominator
    assert nominator is not None, "nominated pods were asked for without a nominator"
    rivals = [
        other
        for other in nominator.nominated_pods_for_node(nodes.name_at(index))
        if other.priority >= pod.priority and other.uid != pod.uid
    ]
    if not rivals:
        return None
    what_if_state = state.clone()
    view = nodes.subset(np.array([index]))
    for other in rivals:
        failed = run_add_pod(framework, what_if_state, pod.pod, other, view)
        if failed is not None:
            return FilterOutcome(np.zeros(1, dtype=np.bool_), failed)
        view = view.what_if(0, add=[other])
    return run_filters(framework, what_if_state, pod.pod, view)


def _index_of(nodes: NodeColumns, row: int) -> int | None:
    if isinstance(nodes.rows, slice):
        start = int(nodes.rows.start or 0)
        return row - start if start <= row < start + len(nodes) else None
    found: Any = np.flatnonzero(nodes.rows == row)
    return int(found[0]) if len(found) else None


class _Override(FilterPlugin):
    """Stands in for the plugin behind a verdict that replaces the column's."""

    name = ""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]  # instance name on purpose


def _replace(outcome: FilterOutcome, index: int, rival: FilterOutcome, length: int) -> None:
    """Let the verdict with nominated pods stand for one node, if it is a rejection."""
    status = rival.status_at(0)
    if status is None:
        return
    codes = np.zeros(length, dtype=np.bool_)
    codes[index] = True
    outcome._rejections.insert(0, (_Override(status.plugin), Verdicts.reject(codes, status)))
    outcome._memo.clear()
    outcome.passing[index] = False
