"""`kubesched bench`: measure throughput and latency."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.cli import bench_gate, bench_run, terminal
from kubesched.cli.parsing import Subparsers, add_output

if TYPE_CHECKING:
    from kubesched.benchmarking.results import Report
    from kubesched.benchmarking.summary import Change, Summary

_DESCRIPTION = """\
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


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "bench", help="measure throughput and latency", description=_DESCRIPTION
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    listing = kinds.add_parser("list", help="list workloads", description=_LIST)
    listing.add_argument("files", nargs="*", metavar="FILE", help="workload files (default: ours)")
    add_output(listing, "table", "json")
    bench_run.add_parser(kinds)
    comparing = kinds.add_parser("compare", help="compare two reports", description=_COMPARE)
    comparing.add_argument("before", metavar="BEFORE", help="a report (JSON)")
    comparing.add_argument("after", metavar="AFTER", help="another one")
    add_output(comparing, "table", "json")
    bench_gate.add_parser(kinds)


def main(args: argparse.Namespace) -> int:
    if args.kind == "run":
        return bench_run.main(args)
    if args.kind == "gate":
        return bench_gate.main(args)
    return _list(args) if args.kind == "list" else _compare(args)


# -- list ----------------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    from kubesched.benchmarking.catalogue import shipped
    from kubesched.benchmarking.workload_files import load

    workloads = [each for file in args.files for each in load(file)] or shipped()
    if args.output == "json":
        found = [
            {
                "name": each.full_name,
                "file": each.case.source,
                "description": each.case.description,
                "labels": list(each.labels),
                "nodes": each.node_count,
                "pods": each.pod_count,
                "notSupported": each.not_supported,
            }
            for each in workloads
        ]
        print(json.dumps(found, indent=2))
        return 0
    rows = [
        (
            each.full_name,
            f"{each.node_count:,}",
            f"{each.pod_count:,}",
            ",".join(each.labels),
            f"not supported: {each.not_supported}" if each.not_supported else each.case.description,
        )
        for each in workloads
    ]
    terminal.table(("WORKLOAD", "NODES", "PODS", "LABELS", "WHAT"), rows)
    return 0


# -- compare -------------------------------------------------------------------------------------------------------


def _compare(args: argparse.Namespace) -> int:
    from kubesched.benchmarking.summary import changes, summarise

    before, after = _report(args.before), _report(args.after)
    old, new = summarise(before.results), summarise(after.results)
    found = changes(old, new)
    if not found:
        print("the two reports have no workload in common", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps([_change_as_json(each) for each in found], indent=2))
    else:
        _print_changes(found)
        _print_unmatched(args, old, new, found)
    if before.environment != after.environment:
        print("note: the reports were made in different environments", file=sys.stderr)
    return 0


def _report(path: str) -> Report:
    from kubesched.benchmarking.results import decode

    return decode(Path(path).read_bytes(), path)


def _print_changes(found: list[Change]) -> None:
    from kubesched.benchmarking.summary import number

    rows = [
        (
            each.after.first.workload,
            each.after.first.contestant,
            number(each.before.pods_per_s),
            number(each.after.pods_per_s),
            f"{each.throughput:.2f}x",
            "" if each.cpu is None else f"{each.cpu:.2f}x",
            "within the noise" if each.is_noise else "faster" if each.throughput > 1 else "slower",
        )
        for each in found
    ]
    headers = ("WORKLOAD", "CONTESTANT", "BEFORE/S", "AFTER/S", "PODS/S", "CPU/POD", "VERDICT")
    terminal.table(headers, rows)


def _print_unmatched(
    args: argparse.Namespace, old: list[Summary], new: list[Summary], found: list[Change]
) -> None:
    keys = {each.after.key for each in found}
    for path, summaries in ((args.before, old), (args.after, new)):
        names = [f"{s.key[0]} ({s.key[1]})" for s in summaries if s.key not in keys]
        if names:
            print(f"only in {path}: {', '.join(names)}", file=sys.stderr)


def _change_as_json(change: Change) -> dict[str, object]:
    workload, contestant, mode, plane = change.after.key
    return {
        "workload": workload,
        "contestant": contestant,
        "mode": mode,
        "controlPlane": plane,
        "podsPerSBefore": change.before.pods_per_s,
        "podsPerSAfter": change.after.pods_per_s,
        "throughput": change.throughput,
        "cpu": change.cpu,
        "isNoise": change.is_noise,
    }
