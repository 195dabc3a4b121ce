"""What the tests of explanations share: small states, and explainers over them."""

from __future__ import annotations

from typing import Any

from kubesched.api.core_v1 import Pod
from kubesched.config.load import load
from kubesched.insight.explain import Explainer, Explanation
from kubesched.insight.explain.sources import explainer_of
from kubesched.insight.state.cluster_state import ClusterState

HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def state_of(*builders: Any) -> ClusterState:
    """A state of objects and builders of objects."""
    state = ClusterState("test")
    for builder in builders:
        state.put(builder.build() if hasattr(builder, "build") else builder)
    return state


def explainer(*builders: Any, config: str = "") -> Explainer:
    return explainer_of(state_of(*builders), load((HEADER + config).encode()) if config else None)


def explain(pod: Any, *builders: Any, config: str = "", **options: Any) -> Explanation:
    """The explanation of a pod that is part of the state."""
    built: Pod = pod.build()
    return explainer(built, *builders, config=config).explain(built, **options)
