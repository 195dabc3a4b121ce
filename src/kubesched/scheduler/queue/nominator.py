"""Nominator: pods with a nominated node that are not placed yet.

Filters on that node must count these pods. They are kept by UID and, per node, in registration
order. Only names are stored; pods are looked up in the queues on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import ObjectMeta
from kubesched.framework.handle import Lister
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nominating_info import NominatingInfo

CHANGES_LIMIT: Final = 4096
"""Length of the change log; a reader further behind reads everything again."""


class PodReference(NamedTuple):
    """Identifies a pod without a reference to the object."""

    namespace: str
    name: str
    uid: str


FindQueued = Callable[[str], PodInfo | None]
"""Looks up a `namespace/name` in the queues."""


class Nominator:
    """node name -> pods nominated to it, and pod UID -> node name."""

    def __init__(self, pods: Lister[Pod], find_queued: FindQueued | None = None) -> None:
        self._pods = pods
        self.find_queued: FindQueued = find_queued or (lambda _key: None)
        """Set by the scheduling queue, which is built after the plugins that use the nominator."""
        self._by_node: dict[str, dict[str, PodReference]] = {}
        self._node_by_uid: dict[str, str] = {}
        self._resolved: dict[str, list[PodInfo]] = {}
        """Cached answers by node, until its pods change or one of them leaves the queues."""
        self._changes: list[str] = []
        self._dropped = 0

    @property
    def version(self) -> int:
        """Changes whenever a node's nominated pods, or data about one of them, change."""
        return self._dropped + len(self._changes)

    def changes_since(self, version: int) -> Sequence[str] | None:
        """Nodes whose nominated pods changed since that version; None if it is too old."""
        start = version - self._dropped
        return None if start < 0 else self._changes[start:]

    def add_nominated_pod(self, pod: PodInfo, info: NominatingInfo | None = None) -> None:
        """Register a pod, replacing its earlier registration.

        The node is that of an overriding `info`, otherwise the one in the pod's status, if any.
        """
        self._delete(pod.uid)
        if info is not None and info.override:
            node_name = info.node_name
        else:
            node_name = pod.pod.status.nominated_node_name
        if not node_name:
            return
        # The caller's copy may be stale. A deleted or bound pod must not reserve room.
        latest = self._pods.get(pod.namespace, pod.name)
        if latest is None or latest.spec.node_name:
            return
        self._by_node.setdefault(node_name, {})[pod.uid] = PodReference(
            pod.namespace, pod.name, pod.uid
        )
        self._node_by_uid[pod.uid] = node_name
        self._changed(node_name)

    def update_nominated_pod(self, old: Pod, new: PodInfo) -> None:
        """Apply an update of the pod.

        A nomination made here is not in the pod's status until the API server has it. While neither
        version of the pod names a node, the registered one stays.
        """
        kept: NominatingInfo | None = None
        if not old.status.nominated_node_name and not new.pod.status.nominated_node_name:
            node_name = self._node_by_uid.get(old.metadata.uid)
            if node_name is not None:
                kept = NominatingInfo(override=True, node_name=node_name)
        self._delete(old.metadata.uid)
        self.add_nominated_pod(new, kept)

    def delete_nominated_pod(self, pod: Pod) -> None:
        self._delete(pod.metadata.uid)

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to; empty if there is none."""
        return self._node_by_uid.get(uid, "")

    def nominated_pods_for_node(self, node_name: str) -> Sequence[PodInfo]:
        """Copies of the pods nominated to a node, in registration order.

        # Upstream: a pod that is in no queue (being tried right now) comes without spec: priority
        # 0, no requests.
        """
        known = self._resolved.get(node_name)
        if known is None:
            references = self._by_node.get(node_name)
            if references is None:
                return []
            known = [self._resolve(reference) for reference in references.values()]
            self._resolved[node_name] = known
        return known

    def moved(self, uid: str) -> None:
        """Invalidate data derived from a pod that left the queues for an attempt, or returned."""
        node_name = self._node_by_uid.get(uid)
        if node_name is not None:
            self._changed(node_name)

    def _changed(self, node_name: str) -> None:
        self._resolved.pop(node_name, None)
        self._changes.append(node_name)
        if len(self._changes) > CHANGES_LIMIT:
            cut = len(self._changes) // 2
            del self._changes[:cut]
            self._dropped += cut

    def nominated_nodes(self) -> Iterable[str]:
        """Names of nodes with at least one nominated pod."""
        return tuple(self._by_node)

    def references(self) -> dict[str, list[PodReference]]:
        """All registrations, by node."""
        return {node_name: list(pods.values()) for node_name, pods in self._by_node.items()}

    def restore(self, references: Mapping[str, Sequence[PodReference]]) -> None:
        """Restore the result of `references`, in the same order."""
        for node_name, pods in references.items():
            self._by_node[node_name] = {pod.uid: pod for pod in pods}
            self._node_by_uid.update((pod.uid, node_name) for pod in pods)
            self._changed(node_name)

    def check_invariants(self) -> None:
        by_uid = {uid: node for node, pods in self._by_node.items() for uid in pods}
        assert by_uid == self._node_by_uid, "the two indexes of nominated pods disagree"
        assert all(self._by_node.values()), "a node without nominated pods is kept"
        for node_name, known in self._resolved.items():
            current = [
                self._resolve(nomination).pod
                for nomination in self._by_node.get(node_name, {}).values()
            ]
            assert [pod.pod for pod in known] == current, (
                f"answers about node {node_name} are stale"
            )

    def _resolve(self, reference: PodReference) -> PodInfo:
        queued = self.find_queued(f"{reference.namespace}/{reference.name}")
        if queued is None:
            namespace, name, uid = reference
            return PodInfo(Pod(metadata=ObjectMeta(namespace=namespace, name=name, uid=uid)))
        copy = PodInfo(queued.pod)
        copy.adopt_derived(queued)
        return copy

    def _delete(self, uid: str) -> None:
        node_name = self._node_by_uid.pop(uid, None)
        if node_name is None:
            return
        pods = self._by_node[node_name]
        del pods[uid]
        if not pods:
            del self._by_node[node_name]
        self._changed(node_name)
