"""Our decision for a recorded pod, made by the production code."""

from __future__ import annotations

from random import Random

from msgspec import structs

from kubesched.api.core_v1 import Namespace, Pod
from kubesched.api.meta import ObjectMeta
from kubesched.api.quantity import QuantityError
from kubesched.base.clock import Clock
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.load import default_config, load
from kubesched.config.types import DEFAULT_SCHEDULER_NAME, KubeSchedulerConfiguration
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.diagnosis import FitError
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.status import Status
from kubesched.insight.state.cluster_state import ClusterState
from kubesched.insight.state.memory import in_memory_scheduler
from kubesched.lab.conformance.recordings import (
    Placement,
    RecordedAnswer,
    RecordingError,
    Rejection,
)
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.algorithm import Feasible, SchedulingAlgorithm


class Cluster:
    """A recorded cluster on which pods can be placed."""

    def __init__(
        self,
        placement: Placement,
        gates: FeatureGates = DEFAULT_GATES,
        *,
        client: SchedulerClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Raises RecordingError if an object is invalid."""
        for pod in placement.pods:
            if not pod.spec.node_name:
                raise RecordingError(f"pod {PodInfo(pod).key} among the bound ones names no node")
        scheduler = in_memory_scheduler(
            state_of(placement),
            config_of(placement, gates),
            gates=gates,
            registry=in_tree_registry(),
            client=client,
            clock=clock,
            classes=False,
        )
        if scheduler.problems:
            raise RecordingError(
                scheduler.problems[0].partition(": ")[2]
            )  # the message names the object
        self.listers = scheduler.listers
        self.table = scheduler.assembly.table
        self.table.refresh()
        self._frameworks = scheduler.assembly.frameworks
        self._algorithm = SchedulingAlgorithm(self.table, Random(0), parallelism=1)

    def framework_for(self, pod: Pod) -> Framework:
        name = pod.spec.scheduler_name or DEFAULT_SCHEDULER_NAME
        framework = self._frameworks.get(name)
        if framework is None:
            raise RecordingError(f"pod {PodInfo(pod).key} wants the unknown scheduler {name}")
        return framework

    def place(self, pod: Pod, state: CycleState | None = None) -> RecordedAnswer:
        """Our answer for the pod on this cluster, with scores even if only one node is feasible."""
        table, state, info = self.table, state or CycleState(), PodInfo(pod)
        framework = self.framework_for(pod)
        self._algorithm.next_start = 0
        try:
            outcome = run_pre_filter(framework, state, pod, NodeColumns(table))
            feasible = self._algorithm.find_nodes_that_fit(framework, state, info, outcome)
        except QuantityError as error:
            raise RecordingError(str(error)) from error
        if feasible.error is not None:
            return _failure(feasible.error)
        feasible.explain()
        names = [table.names[row] for row in feasible.rows.tolist()]
        if not names:
            message = str(FitError(info.key, table.node_count, feasible.diagnosis))
            return RecordedAnswer([], {}, {}, self._rejections(feasible, names), message)
        outcome_of_scoring = self._algorithm.score(framework, state, pod, feasible.rows)
        if outcome_of_scoring.error is not None:
            return _failure(outcome_of_scoring.error)
        by_plugin = {
            plugin: column.tolist() for plugin, column in outcome_of_scoring.by_plugin.items()
        }
        return RecordedAnswer(
            names,
            dict(zip(names, outcome_of_scoring.totals.tolist(), strict=True)),
            {
                name: {plugin: column[at] for plugin, column in by_plugin.items()}
                for at, name in enumerate(names)
            },
            self._rejections(feasible, names),
        )

    def _rejections(self, feasible: Feasible, passing: list[str]) -> dict[str, Rejection]:
        statuses = feasible.diagnosis.node_to_status
        rejected = [name for name in self.table.row_of if name not in set(passing)]
        return {name: _rejection(statuses.get(name)) for name in rejected}


def _failure(status: Status) -> RecordedAnswer:
    return RecordedAnswer([], {}, {}, {}, error=status.message)


def _rejection(status: Status) -> Rejection:
    return Rejection(status.plugin, status.code.upstream_name, list(status.all_reasons))


def state_of(placement: Placement) -> ClusterState:
    """The objects of a recorded cluster."""
    state = ClusterState("recording")
    for name, labels in placement.namespaces.items():
        state.put(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    for field, objects in structs.asdict(placement).items():
        if field not in ("namespaces", "pending", "configuration"):
            for obj in objects:
                state.put(obj)
    return state


def config_of(placement: Placement, gates: FeatureGates) -> KubeSchedulerConfiguration:
    """The recorded configuration, or the default one."""
    written = bytes(placement.configuration)
    return load(written, "configuration", gates) if written else default_config(gates)
