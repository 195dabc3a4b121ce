"""A cluster in which pods preempt: a node table, the plugins under test, and everything the
executor talks to.
"""

from __future__ import annotations

import inspect
import re
from random import Random

import pytest
from frameworks import default_framework
from msgspec import structs

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import LabelSelector, ObjectMeta
from kubesched.api.policy_v1 import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from kubesched.base.clock import ManualClock
from kubesched.base.errors import NotFound
from kubesched.base.metrics import MetricsRegistry, SchedulerMetrics
from kubesched.config.features import DEFAULT_GATES
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.nominating_info import NominatingInfo
from kubesched.framework.preemption.victims import Preemptor
from kubesched.framework.runtime.pre_filter import run_pre_filter
from kubesched.framework.status import NodeToStatus
from kubesched.framework.waiting_pods import PodsInPreBind, WaitingPods
from kubesched.insight.state.memory import MemoryListers
from kubesched.plugins.default_preemption import DefaultPreemption
from kubesched.scheduler.algorithm import SchedulingAlgorithm
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.queue.nominator import Nominator
from kubesched.testing import make_node, make_pod

DAY = "2026-01-01T{:02}:00:00Z"
NOON = 1_767_268_800.0  # of that day


class RecordingClient:
    """Takes patches and deletions; `fail` maps a call such as `delete a` to the error it raises."""

    def __init__(self, world):
        self._world = world
        self.calls: list[str] = []
        self.patches: dict[str, dict] = {}
        self.fail: dict[str, Exception] = {}

    async def patch_pod_status(self, pod, patch):
        self._call(f"patch {pod.metadata.name}")
        self.patches[pod.metadata.name] = patch

    async def delete_pod(self, pod):
        self._call(f"delete {pod.metadata.name}")

    def _call(self, call):
        self.calls.append(call)
        if call in self.fail:
            raise self.fail[call]


class RecordingRecorder:
    def __init__(self):
        self.events: list[tuple] = []

    def event(self, regarding, related, type_, reason, action, note):
        self.events.append((regarding.metadata.name, related, type_, reason, action, note))


class Activations:
    def __init__(self):
        self.activated: list[str] = []

    def activate(self, pods):
        self.activated += pods


