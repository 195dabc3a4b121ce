"""Extenders: the interface to services outside the process that take part in scheduling decisions."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kubesched.api.core_v1 import Node, Pod


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to be evicted from one node to make room."""

    pods: tuple[Pod, ...]
    """The most important first, unless an extender changed the order."""
    pdb_violations: int = 0
    """How many of the evictions violate a disruption budget."""


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """Nodes an extender lets pass, and its reasons for the others."""

    node_names: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    """Failed, and evicting pods would not help."""
    forgets_pods: bool = False
    """The extender answered with node objects.

    # Upstream: such nodes are scored as if no pod were on them, and no image.
    """


class Extender(Protocol):
    """One extender. Its URL is its name in messages."""

    @property
    def name(self) -> str: ...

    @property
    def is_ignorable(self) -> bool:
        """Is its failure ignored?"""
        ...

    @property
    def is_filter(self) -> bool:
        """Does it rule out nodes?"""
        ...

    @property
    def is_prioritizer(self) -> bool:
        """Does it rank nodes?"""
        ...

    @property
    def is_binder(self) -> bool:
        """Does it bind pods itself?"""
        ...

    @property
    def supports_preemption(self) -> bool: ...

    def is_interested(self, pod: Pod) -> bool:
        """Does it take part in decisions about this pod?"""
        ...

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> Awaitable[ExtenderFilterResult]:
        """The nodes that pass; raises a `KubeschedError` on failure."""
        ...

    def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Awaitable[Sequence[tuple[str, int]]]:
        """(node, weighted points in units of the total score); nodes may be missing or come twice."""
        ...

    def bind(self, pod: Pod, node_name: str) -> Awaitable[None]:
        """Bind the pod; raises a `KubeschedError` on failure."""
        ...

    def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Awaitable[Mapping[str, Victims]]:
        """The victims that are left, by node name; raises a `KubeschedError` on failure.

        The answer may reorder and change victims, leave nodes out, and name other nodes of the
        snapshot.
        """
        ...
