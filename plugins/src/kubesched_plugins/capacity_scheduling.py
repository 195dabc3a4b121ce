"""CapacityScheduling: quotas per namespace that lend each other what they do not use.

An ElasticQuota guarantees its namespace `min` and allows it `max`. A namespace may use more than
its `min` as long as all quotas together use no more than the sum of all `min`. What is borrowed is
taken back by preemption when its owner needs it, whatever the priority of the borrower's pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kubesched.framework import (
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    CycleState,
    EnqueueExtensions,
    Handle,
    NodeColumns,
    PodInfo,
    PreFilterPlugin,
    ReservePlugin,
    Resource,
    Rule,
    Status,
    unschedulable,
)
from kubesched.framework.api import CustomObject, Pod, PodDisruptionBudget, parse_quantity
from kubesched_plugins.preempting import Node, PreemptingPlugin, no_victims, reprieve

Amounts = dict[str, int]
"""CPU in millicores, everything else in units."""
Quantities = Mapping[str, str | int | float]

UNLIMITED: Final = 2**63 - 1
PLAIN: Final = ("cpu", "memory", "ephemeral-storage", "pods")
"""Compared even if a quota does not name them; other resources only if a pod requests them."""
OVER_MAX: Final = "global quota max exceeded"
STATE_KEY: Final = "PreFilterCapacityScheduling"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ElasticQuotaSpec:
    """What a namespace is sure of, and what it may use at most. Without `max`: no limit."""

    min: dict[str, str | int | float] | None = None
    max: dict[str, str | int | float] | None = None


class ElasticQuota(CustomObject):
    """One per namespace; its name does not matter."""

    resource = "elasticquotas.v1alpha1.scheduling.x-k8s.io"
    spec: ElasticQuotaSpec = ElasticQuotaSpec()


def amounts_of(quantities: Quantities | None) -> Amounts:
    """The resources that quotas count."""
    found = {}
    for name, raw in (quantities or {}).items():
        is_scalar = "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
        if is_scalar or name in PLAIN:
            quantity = parse_quantity(raw)
            found[name] = quantity.milli_value() if name == "cpu" else quantity.value()
    return found


def request_of(pod: Pod) -> Amounts:
    """Sum of the containers, or the largest init container, plus overhead."""
    total: Amounts = {}
    for container in pod.spec.containers or ():
        add_to(total, amounts_of(container.resources.requests))
    for container in pod.spec.init_containers or ():
        for name, amount in amounts_of(container.resources.requests).items():
            if name != "pods":
                total[name] = max(amount, total.get(name, 0))
    add_to(total, amounts_of(pod.spec.overhead))
    return total


def add_to(total: Amounts, amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + sign * amount


def exceeds(
    wanted: Mapping[str, int], used: Mapping[str, int], bound: Mapping[str, int], missing: int = 0
) -> bool:
    """Whether both together are above the bound; `missing` bounds what it does not name."""
    for name in PLAIN:
        if wanted.get(name, 0) + used.get(name, 0) > bound.get(name, 0):
            return True
    return any(
        amount + used.get(name, 0) > bound.get(name, missing)
        for name, amount in wanted.items()
        if name not in PLAIN
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota and the pods that count in it."""

    namespace: str
    min: Amounts
    max: Amounts
    used: Amounts = field(default_factory=dict)
    pods: dict[str, Amounts] = field(default_factory=dict)
    """Requests by uid."""

    def is_over_min(self) -> bool:
        return exceeds(self.used, {}, self.min)

    def is_over_min_with(self, amounts: Mapping[str, int]) -> bool:
        return exceeds(amounts, self.used, self.min)

    def is_over_max_with(self, amounts: Mapping[str, int]) -> bool:
        return exceeds(amounts, self.used, self.max, UNLIMITED)


@dataclass(slots=True)
class Quotas:
    """All quotas, by namespace. A clone shares those that it does not change."""

    by_namespace: dict[str, Quota] = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    """By all of them together."""
    guaranteed: Amounts = field(default_factory=dict)
    """Sum of all `min`."""
    own: set[str] = field(default_factory=set)
    """Namespaces whose quota is not shared."""

    def clone(self) -> Quotas:
        return Quotas(dict(self.by_namespace), dict(self.used), self.guaranteed)

    def of(self, namespace: str) -> Quota | None:
        return self.by_namespace.get(namespace)

    def are_over_min_with(self, amounts: Mapping[str, int]) -> bool:
        total = dict(self.used)
        add_to(total, amounts)
        return exceeds(total, {}, self.guaranteed)

    def replace(self, namespace: str, quota: Quota | None) -> None:
        self.by_namespace.pop(namespace, None)
        if quota is not None:
            self.by_namespace[namespace] = quota
            self.own.add(namespace)
        self.used, self.guaranteed = {}, {}
        for each in self.by_namespace.values():
            add_to(self.used, each.used)
            add_to(self.guaranteed, each.min)

    def add(self, pod: Pod, request: Amounts | None = None) -> None:
        """Count a pod, unless it is counted already or its namespace has no quota."""
        quota = self._changeable(pod.metadata.namespace)
        if quota is not None and pod.metadata.uid not in quota.pods:
            request = quota.pods[pod.metadata.uid] = request or request_of(pod)
            add_to(quota.used, request)
            add_to(self.used, request)

    def remove(self, pod: Pod) -> None:
        quota = self._changeable(pod.metadata.namespace)
        request = None if quota is None else quota.pods.pop(pod.metadata.uid, None)
        if quota is not None and request is not None:
            add_to(quota.used, request, -1)
            add_to(self.used, request, -1)

    def _changeable(self, namespace: str) -> Quota | None:
        quota = self.by_namespace.get(namespace)
        if quota is not None and namespace not in self.own:
            quota = replace(quota, used=dict(quota.used), pods=dict(quota.pods))
            self.by_namespace[namespace] = quota
            self.own.add(namespace)
        return quota


