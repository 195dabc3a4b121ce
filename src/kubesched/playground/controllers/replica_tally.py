"""Pod counts per controller by labels and state, maintained incrementally.

Large sets are counted several times a second; counting all pods each time would make a scale-up
quadratic. `pods.count_pods` computes the same numbers from a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from kubesched.playground.apimachinery.objects import JsonObject, controller_of
from kubesched.playground.apimachinery.pods import is_finished, is_ready
from kubesched.playground.client.informers import Informer
from kubesched.playground.controllers.pods import PodCounts

Labels: TypeAlias = frozenset[tuple[str, Any]]
_Group: TypeAlias = tuple[Labels, str]
_Place: TypeAlias = tuple[str, _Group]
"""The controller's uid and the group."""

_FINISHED, _TERMINATING, _UNREADY, _READY = "finished", "terminating", "unready", "ready"
_NO_LABELS: Labels = frozenset()


class ReplicaTally:
    """Pod counts by controller; pods without a controller are ignored."""

    def __init__(self, pods: Informer) -> None:
        self._groups: dict[str, dict[_Group, int]] = {}  # by the controller's uid
        self._place_of: dict[str, _Place] = {}  # by the pod's uid
        self._places: dict[_Place, _Place] = {}  # pods of one group share its large key
        for pod in pods:
            self._changed("ADDED", pod, None)
        pods.add_handler(self._changed)

    def label_sets(self, owner_uid: str) -> set[Labels]:
        """The distinct label sets of the owner's pods."""
        return {labels for labels, _ in self._groups.get(owner_uid, ())}

    def count(
        self,
        owner_uid: str,
        template_labels: Mapping[str, str],
        is_selected: Callable[[Labels], bool],
    ) -> PodCounts:
        """Counts of the pods whose labels match. Every ready pod counts as available."""
        counts = PodCounts()
        wanted = frozenset(template_labels.items())
        for (labels, state), number in self._groups.get(owner_uid, {}).items():
            if state is _FINISHED or not is_selected(labels):
                continue
            if state is _TERMINATING:
                counts.terminating += number
                continue
            counts.active += number
            if wanted <= labels:
                counts.labeled += number
            if state is _READY:
                counts.ready += number
        counts.available = counts.ready
        return counts

    def _changed(self, kind: str, pod: JsonObject, old: JsonObject | None) -> None:
        metadata = pod["metadata"]
        uid = metadata.get("uid", "")
        before = self._place_of.get(uid)
        owner = controller_of(pod) if kind != "DELETED" else None
        if owner is None:
            if before is not None:
                self._leave(before)
                del self._place_of[uid]
            return
        labels = metadata.get("labels")
        group = (frozenset(labels.items()) if labels else _NO_LABELS, _state(pod, metadata))
        after = (owner.get("uid", ""), group)
        if after == before:
            return
        if before is not None:
            self._leave(before)
        self._place_of[uid] = self._places.setdefault(after, after)
        groups = self._groups.setdefault(after[0], {})
        groups[group] = groups.get(group, 0) + 1

    def _leave(self, place: _Place) -> None:
        owner_uid, group = place
        groups = self._groups[owner_uid]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            del self._places[place]
            if not groups:
                del self._groups[owner_uid]


def _state(pod: JsonObject, metadata: JsonObject) -> str:
    if is_finished(pod):
        return _FINISHED
    if metadata.get("deletionTimestamp"):
        return _TERMINATING
    return _READY if is_ready(pod) else _UNREADY
