"""Prints the plans of `kubesched plan` as text."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.app.cli import terminal
from kubesched.app.cli.explain_tables import named
from kubesched.insight.explain.amounts import shown
from kubesched.insight.planning.model import Amount, Plan, Unplaced, Utilisation

SHOWN = 20
"""Maximum rows of a table; -o wide shows all."""
PODS_NAMED = 3


def print_plan(plan: Plan, *, wide: bool) -> None:
    """Counts, then pods placed, moved, lost and pending, then utilisation and notes."""
    terminal.heading(_counts(plan))
    came_back = {move.replacement for move in plan.moved}
    gone = [eviction for eviction in plan.evicted if eviction.replacement not in came_back]
    placed = [
        (place.pod, place.node, place.zone or "-", "was pending" if place.was_pending else "")
        for place in plan.placed
    ]
    moved = [
        (move.pod, move.from_node, move.to_node, move.zone or "-", move.replacement)
        for move in plan.moved
    ]
    evicted = [(pod.pod, pod.node, pod.by, pod.replacement or "-") for pod in gone]
    kept = [(kept.pod, kept.node, kept.reason) for kept in plan.kept]
    unplaced = [(named(g.pods, PODS_NAMED), str(len(g.pods)), _why(g)) for g in plan.unplaced]
    _print_rows(("PLACED", "NODE", "ZONE", ""), placed, wide=wide)
    _print_rows(("MOVED", "FROM", "TO", "ZONE", "NOW CALLED"), moved, wide=wide)
    _print_rows(("EVICTED", "FROM", "BY", "COMES BACK AS"), evicted, wide=wide)
    _print_rows(("CANNOT BE EVICTED", "NODE", "WHY"), kept, wide=wide)
    _print_rows(("NOT PLACED", "PODS", "WHY"), unplaced, wide=wide)
    print()
    _print_utilisation(plan, wide=wide)
    terminal.notes(plan.notes)


def _counts(plan: Plan) -> str:
    left = sum(len(left_over.pods) for left_over in plan.unplaced if not left_over.was_pending)
    pending = sum(len(left_over.pods) for left_over in plan.unplaced if left_over.was_pending)
    parts = [f"{len(plan.placed)} placed"]
    for count, what in (
        (len(plan.moved), "moved"),
        (len(plan.evicted), "evicted"),
        (len(plan.kept), "cannot be evicted"),
        (left, "not placed"),
        (pending, "pending as before"),
        (len(plan.nodes_added), "nodes added"),
        (len(plan.nodes_removed), "nodes removed"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return ", ".join(parts) + "."


def _why(group: Unplaced) -> str:
    return f"{group.stop.verdict.value}: {group.stop.message or group.stop.summary}"


def _print_rows(headers: Sequence[str], rows: Sequence[Sequence[str]], *, wide: bool) -> None:
    terminal.section(headers, rows if wide else rows[:SHOWN])
    if not wide and len(rows) > SHOWN:
        terminal.sentence(f"({len(rows) - SHOWN} more; -o wide and -o json list all)")


def _print_utilisation(plan: Plan, *, wide: bool) -> None:
    rows = [_utilisation_row("all", name, plan.before, plan.after) for name in _resources(plan)]
    if wide:
        zones = sorted({*plan.before.zones, *plan.after.zones})
        rows += [
            _utilisation_row(zone, name, plan.before, plan.after)
            for zone in zones
            for name in _resources(plan)
        ]
    terminal.table(("ZONE", "REQUESTED", "BEFORE", "AFTER", "FREE AFTER"), rows)
    if plan.tightest:
        print()
        terminal.sentence(f"{plan.tightest} runs out first.")


def _resources(plan: Plan) -> list[str]:
    return sorted({*plan.before.resources, *plan.after.resources})


def _utilisation_row(
    zone: str, resource: str, before: Utilisation, after: Utilisation
) -> tuple[str, str, str, str, str]:
    was = (before.resources if zone == "all" else before.zones.get(zone, {})).get(resource)
    now = (after.resources if zone == "all" else after.zones.get(zone, {})).get(resource)
    free = "-" if now is None else shown(resource, now.allocatable - now.requested)
    return zone or "-", resource, _share(was), _share(now), free


def _share(amount: Amount | None) -> str:
    return "-" if amount is None else f"{100 * amount.requested / amount.allocatable:.1f} %"
