"""`kubesched conformance`: compare decisions with those of kube-scheduler."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kubesched.app.cli import conformance_run, terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.records import fields, write_record
from kubesched.app.cli.sources import REFERENCE
from kubesched.config.references import DEFAULT_REFERENCE

if TYPE_CHECKING:
    from kubesched.lab.conformance.golden import Disagreement, Report

_GOLDEN = """\
Evaluate recordings of kube-scheduler and compare every aspect of each decision. Of a placement:
feasible nodes and their order, the plugin that rejected a node, its code and reasons, each plugin's
score, the total, and the message when nothing fits. Of a sequence, in which pods are placed one
after the other: the node chosen, ties included, the unschedulable message, nominated node, victims,
volumes bound, questions to extenders. Of a sequence of pod groups, after each step: nodes, messages
and nominations of pods, conditions of groups, evictions.

FILE is a recording: one JSON object per line, plain or gzipped. A placement has the cluster
(`namespaces`, `nodes`, `pods`) and `pending` pods, each with the answer to `expect`; a sequence has
`nodes` and `pods`, or `objects` and `steps`, with the decisions to `expect`.

Exit code 0 means agreement in every aspect, 1 at least one disagreement or an unusable file, 2
wrong usage.
"""

_RECORDINGS = f"""
files FILE {{+}}        recorded placements, sequences or selectors
--limit N {{positive}}  stop after N pods or steps (default: all)
--show N {{positive=10}}  disagreements to show
{REFERENCE}
--explain             compare what 'kubesched explain' says about each pod of a placement
"""

DESCRIPTION = "Compare this scheduler's decisions with those of kube-scheduler."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    golden = kinds.add_parser("golden", help="evaluate recordings", description=_GOLDEN)
    add_options(golden, _RECORDINGS)
    add_output(golden, "table", "json")
    conformance_run.add_parser(kinds)


def main(args: argparse.Namespace) -> int:
    if args.kind == "golden":
        return _golden(
            args.files,
            args.reference_version or DEFAULT_REFERENCE.version,
            args.output,
            limit=args.limit,
            show=args.show,
            explained=args.explain,
        )
    if conformance_run.is_without_programs(args):
        return _recorded(args)
    return conformance_run.main(args)


def _recorded(args: argparse.Namespace) -> int:
    from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES
    from kubesched.lab.conformance.golden import SHIPPED

    versions = " and ".join(REFERENCES)
    print(
        "no programs to compare with: these are the recorded answers of kube-scheduler "
        f"{versions} that come with kubesched\nto compare with a running one, name the "
        "folder of etcd, kube-apiserver and kube-scheduler with --assets or $KUBEBUILDER_ASSETS",
        file=sys.stderr,
    )
    return _golden([str(SHIPPED)], DEFAULT_REFERENCE.version, args.output)


def _golden(
    files: Sequence[str],
    reference_version: str,
    output: str,
    *,
    limit: int | None = None,
    show: int = 10,
    explained: bool = False,
) -> int:
    from kubesched.base.logs import silence
    from kubesched.config.features import defaults
    from kubesched.lab.conformance.golden import evaluate

    # The in-memory schedulers log expected failures.
    silence()
    with terminal.ProgressLine() as line:

        def progress(report: Report) -> None:
            done = report.pods + report.steps
            agreed = report.pods_in_agreement + report.steps_in_agreement
            line.show(f"{done} pods and steps, {agreed} in agreement")

        report = evaluate(
            files,
            defaults(reference_version),
            limit=limit,
            show=show,
            explained=explained,
            progress=progress,
        )
    if output == "json":
        write_record("json", _as_json(report))
    else:
        print_report(report)
    return 0 if report.agreement.is_complete else 1


def print_report(report: Report) -> None:
    if report.pods or not (report.selectors or report.group_sequences):
        terminal.heading(
            f"{report.pods_in_agreement} of {report.pods} pods on {report.clusters} clusters agree"
        )
    if report.selectors:
        terminal.heading(
            f"{report.selectors_in_agreement} of {report.selectors} device selectors agree"
        )
    if report.group_sequences:
        terminal.heading(
            f"{report.group_sequences_in_agreement} of {report.group_sequences} sequences of pod "
            f"groups agree, {report.steps_in_agreement} of {report.steps} steps"
        )
    conformance_run.print_aspects(report.agreement)
    if not report.disagreements:
        return
    print()
    terminal.heading(f"First {len(report.disagreements)} disagreements")
    for disagreement in report.disagreements:
        _print_disagreement(disagreement)


def _print_disagreement(disagreement: Disagreement) -> None:
    finding, (pod, selector, step) = disagreement.finding, disagreement.what
    where = [f"pod {pod}" if pod else selector if step is None else f"step {step}"]
    where += [f"node {finding.node}"] if finding.node else []
    where += [f"plugin {finding.plugin}"] if finding.plugin else []
    where += [f"device {finding.device}"] if finding.device else []
    print(f"{disagreement.file}:{disagreement.line}: {', '.join(where)}: {finding.aspect.value}")
    print(f"  expected  {conformance_run.shown(finding.expected)}")
    print(f"  got       {conformance_run.shown(finding.got)}")


def _as_json(report: Report) -> dict[str, Any]:
    return {
        **fields(report, "clusters pods pods_in_agreement selectors selectors_in_agreement"),
        **fields(report, "group_sequences group_sequences_in_agreement steps steps_in_agreement"),
        "aspects": conformance_run.aspects_as_json(report.agreement),
        "disagreements": [
            {
                **fields(disagreement, "file line"),
                **disagreement.what._asdict(),
                **fields(disagreement.finding, "node plugin device"),
                "aspect": disagreement.finding.aspect.value,
                **fields(disagreement.finding, "expected got"),
            }
            for disagreement in report.disagreements
        ],
    }
