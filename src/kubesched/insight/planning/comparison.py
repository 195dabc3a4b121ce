"""Compares two plans."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubesched.base.files import read_file
from kubesched.insight.planning.model import Plan, Record, Utilisation
from kubesched.insight.planning.world import PlanError


class Elsewhere(Record):
    """A pod whose node differs between the plans."""

    pod: str
    before: str
    """Its node in the first plan; empty if it has none."""
    after: str


class Share(Record):
    """The requested share of a resource at the end."""

    before: float
    after: float


class PlanDifference(Record):
    """What differs between two plans."""

    is_same: bool
    complete_before: bool
    complete_after: bool
    placed: list[Elsewhere]
    """Pods placed on different nodes, or in one plan only."""
    evicted_before: list[str]
    """Pods that leave their nodes only in the first plan."""
    evicted_after: list[str]
    unplaced_before: list[str]
    """Pods left unplaced only in the first plan."""
    unplaced_after: list[str]
    nodes_before: int
    nodes_after: int
    utilisation: dict[str, Share]
    """Resources whose requested share differs."""


def compare_plans(before: Plan, after: Plan) -> PlanDifference:
    first, second = _nodes(before), _nodes(after)
    placed = [
        Elsewhere(pod=pod, before=first.get(pod, ""), after=second.get(pod, ""))
        for pod in [*first, *(pod for pod in second if pod not in first)]
        if first.get(pod, "") != second.get(pod, "")
    ]
    evicted = (
        [eviction.pod for eviction in before.evicted],
        [eviction.pod for eviction in after.evicted],
    )
    unplaced = _unplaced(before), _unplaced(after)
    difference = PlanDifference(
        is_same=True,
        complete_before=before.is_complete,
        complete_after=after.is_complete,
        placed=placed,
        evicted_before=_without(evicted[0], evicted[1]),
        evicted_after=_without(evicted[1], evicted[0]),
        unplaced_before=_without(unplaced[0], unplaced[1]),
        unplaced_after=_without(unplaced[1], unplaced[0]),
        nodes_before=before.after.nodes,
        nodes_after=after.after.nodes,
        utilisation=_utilisation(before.after, after.after),
    )
    difference.is_same = (
        not any(
            (
                *(difference.placed, difference.evicted_before, difference.evicted_after),
                *(difference.unplaced_before, difference.unplaced_after, difference.utilisation),
            )
        )
        and difference.nodes_before == difference.nodes_after
        and difference.complete_before == difference.complete_after
    )
    return difference


def read_plan(path: str) -> Plan:
    """A plan printed with `-o json`.

    Raises:
        PlanError: the file cannot be read, or is not a plan.
    """
    try:
        return msgspec.json.decode(read_file(path), type=Plan)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise PlanError(f"{path}: not a plan of 'kubesched plan -o json': {error}") from None


def _nodes(plan: Plan) -> dict[str, str]:
    nodes = {placement.pod: placement.node for placement in plan.placed}
    return nodes | {move.replacement: move.to_node for move in plan.moved}


def _unplaced(plan: Plan) -> list[str]:
    return [pod for group in plan.unplaced for pod in group.pods]


def _without(pods: Sequence[str], others: Sequence[str]) -> list[str]:
    known = set(others)
    return [pod for pod in pods if pod not in known]


def _utilisation(before: Utilisation, after: Utilisation) -> dict[str, Share]:
    shares = {}
    for name in sorted({*before.resources, *after.resources}):
        was, now = _share(before, name), _share(after, name)
        if was != now:
            shares[name] = Share(before=was, after=now)
    return shares


def _share(utilisation: Utilisation, resource: str) -> float:
    amount = utilisation.resources.get(resource)
    return round(amount.requested / amount.allocatable, 6) if amount is not None else 0.0
