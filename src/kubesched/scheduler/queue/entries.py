"""Creates queue entries from pods and their newer versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import Clock
from kubesched.framework.nodes.pods import PodInfo, is_same_class
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.scheduler.queue.nominator import Nominator

Signer = Callable[[PodInfo], bytes | None]
"""Returns the signature by which identical pods share scheduling results, or None."""


class Entries:
    """Creates entries and updates the nominations of their pods."""

    def __init__(
        self,
        clock: Clock,
        signers: Mapping[str, Signer],
        nominator: Nominator,
        *,
        keeps_requests: bool,
    ) -> None:
        self._clock = clock
        self._signers = signers
        self._nominator = nominator
        self._keeps_requests = keeps_requests

    def new(self, pod: Pod) -> QueuedPodInfo:
        info = QueuedPodInfo(PodInfo(pod), self._clock.monotonic())
        info.signature = self.sign(info.pod_info)
        return info

    def newer(self, info: QueuedPodInfo, old: Pod, new: Pod) -> QueuedPodInfo:
        """A copy of an entry with the new pod version: heap members must not change in place."""
        pod_info = PodInfo(new)
        if pod_info.uid == info.pod_info.uid:
            is_same = is_same_class(info.pod_info.pod, new)
            if is_same or self._keeps_requests:
                pod_info.adopt_derived(info.pod_info)
            if not is_same:
                pod_info.class_key = pod_info.shape_key = None
        newer = copy(info)
        newer.pod_info = pod_info
        newer.signature = self.sign(pod_info)
        self._nominator.update_nominated_pod(old, pod_info)
        return newer

    def sign(self, pod_info: PodInfo) -> bytes | None:
        signer = self._signers.get(pod_info.pod.spec.scheduler_name)
        return None if signer is None else signer(pod_info)
