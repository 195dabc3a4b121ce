"""Binding by callback: an optional in-tree addition to `bind`, not part of the plugin contract."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable

from kubesched.api.core_v1 import Pod
from kubesched.framework.interfaces import BindPlugin
from kubesched.framework.status import Status

BindOutcome = Callable[[], Awaitable[Status | None]]
"""The remaining work of a started binding; returns what `bind` would have returned."""


class DirectBindPlugin(BindPlugin):
    """A Bind plugin that can bind without a task waiting for the response."""

    @property
    @abstractmethod
    def binds_directly(self) -> bool:
        """True if `start_bind` may be called; may depend on the client."""

    @abstractmethod
    def start_bind(
        self, pod: Pod, node_name: str, done: Callable[[BindOutcome | None], None]
    ) -> Callable[[], None]:
        """Start binding; returns a function that cancels it.

        `done` is called once, later: with None if the pod is bound, else with the remaining work.
        """
