"""Cache: which pods are on which nodes, including pods whose binding is in flight.

A pod's life here, by UID:

                assume                add (the watch confirms)
    (absent) ───────────> assumed ─────────────────────────────> added
        ^  ^                 │  forget (the binding failed)        │
        │  └─────────────────┘                                     │
        └──────────────────────────────────────────────────────────┘ remove
              add without assume leads straight to added

An assumed pod stays until its Add event or until it is forgotten; there is no expiry. The sums are
in the `NodeTable`; this module only decides when a pod enters or leaves it. Pods may arrive before
their node and outlive it.
"""

from __future__ import annotations

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.api.resources import ACCOUNTED, RequestOptions, same_resource_status
from kubesched.base.errors import Unrecoverable
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.cache.siblings import Siblings


class CacheError(Exception):
    """The pod's state does not allow the operation; nothing was changed."""


class CacheCorrupted(Unrecoverable):
    """The watch shows a bound pod on another node than the cache. kube-scheduler exits, too."""

    def __init__(self, contradiction: str) -> None:
        super().__init__(
            "scheduler cache is corrupted and can badly affect scheduling decisions: "
            f"{contradiction}"
        )


class Cache:
    """Pods and nodes, assumed and confirmed."""

    def __init__(self, table: NodeTable, footprint: RequestOptions = ACCOUNTED) -> None:
        """`footprint` says how much a pod that is resized takes on its node."""
        self.table = table
        self.footprint = footprint
        self._pods: dict[str, PodInfo] = {}
        self._assumed: set[str] = set()
        self._siblings = Siblings()

    # -- pods --------------------------------------------------------------------------------------

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on its `spec.nodeName` before the API server knows of the binding."""
        self._check_uid(pod.uid, pod.key)
        if pod.uid in self._pods:
            raise CacheError(f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed")
        self._insert(pod)
        self._assumed.add(pod.uid)

    def forget_pod(self, pod: Pod) -> None:
        """Undo an assumption; no-op for a pod that is not in the cache."""
        uid, key = pod.metadata.uid, key_of(pod.metadata)
        self._check_uid(uid, key)
        known = self._pods.get(uid)
        if known is None:
            return
        if known.pod.spec.node_name != pod.spec.node_name:
            raise CacheError(
                f"pod {key} ({uid}) was assumed on {pod.spec.node_name} "
                f"but assigned to {known.pod.spec.node_name}"
            )
        if uid not in self._assumed:
            raise CacheError(
                f"pod {key} ({uid}) is not assumed, so it cannot be removed or forgotten"
            )
        self._delete(known)

    def add_pod(self, pod: Pod) -> None:
        """Confirm the assumption of a bound pod, or add a pod that another scheduler bound."""
        uid = pod.metadata.uid
        if uid in self._assumed:
            self._replace(self._pods[uid], pod)
            self._assumed.discard(uid)
            return
        key = key_of(pod.metadata)
        self._check_uid(uid, key)
        if uid in self._pods:
            raise CacheError(f"pod {key} ({uid}) was already in added state")
        self._insert(self._understood(pod))

    def update_pod(self, old: Pod, new: Pod) -> None:
        uid, key = old.metadata.uid, key_of(old.metadata)
        self._check_uid(uid, key)
        known = self._pods.get(uid)
        if known is None:
            raise CacheError(f"pod {key} ({uid}) is not in the cache, so can't be updated")
        if uid in self._assumed:
            raise CacheError(f"assumed pod {key} ({uid}) should not be updated")
        if known.pod.spec.node_name != new.spec.node_name:
            raise CacheCorrupted(
                f"pod {key} ({uid}) updated on node {new.spec.node_name} "
                f"but added to {known.pod.spec.node_name}"
            )
        self._replace(known, new)

    def _replace(self, known: PodInfo, pod: Pod) -> None:
        """Store a newer version of a pod.

        Usually no sum changes.
        """
        alike = _placed_alike(known.pod, pod)
        if alike and same_resource_status(known.pod, pod):
            self.table.replace_pod(known, pod)
            return
        newer = self._understood(pod)
        if (
            alike
            and newer.requests == known.requests
            and newer.nonzero_requests == known.nonzero_requests
        ):
            # The kubelet reports the allocated resources, which usually equal the spec's requests.
            self.table.replace_pod(known, pod)
            return
        self._delete(known)
        self._insert(newer)

    def remove_pod(self, pod: Pod) -> None:
        """Remove a pod that the watch shows as deleted.

        A stale last state may have no node; a different node is a contradiction.
        """
        uid, key = pod.metadata.uid, key_of(pod.metadata)
        self._check_uid(uid, key)
        known = self._pods.get(uid)
        if known is None:
            raise CacheError(
                f"pod {key} ({uid}) is not found in scheduler cache, so cannot be removed from it"
            )
        if pod.spec.node_name and pod.spec.node_name != known.pod.spec.node_name:
            raise CacheCorrupted(
                f"pod {key} ({uid}) removed from node {pod.spec.node_name} "
                f"but added to {known.pod.spec.node_name}"
            )
        self._delete(known)

    def get_pod(self, uid: str) -> PodInfo | None:
        return self._pods.get(uid)

    def assumed_pods(self) -> list[PodInfo]:
        return [self._pods[uid] for uid in self._assumed]

    def is_assumed(self, uid: str) -> bool:
        return uid in self._assumed

    def _insert(self, pod: PodInfo) -> None:
        self._pods[pod.uid] = pod
        self.table.add_pod(pod, pod.pod.spec.node_name)

    def _delete(self, pod: PodInfo) -> None:
        del self._pods[pod.uid]
        self._assumed.discard(pod.uid)
        self.table.remove_pod(pod, pod.pod.spec.node_name)

    def _understood(self, pod: Pod) -> PodInfo:
        """A PodInfo for the pod. Raises for invalid values, before anything has changed."""
        info = PodInfo(pod)
        if not self._siblings.share(info):
            if self.footprint is not ACCOUNTED:
                info.charge(self.footprint)
            _ = (info.requests, info.nonzero_requests, info.host_ports, info.affinity_terms)
            self._siblings.note(info)
        return info

    @staticmethod
    def _check_uid(uid: str, key: str) -> None:
        if not uid:
            raise CacheError(f"cannot get cache key for pod {key} with empty UID")

    # -- nodes -------------------------------------------------------------------------------------

    def add_node(self, node: Node) -> None:
        self.table.set_node(node)

    def update_node(self, node: Node) -> None:
        self.table.set_node(node)

    def remove_node(self, name: str) -> None:
        if name not in self.table.row_of:
            raise CacheError(f"node {name} is not found")
        self.table.remove_node(name)

    # -- sizes and self-check ----------------------------------------------------------------------

    @property
    def node_count(self) -> int:
        """Number of known nodes, including those that only pods have named so far."""
        return self.table.node_count + len(self.table.ghosts)

    @property
    def pod_count(self) -> int:
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        return len(self._assumed)

    def pods(self) -> list[PodInfo]:
        return list(self._pods.values())

    def begin_anew(self) -> None:
        """Drop what a checkpoint does not hold."""
        self.table.begin_anew()

    def check_invariants(self) -> None:
        assert self._assumed <= self._pods.keys(), "an assumed pod is not in the cache"
        on_rows = {pod.uid: self.table.names[row] for row, pod in self.table.all_pods()}
        ghosts = {uid: name for name, pods in self.table.ghosts.items() for uid in pods}
        assert not on_rows.keys() & ghosts.keys(), "a pod is on a node and among the ghosts"
        placed = on_rows | ghosts
        assert placed == {uid: pod.pod.spec.node_name for uid, pod in self._pods.items()}, (
            "table and cache disagree"
        )
        self.table.check_invariants()


def _placed_alike(old: Pod, new: Pod) -> bool:
    """True if sums are unaffected, apart from resources in the status."""
    return (
        old.spec.node_name == new.spec.node_name
        and old.metadata.namespace == new.metadata.namespace
        and old.metadata.uid == new.metadata.uid
        and (old.spec is new.spec or old.spec == new.spec)
    )
