"""The cast of a cluster: controllers that turn desired state into pods, volumes and verdicts.

Every controller watches through `informers`, notes keys in its `workqueue`, and brings one key at a
time to its desired state (`controller`). All of them live beside the API server in one process and
speak to it through `LocalApi`; time and chance come in as parameters, so the same cast runs under a
real clock, a manual one in tests, and a virtual one in simulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubesched.embedded.controllers.manager import ControllerOptions, ControllerSet, start_all

__all__ = ["ControllerOptions", "ControllerSet", "start_all"]


def __getattr__(name: str) -> object:
    # The manager imports the kubelets, and they this package: importing it here would go in circles.
    if name in __all__:
        from kubesched.embedded.controllers import manager

        return getattr(manager, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