class PreFilterState(NamedTuple):
    """What PreFilter found out about a pod; the quotas are a copy of the attempt's own."""

    quotas: Quotas
    request: Amounts
    with_nominated_in_quota: Amounts
    """Plus nominated pods of the same quota that are at least as important."""
    with_nominated: Amounts
    """Plus, moreover, nominated pods of other quotas that use no more than their `min`."""
    is_rejected: bool = False

    def clone(self) -> PreFilterState:
        return self._replace(quotas=self.quotas.clone())


class CapacityScheduling(PreFilterPlugin, PreemptingPlugin, ReservePlugin, EnqueueExtensions):
    """Keeps pods within the quotas, and takes back what was borrowed."""

    name = "CapacityScheduling"
    lists = (ElasticQuota, PodDisruptionBudget)

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        self.quotas = Quotas()
        self._reserved: dict[str, Pod] = {}
        """Pods that are on their way to a node, by uid."""
        self._unsubscribe: list[Callable[[], None]] = []
        if handle.listers is not None:
            self._objects = handle.listers.of(ElasticQuota)
            self._pods = handle.listers.of(Pod)
            self._unsubscribe = [
                self._objects.subscribe(self._after_quota_change),
                self._pods.subscribe(self._after_pod_change),
            ]

    def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def pre_filter(self, state: CycleState, pod: Pod, nodes: NodeColumns) -> Status | None:
        found = self._examine(state, pod)
        quota, reason = found.quotas.of(pod.metadata.namespace), ""
        if quota is not None and quota.is_over_max_with(found.with_nominated_in_quota):
            reason = f"ElasticQuota {quota.namespace} is more than Max"
        elif quota is not None and found.quotas.are_over_min_with(found.with_nominated):
            reason = "total ElasticQuota used is more than min"
        state.write(STATE_KEY, found._replace(is_rejected=True) if reason else found)
        if not reason:
            return None
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        return unschedulable(f"Pod {name} is rejected in PreFilter because {reason}")

    def _examine(self, state: CycleState, pod: Pod) -> PreFilterState:
        namespace, request = (
            pod.metadata.namespace,
            state.remember(self.name, lambda: request_of(pod)),
        )
        if self.quotas.of(namespace) is None:
            return PreFilterState(self.quotas.clone(), request, {}, {})
        in_quota, in_all = dict(request), dict(request)
        for other in self._nominated():
            theirs = other.metadata.namespace
            quota = self.quotas.of(theirs)
            if quota is None or other.metadata.uid == pod.metadata.uid:
                continue
            if theirs == namespace and (other.spec.priority or 0) >= (pod.spec.priority or 0):
                add_to(in_quota, request_of(other))
                add_to(in_all, request_of(other))
            elif theirs != namespace and not quota.is_over_min():
                add_to(in_all, request_of(other))
        return PreFilterState(self.quotas.clone(), request, in_quota, in_all)

    def _nominated(self) -> Iterable[Pod]:
        nominator, rows = self.handle.nominator, self.handle.table.row_of
        if nominator is not None:
            for name in (each for each in nominator.nominated_nodes() if each in rows):
                yield from (info.pod for info in nominator.nominated_pods_for_node(name))

    def filter_rule(self, state: CycleState, pod: Pod) -> Rule | None:
        """Asked for every pod: quotas fill up. A rejection names the pod and is its own."""
        found: PreFilterState | None = state.get(STATE_KEY)
        is_shared = found is not None and not found.is_rejected and not any(self._nominated())
        return Rule() if is_shared else None

    def class_fields(self, pod: Pod) -> None:
        """Nothing is kept by node."""

    def add_pod(self, state: CycleState, pod: Pod, added: PodInfo, node: NodeColumns) -> None:
        found: PreFilterState = state.read(STATE_KEY)
        found.quotas.add(added.pod)

    def remove_pod(self, state: CycleState, pod: Pod, removed: PodInfo, node: NodeColumns) -> None:
        found: PreFilterState = state.read(STATE_KEY)
        found.quotas.remove(removed.pod)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._reserved[pod.metadata.uid] = pod
        self.quotas.add(pod, state.read(STATE_KEY).request)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self._reserved.pop(pod.metadata.uid, None)
        self.quotas.remove(pod)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(Resource.POD, Action.DELETE)),
            ClusterEventWithHint(ClusterEvent(ElasticQuota.resource, Action.ALL)),
        ]

    def makes_room_for(self, state: CycleState, pod: Pod, terminating: PodInfo) -> bool:
        if self._may_preempt(state.read(STATE_KEY), pod)(terminating):
            return True
        # Even if the pod would now take from others what is its own.
        is_own = terminating.pod.metadata.namespace == pod.metadata.namespace
        return is_own and terminating.priority < (pod.spec.priority or 0)

    def _may_preempt(self, found: PreFilterState, pod: Pod) -> Callable[[PodInfo], bool]:
        """Which pods the pod may preempt.

        Without a quota: less important ones without a quota. With one that is used up to its `min`:
        less important ones of its own. Otherwise other quotas have borrowed from its `min`: pods of
        quotas that use more than their own `min`, of any priority, as long as they do.
        """
        quotas, namespace, priority = found.quotas, pod.metadata.namespace, pod.spec.priority or 0
        quota = quotas.of(namespace)
        is_over_min = quota is not None and quota.is_over_min_with(found.with_nominated_in_quota)

        def may(other: PodInfo) -> bool:
            theirs = quotas.of(other.pod.metadata.namespace)
            if quota is None or theirs is None:
                return quota is theirs and other.priority < priority
            is_own = theirs.namespace == namespace
            if is_own or is_over_min:
                return is_own and is_over_min and other.priority < priority
            return theirs.is_over_min()

        return may

    def select_victims(self, node: Node) -> Any:  # noqa: ANN401  # victims or a Status
        """Remove all pods that may be preempted, then let the important ones stay."""
        preemptor = node.preemptor
        found: PreFilterState = node.state.read(STATE_KEY)
        may_preempt, possible = self._may_preempt(found, preemptor.pod), []
        for pod in reversed(node.ranked(node.pods)):  # quotas shrink: the least important go first
            if may_preempt(pod):
                possible.append(pod)
                if failed := node.take(pod):
                    return failed
        if not possible:
            return no_victims(node)
        if rejection := node.rejection():
            return rejection
        namespace, quotas = preemptor.pod.metadata.namespace, found.quotas

        def is_over(in_quota: Amounts, in_all: Amounts) -> bool:
            quota = quotas.of(namespace)
            return quota is not None and (
                quota.is_over_max_with(in_quota) or quotas.are_over_min_with(in_all)
            )

        if is_over(found.request, found.request):
            return unschedulable(OVER_MAX)
        return reprieve(
            node, possible, lambda: is_over(found.with_nominated_in_quota, found.with_nominated)
        )

    def _after_quota_change(self, old: ElasticQuota | None, new: ElasticQuota | None) -> None:
        changed = new or old
        assert changed is not None, "one of them changed"
        namespace, name = changed.metadata.namespace, changed.metadata.name
        objects = sorted(
            self._objects.list(namespace),
            key=lambda obj: (obj.metadata.creation_timestamp or "", obj.metadata.name),
        )
        if len(objects) > 1 and old is None:
            log.warning(
                "Namespace %s has several ElasticQuotas; the oldest one counts, %s",
                namespace,
                objects[0].metadata.name,
            )
        known = self.quotas.of(namespace)
        if not objects:
            self.quotas.replace(namespace, None)
            return
        try:
            quota = quota_of(objects[0])
        except ValueError as error:
            log.warning("ElasticQuota %s/%s is not used: %s", namespace, name, error)
            return
        if any(quota.min[each] > quota.max.get(each, UNLIMITED) for each in quota.min):
            log.warning("ElasticQuota %s/%s: min is more than max", namespace, name)
        if known is not None:
            quota = replace(quota, used=known.used, pods=known.pods)
        self.quotas.replace(namespace, quota)
        if known is None:
            for pod in (*self._pods.list(namespace), *self._reserved.values()):
                is_reserved = pod.metadata.uid in self._reserved
                if (pod.spec.node_name or is_reserved) and pod.metadata.namespace == namespace:
                    self.quotas.add(pod)

    def _after_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            if old is not None:
                self._reserved.pop(old.metadata.uid, None)
                self.quotas.remove(old)
        elif new.spec.node_name:
            self._reserved.pop(new.metadata.uid, None)
            if old is not None and old.spec.containers != new.spec.containers:  # resized
                self.quotas.remove(old)
            self.quotas.add(new)


def quota_of(obj: ElasticQuota) -> Quota:
    """ValueError if an amount is not a quantity."""
    most = dict.fromkeys(("cpu", "memory", "ephemeral-storage"), UNLIMITED)
    if obj.spec.max is not None:
        most = amounts_of(obj.spec.max)
    return Quota(obj.metadata.namespace, amounts_of(obj.spec.min), most)
