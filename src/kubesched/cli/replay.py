"""`kubesched replay`: a recording or a trace, played to the scheduler in virtual time."""

from __future__ import annotations

import argparse

from kubesched.cli.parsing import Subparsers

_DESCRIPTION = """\
Play what 'kubesched run --record DIR' has recorded: the scheduler gets the same inputs in the same
order, in virtual time, and every decision is compared with the logged one.

A decision that comes out differently is a defect of kubesched, or of a plugin that reads something
outside of the scheduler. The first one is explained, and the exit code is 1.
"""


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "replay", help="play a recording and compare its decisions", description=_DESCRIPTION
    )
    parser.add_argument(
        "trace", nargs="+", metavar="RECORDING|TRACE", help="the folder of a recording"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        required=True,
        help="compare every decision of a recording with the logged one",
    )


def main(args: argparse.Namespace) -> int:
    from kubesched.cli.main import usage_error
    from kubesched.cli.replay_verify import verify

    if len(args.trace) > 1:
        return usage_error("--verify takes one recording")
    return verify(args.trace[0])
