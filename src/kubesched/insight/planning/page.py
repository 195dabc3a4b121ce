"""A plan as one HTML page: utilisation before and after, and tables of the changes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from kubesched.base import charts
from kubesched.insight.planning.model import Amount, Plan

BAR, LABEL, FIGURE = 18, 220, 60


def page(plan: Plan) -> str:
    """The complete document."""
    left = sum(len(left_over.pods) for left_over in plan.unplaced)
    counts = (
        f"{len(plan.placed)} placed, {len(plan.moved)} moved, {len(plan.evicted)} evicted, "
        f"{len(plan.kept)} cannot be evicted, {left} not placed"
    )
    parts = [
        "<h1>Plan</h1>",
        f'<p class="note">{escape(plan.source)}</p>',
        f"<p>{counts}.</p>",
        "<h2>Requested of what there is</h2>",
        charts.key({"before": charts.COLOURS[0], "after": charts.COLOURS[1]}),
        _bars(plan),
        _utilisation_table(plan),
        *_table(
            "Placed",
            ["POD", "NODE", "ZONE"],
            [[placement.pod, placement.node, placement.zone or "-"] for placement in plan.placed],
        ),
        *_table(
            "Moved",
            ["POD", "FROM", "TO", "NOW CALLED"],
            [[move.pod, move.from_node, move.to_node, move.replacement] for move in plan.moved],
        ),
        *_table(
            "Evicted",
            ["POD", "FROM", "BY", "COMES BACK AS"],
            [
                [eviction.pod, eviction.node, eviction.by, eviction.replacement or "-"]
                for eviction in plan.evicted
            ],
        ),
        *_table(
            "Cannot be evicted",
            ["POD", "NODE", "WHY"],
            [[kept.pod, kept.node, kept.reason] for kept in plan.kept],
        ),
        *_table(
            "Not placed",
            ["PODS", "VERDICT", "WHY"],
            [
                [", ".join(left_over.pods), left_over.stop.verdict.value, left_over.stop.message]
                for left_over in plan.unplaced
            ],
        ),
        *(f'<p class="note">note: {escape(note)}</p>' for note in plan.notes),
    ]
    return charts.document("kubesched plan", parts)


def _table(title: str, headers: list[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return []
    return [f"<h2>{title}</h2>", charts.table(headers, rows, headers)]


def _amounts(plan: Plan) -> list[tuple[str, str, Amount | None, Amount | None]]:
    """Zone (or `all`), resource, before, after."""
    before, after = plan.before, plan.after
    names = sorted({*before.resources, *after.resources})
    rows = [("all", name, before.resources.get(name), after.resources.get(name)) for name in names]
    for zone in sorted({*before.zones, *after.zones}):
        was, now = before.zones.get(zone, {}), after.zones.get(zone, {})
        rows += [(zone or "-", name, was.get(name), now.get(name)) for name in names]
    return rows


def _share(amount: Amount | None) -> float:
    return amount.requested / amount.allocatable if amount is not None else 0.0


def _bars(plan: Plan) -> str:
    room = charts.WIDTH - LABEL - FIGURE
    lines: list[str] = []
    y = 0
    for zone, name, was, now in _amounts(plan):
        lines.append(f'<text x="0" y="{y + BAR}">{escape(zone)}: {escape(name)}</text>')
        for amount, colour in ((was, charts.COLOURS[0]), (now, charts.COLOURS[1])):
            width = max(1.0, min(1.0, _share(amount)) * room)
            lines.append(
                f'<rect x="{LABEL}" y="{y + 2}" width="{width:.1f}" '
                f'height="{BAR - 4}" fill="{colour}"/>'
            )
            lines.append(
                f'<text x="{LABEL + width + 6:.1f}" y="{y + BAR - 5}">'
                f"{100 * _share(amount):.1f} %</text>"
            )
            y += BAR
        y += BAR // 2
    return charts.svg(y + 4, lines, "Requested share of every resource before and after")


def _utilisation_table(plan: Plan) -> str:
    rows = [
        [zone, name, f"{100 * _share(was):.1f} %", f"{100 * _share(now):.1f} %"]
        for zone, name, was, now in _amounts(plan)
    ]
    return charts.table(["ZONE", "RESOURCE", "BEFORE", "AFTER"], rows, ["RESOURCE"])
