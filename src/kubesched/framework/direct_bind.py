"""Binding by callback: what a Bind plugin of this package may offer beside `bind`.

Not part of the plugin contract.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable

from kubesched.api.core_v1 import Pod
from kubesched.framework.interfaces import BindPlugin
from kubesched.framework.status import Status

BindOutcome = Callable[[], Awaitable[Status | None]]
"""The rest of a started binding: returns what `bind` would have returned."""


class DirectBindPlugin(BindPlugin):
    """A Bind plugin that needs no task to wait for the answer."""

    @property
    @abstractmethod
    def binds_directly(self) -> bool:
        """Whether `start_bind` may be called: it may depend on the client."""

    @abstractmethod
    def start_bind(
        self, pod: Pod, node_name: str, done: Callable[[BindOutcome | None], None]
    ) -> Callable[[], None]:
        """Start binding; returns a function that cancels it.

        `done` is called once, later: with None when the pod is bound, otherwise with what is left
        to do.
        """
