"""Counts how many more gangs fit: each is placed as a whole, as the scheduler places pod groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from kubesched.api.core_v1 import Pod, PodSchedulingGroup
from kubesched.api.names import key_of
from kubesched.api.scheduling_v1beta1 import PodGroup
from kubesched.framework.groups.states import GroupKey, group_of, key_of_group, min_count
from kubesched.framework.groups.tree import GroupCycle, GroupNode
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.runtime.maybe_async import finish
from kubesched.insight.explain.model import Verdict
from kubesched.insight.explain.pod_groups import cycles_of
from kubesched.insight.planning.model import Stop
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.scheduler.groups.group_cycle import GroupRejected

LARGEST_GANG: Final = 100_000


def group_to_count(world: PlannedCluster, pods: Sequence[Pod]) -> PodGroup | None:
    """The group that these pods name, if the scheduler knows groups; one pod stands for any number.

    Raises:
        PlanError: they name different groups, or one that does not exist, is part of a tree, or
            needs more pods.
    """
    names = {group_of(pod) for pod in pods}
    if names == {None} or cycles_of(world.assembly) is None:
        return None
    name = next(iter(names))
    if len(names) > 1 or name is None:
        raise PlanError("the pods in the files are not all of one PodGroup: count each by itself")
    group = world.find(PodGroup, name.namespace, name.name)
    if group is None:
        raise PlanError(f"{_named(name)}: it is neither in the cluster nor in the files")
    if group.spec.parent_composite_pod_group_name:
        raise PlanError(f"{_named(name)}: groups of a CompositePodGroup cannot be counted")
    least = min_count(group)
    if least > LARGEST_GANG:
        raise PlanError(f"{_named(name)}: minCount is {least}; at most {LARGEST_GANG} are counted")
    if 1 < len(pods) < least:
        raise PlanError(f"{_named(name)}: minCount is {least}, and the files have {len(pods)} pods")
    return group


class GangCount:
    """Places copies of a gang one after the other; nothing is evicted for them."""

    def __init__(
        self, world: PlannedCluster, group: PodGroup, makers: Sequence[Callable[[int], PodInfo]]
    ) -> None:
        """`makers` make the members of one gang; each gets the number of the gang."""
        cycles = cycles_of(world.assembly)
        assert cycles is not None, "the scheduler knows groups"
        self._cycles = cycles
        self._world = world
        self._group = group
        self._makers = makers

    def place(self, number: int) -> Stop | None:
        """Place the gang with that number; what is in the way, if it does not fit as a whole.

        Raises:
            PlanError: its pods disagree with the group.
        """
        meta = self._group.metadata
        name = f"{meta.name}-{number}"
        meta = structs.replace(meta, name=name, uid=f"{meta.uid}-{number}")
        gang = structs.replace(self._group, metadata=meta)
        states = self._cycles.states
        states.put(gang)
        now = self._world.clock.monotonic()
        members = [QueuedPodInfo(_member(make(number), name), now) for make in self._makers]
        node = GroupNode(gang, members)
        try:
            framework = self._cycles.validated(node)
        except GroupRejected as error:
            raise PlanError(f"{_named(key_of_group(self._group))}: {error}") from None
        result = finish(self._cycles.placing(framework, GroupCycle()).run(node))[node.key]
        placed = result.placed()
        if result.status.is_success and len(placed) == len(members):
            for each in placed:
                self._cycles.cache.assume_pod(each.pod.assumed_on(each.node_name))
            return None
        for info in members:
            states.pod_removed(info.pod_info.pod)
        states.remove(gang)
        failed = (one.status.message for one in result.members if not one.status.is_success)
        why = next(failed, result.status.message)
        return Stop(
            pod=key_of(meta),
            verdict=Verdict.NOT_NOW,
            summary=f"{len(placed)} of {len(members)} pods find a node. {why}",
            message=result.status.message,
        )


def _member(info: PodInfo, group: str) -> PodInfo:
    pod = info.pod
    spec = structs.replace(pod.spec, scheduling_group=PodSchedulingGroup(pod_group_name=group))
    return PodInfo(structs.replace(pod, spec=spec))


def _named(key: GroupKey) -> str:
    return f"PodGroup {key.namespace}/{key.name}"
