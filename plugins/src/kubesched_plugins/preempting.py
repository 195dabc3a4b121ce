"""What plugins that preempt by rules of their own have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from kubesched.framework import (
    Code,
    CycleState,
    Handle,
    NodeToStatus,
    PodInfo,
    PostFilterPlugin,
    PostFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from kubesched.framework.api import Pod

NEVER: Final = "not eligible due to preemptionPolicy=Never."
STILL_TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."

Answer = tuple[PostFilterResult | None, Status | None]


class Node(Protocol):
    """What `Handle.preemption` shows of a node: pods can be taken away and put back."""

    @property
    def node_name(self) -> str: ...
    @property
    def preemptor(self) -> PodInfo: ...
    @property
    def state(self) -> CycleState: ...
    @property
    def pods(self) -> Sequence[PodInfo]: ...
    def take(self, pod: PodInfo) -> Status | None: ...
    def put(self, pod: PodInfo) -> Status | None: ...
    def rejection(self) -> Status | None: ...
    def ranked(self, pods: Sequence[PodInfo]) -> list[PodInfo]: ...
    def violated_by(self, pods: Sequence[PodInfo]) -> list[bool]: ...
    def victims(self, pods: Sequence[PodInfo], pdb_violations: int) -> Any: ...  # noqa: ANN401


class PreemptingPlugin(PostFilterPlugin):
    """DefaultPreemption with another choice of victims."""

    def __init__(
        self, args: object, handle: Handle, *, percentage: int = 100, absolute: int = 100
    ) -> None:
        """At least so many nodes are candidates, as far as there are."""
        super().__init__(args, handle)
        self.preemption = (
            None  # a configuration is being checked
            if handle.preemption is None
            else handle.preemption(
                self.name,
                self.select_victims,
                min_candidate_nodes_percentage=percentage,
                min_candidate_nodes_absolute=absolute,
            )
        )

    def post_filter(
        self, state: CycleState, pod: Pod, statuses: NodeToStatus
    ) -> Answer | Awaitable[Answer]:
        if self.handle.metrics is not None:
            self.handle.metrics.preemption_attempts_total.inc()
        reason = self.why_not_eligible(state, pod, statuses)
        if reason:
            return None, unschedulable(reason)
        assert self.preemption is not None, "pods are tried by a whole scheduler"
        return self.preemption.preempt(state, pod, statuses)

    def why_not_eligible(self, state: CycleState, pod: Pod, statuses: NodeToStatus) -> str:
        """Why the pod may not preempt others; empty if it may."""
        if pod.spec.preemption_policy == "Never":
            return NEVER
        nominated = pod.status.nominated_node_name
        row = self.handle.table.row_of.get(nominated) if nominated else None
        if row is None or statuses.get(nominated).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        still_going = any(
            self.makes_room_for(state, pod, other)
            for other in self.handle.table.pods[row].values()
            if other.pod.metadata.deletion_timestamp is not None
        )
        return STILL_TERMINATING if still_going else ""

    @abstractmethod
    def makes_room_for(self, state: CycleState, pod: Pod, terminating: PodInfo) -> bool:
        """Whether the pod waits for a pod that ends on its nominated node."""

    @abstractmethod
    def select_victims(self, node: Node) -> Any:  # noqa: ANN401  # victims or a Status
        """The pods to evict from a node, or why that does not help."""


def no_victims(node: Node) -> Status:
    name = node.preemptor.pod.metadata.name
    return unresolvable(f"No victims found on node {node.node_name} for preemptor pod {name}")


def reprieve(
    node: Node, possible: Sequence[PodInfo], is_over: Callable[[], bool] = lambda: False
) -> Any:  # noqa: ANN401  # victims or a Status
    """Victims among pods that were taken away: all that cannot be put back.

    Those protected by a budget come first, then the more important ones. `is_over` says whether
    there is another reason than filters not to let a pod stay.
    """
    ranked = node.ranked(possible)
    violates = dict(zip((pod.uid for pod in ranked), node.violated_by(ranked), strict=True))
    victims: set[str] = set()
    violations = 0
    for pod in sorted(ranked, key=lambda pod: not violates[pod.uid]):  # stable
        if failed := node.put(pod):
            return failed
        fits = node.rejection() is None
        if not fits or is_over():
            if failed := node.take(pod):
                return failed
            victims.add(pod.uid)
            violations += violates[pod.uid] and not fits
    return node.victims([pod for pod in ranked if pod.uid in victims], violations)
