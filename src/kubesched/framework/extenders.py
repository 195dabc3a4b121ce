"""Extenders: the interface to external services that take part in scheduling decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubesched.api.core_v1 import Node, Pod
from kubesched.base.errors import ApiError, KubeschedError, TransportError


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to be evicted from one node to make room."""

    pods: tuple[Pod, ...]
    """Most important first, unless an extender changed the order."""
    pdb_violations: int = 0
    """Number of evictions that violate a disruption budget."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """The nodes that pass an extender, and its reasons for rejecting the others."""

    node_names: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """Rejected, and evicting pods would not help."""
    forgets_pods: bool = False
    """True if the extender returned node objects.

    # Upstream: such nodes are scored as if no pod were on them, and no image.
    """


class Extender(Protocol):
    """One extender. Messages use its URL as the name."""

    @property
    def name(self) -> str: ...

    @property
    def is_ignorable(self) -> bool:
        """True if its failures are ignored."""
        ...

    @property
    def is_filter(self) -> bool:
        """True if it filters nodes."""
        ...

    @property
    def is_prioritizer(self) -> bool:
        """True if it scores nodes."""
        ...

    @property
    def is_binder(self) -> bool:
        """True if it binds pods itself."""
        ...

    @property
    def supports_preemption(self) -> bool: ...

    def is_interested(self, pod: Pod) -> bool:
        """True if it takes part in decisions about this pod."""
        ...

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> Awaitable[ExtenderFilterResult]:
        """The nodes that pass; raises a `KubeschedError` on failure."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Awaitable[Sequence[tuple[str, int]]]:
        """(node, weighted score on the total's scale); nodes may be missing or repeated."""
        ...

    def bind(self, pod: Pod, node_name: str) -> Awaitable[None]:
        """Bind the pod; raises a `KubeschedError` on failure."""
        ...

    def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Awaitable[Mapping[str, Victims]]:
        """The remaining victims by node name; raises a `KubeschedError` on failure.

        The response may reorder and change victims, omit nodes, and add nodes of the snapshot.
        """
        ...


def may_be_skipped(extender: Extender, error: KubeschedError) -> bool:
    """Whether an attempt goes on without an extender that failed.

    That the pod, a victim or a node could not be read for the question is not its failure: the pod
    may be gone, and must not evict anyone without the extender's consent.
    """
    return extender.is_ignorable and not isinstance(error, ApiError | TransportError)
