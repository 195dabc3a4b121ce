"""The scheduler's own state at a point of a recording, from which the recording can be replayed.

The checkpoint already holds the objects. This adds the state that they do not determine: the queue
with its history, nominations, assumed pods, rows and orders of the node table, where the next
search starts, and the seed for the random generator. It is taken while the scheduler is *idle*:
nothing is in flight, so no coroutines and no plugin state have to be saved. Cached results of pod
classes are not saved; the running scheduler drops them, too (`begin_anew`), because they save
random draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import msgspec

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.resources import accounted_requests
from kubesched.framework.engine import is_idle
from kubesched.framework.handle import Lister, Listers
from kubesched.framework.interfaces import Plugin
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.saved_table import SavedTable
from kubesched.scheduler.cache.cache import Cache
from kubesched.scheduler.queue.contents import Queued
from kubesched.scheduler.queue.nominator import PodReference
from kubesched.scheduler.queue.saved_queue import SavedQueue
from kubesched.scheduler.queue.scheduling_queue import SchedulingQueue

if TYPE_CHECKING:
    from kubesched.scheduler.algorithm import SchedulingAlgorithm
    from kubesched.scheduler.background import BackgroundTasks

NameOfNode = str


class SchedulerState(msgspec.Struct):
    """An idle scheduler, without the objects it watches."""

    seed: int
    """Seed of the random numbers from here on."""
    next_start: int
    spawned: int
    """Number of background tasks started so far."""
    queue: SavedQueue
    nominations: dict[NameOfNode, list[PodReference]]
    table: SavedTable
    assumed: dict[str, NameOfNode]
    """Node by UID of pods that are bound, but not yet confirmed by the watch."""


@dataclass(slots=True, eq=False)
class Checkpoints:
    """Saves and restores the state of one scheduler."""

    _queue: SchedulingQueue
    _cache: Cache
    _algorithm: SchedulingAlgorithm
    _random: Random
    _listers: Listers
    _plugins: Sequence[Plugin]
    _background: BackgroundTasks

    def take(self) -> SchedulerState | None:
        """The state, which `begin_anew` must follow; None if a pod is in flight or a plugin busy.

        The caller ensures that no running task changes data that decisions read.
        """
        queue, cache = self._queue, self._cache
        if not queue.can_be_saved or not all(map(is_idle, self._plugins)):
            return None
        if not self._agrees_with_listers():
            return None
        return SchedulerState(
            seed=self._random.getrandbits(63),
            next_start=self._algorithm.next_start,
            spawned=self._background.spawned,
            queue=queue.save(),
            nominations=queue.nominator.references(),
            table=SavedTable.of(cache.table),
            assumed={pod.uid: pod.pod.spec.node_name for pod in cache.assumed_pods()},
        )

    def begin_anew(self, seed: int) -> None:
        """Drop state that a checkpoint does not hold, both when recording and when replaying."""
        algorithm = self._algorithm
        self._queue.dissolve_classes()
        self._cache.begin_anew()
        if algorithm.engine is not None:
            algorithm.engine.forget()
        for batching in algorithm.batching.values():
            batching.forget()
        self._random.seed(seed)

    def restore(self, state: SchedulerState) -> None:
        """Restore a state into a new scheduler.

        The listers already hold the objects; no handler has seen them.
        """
        nodes: Lister[Node] = self._listers.of(Node)
        pods: Lister[Pod] = self._listers.of(Pod)
        by_uid = {pod.metadata.uid: pod for pod in pods.list()}
        cache, table = self._cache, self._cache.table
        state.table.place_nodes(table, {node.metadata.name: node for node in nodes.list()})
        for uids in (*state.table.pods, *state.table.ghosts.values()):
            for uid in uids:
                node_name = state.assumed.get(uid)
                if node_name is None:
                    cache.add_pod(by_uid[uid])
                else:
                    cache.assume_pod(PodInfo(by_uid[uid]).assumed_on(node_name))
        state.table.restore_memory(table)
        self._queue.restore(state.queue, self._listed_pod)
        self._queue.nominator.restore(state.nominations)
        self._algorithm.next_start = state.next_start
        self._background.spawned = state.spawned
        self.begin_anew(state.seed)

    def _agrees_with_listers(self) -> bool:
        """True if nodes, assumed pods and queue entries can be rebuilt from the listers."""
        nodes: Lister[Node] = self._listers.of(Node)
        if self._cache.table.node_count != len(nodes.list()):
            return False
        for pod in self._cache.assumed_pods():
            listed = self._find(pod.namespace, pod.name)
            if listed is None or listed.metadata.uid != pod.uid:
                return False
        return all(map(self._is_as_listed, self._queue.entries()))

    def _is_as_listed(self, queued: Queued) -> bool:
        info = queued.info.pod_info
        if self._find(info.namespace, info.name) is not info.pod:
            return False
        # Upstream: a queued pod keeps the requests of its first version, even if they change.
        is_first = (info.pod.metadata.generation or 0) <= 1
        return is_first or info.requests == accounted_requests(info.pod)

    def _find(self, namespace: str, name: str) -> Pod | None:
        pod: Pod | None = self._listers.of(Pod).get(namespace, name)
        return pod

    def _listed_pod(self, key: str) -> Pod:
        namespace, _, name = key.partition("/")
        pod = self._find(namespace, name)
        assert pod is not None, f"{key} waits in the queue, but is not in the checkpoint"
        return pod
