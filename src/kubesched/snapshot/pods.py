"""PodInfo: a pod with everything derived from it that the scheduler asks for more than once.

Derived values are computed on first use and then kept: what was added to a node's sums when the pod arrived is
exactly what is subtracted when it leaves, even if the pod object was replaced in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from kubesched.api.affinity_terms import AffinityTerms, parse_affinity_terms
from kubesched.api.core_v1 import Pod
from kubesched.api.host_ports import HostPort, pod_host_ports
from kubesched.api.pod_volumes import volume_uses
from kubesched.api.resources import PodRequests, accounted_requests, nonzero_requests

if TYPE_CHECKING:
    from kubesched.snapshot.pod_index import LabelClass


class PodInfo:
    """A pod and its derived values. The pod may be swapped for a newer version of the same UID."""

    __slots__ = (
        "_affinity",
        "_claims",
        "_nonzero",
        "_ports",
        "_requests",
        "_volume_uses",
        "class_key",
        "key",
        "label_class",
        "namespace",
        "pod",
        "priority",
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
        """Where the table's pod index counts this pod; None while it is not on a node."""
        self.class_key: bytes | None = None
        """Equivalence-class signature, made when the pod is first queued."""
        self._requests: PodRequests | None = None
        self._nonzero: tuple[int, int] | None = None
        self._ports: tuple[HostPort, ...] | None = None
        self._affinity: AffinityTerms | None = None
        self._claims: tuple[str, ...] | None = None
        self._volume_uses: int | None = None

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def requests(self) -> PodRequests:
        """What the pod takes from its node (status-aware: a resize in progress counts in full)."""
        if self._requests is None:
            self._requests = accounted_requests(self.pod)
        return self._requests

    @property
    def nonzero_requests(self) -> tuple[int, int]:
        """(milli CPU, memory bytes) with defaults for containers that name none."""
        if self._nonzero is None:
            self._nonzero = nonzero_requests(self.pod)
        return self._nonzero

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        if self._ports is None:
            self._ports = pod_host_ports(self.pod)
        return self._ports

    @property
    def affinity_terms(self) -> AffinityTerms:
        if self._affinity is None:
            self._affinity = parse_affinity_terms(self.pod)
        return self._affinity

    @property
    def claims(self) -> tuple[str, ...]:
        """`namespace/claim` of every volume that names a PersistentVolumeClaim, repeats included."""
        if self._claims is None:
            self._claims = tuple(
                f"{self.namespace}/{volume.persistent_volume_claim.claim_name}"
                for volume in self.pod.spec.volumes or ()
                if volume.persistent_volume_claim is not None
            )
        return self._claims

    @property
    def volume_uses(self) -> int:
        """Which kinds of volumes it has that placement depends on: flags of `api.pod_volumes`."""
        if self._volume_uses is None:
            self._volume_uses = volume_uses(self.pod.spec.volumes)
        return self._volume_uses

    def assumed_on(self, node_name: str) -> PodInfo:
        """A copy that is on a node, sharing every derived value."""
        pod = structs.replace(self.pod, spec=structs.replace(self.pod.spec, node_name=node_name))
        copy = PodInfo(pod)
        copy.adopt_derived(self)
        return copy

    def adopt_derived(self, other: PodInfo) -> None:
        """Take over the values another record of the same pod has computed."""
        self.class_key = other.class_key
        self._requests = other._requests
        self._nonzero = other._nonzero
        self._ports = other._ports
        self._affinity = other._affinity
        self._claims = other._claims
        self._volume_uses = other._volume_uses

    def update(self, pod: Pod) -> None:
        """Take a newer version.

        # Upstream: for the same UID only the object is swapped and derived values stay as they were.
        """
        if pod.metadata.uid == self.uid:
            self.pod = pod
        else:
            self._load(pod)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"
