"""`kubesched bench run`: run workloads and report the results."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubesched.app.cli import terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.sources import REFERENCE

if TYPE_CHECKING:
    from kubesched.app.cli.parsing import Subparsers
    from kubesched.lab.benchmarking.core_mode import CoreOptions
    from kubesched.lab.benchmarking.core_stage import Progress
    from kubesched.lab.benchmarking.results import Environment, Refusal, Report, RunResult
    from kubesched.lab.benchmarking.workload_files import Workload

_DESCRIPTION = """\
Run workloads and report pods per second, latencies, CPU and memory.

A workload is named (`Basic`, `Basic/large`, `*Affinity`), or all of a FILE are meant; without
either, all that come with this program are run in size small. `kubesched bench list` shows them.

In core mode (the default) the workload goes through queue, scheduling cycle and binding cycle in
this process, without an API: decisions per second of CPU time, microseconds per plugin.
End to end, the scheduler runs as a process against a control plane of its own, embedded or real
(etcd and kube-apiserver), and with --against kube-scheduler the two take turns on the same machine.

Exit code 0 means that everything asked for was measured, 1 that something failed or cannot be run.
"""

QUIET_CORES = 0.2
"""Load of other programs below which no warning is printed."""

_OPTIONS = f"""
workloads FILE|NAME {{*}}    what to run (default: all, size small)
--mode MODE {{core|end-to-end}}  core or end-to-end
--size, --workload PATTERN {{*}}  sizes to run: tiny, small, medium, large, or a pattern of workload
    names in a file
--labels A,-B,... {{=}}      only workloads with label A and without label B
--param NAME=N {{param*}}    replaces a parameter of the workloads, e.g. measurePods=2000
--rate N {{float=0}}         create measured pods at N per second (default: as fast as it goes)
--percentage-of-nodes-to-score N {{positive}}  replaces the workload's, for all schedulers; 100: no
    sampling
--repeats N {{positive=3}}   repetitions
--warmup N {{number=1}}      repetitions before, which do not count
--output-dir DIR           write report.json there
{REFERENCE}
"""
_CORE = """
--no-classes  without sharing answers between equal pods
--both        with and without sharing answers, one after the other
--plugins     also show the time per plugin, and whether its answers are kept
"""
_END_TO_END = """
--control-plane PLANE {embedded|real}  embedded or real
--against SCHEDULER {|kube-scheduler}  also measure kube-scheduler on the same workload, in turn,
    and print the ratio
--assets DIR {=}           the programs (default: $KUBEBUILDER_ASSETS)
--release WHEN {as-created|drained}  as-created: pods come while the scheduler works; drained:
    before it starts
