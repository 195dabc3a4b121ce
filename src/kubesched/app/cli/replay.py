"""`kubesched replay`: replays a recording or a trace in virtual time."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.sources import add_configuration, feature_gates, has_gates
from kubesched.app.cli.sweeping import add_sweep_options

if TYPE_CHECKING:
    from kubesched.lab.traces.player import Cell
    from kubesched.lab.traces.report import Report
    from kubesched.lab.traces.trace import Trace

DESCRIPTION = """\
Play a recording or a trace to the scheduler in virtual time, under one or several configurations
and seeds, and compare what comes of it: pods placed and unplaced, waits, evictions, utilisation and
fragmentation, nodes used. Differences are taken seed by seed; the report says where
nothing has been shown.

RECORDING is the folder of 'kubesched run --record DIR'; without --config it is played with its own
configuration. TRACE is the files of Alibaba's openb
trace (nodes and pods, CSV) or of Google's Borg trace of 2019 (machine and instance events, JSON
lines or CSV). Files may be packed with gzip; a folder stands for its files. The word 'sample'
stands for a day of 200 nodes and 5,000 pods that is made for the occasion.

With --verify, every decision of a recording is compared with the logged one instead. A decision
that comes out differently is a defect of kubesched, or of a plugin that reads something outside of
the scheduler; the first one is explained, and the exit code is 1.

To see what a change would do to a cluster now, use 'plan'; to count replicas, 'capacity'; to look
for defects of the scheduler itself, 'simulate'.

Exit code 1 if a cell failed.
"""

_OPTIONS = """
trace RECORDING|TRACE {+}  the folder of a recording, or files
--verify             compare every decision of a recording with the logged one
--seeds N {positive=1}  play N seeds
--seed N {number}    the first seed (default: 0, or the recording's)
"""
_CONFIGS = """
--config [NAME=]FILE {*}  a scheduler configuration to play; 'default' for the defaults, 'own' for a
    recording's; of several the others are compared with the first
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, _OPTIONS)
    add_sweep_options(parser)
    add_output(parser, "table", "json")
    add_configuration(parser, _CONFIGS)


def main(args: argparse.Namespace) -> int:
    if args.verify:
        if len(args.trace) > 1:
            return usage_error("--verify takes one recording")
        if args.config or args.results:
            return usage_error("--verify plays a recording as it was: it takes no configuration")
        from kubesched.app.cli.replay_verify import verify

        return verify(args.trace[0])
    return _compare(args)


def _compare(args: argparse.Namespace) -> int:
    from kubesched.app.cli.replay_tables import print_report
    from kubesched.lab.traces.reading import read_trace
    from kubesched.lab.traces.report import to_json

    _import_plugins(args)
    trace = read_trace(args.trace)
    for note in trace.state.notes:
        print(f"note: {note}", file=sys.stderr)
    report = _play(args, trace)
    if args.output == "json":
        sys.stdout.write(to_json(report).decode() + "\n")
    else:
        print_report(report)
    return 1 if report.failed else 0


def _import_plugins(args: argparse.Namespace) -> None:
    """Import the plugins of the given files: a recording may only name loaded ones."""
    from kubesched.app.cli.plugin_lookup import installed_plugins
    from kubesched.config.load import load_file
    from kubesched.framework.profile import enabled_plugins

    gates = feature_gates(args)
    for text in args.config:
        path = text.partition("=")[2] or text
        if path not in ("own", "default"):
            enabled_plugins(load_file(path, gates), installed_plugins())


def _play(args: argparse.Namespace, trace: Trace) -> Report:
    from kubesched.app.cli.sweeping import run_with_progress
    from kubesched.lab.traces.cells import keyed, play_cell, report_of

    cells = _cells(args, trace)
    results = run_with_progress(args, play_cell, trace, [keyed(trace, cell) for cell in cells])
    return report_of(trace, cells, results)


def _cells(args: argparse.Namespace, trace: Trace) -> list[Cell]:
    """Every configuration with every seed."""
    from kubesched.config.load import default_config, load_file
    from kubesched.lab.traces.player import Cell
    from kubesched.lab.traces.trace import TraceError

    own = trace.own
    gates = feature_gates(args)
    if own is not None and not has_gates(args):
        gates = own.gates
    named = {}
    for text in args.config or ["own" if own is not None else "default"]:
        name, sign, path = text.partition("=")
        if not sign:
            name = path = text
        if name in named:
            raise TraceError(f"--config: two configurations are called {name!r}: use NAME=FILE")
        if path == "own" and own is not None:
            config = own.config
        elif path == "default":
            config = default_config(gates)
        else:
            config = load_file(path, gates)
        named[name] = config
    first = args.seed if args.seed is not None else own.seed if own is not None else 0
    return [
        Cell(name=name, config=config, gates=gates, seed=seed)
        for name, config in named.items()
        for seed in range(first, first + args.seeds)
    ]
