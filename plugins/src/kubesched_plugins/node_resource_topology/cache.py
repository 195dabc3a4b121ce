"""Which zones a node has, as far as objects can be believed while pods are on their way.

An agent tells what is left in the zones some time after pods have started. Three answers to that:

    Topologies        the newest object counts
    DiscardReserved   a node that a pod is being bound to is out of question
    OverReserve       pods that the object does not count yet are taken off every zone
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import ClassVar, Final

from kubesched.framework import Handle, Scope
from kubesched.framework.api import Pod
from kubesched_plugins.node_resource_topology.args import (
    ALL,
    AUTODETECT,
    ONLY_EXCLUSIVE,
    NodeResourceTopologyMatchArgs,
)
from kubesched_plugins.node_resource_topology.fingerprint import fingerprint_of, pod_sum
from kubesched_plugins.node_resource_topology.topology import (
    Amounts,
    Config,
    NodeResourceTopology,
    Topology,
    exclusive_containers,
    topology_of,
)

log = logging.getLogger(__name__)

INVALID: Final = Topology(Config())
"""Stands for zones that cannot be believed at the moment."""


class Topologies:
    """The newest objects, by node."""

    scope: ClassVar = Scope.NODE
    """What a node's zones depend on beside its object, of whose changes the table is told."""

    def __init__(self, args: NodeResourceTopologyMatchArgs, handle: Handle) -> None:
        self._changed = handle.table.mark_changed
        self._shown: dict[str, Topology] = {}
        self._unsubscribe = []
        if handle.listers is not None:
            topologies = handle.listers.of(NodeResourceTopology)
            self._unsubscribe.append(topologies.subscribe(self._after_change))

    def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def of(self, node_name: str) -> Topology | None:
        """The zones of a node; None if it tells nothing."""
        return self._shown.get(node_name)

    def _after_change(
        self, old: NodeResourceTopology | None, new: NodeResourceTopology | None
    ) -> None:
        obj = new or old
        assert obj is not None, "one of them changed"
        name = obj.metadata.name
        if new is None:
            self._gone(name)
        else:
            topology = topology_of(new)
            if topology.problems and (
                old is None or topology_of(old).problems != topology.problems
            ):
                log.warning("NodeResourceTopology %s: %s", name, "; ".join(topology.problems))
            self._came(name, topology)
        self._changed(name)

    def _came(self, node_name: str, topology: Topology) -> None:
        self._shown[node_name] = topology

    def _gone(self, node_name: str) -> None:
        self._shown.pop(node_name, None)

    def reserve(self, node_name: str, pod: Pod, amounts: Amounts) -> None:
        """A pod is on its way to the node."""

    def unreserve(self, node_name: str, pod: Pod) -> None:
        """It is not any more."""

    def post_bind(self, node_name: str, pod: Pod) -> None:
        """It was bound."""


