"""From a state and a configuration to an `Explainer`, with notes on what its answers cannot say."""

from __future__ import annotations

from dataclasses import replace

from kubesched.config.defaults import with_extender_resources
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.explain.explainer import Explainer
from kubesched.framework.registry import Registry
from kubesched.scheduler.algorithm import MIN_FEASIBLE_NODES_TO_FIND
from kubesched.state.cluster_state import ClusterState
from kubesched.state.memory import in_memory_scheduler

SAMPLING = (
    "kube-scheduler looks at a part of the nodes only, unless percentageOfNodesToScore is 100; which part is not known, "
    "so that on a cluster it schedules a node further down may be taken"
)


def explainer_of(
    state: ClusterState,
    config: KubeSchedulerConfiguration | None = None,
    *,
    gates: FeatureGates = DEFAULT_GATES,
    registry: Registry | None = None,
) -> Explainer:
    """An explainer over a scheduler in memory that knows the state.

    Raises:
        ConfigError: the configuration names plugins that do not exist or do not fit.
    """
    config = config or default_config(gates)
    notes = [*state.notes]
    if config.extenders:
        asked = ", ".join(each.url_prefix for each in config.extenders)
        notes.append(f"extenders were not asked: {asked}; they may reject or prefer nodes")
        # What extenders manage, NodeResourcesFit ignores, whether they are asked or not.
        config = replace(with_extender_resources(config), extenders=())
    scheduler = in_memory_scheduler(state, config, gates=gates, registry=registry, classes=False)
    notes += [f"left out, as the scheduler would: {problem}" for problem in scheduler.problems]
    sampled = config.percentage_of_nodes_to_score != 100
    if sampled and scheduler.assembly.table.node_count > MIN_FEASIBLE_NODES_TO_FIND:
        notes.append(SAMPLING)
    return Explainer(scheduler.assembly, notes=notes)