class PreemptionWorld:
    """Nodes, pods on them, pods nominated to them, and DefaultPreemption of the default profile."""

    def __init__(self, *, gates=DEFAULT_GATES, framework=None, plugin=None, seed=1, parallelism=16):
        self.clock = ManualClock(NOON)
        self.table = NodeTable(4)
        self.cache = Cache(self.table)
        self.listers = MemoryListers()
        self.client = RecordingClient(self)
        self.recorder = RecordingRecorder()
        self.activations = Activations()
        self.metrics = SchedulerMetrics(MetricsRegistry())
        self.waiting_pods = WaitingPods(lambda _s, _f: _Timer())
        self.pods_in_pre_bind = PodsInPreBind()
        self.queued: dict[str, PodInfo] = {}
        self.nominator = Nominator(self.listers.of(Pod), self.queued.get)
        self.spawned: list = []
        self.handle = Handle(
            table=self.table,
            clock=self.clock,
            random=Random(seed),
            listers=self.listers,
            nominator=self.nominator,
            activate=self.activations.activate,
            recorder=self.recorder,
            client=self.client,
            metrics=self.metrics,
            waiting_pods=self.waiting_pods,
            pods_in_pre_bind=self.pods_in_pre_bind,
            feature_gates=gates or DEFAULT_GATES,
            parallelism=parallelism,
            spawn=lambda work, what: self.spawned.append((work, what)),
        )
        make = framework or (lambda handle: default_framework(self.table, handle, gates))
        self.framework = make(self.handle)
        self.plugin = plugin(self.handle) if plugin else self._default_plugin()
        self.algorithm = SchedulingAlgorithm(self.table, Random(seed), parallelism=parallelism)

    def _default_plugin(self):
        found = [p for p in self.framework.post_filter if isinstance(p, DefaultPreemption)]
        return found[0] if found else DefaultPreemption(None, self.handle)

    # What is there.

    def node(self, name, cpu="4", **fields):
        node = make_node(name).capacity(cpu=cpu, memory="32Gi", **fields)
        self.add_node(node)
        return node

    def add_node(self, node):
        self.cache.add_node(node.build())

    def on(self, node, name, cpu="1", priority=0, hour=None, **labels):
        """A pod that runs on a node, since some hour of the day."""
        pod = make_pod(name).on(node).cpu(cpu).priority(priority).labels(**labels)
        if hour is not None:
            pod.status(startTime=DAY.format(hour))
        return self.add(pod)

    def add(self, builder):
        pod = builder.build()
        self.listers.of(Pod).put(pod)
        self.cache.add_pod(pod)
        return pod

    def change(self, pod, **fields):
        """A newer version of a running pod."""
        newer = structs.replace(pod, **fields)
        self.listers.of(Pod).put(newer)
        self.cache.update_pod(pod, newer)
        return newer

    def budget(self, name, allowed, disrupted=(), namespace="default", **labels):
        self.listers.of(PodDisruptionBudget).put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace=namespace),
                spec=PodDisruptionBudgetSpec(
                    selector=LabelSelector(match_labels=labels) if labels else None
                ),
                status=PodDisruptionBudgetStatus(
                    disruptions_allowed=allowed,
                    disrupted_pods=dict.fromkeys(disrupted, DAY.format(0)) or None,
                ),
            )
        )

    def nominate(self, node, name, cpu="1", priority=0, builder=None):
        """A pending pod for which room is being made; `builder` may say more about it."""
        builder = builder or make_pod(name)
        pod = builder.cpu(cpu).priority(priority).nominated(node).build()
        self.listers.of(Pod).put(pod)
        self.queued[f"default/{name}"] = PodInfo(pod)
        self.nominator.add_nominated_pod(PodInfo(pod), NominatingInfo(True, node))
        return pod

    # What happens.

    def pending(self, name="p", cpu="1", priority=100):
        return make_pod(name).cpu(cpu).priority(priority)

    def fail(self, pod, state=None):
        """Try to place a pod that fits nowhere; its cycle state and the filters' verdicts."""
        state = state or CycleState()
        outcome = self.algorithm.schedule(self.framework, state, PodInfo(pod))
        assert outcome.error is not None, f"the pod fits: {outcome}"
        return state, outcome.error.diagnosis.node_to_status

    def preempt(self, builder, statuses: NodeToStatus | None = None):
        """PostFilter's answer as (nominated node or None for "unchanged", message)."""
        pod = builder.build() if hasattr(builder, "build") else builder
        self.listers.of(Pod).put(pod)
        state, found = self.fail(pod)
        answer = self.plugin.post_filter(state, pod, found if statuses is None else statuses)
        assert not inspect.isawaitable(answer)
        return readable(answer)

    async def preempt_and_wait(self, builder):
        pod = builder.build()
        self.listers.of(Pod).put(pod)
        state, found = self.fail(pod)
        answer = self.plugin.post_filter(state, pod, found)
        return readable(await answer if inspect.isawaitable(answer) else answer)

    def preemptor(self, pod):
        """What the dry run takes, after a PreFilter of its own."""
        state = CycleState()
        run_pre_filter(self.framework, state, pod, NodeColumns(self.table))
        return Preemptor(self.framework, state, PodInfo(pod), round(self.clock.now() * 1e6))

    async def run_spawned(self):
        """Do the background work that was started."""
        while self.spawned:
            work, _ = self.spawned.pop(0)
            await work

    def gone(self, pod):
        """The API server no longer knows the pod."""
        name = pod.metadata.name
        self.client.fail |= {
            f"patch {name}": NotFound(f'pods "{name}" not found'),
            f"delete {name}": NotFound(f'pods "{name}" not found'),
        }

    def close(self):
        for work, _ in self.spawned:
            work.close()


class _Timer:
    def cancel(self):
        pass


def readable(answer):
    """Node and message; the message of a success, which names the node, is checked and left out."""
    result, status = answer
    info = None if result is None else result.nominating_info
    node = info.node_name if info is not None and info.override else None
    if status is not None and status.is_success:
        said = f"preemption: found a potential placement for pod on node {node}, preempting "
        assert re.fullmatch(re.escape(said) + "[0-9]+ victims", status.message)
        return node, ""
    return node, "" if status is None else status.message


@pytest.fixture(scope="session")
def world_type():
    """For properties, which need a new world for every example."""
    return PreemptionWorld


@pytest.fixture
def make_world():
    worlds = []

    def make(**options):
        worlds.append(PreemptionWorld(**options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world):
    return make_world()
