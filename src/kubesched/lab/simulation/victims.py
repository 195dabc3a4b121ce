"""The victims of placing a pod on a node: a simple second implementation, like `rules`.

All pods of lower priority are removed; then, budget violations first and highest priority first,
each is reprieved if the pod still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubesched.lab.simulation.rules import State, objection
from kubesched.lab.simulation.workloads import group_name
from kubesched.playground.apimachinery.objects import JsonObject

Placed = tuple[JsonObject, str]
Groups = Mapping[str, JsonObject]
"""By name; all are in one namespace."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many pods with these labels may be evicted."""

    labels: Mapping[str, str]
    allowed: int

    @staticmethod
    def of(budget: JsonObject) -> Budget:
        labels = budget["spec"]["selector"]["matchLabels"]
        return Budget(labels, (budget.get("status") or {}).get("disruptionsAllowed", 0))

    def covers(self, pod: JsonObject) -> bool:
        return self.labels.items() <= (pod["metadata"].get("labels") or {}).items()


def violations(
    pod: JsonObject,
    node_name: str,
    state: State,
    nominated: Iterable[Placed],
    budgets: Sequence[Budget],
) -> tuple[int, int] | None:
    """Minimum and maximum budget violations on this node; None if evictions cannot help.

    They differ because pods of equal importance may be considered in any order.
    """
    priority = _priority(pod)
    below = [
        other for other, name in state.placed if name == node_name and _priority(other) < priority
    ]
    ahead = _ahead(pod, nominated)
    vacated = state.without(below)
    if not below or not _fits(pod, node_name, vacated, ahead):
        return None
    counts = []
    for order in (below, below[::-1]):
        pods = sorted(order, key=lambda other: -_priority(other))
        spoilt = _beyond_budget(pods, budgets)
        counts.append(_unspared(pod, node_name, vacated, ahead, pods, spoilt))
    return min(counts), max(counts)


def fits_without_victims(
    pod: JsonObject, node_name: str, state: State, nominated: Iterable[Placed]
) -> bool:
    """Whether the pod fits there without evictions, so that preemption does not help."""
    return _fits(pod, node_name, state, _ahead(pod, nominated))


def spareable(
    pod: JsonObject,
    node_name: str,
    state: State,
    nominated: Iterable[Placed],
    victim_uids: Sequence[str],
    groups: Groups,
) -> str | None:
    """The name of an unnecessary victim; None if each of them is needed."""
    return spareable_by_group([(pod, node_name)], state, nominated, victim_uids, groups)


def spareable_by_group(
    members: Sequence[Placed],
    state: State,
    nominated: Iterable[Placed],
    victim_uids: Sequence[str],
    groups: Groups,
) -> str | None:
    """The same for pods that are to be placed together."""
    ahead, uids = _ahead(members[0][0], nominated), set(victim_uids)
    victims = [placed for placed in state.placed if placed[0]["metadata"]["uid"] in uids]
    vacated = state.without(victim for victim, _name in victims)
    for unit in units(victims, groups):
        if all_fit(members, vacated.joined_by(unit), ahead):
            name: str = unit[0][0]["metadata"]["name"]
            return name
    return None


def all_fit(members: Iterable[Placed], state: State, ahead: tuple[Placed, ...] = ()) -> bool:
    """Whether pods fit on their nodes, one after the other."""
    for pod, node_name in members:
        if not _fits(pod, node_name, state, ahead):
            return False
        state = state.joined_by([(pod, node_name)])
    return True


def units(placed: Iterable[Placed], groups: Groups) -> list[list[Placed]]:
    """Pods that are evicted together."""
    found: dict[str, list[Placed]] = {}
    for pod, node_name in placed:
        group = groups.get(name := group_name(pod))
        is_whole = group is not None and "all" in (group["spec"].get("disruptionMode") or {})
        key = name if is_whole else pod["metadata"]["uid"]
        found.setdefault(key, []).append((pod, node_name))
    return list(found.values())


def priority_of(pod: JsonObject, groups: Groups) -> int:
    """The priority of a victim, which is that of its group."""
    group = groups.get(group_name(pod))
    return _priority(pod if group is None else group)


def _ahead(pod: JsonObject, nominated: Iterable[Placed]) -> tuple[Placed, ...]:
    return tuple(
        nomination for nomination in nominated if _priority(nomination[0]) >= _priority(pod)
    )


def _unspared(
    pod: JsonObject,
    node_name: str,
    vacated: State,
    ahead: tuple[Placed, ...],
    below: Sequence[JsonObject],
    spoilt: Sequence[JsonObject],
) -> int:
    state, count = vacated, 0
    for other in [*spoilt, *(victim for victim in below if victim not in spoilt)]:
        fuller = state.joined_by([(other, node_name)])
        if _fits(pod, node_name, fuller, ahead):
            state = fuller
        else:
            count += other in spoilt
    return count


def _fits(pod: JsonObject, node_name: str, state: State, ahead: tuple[Placed, ...]) -> bool:
    """Whether the pod fits both with and without nominated pods."""
    if ahead and objection(pod, node_name, state.joined_by(ahead)) is not None:
        return False
    return objection(pod, node_name, state) is None


def _beyond_budget(pods: Sequence[JsonObject], budgets: Sequence[Budget]) -> list[JsonObject]:
    left = [budget.allowed for budget in budgets]
    unprotected = []
    for pod in pods:
        covering = [index for index, budget in enumerate(budgets) if budget.covers(pod)]
        for index in covering:
            left[index] -= 1
        if any(left[index] < 0 for index in covering):
            unprotected.append(pod)
    return unprotected


def _priority(pod: JsonObject) -> int:
    priority: int = pod["spec"].get("priority", 0)
    return priority
