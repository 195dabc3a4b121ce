"""The victims of placing a pod on a node: a simple second implementation, like `rules`.

All pods of lower priority are removed; then, budget violations first and highest priority first,
each is reprieved if the pod still fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubesched.lab.simulation.rules import State, objection
from kubesched.playground.apimachinery.objects import JsonObject

Placed = tuple[JsonObject, str]


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
) -> str | None:
    """The name of an unnecessary victim; None if each of them is needed."""
    ahead, uids = _ahead(pod, nominated), set(victim_uids)
    victims = [other for other, _name in state.placed if other["metadata"]["uid"] in uids]
    vacated = state.without(victims)
    for victim in victims:
        if _fits(pod, node_name, vacated.joined_by([(victim, node_name)]), ahead):
            name: str = victim["metadata"]["name"]
            return name
    return None


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