"""


def add_parser(kinds: Subparsers) -> None:
    parser = kinds.add_parser("run", help="run workloads", description=_DESCRIPTION)
    add_options(parser, _OPTIONS, param=_param)
    add_options(parser.add_argument_group("core mode"), _CORE)
    add_options(parser.add_argument_group("end to end"), _END_TO_END)
    add_output(parser, "table", "json")


def _param(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not name or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=N")
    return name, int(value)


def main(args: argparse.Namespace) -> int:
    from msgspec import structs

    from kubesched.api.times import format_time
    from kubesched.base.clock import SystemClock
    from kubesched.lab.benchmarking.catalogue import find
    from kubesched.lab.benchmarking.results import Report, encode

    if args.mode == "end-to-end":
        run, environment = _end_to_end(args)
    else:
        run, environment = _core(args)
    labels = [label.strip() for label in args.labels.split(",") if label.strip()]
    workloads = find(args.workloads, sizes=args.size, labels=labels, params=dict(args.param))
    folder = Path(args.output_dir) if args.output_dir else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    report = Report(
        started=format_time(SystemClock().now()),
        command=shlex.join(["kubesched", *sys.argv[1:]]),
        environment=environment,
    )
    failed = False
    with _progress() as progress:
        for workload in workloads:
            results, refused = _run_one(workload, run, progress)
            failed |= refused is not None and not workload.not_supported
            report = structs.replace(
                report,
                results=(*report.results, *results),
                refused=(*report.refused, *([refused] if refused else ())),
            )
            if folder is not None:  # at once, so that an interrupted run keeps its results
                (folder / "report.json").write_bytes(encode(report))
    if args.output == "json":
        sys.stdout.write(encode(report).decode())
    else:
        show(report)
        print_plugins(report.results)
    if folder is not None:
        print(f"written to {folder / 'report.json'}", file=sys.stderr)
    return 1 if failed or not report.results else 0


def _run_one(
    workload: Workload, run: Callable[[Workload, Progress], list[RunResult]], progress: Progress
) -> tuple[list[RunResult], Refusal | None]:
    """Results, or the reason why there are none."""
    from kubesched.base.errors import KubeschedError
    from kubesched.lab.benchmarking.results import Refusal

    reason = f"not supported: {workload.not_supported}"
    if not workload.not_supported:
        try:
            return run(workload, progress), None
        except KubeschedError as error:
            reason = str(error).removeprefix(f"{workload.full_name}: ")
    return [], Refusal(workload=workload.full_name, reason=reason)


# -- modes -----------------------------------------------------------------------------------------


def _core(
    args: argparse.Namespace,
) -> tuple[Callable[[Workload, Progress], list[RunResult]], Environment]:
    from kubesched.base.errors import KubeschedError
    from kubesched.lab.benchmarking.core_mode import run_core
    from kubesched.lab.benchmarking.results import this_environment

    if args.against:
        raise KubeschedError("--against needs --mode end-to-end: kube-scheduler has no core mode")
    options = _core_options(args)

    def run(workload: Workload, progress: Progress) -> list[RunResult]:
        results = run_core(workload, options, progress)
        if args.both:
            results += run_core(workload, replace(options, classes=not options.classes), progress)
        return results

    return run, this_environment()


def _core_options(args: argparse.Namespace) -> CoreOptions:
    from kubesched.config.versions import parse_versions
    from kubesched.lab.benchmarking.core_mode import CoreOptions

    return CoreOptions(
        repeats=args.repeats,
        warmup=args.warmup,
        classes=not args.no_classes,
        percentage_of_nodes_to_score=args.percentage_of_nodes_to_score,
        pods_per_s=args.rate,
        profiles_plugins=args.plugins,
        versions=parse_versions(args.reference_version or ""),
    )


def _end_to_end(
    args: argparse.Namespace,
) -> tuple[Callable[[Workload, Progress], list[RunResult]], Environment]:
    import asyncio

    from msgspec import structs

    from kubesched.base.errors import KubeschedError
    from kubesched.config.versions import parse_versions
    from kubesched.lab.benchmarking.core_mode import with_core_decisions
    from kubesched.lab.benchmarking.end_to_end.driving import Pace, Release
    from kubesched.lab.benchmarking.end_to_end.run import EndToEndOptions, run_end_to_end
    from kubesched.lab.benchmarking.results import this_environment
    from kubesched.lab.benchmarking.scheduler_settings import gates_to_set
    from kubesched.lab.contestants import Contestant
    from kubesched.testing.control_plane import find_assets

    if args.plugins:
        raise KubeschedError("--plugins needs core mode; a process tells at /debug/plugins")
    needs_assets = args.control_plane == "real" or args.against
    assets = find_assets(args.assets) if needs_assets else None
    versions = parse_versions(args.reference_version or "")
    contestants = [Contestant.kubesched(versions.reference)]
    if args.against and assets is not None:
        contestants.append(Contestant.kube_scheduler(assets, versions.reference))
    options = EndToEndOptions(
        contestants=tuple(contestants),
        assets=assets if args.control_plane == "real" else None,
        repeats=args.repeats,
        warm_ups=args.warmup,
        pace=Pace(release=Release(args.release), pods_per_s=args.rate),
        percentage_of_nodes_to_score=args.percentage_of_nodes_to_score,
    )

    def run(workload: Workload, progress: Progress) -> list[RunResult]:
        gates, notes = gates_to_set(workload, versions)
        settled = replace(workload, feature_gates=gates)
        results = asyncio.run(run_end_to_end(settled, options, progress))
        if args.against:
            results = with_core_decisions(results, settled, _core_options(args), progress)
        return [structs.replace(result, notes=(*result.notes, *notes)) for result in results]

    environment = this_environment(
        kube_scheduler=versions.reference.release if args.against else "",
        control_plane=args.control_plane,
    )
    return run, environment


# -- output ----------------------------------------------------------------------------------------


@contextmanager
def _progress() -> Iterator[Progress]:
    """Progress: updated in place on a terminal, otherwise one line per stage."""
    if not sys.stderr.isatty():
        yield _LineByLine()
        return
    with terminal.ProgressLine() as line:
        yield line.show


class _LineByLine:
    """One line per stage, without the details after the last colon."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, text: str) -> None:
        stage = text.rpartition(": ")[0] or text
        if stage != self._last:
            print(stage, file=sys.stderr, flush=True)
            self._last = stage


def show(report: Report) -> None:
    """Prints the figures as tables."""
    from kubesched.lab.benchmarking.summary import ratio_table, summarise, table

    summaries = summarise(report.results)
    if summaries:
        terminal.table(*table(summaries), right_from=2)
    headers, ratios = ratio_table(summaries)
    if ratios:
        print()
        terminal.heading("Beside kube-scheduler")
        terminal.table(headers, ratios, right_from=1)
    for refusal in report.refused:
        print(f"not run: {refusal.workload}: {refusal.reason}", file=sys.stderr)
    for note in dict.fromkeys(note for result in report.results for note in result.notes):
        print(f"note: {note}", file=sys.stderr)
    busy = max(
        (result.end_to_end.others_cores for result in report.results if result.end_to_end),
        default=0,
    )
    if busy > QUIET_CORES:
        print(
            f"note: the machine was not quiet: up to {busy:.1f} cores were busy with something "
            "else",
            file=sys.stderr,
        )


def print_plugins(results: Sequence[RunResult]) -> None:
    """The plugins of the last repetition of each workload."""
    from kubesched.scheduler.plugin_profile import HEADER

    for name, run in {f"{run.workload}, {run.contestant}": run for run in results}.items():
        if run.plugins:
            print()
            terminal.heading(name)
            terminal.table(HEADER, [cost.cells() for cost in run.plugins])
