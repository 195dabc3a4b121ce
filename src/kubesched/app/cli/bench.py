"""`kubesched bench`: measure throughput and latency."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli import bench_run, terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.records import fields, write_record

if TYPE_CHECKING:
    from kubesched.lab.benchmarking.results import Report
    from kubesched.lab.benchmarking.summary import Change, Summary

DESCRIPTION = """\
Run workloads and measure how fast pods are scheduled. Workloads are files in the vocabulary of
Kubernetes' scheduler_perf; a set of them comes with this program.
"""

_LIST = """\
List workloads: those that come with this program, or those of the files given. A workload is a case
and a size, `Basic/medium`.
"""

_COMPARE = """\
Compare two reports written by 'kubesched bench run --output-dir'. Shown are the medians and how the
second relates to the first; where the repetitions of the two overlap, no difference has been shown
and the row says so.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    listing = kinds.add_parser("list", help="list workloads", description=_LIST)
    add_options(listing, "files FILE {*}  workload files (default: ours)")
    add_output(listing, "table", "json")
    bench_run.add_parser(kinds)
    comparing = kinds.add_parser("compare", help="compare two reports", description=_COMPARE)
    add_options(comparing, "before BEFORE  a report (JSON)\nafter AFTER  another one")
    add_output(comparing, "table", "json")


def main(args: argparse.Namespace) -> int:
    if args.kind == "run":
        return bench_run.main(args)
    return _list(args) if args.kind == "list" else _compare(args)


# -- list ------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    from kubesched.lab.benchmarking.catalogue import shipped
    from kubesched.lab.benchmarking.workload_files import load

    workloads = [workload for file in args.files for workload in load(file)] or shipped()
    if args.output == "json":
        entries = [
            {
                "name": workload.full_name,
                "file": workload.case.source,
                "description": workload.case.description,
                "labels": workload.labels,
                "nodes": workload.node_count,
                "pods": workload.pod_count,
                "notSupported": workload.not_supported,
            }
            for workload in workloads
        ]
        write_record("json", entries)
        return 0
    rows = [
        (
            workload.full_name,
            f"{workload.node_count:,}",
            f"{workload.pod_count:,}",
            ",".join(workload.labels),
            f"not supported: {workload.not_supported}"
            if workload.not_supported
            else workload.case.description,
        )
        for workload in workloads
    ]
    terminal.table(("WORKLOAD", "NODES", "PODS", "LABELS", "WHAT"), rows)
    return 0


# -- compare ---------------------------------------------------------------------------------------


def _compare(args: argparse.Namespace) -> int:
    from kubesched.lab.benchmarking.summary import changes, summarise

    before, after = _report(args.before), _report(args.after)
    old, new = summarise(before.results), summarise(after.results)
    differences = changes(old, new)
    if not differences:
        print("the two reports have no workload in common", file=sys.stderr)
        return 1
    if args.output == "json":
        write_record("json", [_change_as_json(change) for change in differences])
    else:
        _print_changes(differences)
        _print_unmatched(args, old, new, differences)
    if before.environment != after.environment:
        print("note: the reports were made in different environments", file=sys.stderr)
    return 0


def _report(path: str) -> Report:
    from kubesched.lab.benchmarking.results import decode

    return decode(Path(path).read_bytes(), path)


def _print_changes(differences: list[Change]) -> None:
    from kubesched.lab.benchmarking.summary import number

    rows = [
        (
            change.after.first.workload,
            change.after.first.contestant,
            number(change.before.pods_per_s),
            number(change.after.pods_per_s),
            f"{change.throughput:.2f}x",
            "" if change.cpu is None else f"{change.cpu:.2f}x",
            "within the noise"
            if change.is_noise
            else "faster"
            if change.throughput > 1
            else "slower",
        )
        for change in differences
    ]
    headers = ("WORKLOAD", "CONTESTANT", "BEFORE/S", "AFTER/S", "PODS/S", "CPU/POD", "VERDICT")
    terminal.table(headers, rows)


def _print_unmatched(
    args: argparse.Namespace, old: list[Summary], new: list[Summary], differences: list[Change]
) -> None:
    keys = {change.after.key for change in differences}
    for path, summaries in ((args.before, old), (args.after, new)):
        names = [f"{s.key[0]} ({s.key[1]})" for s in summaries if s.key not in keys]
        if names:
            print(f"only in {path}: {', '.join(names)}", file=sys.stderr)


def _change_as_json(change: Change) -> dict[str, object]:
    names = ("workload", "contestant", "mode", "controlPlane")
    return {
        **dict(zip(names, change.after.key, strict=True)),
        "podsPerSBefore": change.before.pods_per_s,
        "podsPerSAfter": change.after.pods_per_s,
        **fields(change, "throughput cpu is_noise"),
    }
