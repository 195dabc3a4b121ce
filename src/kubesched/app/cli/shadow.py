"""`kubesched shadow`: decisions beside those that count."""

from __future__ import annotations

import argparse

from kubesched.api.times import parse_duration
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.sources import add_configuration

DESCRIPTION = """\
Compare decisions with those of a candidate that decides beside them and never acts.

Without a verb: compare every binding of another scheduler, such as kube-scheduler, with what this
one would choose at that moment. Lists and watches only; nothing is written. Ends with a report, at
Ctrl-C or after --for. Exit code 0 means that no binding differs, 1 that one does.
"""

_REPORT = """\
Show what the shadow profiles of a scheduler would have decided: how often they agree, the
placements that differ with the plugin that makes the difference, and what they would mean for
packing, spread and waits. Reads what the scheduler serves at /debug/shadow, or plays a recording.
"""
_WATCH = """
--kubeconfig FILE {=}  the cluster's file
--context NAME {=}     the context to use
--scheduler-name NAME {=default-scheduler}  the scheduler to compare with, and the profile to use
--percentage-of-nodes-to-score N {number=0}  its setting; 0 is its adaptive default (default: 0)
--for TIME {duration}  how long to compare, such as 60s (default: until Ctrl-C)
--window TIME {duration=1s}  events this close to a binding may have been seen in another order
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=False)
    report = verbs.add_parser("report", help="tell how shadow profiles decide", description=_REPORT)
    add_options(
        report,
        """
--from FILE {=}  what /debug/shadow answered; - for standard input
--recording DIR  a recording of 'kubesched run --record DIR', played with its shadow profiles or
    those of --config
--config FILE {=}  the scheduler's configuration
--promote  print the change of --config that puts the candidate into the live profile's place
--profile NAME {=}  only this shadow profile
--limit N {positive=20}  placements to show
""",
    )
    add_output(report, "table", "json", "yaml")
    add_options(parser, _WATCH, duration=parse_duration)
    add_configuration(parser)
    add_output(parser, "table", "json", "yaml")


def main(args: argparse.Namespace) -> int:
    if args.verb == "report":
        from kubesched.app.cli import shadow_work

        return shadow_work.report(args)
    from kubesched.app.cli.interruption import signals_held

    with signals_held():
        from kubesched.app.cli import shadow_watch
    return shadow_watch.watch(args)  # until there is something to report, a signal interrupts
