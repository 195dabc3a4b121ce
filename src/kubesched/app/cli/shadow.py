"""`kubesched shadow`: decisions beside those that count."""

from __future__ import annotations

import argparse

from kubesched.app.cli.options import add_options, add_output

DESCRIPTION = "Compare decisions with those of a candidate that decides beside them and never acts."

_REPORT = """\
Show what the shadow profiles of a scheduler would have decided: how often they agree, the
placements that differ with the plugin that makes the difference, and what they would mean for
packing, spread and waits. Reads what the scheduler serves at /debug/shadow, or plays a recording.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
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


def main(args: argparse.Namespace) -> int:
    from kubesched.app.cli import shadow_work

    return shadow_work.report(args)
