"""`kubesched conformance run`: plays the same sequences to kube-scheduler and this scheduler."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubesched.app.cli import terminal
from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.records import fields, write_record

if TYPE_CHECKING:
    from kubesched.app.cli.parsing import Subparsers
    from kubesched.lab.conformance.comparison import Agreement, Tally
    from kubesched.lab.conformance.run import ConformanceSettings, Difference, RunReport
    from kubesched.lab.conformance.sequences import Sequence

_DESCRIPTION = """\
Generate clusters and pods, play each sequence to kube-scheduler and to this scheduler, each on a
fresh control plane of its own, and compare every decision: the node chosen, ties included, the
unschedulable message, nominated node and victims, and where all pods are in the end.

Needs etcd and kube-apiserver (setup-envtest installs them) and kube-scheduler (part of the server
binaries of a Kubernetes release) in one folder. The same seed gives the same sequences, and what
--record wrote is played again in memory by 'kubesched conformance golden'. Without the programs,
and without options that say what to generate, the answers recorded from a kube-scheduler that come
with this program are compared instead.

Sequences use all that a scheduler looks at: resources, affinity, taints, spreading, ports, images,
priorities, gates, volumes, profiles, devices, and changes in between. With --groups they are of pod
groups (1.37, with their gates on), and pods, messages, conditions of groups and evictions are
compared when a step has come to rest.

The first Ctrl-C ends the run after the sequence that is being played, the second at once.

Exit code 0 means agreement in every decision, 1 a difference, or that something could not be run,
2 wrong usage.
"""

_OPTIONS = """
--sequences N {positive=10}  sequences to play
--pods M {positive=150}  pods in each
--seed S {int=1}       what to draw from
--first N {number=0}   number of the first sequence, to do a long run in parts
--groups               play sequences of pod groups
--assets DIR {=}       the programs (default: $KUBEBUILDER_ASSETS)
--reference-version V {|1.37|1.36}  what to stand in for (default: what kube-scheduler says it is)
--record FILE          append kube-scheduler's decisions to this recording
"""
_DEFAULTS = {"sequences": 10, "pods": 150, "seed": 1, "first": 0, "groups": False, "record": None}
"""Defaults of the options that control generation."""


def add_parser(kinds: Subparsers) -> None:
    parser = kinds.add_parser(
        "run", help="compare with a kube-scheduler, decision by decision", description=_DESCRIPTION
    )
    add_options(parser, _OPTIONS)
    add_output(parser, "table", "json")


def is_without_programs(args: argparse.Namespace) -> bool:
    """Whether the options name neither programs nor sequences."""
    from kubesched.testing.control_plane import ASSETS_VARIABLE

    named = args.assets or os.environ.get(ASSETS_VARIABLE)
    return not named and all(getattr(args, name) == value for name, value in _DEFAULTS.items())


def main(args: argparse.Namespace) -> int:
    from kubesched.app.event_loop import run as run_loop
    from kubesched.lab.conformance.run import ConformanceSettings
    from kubesched.testing.control_plane import find_assets

    if args.groups and args.record:
        return usage_error("--record does not take sequences of pod groups")
    assets = find_assets(args.assets)
    with tempfile.TemporaryDirectory(prefix="kubesched-conformance-") as folder:
        settings = ConformanceSettings(
            assets, Path(folder), args.sequences, args.pods, args.seed, args.first, args.groups
        )
        try:
            report = run_loop(_run(settings, args))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    if args.output == "json":
        write_record("json", _as_json(report, settings))
    else:
        print_report(report)
    return 0 if report.is_complete else 1


async def _run(settings: ConformanceSettings, args: argparse.Namespace) -> RunReport:
    from kubesched.lab.conformance.run import reference_of, run, stages, version_of

    stop = _stop_on_signals()
    version = await version_of(settings.assets)
    reference = args.reference_version or reference_of(version)
    async with stages(
        settings.assets, settings.folder, reference, with_groups=settings.groups
    ) as on_stage:
        with _progress(settings.sequences) as progress, _recorder(args.record) as record:
            report = await run(settings, on_stage, stop=stop, progress=progress, record=record)
    report.kube_scheduler, report.reference_version = version, reference
    return report


def _stop_on_signals() -> asyncio.Event:
    """The first signal ends the run after the current sequence, the second immediately."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    task = asyncio.current_task()
    assert task is not None, "called from a coroutine"

    def signalled() -> None:
        if stop.is_set():
            task.cancel()
        else:
            print("ending after what is being played; once more ends at once", file=sys.stderr)
            stop.set()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, signalled)
    return stop


