"""`kubesched plan`: what would happen if."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kubesched.cli.capacity import add_planning_options, write
from kubesched.cli.parsing import Subparsers
from kubesched.cli.sources import load_state

if TYPE_CHECKING:
    from kubesched.planning.nodes import NewNodes

_DESCRIPTION = """\
Show what would happen: where new pods would go, who would be evicted and where they would come
back, what is left over and why, and how full the cluster is before and after.

The scheduler and the controllers run over the objects of a cluster or a dump, in virtual time;
nothing is written. The steps, in this order: pods that are pending already get their try, nodes are
added, objects are deleted, files are applied, nodes are drained, nodes are removed.

Exit code 2 if a pod of these changes is left over or cannot be evicted.
"""

EXIT_INCOMPLETE = 2


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "plan", help="show what would happen if", description=_DESCRIPTION
    )
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="objects to apply, as for kubectl apply; - for standard input; may be repeated",
    )
    parser.add_argument(
        "--replicas", type=_count, metavar="N", help="replicas of the workloads in the files"
    )
    parser.add_argument(
        "--add-nodes",
        type=_new_nodes,
        action="append",
        default=[],
        metavar="N:FILE|N:like=NODE",
        help="add N nodes from a template, or like a node with its DaemonSet pods; may be repeated",
    )
    _add_removals(parser)
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAMESPACE", help="of --delete"
    )
    add_planning_options(parser)


def _add_removals(parser: argparse.ArgumentParser) -> None:
    nodes = "NODE|SELECTOR"
    parser.add_argument(
        "--drain",
        action="append",
        default=[],
        metavar=nodes,
        help="cordon these nodes and evict their pods, as kubectl drain does; may be repeated",
    )
    parser.add_argument(
        "--remove-nodes",
        action="append",
        default=[],
        metavar=nodes,
        help="drain these nodes, then delete those that come empty; may be repeated",
    )
    parser.add_argument(
        "--force", action="store_true", help="evict pods without a controller, too: they are lost"
    )
    parser.add_argument(
        "--delete",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="delete a pod, or a workload with its pods; KIND/NAMESPACE/NAME works, too",
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of replicas")
    return int(text)


def _new_nodes(text: str) -> NewNodes:
    from kubesched.planning.nodes import NewNodes

    try:
        return NewNodes.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(args: argparse.Namespace) -> int:
    import logging

    from kubesched.app.event_loop import run
    from kubesched.cli.plan_tables import print_plan
    from kubesched.config import features
    from kubesched.config.load import default_config, load_file
    from kubesched.planning.configuration import without_extenders
    from kubesched.planning.manifests import read_manifests
    from kubesched.planning.plan import Changes, make_plan

    # What a scheduler in memory logs about pods is what is printed here.
    logging.getLogger("kubesched").addHandler(logging.NullHandler())
    gates = features.parse(args.feature_gates)
    config = load_file(args.config, gates) if args.config else default_config(gates)
    config, notes = without_extenders(config)
    changes = Changes(
        manifests=read_manifests(args.filename),
        replicas=args.replicas,
        add_nodes=args.add_nodes,
        delete=args.delete,
        drain=args.drain,
        remove_nodes=args.remove_nodes,
        force=args.force,
        namespace=args.namespace,
    )
    plan = run(make_plan(load_state(args), changes, config, gates=gates, seed=args.seed))
    plan.notes[:0] = notes
    if args.output in ("json", "yaml"):
        write(args.output, plan)
    else:
        print_plan(plan, wide=args.output == "wide")
    return 0 if plan.is_complete else EXIT_INCOMPLETE
