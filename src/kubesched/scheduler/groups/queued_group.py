"""QueuedGroup: a tree of pod groups that waits as one entry, with its scheduling history."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from kubesched.framework.groups.states import GroupKey, group_of
from kubesched.framework.queued_pod import QueuedPodInfo


@dataclass(slots=True, eq=False, repr=False)
class QueuedGroup:
    """The queued members of all PodGroups below one root. Times are as in `QueuedPodInfo`."""

    root: GroupKey
    priority: int
    timestamp: float
    """That of the first member that was queued; renewed after a failed attempt."""
    members: dict[GroupKey, list[QueuedPodInfo]] = field(default_factory=dict)
    """By PodGroup; each list in the order in which the members are tried."""
    _by_key: dict[str, QueuedPodInfo] = field(default_factory=dict)
    _cohorts: list[list[QueuedPodInfo]] | None = None
    attempts: int = 0
    unschedulable_count: int = 0
    consecutive_errors_count: int = 0
    backoff_expiration: float | None = None
    initial_attempt_timestamp: float | None = None
    gate: QueuedPodInfo | None = None
    """The member that PreEnqueue refused, which keeps all of them out."""
    was_flushed_from_unschedulable: bool = False
    flush_timestamp: float | None = None

    @property
    def is_gated(self) -> bool:
        return self.gate is not None

    @property
    def size(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        return (info for infos in self.members.values() for info in infos)

    def insert(self, info: QueuedPodInfo) -> None:
        leaf = group_of(info.pod_info.pod)
        assert leaf is not None, f"{info} is no member of a group"
        insort(self.members.setdefault(leaf, []), info, key=_trial_order)
        self._by_key[info.pod_info.key] = info
        self._cohorts = None

    def find(self, key: str) -> QueuedPodInfo | None:
        return self._by_key.get(key)

    def remove(self, key: str) -> QueuedPodInfo | None:
        info = self._by_key.pop(key, None)
        leaf = None if info is None else group_of(info.pod_info.pod)
        if info is None or leaf is None:
            return None
        self._cohorts = None
        infos = self.members[leaf]
        infos.remove(info)
        if not infos:
            del self.members[leaf]
        return info

    def remove_group(self, leaf: GroupKey) -> list[QueuedPodInfo]:
        """Take out all members of a PodGroup."""
        self._cohorts = None
        infos = self.members.pop(leaf)
        for info in infos:
            del self._by_key[info.pod_info.key]
        return infos

    def cohorts(self) -> list[list[QueuedPodInfo]]:
        """The members of one PodGroup that the same plugins rejected, together."""
        if self._cohorts is None:
            found: dict[object, list[QueuedPodInfo]] = {}
            for leaf, infos in self.members.items():
                for info in infos:
                    rejectors = (info.unschedulable_plugins, info.pending_plugins)
                    key = (leaf, *map(frozenset, rejectors))
                    found.setdefault(key, []).append(info)
            self._cohorts = list(found.values())
        return self._cohorts

    def rejected(self) -> None:
        """Plugins have rejected, or no longer reject, some members."""
        self._cohorts = None

    def __repr__(self) -> str:
        return f"<QueuedGroup {self.root} pods={self.size} attempts={self.attempts}>"


def _trial_order(info: QueuedPodInfo) -> tuple[int, int, float, str]:
    """Members that were tried before go first, in the order of the cycle before."""
    return (-info.pod_info.priority, -info.attempts, info.timestamp, info.pod_info.name)
