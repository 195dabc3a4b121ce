"""`kubesched plan`: what-if planning."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kubesched.app.cli.capacity import add_planning_options
from kubesched.app.cli.options import add_options
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.records import write_record
from kubesched.app.cli.sources import load_configuration, load_state

if TYPE_CHECKING:
    from kubesched.insight.planning.existing_workloads import Scale
    from kubesched.insight.planning.model import Plan
    from kubesched.insight.planning.nodes import NewNodes

DESCRIPTION = """\
Show what would happen: where new pods would go, who would be evicted and where they would come
back, what is left over and why, and how full the cluster is before and after.

The scheduler and the controllers run over the objects of a cluster or a dump, in virtual time;
nothing is written. The steps, in this order: pods that are pending already get their try, nodes are
added, objects are deleted, existing workloads are scaled, files are applied, nodes are drained,
nodes are removed.

To count how many replicas fit, use 'capacity'; to compare configurations on a history, 'replay'; to
look for defects of the scheduler itself, 'simulate'.

Exit code 2 if a pod of these changes is left over or cannot be evicted.
"""

EXIT_INCOMPLETE = 2
_OPTIONS = """
-f, --filename FILE {*}  objects to apply, as for kubectl apply; - for standard input
--replicas N|KIND/NAME=N {replicas*}  replicas of the workloads in the files, or of a workload that
    exists
--add-nodes N:FILE|N:like=NODE {new_nodes*}   add N nodes from a template, or like a node with its
    DaemonSet pods
--drain NODE|SELECTOR {*}         cordon these nodes and evict their pods, as kubectl drain does
--remove-nodes NODE|SELECTOR {*}  drain these nodes, then delete those that come empty
--force                           evict pods without a controller, too: they are lost
--delete KIND/NAME {*}  delete a pod, or a workload with its pods; KIND/NAMESPACE/NAME works, too
-n, --namespace NAMESPACE {=default}  of --delete
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS, replicas=_replicas, new_nodes=_new_nodes)
    add_planning_options(parser)


def _replicas(text: str) -> int | Scale:
    from kubesched.insight.planning.existing_workloads import Scale

    return int(text) if text.isdecimal() else Scale.parse(text)


def _new_nodes(text: str) -> NewNodes:
    from kubesched.insight.planning.nodes import NewNodes

    return NewNodes.parse(text)


def main(args: argparse.Namespace) -> int:
    if sum(isinstance(replicas, int) for replicas in args.replicas) > 1:
        return usage_error("--replicas N is for all files and can be given once")
    plan = _plan(args)
    if args.output in ("json", "yaml"):
        write_record(args.output, plan)
    else:
        from kubesched.app.cli.plan_tables import print_plan

        print_plan(plan, wide=args.output == "wide")
    return 0 if plan.is_complete else EXIT_INCOMPLETE


def _plan(args: argparse.Namespace) -> Plan:
    from kubesched.insight.planning.existing_workloads import Scale
    from kubesched.insight.planning.manifests import read_manifests
    from kubesched.insight.planning.plan import Changes, make_plan

    config, gates = load_configuration(args)
    changes = Changes(
        manifests=read_manifests(args.filename),
        replicas=next((replicas for replicas in args.replicas if isinstance(replicas, int)), None),
        scale=[replicas for replicas in args.replicas if isinstance(replicas, Scale)],
        add_nodes=args.add_nodes,
        delete=args.delete,
        drain=args.drain,
        remove_nodes=args.remove_nodes,
        force=args.force,
        namespace=args.namespace,
    )
    state = load_state(args)
    return make_plan(state, changes, config, gates=gates, seed=args.seed)
