"""A small cluster around VolumeBinding, whose API and watch are in the test's hands."""

import asyncio

import msgspec
from frameworks import framework_of
from judging import cluster
from storage_objects import (
    BIND_COMPLETED,
    MemoryListers,
    claim,
    storage_class,
    volume,
)

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.base.clock import ManualClock
from kubesched.base.errors import Conflict
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.metrics.scheduler import SchedulerMetrics
from kubesched.config.plugin_args import VolumeBindingArgs
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime.bind import run_pre_bind
from kubesched.testing import make_node

NO_PROVISIONER = "kubernetes.io/no-provisioner"


class Api:
    """Takes writes, gives out revisions, and fails when told to.

    The watch shows what was written when asked to.
    """

    def __init__(self, listers):
        self.listers = listers
        self.written = []
        self.fail_at = None
        self.is_lagging = False
        self.revision = 100

    async def update(self, obj):
        if self.fail_at is not None and len(self.written) == self.fail_at:
            raise Conflict(f'Operation cannot be fulfilled on "{obj.metadata.name}"')
        self.revision += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.revision))
        obj = msgspec.structs.replace(obj, metadata=meta)
        self.written.append(obj)
        if not self.is_lagging:
            self.listers.put(obj)
        return obj

    def show(self):
        for obj in self.written:
            self.listers.put(obj)


class World:
    """Nodes n1 (zone a) and n2 (zone b), storage, an API, and the plugin."""

    def __init__(self, *objects, timeout_s=600):
        self.nodes = [make_node("n1").zone("a"), make_node("n2").zone("b")]
        self.table = cluster(*self.nodes)
        self.listers = MemoryListers(*objects, *(node.build() for node in self.nodes))
        self.api = Api(self.listers)
        self.clock = ManualClock()
        self.registry = MetricsRegistry()
        self.handle = Handle(
            self.table,
            clock=self.clock,
            listers=self.listers,
            client=self.api,
            metrics=SchedulerMetrics(self.registry),
        )
        args = VolumeBindingArgs(bind_timeout_seconds=timeout_s)
        self.framework = framework_of(
            self.table, "VolumeBinding", args={"VolumeBinding": args}, handle=self.handle
        )
        (self.plugin,) = self.framework.reserve

    def failures(self, stage):
        return self.handle.metrics.volume_scheduling_stage_error_total.labels(stage).value

    def filter(self, pod):
        """Run the filter for all nodes; returns the state and the pod."""
        built, state = pod.build(), CycleState()
        self.listers.put(built)
        nodes = NodeColumns(self.table)
        assert self.plugin.pre_filter(state, built, nodes) is None
        self.plugin.filter_nodes(state, built, nodes)
        return state, built

    def reserve(self, pod, node="n1"):
        state, built = self.filter(pod)
        assert self.plugin.reserve(state, built, node) is None
        return state, built

    def pre_bind(self, state, pod, node="n1"):
        return run_pre_bind(self.framework, state, pod, node)

    def volume(self, name):
        return self.listers.of(PersistentVolume).get("", name)

    def claim(self, name):
        return self.listers.of(PersistentVolumeClaim).get("default", name)

    def complete(self, claim_name, volume_name):
        """What the volume controller does."""
        result = self.claim(claim_name)
        annotations = {**(result.metadata.annotations or {}), BIND_COMPLETED: "yes"}
        self.change(result, annotations=annotations, volume_name=volume_name)

    def change(self, obj, annotations=None, **spec):
        """Another client writes an object: its metadata's annotations and parts of its spec."""
        self.api.revision += 1
        meta = msgspec.structs.replace(
            obj.metadata, resource_version=str(self.api.revision), annotations=annotations
        )
        replace = msgspec.structs.replace
        self.listers.put(replace(obj, metadata=meta, spec=replace(obj.spec, **spec)))


def static(*objects, **fields):
    """One claim and one volume for it."""
    return World(
        claim("c"),
        volume("v"),
        storage_class(provisioner=NO_PROVISIONER),
        *objects,
        **fields,
    )


def dynamic(*objects, **fields):
    return World(claim("c"), storage_class(), *objects, **fields)


async def settled(condition, *, steps=1000):
    """Let other tasks run until a condition holds."""
    for _ in range(steps):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")
