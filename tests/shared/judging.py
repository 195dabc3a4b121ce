"""Shortest ways to ask a plugin for its opinion on a small cluster."""

import numpy as np

from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import ClusterEvent
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Code, Status


def cluster(*nodes, pods=()):
    """A table of built nodes and pods; pods say where they are."""
    table = NodeTable()
    for node in nodes:
        table.set_node(node.build())
    for pod in pods:
        built = pod.build()
        table.add_pod(PodInfo(built), built.spec.node_name)
    table.refresh()
    return table


def names_in_order(table):
    """The names of all nodes, as upstream lists them."""
    return [table.names[row] for row in table.order_rows.tolist()]


def make(plugin, table=None, args=None, gates=None, listers=None):
    handle = Handle(
        NodeTable() if table is None else table,
        feature_gates=gates or DEFAULT_GATES,
        listers=listers,
    )
    return plugin(args, handle)


def verdict(plugin, pod, table, name=None):
    """The plugin's verdict on one node (the first by default): None when it passes, the status
    otherwise.

    What PreFilter says first ends the matter: a rejection, or SKIP.
    """
    built = pod.build()
    nodes, state = NodeColumns(table), CycleState()
    if hasattr(plugin, "pre_filter"):
        answer = plugin.pre_filter(state, built, nodes)
        if isinstance(answer, Status):
            return answer
    answer = plugin.filter_nodes(state, built, nodes)
    if answer is None or isinstance(answer, Status):
        return answer
    row = table.row_of[name] if name else 0
    code = int(answer.codes[row])
    return answer.describe(code) if code else None


def passes(plugin, pod, table, name=None):
    answer = verdict(plugin, pod, table, name)
    return answer is None or answer.code is Code.SKIP


def scores(plugin, pod, table):
    """Node -> final score before weighting; the PreScore status instead when it is not a
    success.
    """
    built = pod.build()
    rows = table.order_rows.astype(int)
    nodes, state = NodeColumns(table, rows), CycleState()
    if hasattr(plugin, "pre_score"):
        answer = plugin.pre_score(state, built, nodes)
        if answer is not None:
            return answer
    final = plugin.score_nodes(state, built, nodes)
    if isinstance(final, Status):
        return final
    if isinstance(final, int):
        final = np.array([final])
    if plugin.normalizes:
        final = plugin.normalize_scores(state, built, final, nodes)
    final = np.broadcast_to(final, len(rows))
    return {
        table.names[row]: score for row, score in zip(rows.tolist(), final.tolist(), strict=True)
    }


def hint(plugin, resource, action, pod, old=None, new=None):
    """What the plugin's hint says to an event; None when it did not register for it."""
    event = ClusterEvent(resource, action)
    for registered in plugin.events_to_register():
        if registered.event.matches(event):
            if registered.hint is None:
                return "always"
            return registered.hint(
                pod.build(),
                None if old is None else old.build(),
                None if new is None else new.build(),
            )
    return None
