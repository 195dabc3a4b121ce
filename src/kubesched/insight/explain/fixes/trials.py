"""Tries changes: modifies the in-memory scheduler, runs its filters, and reverts everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.client.informers.lister import Lister
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.nominated import filter_with_nominated_pods
from kubesched.framework.runtime.pre_filter import run_pre_filter, run_remove_pod
from kubesched.framework.status import Status
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    NodeAddition,
    NodeEdit,
    ObjectChange,
    PodDeletion,
    PodEdit,
    edited,
)


class Trials:
    """What-if trials for one pod."""

    def __init__(self, framework: Framework, pod: PodInfo) -> None:
        self._framework = framework
        self._table = framework.handle.table
        self._pod = pod

    def sees(self, changes: Sequence[AnyChange]) -> bool:
        """Whether the filters of the scheduler in memory can tell what the changes do."""
        has_devices = bool(self._pod.pod.spec.resource_claims)  # which come with a new node
        return not (has_devices and any(isinstance(change, NodeAddition) for change in changes))

    def nodes_that_fit(self, changes: Sequence[AnyChange]) -> set[str] | None:
        """Names of nodes that fit after the changes; None if PreFilter or a filter fails."""
        edits = [change for change in changes if isinstance(change, PodEdit)]
        pod = PodInfo(edited(self._pod.pod, edits)) if edits else self._pod
        with self._changed(changes):
            return self._feasible(pod)

    def _feasible(self, pod: PodInfo) -> set[str] | None:
        table, state = self._table, CycleState()
        table.refresh()
        view = NodeColumns(table)
        outcome = run_pre_filter(self._framework, state, pod.pod, view)
        if outcome.status is not None:
            return None
        result = filter_with_nominated_pods(self._framework, state, pod, view)
        if result.error is not None:
            return None
        names = {table.names[row] for row in np.flatnonzero(result.passing).tolist()}
        return names if outcome.node_names is None else names & outcome.node_names

    @contextmanager
    def _changed(self, changes: Sequence[AnyChange]) -> Iterator[None]:
        """Apply the node and pod changes to the table until the end of the block.

        The cache is not changed: it tracks assumed pods, and the same pods are restored.
        """
        table = self._table
        with ExitStack() as undo:
            for change in changes:
                if isinstance(change, PodDeletion):
                    self._take_out([change.pod], undo)
                elif isinstance(change, ObjectChange):
                    self._take_out(change.leaving, undo)
                    for obj in change.deleted:
                        self._replace(obj, None, undo)
                    for obj in change.stored:
                        self._replace(obj, obj, undo)
                elif isinstance(change, NodeEdit):
                    node = table.nodes[table.row_of[change.node_name]]
                    assert node is not None, "a row of a node"
                    undo.callback(table.set_node, node)
                    table.set_node(change.applied(node))
                elif isinstance(change, NodeAddition):
                    undo.callback(table.remove_node, change.node.metadata.name)
                    table.set_node(change.node)
            yield

    def _take_out(self, pods: Iterable[Pod], undo: ExitStack) -> None:
        """They come back in the order in which their nodes listed them, which preemption sees."""
        table = self._table
        found = [table.pods[table.row_of[it.spec.node_name]].get(it.metadata.uid) for it in pods]
        present = [info for info in found if info is not None]  # not gone with another change
        if present:
            undo.callback(table.put_back, table.take_out(present))

    def _replace(self, obj: Any, by: Any, undo: ExitStack) -> None:  # noqa: ANN401  # records
        """Store or delete an object."""
        listers = self._framework.handle.listers
        assert listers is not None, "the object was found in one"
        store = cast("Lister[Any]", listers.of(type(obj))).store
        key = key_of(obj.metadata)
        previous = store.remove(key) if by is None else store.put(key, by)
        if previous is None:
            undo.callback(store.remove, key)
        else:
            undo.callback(store.put, key, previous)

    # -- single plugins on one node ----------------------------------------------------------------

    def passes(self, row: int, plugin: str, edits: Sequence[PodEdit]) -> bool:
        """Whether the edited pod passes one plugin's filter on one node."""
        pod = edited(self._pod.pod, edits)
        state, framework = CycleState(), self._framework
        before = [candidate for candidate in framework.pre_filter if candidate.name == plugin]
        outcome = run_pre_filter(framework, state, pod, NodeColumns(self._table), before)
        if outcome.status is not None:
            return False
        filters = [candidate for candidate in framework.filter if candidate.name == plugin]
        view = NodeColumns(self._table, np.array([row]))
        result = run_filters(framework, state, pod, view, filters)
        return result.error is None and bool(result.passing[0])

    def passes_without(
        self, state: CycleState, row: int, plugins: set[str], removed: Sequence[PodInfo]
    ) -> bool:
        """Whether the pod passes some plugins' filters on one node without the given pods."""
        framework, pod = self._framework, self._pod.pod
        what_if = state.clone()
        view: NodeColumns = NodeColumns(self._table, np.array([row]))
        for victim in removed:
            failed: Status | None = run_remove_pod(framework, what_if, pod, victim, view)
            if failed is not None:
                return False
            view = view.what_if(0, remove=[victim])
        filters = [plugin for plugin in framework.filter if plugin.name in plugins]
        result = run_filters(framework, what_if, pod, view, filters)
        return result.error is None and bool(result.passing[0])
