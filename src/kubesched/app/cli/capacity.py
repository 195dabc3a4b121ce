"""`kubesched capacity`: how many more replicas fit, and what stops the next one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kubesched.app.cli import terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.records import write_record
from kubesched.app.cli.sources import (
    add_configuration,
    add_state_source,
    load_configuration,
    load_state,
)

if TYPE_CHECKING:
    from kubesched.insight.planning.model import Capacity, Stop, ZoneStop

DESCRIPTION = """\
Count how many more replicas of a workload fit into a cluster, and say what stops the next one.

The scheduler itself places replica after replica, over the objects of a cluster or a dump and in
virtual time; nothing is written and nothing is evicted. Pods that are pending already are tried
first. Several workloads count in the proportion of their replicas.

To see where pods would go, or what a drain would do, use 'plan'; to compare configurations on a
history, 'replay'; to look for defects of the scheduler itself, 'simulate'.

Exit code 2 if fewer than --min replicas fit.
"""

EXIT_BELOW_MINIMUM = 2
_OPTIONS = """
-f, --filename FILE {*!}  pods and workloads, as for kubectl apply; - for standard input
--max N {number}         stop counting at N (default: 1000000)
--min N {number=0}       exit with 2 if fewer than N fit
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS)
    add_planning_options(parser)


def add_planning_options(parser: argparse.ArgumentParser) -> None:
    """Options shared by `capacity` and `plan`."""
    add_options(parser, "--seed N {int=0}  seed of the choice among nodes with equal scores")
    add_output(parser, "table", "wide", "json", "yaml")
    add_configuration(parser)
    add_state_source(parser)


def main(args: argparse.Namespace) -> int:
    from kubesched.insight.planning.capacity import DEFAULT_LIMIT, count_capacity
    from kubesched.insight.planning.manifests import read_manifests

    config, gates = load_configuration(args)
    manifests = read_manifests(args.filename)
    state = load_state(args)
    limit = DEFAULT_LIMIT if args.max is None else args.max
    counted = count_capacity(state, manifests, config, gates=gates, limit=limit, seed=args.seed)
    if args.output in ("json", "yaml"):
        write_record(args.output, counted)
    else:
        print_capacity(counted, wide=args.output == "wide")
    return EXIT_BELOW_MINIMUM if counted.replicas < args.min else 0


def print_capacity(counted: Capacity, *, wide: bool) -> None:
    """Prints the count, the nodes used, and what stops the next pod."""
    more = " or more" if counted.is_limited else ""
    gangs = f" gangs of {counted.gang}" if counted.gang else ""
    terminal.heading(f"{_named(counted)}: {counted.replicas}{more}{gangs} fit.")
    if (
        not counted.gang
        and counted.pods > sum(part.per_replica for part in counted.parts) * counted.replicas
    ):
        terminal.sentence(f"({counted.pods} pods; the last replica fits in part)")
    if counted.pending:
        terminal.sentence(f"({counted.pending} pods of the cluster are pending and stay so)")
    if counted.next is not None:
        if counted.gang:
            terminal.sentence(f"The next gang: {counted.next.summary}")
        else:
            print_stop(counted.next)
    stops = {zone.zone: zone for zone in counted.next.zones} if counted.next is not None else {}
    zones = sorted({*counted.zones, *stops})
    rows = [_zone_row(zone, counted.zones.get(zone, 0), stops.get(zone)) for zone in zones]
    terminal.section(("ZONE", "PODS", "NODES", "WHAT STOPS THE NEXT"), rows)
    if wide:
        nodes = [(node, str(count)) for node, count in counted.nodes.items()]
        terminal.section(("NODE", "PODS"), nodes)
    terminal.notes(counted.notes)


def _named(counted: Capacity) -> str:
    shares = len(counted.parts) > 1
    return " + ".join(
        f"{part.per_replica} {part.name}" if shares else part.name for part in counted.parts
    )


def _zone_row(zone: str, pods: int, stop: ZoneStop | None) -> tuple[str, str, str, str]:
    if stop is None:
        return zone or "-", str(pods), "-", "-"
    reasons = ", ".join(f"{count} {reason}" for reason, count in stop.reasons.items())
    return zone or "-", str(pods), str(stop.nodes), reasons or "-"


def print_stop(stop: Stop) -> None:
    """Prints why a pod fits nowhere, in `explain`'s format."""
    from kubesched.app.cli.explain_tables import print_reasons

    terminal.sentence(f"The next pod: {stop.summary}")
    if stop.preemption is not None:
        victims = ", ".join(victim.pod for victim in stop.preemption.victims)
        terminal.sentence(f"It would preempt on {stop.preemption.node}: {victims}.")
    print_reasons(stop.reasons)
