"""From a state and a configuration to an `Explainer`, with notes on what its answers cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.config.defaults import without_extenders
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.errors import NotFound
from kubesched.explain.explainer import Explainer, Run
from kubesched.explain.extenders import KeptObjects
from kubesched.framework.registry import Registry
from kubesched.scheduler.algorithm import MIN_FEASIBLE_NODES_TO_FIND
from kubesched.scheduler.http_extender import make_extenders
from kubesched.state.cluster_state import ClusterState
from kubesched.state.memory import in_memory_scheduler

SAMPLING = (
    "kube-scheduler looks at a part of the nodes only, unless percentageOfNodesToScore is 100; which part is not known, "
    "so that on a cluster it schedules a node further down may be taken"
)


R = TypeVar("R", bound=Record)


class PretendingClient:
    """A client whose writes succeed and change nothing: PostFilter plugins go on to say what they would have said."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None: ...

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None: ...

    async def delete_pod(self, pod: Pod) -> None: ...

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        raise NotFound(f'{kind.__name__} "{namespace}/{name}" is not read here')

    async def create(self, obj: R) -> R:
        return obj

    async def update(self, obj: R) -> R:
        return obj

    async def update_status(self, obj: R) -> R:
        return obj

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        raise NotFound(f'{kind.__name__} "{namespace}/{name}" is not read here')

    async def delete(self, obj: Record) -> None: ...


def explainer_of(
    state: ClusterState,
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
    ask_extenders: Run | None = None,
) -> Explainer:
    """An explainer over a scheduler in memory that knows the state.

    `ask_extenders` runs the questions to configured extenders to their end; without it they are not asked.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    config = config or default_config(gates)
    notes = [*state.notes]
    if config.extenders and ask_extenders is not None:
        notes.append("extenders were sent the objects without fields that scheduling does not read")
    else:
        config, not_asked = without_extenders(config)
        notes += not_asked
    scheduler = in_memory_scheduler(
        state,
        config,
        gates=gates,
        registry=registry,
        client=PretendingClient(),
        classes=False,
        extenders=lambda configured, table: make_extenders(configured, KeptObjects(), table),
    )
    notes += [f"left out, as the scheduler would: {problem}" for problem in scheduler.problems]
    sampled = config.percentage_of_nodes_to_score != 100
    if sampled and scheduler.assembly.table.node_count > MIN_FEASIBLE_NODES_TO_FIND:
        notes.append(SAMPLING)
    return Explainer(scheduler.assembly, notes=notes, run=ask_extenders)
