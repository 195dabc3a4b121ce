"""Builds an `Explainer` from a state and a configuration, with notes on its limits."""

from __future__ import annotations

from collections.abc import Callable

from kubesched.config.defaults import without_extenders
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.registry import Registry
from kubesched.insight.explain.explainer import Explainer
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import PretendingClient, in_memory_scheduler
from kubesched.insight.state.planned_cluster import PlannedCluster
from kubesched.scheduler.algorithm import MIN_FEASIBLE_NODES_TO_FIND

SAMPLING = (
    "kube-scheduler looks at a part of the nodes only, unless percentageOfNodesToScore is 100; "
    "which part is not known, "
    "so that on a cluster it schedules a node further down may be taken"
)


def explainer_of(
    state: ClusterState,
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
) -> Explainer:
    """An explainer over an in-memory scheduler loaded with the state.

    Configured extenders are not called; a note names them.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    config = config or default_config(gates)
    config, not_asked = without_extenders(config)
    notes = [*state.notes, *not_asked]
    scheduler = in_memory_scheduler(
        state,
        config,
        gates=gates,
        registry=registry,
        client=PretendingClient(),
        classes=False,
    )
    notes += [f"left out, as the scheduler would: {problem}" for problem in scheduler.problems]
    sampled = config.percentage_of_nodes_to_score != 100
    if sampled and scheduler.assembly.table.node_count > MIN_FEASIBLE_NODES_TO_FIND:
        notes.append(SAMPLING)
    copy = copier(config, gates, registry)
    return Explainer(scheduler.assembly, notes=notes, copy=copy, state=state, is_fixed=True)


def copier(
    config: KubeSchedulerConfiguration, gates: FeatureGates, registry: Registry | None = None
) -> Callable[[ClusterState], PlannedCluster]:
    """Makes clusters with this configuration, without extenders, in which fixes are tried."""
    config, _ = without_extenders(config)
    return lambda state: PlannedCluster(state, config, gates=gates, registry=registry)
