"""The cache, which also tells the group states where members are."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import RequestOptions
from kubesched.framework.groups.states import GroupStates
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.scheduler.cache.cache import Cache


class GroupCache(Cache):
    """Pods and nodes, and the groups that pods belong to."""

    def __init__(self, table: NodeTable, accounted: RequestOptions, groups: GroupStates) -> None:
        super().__init__(table, accounted)
        self.groups = groups

    def begin_anew(self) -> None:
        super().begin_anew()
        self.groups.begin_anew()

    def assume_pod(self, pod: PodInfo) -> None:
        super().assume_pod(pod)
        self.groups.pod_assumed(pod.pod)

    def forget_pod(self, pod: Pod) -> None:
        super().forget_pod(pod)
        self.groups.pod_forgotten(pod)

    def add_pod(self, pod: Pod) -> None:
        super().add_pod(pod)
        self.groups.pod_assigned(pod)

    def update_pod(self, old: Pod, new: Pod) -> None:
        super().update_pod(old, new)
        self.groups.pod_assigned(new)

    def remove_pod(self, pod: Pod) -> None:
        super().remove_pod(pod)
        self.groups.pod_removed(pod)
