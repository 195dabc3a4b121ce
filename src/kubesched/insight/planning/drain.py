"""Drains nodes like `kubectl drain`: cordon all, then evict node by node as far as budgets allow.

An evicted pod's replacement is placed before the next try, which restores the budget. Pods that a
budget still refuses stay. DaemonSet pods and mirror pods are not evicted. Pods without a controller
are evicted only with force, and are not replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from kubesched.api import selectors
from kubesched.api.core_v1 import Node, Pod, Taint
from kubesched.api.names import key_of
from kubesched.insight.planning.model import Kept
from kubesched.insight.state.budgets import Budgets
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import is_daemon, is_mirror, pods_on

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NO_CONTROLLER = "it has no controller that would bring it back; kubectl drain needs --force"


class Drain:
    """Empties nodes."""

    def __init__(
        self,
        world: PlannedCluster,
        budgets: Budgets,
        evict: Callable[[Pod], None],
        *,
        force: bool = False,
    ) -> None:
        """`evict` removes an evictable pod."""
        self._world = world
        self._evict = evict
        self._budgets = budgets
        self._force = force
        self.kept: list[Kept] = []

    def run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self._cordon(node)
        for node in nodes:
            while self._evict_what_may_go(node.metadata.name):
                self._world.settle()
            self._note_kept(node.metadata.name)

    def _cordon(self, node: Node) -> None:
        taints = list(node.spec.taints or ())
        if not any(taint.key == UNSCHEDULABLE for taint in taints):
            taints.append(Taint(key=UNSCHEDULABLE, effect="NoSchedule"))
        spec = structs.replace(node.spec, unschedulable=True, taints=taints)
        self._world.put(structs.replace(node, spec=spec))

    def _evict_what_may_go(self, node: str) -> int:
        count = 0
        for pod in self._candidates(node):
            if not self._obstacle(pod):
                self._evict(pod)
                count += 1
        return count

    def _candidates(self, node: str) -> list[Pod]:
        """Pods to evict from the node, by name."""
        pods = sorted(pods_on(self._world, node), key=lambda pod: key_of(pod.metadata))
        return [pod for pod in pods if not is_mirror(pod) and not is_daemon(pod)]

    def _obstacle(self, pod: Pod) -> str:
        if pod.metadata.controller() is None and not self._force:
            return NO_CONTROLLER
        return self._budgets.refusal(pod)

    def _note_kept(self, node: str) -> None:
        self.kept += [
            Kept(pod=key_of(pod.metadata), node=node, reason=self._obstacle(pod))
            for pod in self._candidates(node)
        ]


def choose_nodes(world: PlannedCluster, wanted: Iterable[str], option: str) -> list[Node]:
    """Nodes by name or label selector, each once, in the requested order.

    Raises:
        PlanError: a node does not exist, or the selector matches none.
    """
    chosen: dict[str, Node] = {}
    for text in wanted:
        node = world.find(Node, "", text)
        matching = [node] if node is not None else _selected(world, text, option)
        for match in sorted(matching, key=lambda node: node.metadata.name):
            chosen[match.metadata.name] = match
    return list(chosen.values())


def _selected(world: PlannedCluster, text: str, option: str) -> list[Node]:
    if not any(sign in text for sign in "=!, ("):
        raise PlanError(f'{option}: there is no node "{text}"')
    try:
        selector = selectors.parse(text)
    except selectors.SelectorError as error:
        raise PlanError(f"{option}: {text!r} is neither a node nor a selector: {error}") from None
    nodes = [node for node in world.objects(Node) if selector.matches(node.metadata.labels)]
    if not nodes:
        raise PlanError(f"{option}: no node matches {text!r}")
    return nodes
