"""Volumes and claims that a scheduler assumed and released unwritten, and pods that missed them.

As in kube-scheduler, no event reports the release: a pod that found none in the meantime waits for
another event, or five minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.names import key_of
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.status import Status
from kubesched.framework.verdicts import Verdicts
from kubesched.plugins.volume_binding import VolumeBinding
from kubesched.plugins.volume_binding.assume_cache import AssumeCache
from kubesched.scheduler.factory import Assembly

_Revision = tuple[type[Any], str, str]
"""Kind, key and resource version."""


class WatchedVolumeBinding(VolumeBinding):
    """The production plugin; also remembers what was assumed during each pod's last search."""

    def __init__(self, args: Any, handle: Handle) -> None:  # noqa: ANN401  # the plugin's own arguments
        super().__init__(args, handle)
        self._assumed_for_others: dict[str, set[_Revision]] = {}
        """By UID of the searching pod."""

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        self._assumed_for_others.pop(pod.metadata.uid, None)
        return super().pre_filter(state, pod, nodes)

    def filter_nodes(
        self, state: CycleState, pod: Pod, nodes: NodeColumns
    ) -> Verdicts | Status | None:
        seen = self._assumed_for_others.setdefault(pod.metadata.uid, set())
        for kind in (PersistentVolume, PersistentVolumeClaim):
            seen.update(self._assumed(kind))
        return super().filter_nodes(state, pod, nodes)

    def _assumed(self, kind: type[Any]) -> Iterator[_Revision]:
        cache = self._cache_of(kind)
        if not len(cache):
            return
        assert self.handle.listers is not None, "a scheduler has listers"
        for listed in self.handle.listers.of(kind).list():
            key = key_of(listed.metadata)
            if cache.get(key) is not listed:
                yield kind, key, listed.metadata.resource_version

    def _cache_of(self, kind: type[Any]) -> AssumeCache[Any]:
        return self._storage.volumes if kind is PersistentVolume else self._storage.claims

    def kept_from(self, pod: Pod, obj: PersistentVolume | PersistentVolumeClaim) -> bool:
        """Whether the object was assumed in the pod's last search, and is free now, unchanged."""
        kind, key = type(obj), key_of(obj.metadata)
        cache = self._cache_of(kind)
        listed = cache.listed(key)
        if cache.get(key) is not listed or listed is None:
            return False
        revision = kind, key, listed.metadata.resource_version
        return revision in self._assumed_for_others.get(pod.metadata.uid, ())


def was_not_told(assembly: Assembly, pod: Pod, obj: Any) -> bool:  # noqa: ANN401  # of any kind
    """Whether the pod waits for a volume or claim that was released after its last attempt."""
    if not isinstance(obj, PersistentVolume | PersistentVolumeClaim):
        return False
    waiting = assembly.scheduler.queue.get_pod(pod.metadata.namespace, pod.metadata.name)
    if waiting is None or VolumeBinding.name not in waiting.unschedulable_plugins:
        return False
    return any(
        isinstance(plugin, WatchedVolumeBinding) and plugin.kept_from(pod, obj)
        for framework in assembly.frameworks.values()
        for plugin in framework.plugins
    )
