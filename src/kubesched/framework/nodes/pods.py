"""PodInfo: a pod with the derived values that the scheduler reads repeatedly.

Derived values are computed on first use and then kept: the amounts subtracted from a node's sums
are exactly those that were added, even if the pod object was replaced in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from kubesched.api.affinity_terms import AffinityTerms, parse_affinity_terms
from kubesched.api.core_v1 import Pod
from kubesched.api.host_ports import HostPort, pod_host_ports
from kubesched.api.pod_volumes import CLAIM, volume_uses
from kubesched.api.resources import (
    PodRequests,
    RequestOptions,
    accounted_requests,
    nonzero_requests,
)

if TYPE_CHECKING:
    from kubesched.api.affinity_terms import AffinityTerm
    from kubesched.framework.nodes.pod_index import LabelClass, TermKey

LabelKey = tuple[str, tuple[tuple[str, str], ...]]


class Derived:
    """Values derived from a pod on first use. Pods with equal specs may share one record."""

    __slots__ = (
        "__weakref__",
        "affinity",
        "label_key",
        "nonzero",
        "pod",
        "ports",
        "requests",
        "term_keys",
        "volume_uses",
    )

    def __init__(self) -> None:
        self.pod: Pod | None = None
        """For shared values: the pod they were computed from, with its labels."""
        self.label_key: LabelKey | None = None
        self.requests: PodRequests | None = None
        self.nonzero: tuple[int, int] | None = None
        self.ports: tuple[HostPort, ...] | None = None
        self.affinity: AffinityTerms | None = None
        self.volume_uses: int | None = None
        self.term_keys: tuple[tuple[TermKey, AffinityTerm], ...] | None = None
        """The affinity terms as the pod index counts them."""


class PodInfo:
    """A pod and its derived values. The pod may be swapped for a newer version of the same UID."""

    __slots__ = (
        "_claims",
        "_derived",
        "class_key",
        "key",
        "label_class",
        "label_key",
        "namespace",
        "pod",
        "priority",
        "shape_key",
        "uid",
    )

    def __init__(self, pod: Pod) -> None:
        self._load(pod)

    def _load(self, pod: Pod) -> None:
        meta = pod.metadata
        self.pod = pod
        self.uid = meta.uid
        self.namespace = meta.namespace
        self.key = f"{meta.namespace}/{meta.name}"
        self.priority = pod.spec.priority or 0
        self.label_class: LabelClass | None = None
        """The pod's label class in the pod index; None while it is not on a node."""
        self.label_key: LabelKey | None = None
        """Namespace and labels as a pod index key; None until computed."""
        self.class_key: bytes | None = None
        """Equivalence-class signature, computed when the pod is first queued."""
        self.shape_key: bytes | None = None
        """The part of the signature without labels and owner; set together with it."""
        self._derived: Derived | None = None
        self._claims: tuple[str, ...] | None = None
        """Not in `Derived`: pods of one class may have different claim names."""

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def derived(self) -> Derived:
        derived = self._derived
        if derived is None:
            derived = self._derived = Derived()
        return derived

    @property
    def requests(self) -> PodRequests:
        """The requests charged to the node, status included: a pending resize counts in full."""
        derived = self.derived
        if derived.requests is None:
            derived.requests = accounted_requests(self.pod)
        return derived.requests

    @property
    def nonzero_requests(self) -> tuple[int, int]:
        """(milli CPU, memory bytes), with defaults for containers without requests."""
        derived = self.derived
        if derived.nonzero is None:
            derived.nonzero = nonzero_requests(self.pod)
        return derived.nonzero

    def charge(self, footprint: RequestOptions) -> None:
        """Compute the requests charged to the node in another way than 1.37's."""
        derived = self.derived
        derived.requests = accounted_requests(self.pod, footprint)
        derived.nonzero = nonzero_requests(self.pod, footprint)

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        derived = self.derived
        if derived.ports is None:
            derived.ports = pod_host_ports(self.pod)
        return derived.ports

    @property
    def affinity_terms(self) -> AffinityTerms:
        derived = self.derived
        if derived.affinity is None:
            derived.affinity = parse_affinity_terms(self.pod)
        return derived.affinity

    @property
    def claims(self) -> tuple[str, ...]:
        """`namespace/claim` of every PersistentVolumeClaim volume, with duplicates."""
        claims = self._claims
        if claims is None:
            claims = self._claims = (
                tuple(
                    f"{self.namespace}/{volume.persistent_volume_claim.claim_name}"
                    for volume in self.pod.spec.volumes or ()
                    if volume.persistent_volume_claim is not None
                )
                if self.volume_uses & CLAIM
                else ()
            )
        return claims

    @property
    def volume_uses(self) -> int:
        """The volume kinds that affect placement: flags of `api.pod_volumes`."""
        derived = self.derived
        if derived.volume_uses is None:
            derived.volume_uses = volume_uses(self.pod.spec.volumes)
        return derived.volume_uses

    def assumed_on(self, node_name: str) -> PodInfo:
        """A copy with `spec.nodeName` set, sharing all derived values."""
        pod = self.pod
        copy = PodInfo.__new__(PodInfo)
        copy.pod = structs.replace(pod, spec=structs.replace(pod.spec, node_name=node_name))
        copy.uid = self.uid
        copy.namespace = self.namespace
        copy.key = self.key
        copy.priority = self.priority
        copy.label_class = None
        copy.label_key = self.label_key
        copy.class_key = self.class_key
        copy.shape_key = self.shape_key
        copy._derived = self.derived
        copy._claims = self._claims
        return copy

    def twin(self, uid: str, key: str) -> PodInfo:
        """A copy with another UID and key but the same pod object, for counting identical pods."""
        copy = PodInfo.__new__(PodInfo)
        copy.pod = self.pod
        copy.uid = uid
        copy.namespace = self.namespace
        copy.key = key
        copy.priority = self.priority
        copy.label_class = None
        copy.label_key = self.label_key
        copy.class_key = self.class_key
        copy.shape_key = self.shape_key
        copy._derived = self._derived
        copy._claims = self._claims
        return copy

    def adopt_derived(self, other: PodInfo) -> None:
        """Take over the values computed for another PodInfo of the same pod."""
        self.class_key = other.class_key
        self.shape_key = other.shape_key
        self._derived = other._derived
        self._claims = other._claims

    def share_derived(self, derived: Derived, label_key: LabelKey) -> None:
        """Share the derived values of a pod with equal spec and labels.

        Keeps values already computed: they may come from an earlier version of the pod, and the
        node's sums include them.
        """
        if self._derived is None:
            self._derived = derived
        self.label_key = label_key

    def update(self, pod: Pod) -> None:
        """Replace the pod object.

        # Upstream: for the same UID only the object is replaced; derived values stay as they were.
        """
        if pod.metadata.uid == self.uid:
            self.pod = pod
            self.label_key = None
        else:
            self._load(pod)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"


def is_same_class(old: Pod, new: Pod) -> bool:
    """True if both versions of a pod belong to the same equivalence class."""
    before, after = old.metadata, new.metadata
    return (
        (old.spec is new.spec or old.spec == new.spec)
        and before.labels == after.labels
        and before.annotations == after.annotations
        and before.owner_references == after.owner_references
        and _resources_in_status(old) == _resources_in_status(new)
    )


def _resources_in_status(pod: Pod) -> tuple[object, ...]:
    status = pod.status
    return (
        status.container_statuses,
        status.init_container_statuses,
        status.resources,
        status.allocated_resources,
        status.extended_resource_claim_status,
    )


def label_key_of(pod: Pod) -> LabelKey:
    """Equal for pods that no label selector can distinguish."""
    labels = pod.metadata.labels
    return pod.metadata.namespace, tuple(sorted(labels.items())) if labels else ()