class DiscardReserved(Topologies):
    """Nodes with pods on their way are not believed; for pods that need several zones, too."""

    scope = Scope.ROW

    def __init__(self, args: NodeResourceTopologyMatchArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._reserved: dict[str, set[str]] = {}

    def of(self, node_name: str) -> Topology | None:
        return INVALID if self._reserved.get(node_name) else self._shown.get(node_name)

    def reserve(self, node_name: str, pod: Pod, amounts: Amounts) -> None:
        self._reserved.setdefault(node_name, set()).add(pod.metadata.uid)

    def unreserve(self, node_name: str, pod: Pod) -> None:
        left = self._reserved.get(node_name, set())
        left.discard(pod.metadata.uid)
        if not left:
            self._reserved.pop(node_name, None)
        self._changed(node_name)

    post_bind = unreserve


class OverReserve(Topologies):
    """A node's object counts once its fingerprint is that of the pods known to run there.

    Until then the one before stays in use, and pods that were placed since are taken off all of its
    zones: they may be anywhere. Pods of other schedulers (foreign ones) were placed without notice;
    their nodes are not believed until an object counts them.
    """

    scope = Scope.ROW

    def __init__(self, args: NodeResourceTopologyMatchArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._settings = args.cache
        self._newest: dict[str, Topology] = {}
        self._effective: dict[str, Topology] = {}
        """Answers of `of`: `_shown` without what is reserved."""
        self._reserved: dict[str, dict[str, Amounts]] = {}
        self._running: dict[str, dict[str, tuple[Pod, int]]] = {}
        self._foreign: set[str] = set()
        """Nodes with a change of foreign pods that the object in use does not count."""
        self._own_profiles: set[str] = handle.table.derived(_profiles_with_a_cache)
        self._own_profiles.add(handle.profile_name)
        self._pods = None
        self._has_warned = False
        if handle.listers is not None:
            self._pods = handle.listers.of(Pod)
            self._unsubscribe.append(self._pods.subscribe(self._after_pod_change))

    def of(self, node_name: str) -> Topology | None:
        effective = self._effective.get(node_name)
        if effective is None and (effective := self._shown.get(node_name)) is not None:
            if node_name in self._foreign:
                effective = INVALID
            for amounts in self._reserved.get(node_name, {}).values():
                effective = effective.without(amounts)
            self._effective[node_name] = effective
        return effective

    def reserve(self, node_name: str, pod: Pod, amounts: Amounts) -> None:
        if node_name in self._shown:
            reserved, key = self._reserved.setdefault(node_name, {}), _key(pod)
            effective = self._effective.pop(node_name, None)
            if effective is not None and key not in reserved:
                self._effective[node_name] = effective.without(amounts)
            reserved[key] = amounts

    def unreserve(self, node_name: str, pod: Pod) -> None:
        if self._reserved.get(node_name, {}).pop(_key(pod), None) is not None:
            self._renew(node_name)

    def _renew(self, node_name: str) -> None:
        self._effective.pop(node_name, None)
        self._changed(node_name)

    # -- objects and pods that come and go ---------------------------------------------------------

    def _came(self, node_name: str, topology: Topology) -> None:
        before = self._shown.get(node_name)
        self._newest[node_name] = topology
        self._effective.pop(node_name, None)
        if before is None:
            self._shown[node_name] = topology
            running = self._running.get(node_name, {}).values()
            if any(self._is_foreign(pod, topology) for pod, _ in running):
                self._foreign.add(node_name)
        elif self._settings.resync_scope in (None, ALL) and before.config != topology.config:
            self._believe(node_name)
            return
        self._resync(node_name)

    def _gone(self, node_name: str) -> None:
        super()._gone(node_name)
        for kept in (self._newest, self._effective, self._reserved):
            kept.pop(node_name, None)
        self._foreign.discard(node_name)

    def _after_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None, "one of them changed"
        node_name = pod.spec.node_name
        if not node_name:
            return
        key, running = _key(pod), self._running.get(node_name, {})
        if new is not None and new.status.phase == "Running":
            known = running.get(key)
            sum_ = known[1] if known else pod_sum(new.metadata.namespace, new.metadata.name)
            self._running.setdefault(node_name, running)[key] = (new, sum_)
        elif running.pop(key, None) is not None and not running:
            del self._running[node_name]
        shown = self._shown.get(node_name)
        if shown is None:
            return
        if self._is_foreign(pod, shown):
            self._foreign.add(node_name)
            self._renew(node_name)
        if node_name in self._foreign or self._newest[node_name] is not shown:
            self._resync(node_name)

    def _is_foreign(self, pod: Pod, topology: Topology) -> bool:
        detect = self._settings.foreign_pods_detect
        if detect == "None" or pod.spec.scheduler_name in self._own_profiles:
            return False
        return detect == ALL or _is_exclusive(pod, topology)

    def _resync(self, node_name: str) -> None:
        """Believe the newest object if it counts exactly the pods that run."""
        newest = self._newest[node_name]
        if not newest.fingerprint:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "NodeResourceTopology %s has no pod fingerprint: with the over-reserving cache,"
                    " objects without one are read only once",
                    node_name,
                )
            return
        method = self._settings.resync_method
        only_exclusive = method == ONLY_EXCLUSIVE or (
            method == AUTODETECT and newest.counts_exclusive_only
        )
        running = self._running.get(node_name, {}).values()
        sums = (sum_ for pod, sum_ in running if not only_exclusive or _is_exclusive(pod, newest))
        if fingerprint_of(sums) == newest.fingerprint:
            self._believe(node_name)

    def _believe(self, node_name: str) -> None:
        self._shown[node_name] = self._newest[node_name]
        self._foreign.discard(node_name)
        reserved = self._reserved.pop(node_name, {})
        running: Set[str] = self._running.get(node_name, {}).keys()
        starting = {
            key: amounts
            for key, amounts in reserved.items()
            if key not in running and self._exists(key)
        }
        if starting:
            self._reserved[node_name] = starting
        self._renew(node_name)

    def _exists(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        return self._pods is not None and self._pods.get(namespace, name) is not None


def _key(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _profiles_with_a_cache(_table: object) -> set[str]:
    """Names of the profiles whose pods are no foreign ones; shared by all profiles."""
    return set()


def _is_exclusive(pod: Pod, topology: Topology) -> bool:
    in_zones = {name for zone in topology.zones for name in zone.available}
    return next(exclusive_containers(pod, in_zones), None) is not None


def cache_for(args: NodeResourceTopologyMatchArgs, handle: Handle) -> Topologies:
    if args.discard_reserved_nodes:
        return DiscardReserved(args, handle)
    if (args.cache_resync_period_seconds or 0) > 0:
        return OverReserve(args, handle)
    return Topologies(args, handle)
