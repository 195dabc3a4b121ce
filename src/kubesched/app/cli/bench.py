"""`kubesched bench`: measure throughput and latency."""

from __future__ import annotations

import argparse

from kubesched.app.cli import bench_run, terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.records import write_record

DESCRIPTION = """\
Run workloads and measure how fast pods are scheduled. Workloads are files in the vocabulary of
Kubernetes' scheduler_perf; a set of them comes with this program.
"""

_LIST = """\
List workloads: those that come with this program, or those of the files given. A workload is a case
and a size, `Basic/medium`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    listing = kinds.add_parser("list", help="list workloads", description=_LIST)
    add_options(listing, "files FILE {*}  workload files (default: ours)")
    add_output(listing, "table", "json")
    bench_run.add_parser(kinds)


def main(args: argparse.Namespace) -> int:
    return bench_run.main(args) if args.kind == "run" else _list(args)


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
