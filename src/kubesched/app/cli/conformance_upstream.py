"""`kubesched conformance upstream`: what a kube-scheduler has that the reference does not know."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli import terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.sources import add_configuration, feature_gates

if TYPE_CHECKING:
    from kubesched.app.cli.parsing import Subparsers
    from kubesched.lab.conformance.upstream import Finding

_DESCRIPTION = """\
List what a kube-scheduler has that the reference does not know, or knows otherwise: feature gates
with their history, plugins, the default profile, flags, fields of the configuration, metrics with
labels and buckets, event reasons and reasons of rejections.

PATH is a checkout of Kubernetes, which is read, or a kube-scheduler, which is run with --help and
--write-config-to (gates by their current state only; no metrics and texts).

Exit code 0 means that everything is known, 1 that something is not or that PATH is unusable.
"""


def add_parser(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "upstream", help="what a kube-scheduler has that is not known", description=_DESCRIPTION
    )
    add_options(parser, "path PATH  a checkout of Kubernetes, or a kube-scheduler")
    add_output(parser, "table", "json", "yaml")
    add_configuration(parser, "")


def main(args: argparse.Namespace) -> int:
    from kubesched.app.cli.records import write_record
    from kubesched.app.flags import all_flags
    from kubesched.lab.conformance import upstream

    gates, path = feature_gates(args), Path(args.path)
    found = upstream.facts(path, gates.versions)
    own = upstream.own_facts(gates, all_flags(), of_binary=path.is_file())
    unknown = upstream.findings(found, own)
    if args.output == "table":
        terminal.heading(f"{len(unknown)} of {len(found)} facts are not those of {gates.versions}")
        print_findings(unknown)
    else:
        plain = [{**fact._asdict(), "ours": ours} for fact, ours in unknown]
        write_record(args.output, {"compared": len(found), "unknown": plain})
    return 1 if unknown else 0


def print_findings(findings: Iterable[Finding]) -> None:
    rows = [
        (fact.kind, fact.name, fact.detail, "unknown" if ours is None else ours)
        for fact, ours in findings
    ]
    terminal.table(("KIND", "NAME", "UPSTREAM", "OURS"), rows)
