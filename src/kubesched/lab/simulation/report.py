"""Results as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from kubesched.lab.simulation.census import total
from kubesched.lab.simulation.run import SimulationResult

SHOWN_LINES = 40


def line(outcome: SimulationResult) -> str:
    """One run in one line."""
    verdict = "ok" if outcome.violation is None else f"FAILED: {outcome.violation.property}"
    return (
        f"seed {outcome.seed}: {verdict} ({outcome.events} events, {outcome.checks} checks,"
        f" {outcome.virtual_s:.0f} s of virtual time, {outcome.bound} bound,"
        f" {outcome.pending} pending,"
        f" trace {outcome.digest[:12]})"
    )


def failure(outcome: SimulationResult, *, command: str) -> str:
    """The violation, the command that reproduces it and the last lines of the trace."""
    assert outcome.violation is not None, "nothing failed"
    options = "\n".join(f"  {name}: {value}" for name, value in asdict(outcome.options).items())
    shown = "\n".join(f"  {line_}" for line_ in outcome.last_lines[-SHOWN_LINES:])
    return (
        f"seed {outcome.seed} failed at event {outcome.events},"
        f" {outcome.virtual_s:.4f} s of virtual time\n"
        f"violated: {outcome.violation.property}\n"
        f"because:  {outcome.violation.detail}\n"
        f"options:\n{options}\n"
        f"last events:\n{shown}\n"
        f"replay:   {command}\n"
    )


def to_plain(outcome: SimulationResult) -> dict[str, Any]:
    """One run as JSON."""
    plain: dict[str, Any] = {
        "seed": outcome.seed,
        "ok": outcome.is_good,
        "digest": outcome.digest,
        "events": outcome.events,
        "checks": outcome.checks,
        "virtualSeconds": round(outcome.virtual_s, 6),
        "bound": outcome.bound,
        "pending": outcome.pending,
        "eventsByKind": outcome.counts,
        "faults": outcome.census,
        "options": asdict(outcome.options),
    }
    if outcome.violation is not None:
        plain["violation"] = {
            "property": outcome.violation.property,
            "detail": outcome.violation.detail,
        }
        plain["lastEvents"] = list(outcome.last_lines)
    return plain


def faults(outcomes: Iterable[SimulationResult]) -> str:
    """Fault counts over all runs, one line per place."""
    counts = total(outcome.census for outcome in outcomes)
    return "\n".join(
        f"{where}: " + "; ".join(f"{what}: {count}" for what, count in kinds.items())
        for where, kinds in counts.items()
    )


def summary(outcomes: Iterable[SimulationResult]) -> str:
    runs = list(outcomes)
    failed = [run.seed for run in runs if not run.is_good]
    events = sum(run.events for run in runs)
    text = f"{len(runs)} runs, {events} events, {len(failed)} failed"
    return f"{text}: seeds {', '.join(map(str, failed))}" if failed else text
