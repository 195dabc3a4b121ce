"""Extenders: parties outside the process that have a say in decisions, as far as the decision core knows them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kubesched.api.core_v1 import Pod


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to be evicted from one node to make room."""

    pods: tuple[Pod, ...]
    """The most important first, unless an extender thinks otherwise."""
    pdb_violations: int = 0
    """How many of them no disruption budget can spare."""


class Extender(Protocol):
    """One extender. Its URL is its name in messages."""

    @property
    def name(self) -> str: ...

    @property
    def is_ignorable(self) -> bool:
        """Do decisions go on without it when it fails?"""
        ...

    @property
    def supports_preemption(self) -> bool: ...

    def is_interested(self, pod: Pod) -> bool:
        """Does it care about this pod at all?"""
        ...

    def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Awaitable[Mapping[str, Victims]]:
        """What is left of the proposed victims, by node name; raises a `KubeschedError` when it cannot say.

        Its answer may reorder and change victims, leave nodes out, and name other nodes of the snapshot.
        """
        ...