@contextmanager
def _recorder(path: str | None) -> Iterator[Callable[[Sequence], None]]:
    if path is None:
        yield lambda _sequence: None
        return
    import msgspec

    with Path(path).open("ab") as file:

        def write(sequence: Sequence) -> None:
            file.write(msgspec.json.encode(sequence) + b"\n")
            file.flush()

        yield write


@contextmanager
def _progress(total: int) -> Iterator[Callable[[RunReport], None]]:
    """Progress: updated in place on a terminal, otherwise one line per ten sequences."""

    def line(report: RunReport) -> str:
        return (
            f"{report.sequences} of {total} sequences, {report.decisions.agreed} of "
            f"{report.decisions.compared} decisions in agreement"
        )

    def tell(report: RunReport) -> None:
        if report.sequences % 10 == 0 or report.sequences == total:
            print(line(report), file=sys.stderr, flush=True)

    if not sys.stderr.isatty():
        yield tell
        return
    with terminal.ProgressLine() as in_place:
        in_place.show("starting two control planes ...")
        yield lambda report: in_place.show(line(report))


def print_report(report: RunReport) -> None:
    if not report.sequences:
        print("nothing was compared: the run ended before its first sequence did")
        return
    tally = report.decisions
    terminal.heading(
        f"{report.sequences_in_agreement} of {report.sequences} sequences agree, "
        f"{tally.agreed} of {tally.compared} decisions"
    )
    terminal.sentence(
        f"kube-scheduler {report.kube_scheduler}, compared with kubesched as "
        f"{report.reference_version}: {report.placed} pods placed, "
        f"{report.unschedulable} unschedulable, {report.preempting} after preemption, "
        f"{report.volumes_bound} volumes bound; {report.refused} steps refused by both API servers"
    )
    print_aspects(report.agreement)
    for difference in report.differences:
        _print_difference(difference)
    for sequence in report.unsteady:
        print(
            f"\nunsteady: sequence {sequence.seed}: {sequence.who} decided otherwise "
            "when asked again"
        )
        _print_difference(sequence.difference)
    for difference in report.raced:
        print("\nnot counted from here: members of kube-scheduler's raced for a claim before")
        _print_difference(difference)


def _print_difference(difference: Difference) -> None:
    print(f"\nsequence {difference.seed}, step {difference.at}: {difference.what}")
    for finding in difference.findings:
        if not finding.agrees:
            print(f"  {finding.aspect.value}")
            print(f"    kube-scheduler  {shown(finding.expected)}")
            print(f"    kubesched       {shown(finding.got)}")


def shown(value: object) -> str:
    """One side of a finding."""
    if value is None:
        return "(nothing)"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "(none)"
    return str(value) or "(empty)"


def print_aspects(agreement: Agreement) -> None:
    rows = [
        (aspect.value, str(tally.compared), str(tally.agreed), _share(tally))
        for aspect, tally in agreement.by_aspect.items()
        if tally.compared
    ]
    terminal.table(("ASPECT", "COMPARED", "AGREED", "SHARE"), rows)


def aspects_as_json(agreement: Agreement) -> list[dict[str, Any]]:
    return [
        {"aspect": aspect.value, **fields(tally, "compared agreed")}
        for aspect, tally in agreement.by_aspect.items()
    ]


def _share(tally: Tally) -> str:
    """Percentage of comparisons that agree."""
    # Rounding must not turn 99.99 % into 100 %.
    is_all = tally.agreed == tally.compared
    return "100 %" if is_all else f"{min(100 * tally.agreed / tally.compared, 99.99):.2f} %"


def _as_json(report: RunReport, settings: ConformanceSettings) -> dict[str, Any]:
    from kubesched.lab.conformance.generate_sequence import VERSION

    return {
        "kubeScheduler": report.kube_scheduler,
        "referenceVersion": report.reference_version,
        "generator": VERSION,
        **fields(settings, "seed first"),
        "podsPerSequence": settings.pods,
        **fields(report, "sequences sequences_in_agreement"),
        "decisions": report.decisions.compared,
        "decisionsInAgreement": report.decisions.agreed,
        **fields(report, "placed unschedulable preempting volumes_bound"),
        "stepsRefused": report.refused,
        "aspects": aspects_as_json(report.agreement),
        "differences": [_difference_as_json(difference) for difference in report.differences],
        "unsteady": [
            {"who": sequence.who, **_difference_as_json(sequence.difference)}
            for sequence in report.unsteady
        ],
        "raced": [_difference_as_json(difference) for difference in report.raced],
    }


def _difference_as_json(difference: Difference) -> dict[str, Any]:
    findings = [
        {"aspect": found.aspect.value, "kubeScheduler": found.expected, "kubesched": found.got}
        for found in difference.findings
        if not found.agrees
    ]
    told = {"sequence": difference.seed, "step": difference.at, "what": difference.what}
    return {**told, "findings": findings}
