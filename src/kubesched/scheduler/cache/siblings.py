"""Sharing of derived values between pods with equal specs.

The informer stores equal parts of pods once (`informers.sharing`), so pods of one ReplicaSet have
the identical list of containers. That list is the key to the values computed for the first pod.
"""

from __future__ import annotations

from functools import partial
from weakref import ref

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import same_resource_status
from kubesched.framework.nodes.pods import Derived, PodInfo, label_key_of


class Siblings:
    """Derived values by their list of containers, dropped with the last pod that uses them."""

    __slots__ = ("_by_containers",)

    def __init__(self) -> None:
        self._by_containers: dict[int, ref[Derived]] = {}
        """By identity, which stays unique because the values hold a reference to their pod."""

    def share(self, info: PodInfo) -> bool:
        """Share the values of an earlier equivalent pod; False if there is none."""
        known = self._by_containers.get(id(info.pod.spec.containers))
        derived = None if known is None else known()
        if derived is None or derived.pod is None or not _count_alike(derived.pod, info.pod):
            return False
        assert derived.label_key is not None, "noted without its labels"
        info.share_derived(derived, derived.label_key)
        return True

    def note(self, info: PodInfo) -> None:
        """Store the values computed for a pod."""
        derived = info.derived
        derived.pod = info.pod
        derived.label_key = info.label_key = label_key_of(info.pod)
        key = id(info.pod.spec.containers)
        self._by_containers[key] = ref(derived, partial(self._forget, key))

    def _forget(self, key: int, gone: ref[Derived]) -> None:
        if self._by_containers.get(key) is gone:
            del self._by_containers[key]


def _count_alike(one: Pod, other: Pod) -> bool:
    """True if requests, ports, terms and labels are equal; shared parts compare by identity."""
    spec, other_spec = one.spec, other.spec
    return (
        spec.containers is other_spec.containers
        and spec.init_containers is other_spec.init_containers
        and spec.volumes is other_spec.volumes
        and spec.affinity is other_spec.affinity
        and one.metadata.labels is other.metadata.labels
        and one.metadata.namespace == other.metadata.namespace
        and spec.host_network == other_spec.host_network
        and spec.overhead == other_spec.overhead
        and spec.resources == other_spec.resources
        and one.status.node_allocatable_resource_claim_statuses
        == other.status.node_allocatable_resource_claim_statuses
        and same_resource_status(one, other)
    )
