"""Options for the cluster state and the configuration of a command, and loading them.

A command calls `add_state_source` and `add_configuration` on its parser, `load_state` and
`load_configuration` on the parsed arguments.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options
from kubesched.app.cli.parsing import usage_error
from kubesched.app.cli.terminal import ProgressLine
from kubesched.config.references import DEFAULT_REFERENCE, REFERENCES

if TYPE_CHECKING:
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration
    from kubesched.insight.recording.reader import RecordingReader
    from kubesched.insight.state.cluster_state import ClusterState


_NEGATIVE = re.compile(r"^-\d")
_OPTIONS = """
--kubeconfig FILE {=}  a live cluster: its file
--context NAME {=}     a live cluster: the context to use
--from FILE {*}  a dump of 'kubectl get ... -o json|yaml' or of 'kubesched snapshot', a directory of
    them, or - for standard input
--recording DIR        a recording of 'kubesched run --record DIR'
--at T  with --recording: a time (2026-01-31T12:00:00Z), a time before its end (-5m), or the number
    of an attempt of its last run (default: its end)
"""


def add_state_source(parser: argparse.ArgumentParser) -> None:
    """Add the group of source options."""
    group = parser.add_argument_group(
        "state",
        "where the objects come from; without any of these, the cluster that kubectl would talk to",
    )
    add_options(group, _OPTIONS)
    parser._negative_number_matcher = _NEGATIVE  # else argparse takes -5m for an option


def load_state(args: argparse.Namespace) -> ClusterState:
    """The state that the options name. Notes about it go to stderr.

    Raises:
        StateError, CredentialsError, ApiError, TransportError: it cannot be loaded.
    """
    from kubesched.base.logs import silence

    silence()  # the command prints what the scheduler logs about pods
    check_state_source(args)
    if args.recording is not None:
        state = _recorded(args.recording, args.at)
    elif args.from_:
        from kubesched.insight.state.dumps import load_dumps

        state = load_dumps(args.from_)
    else:
        state = _live(args.kubeconfig, args.context)
    holds = [state.describe()] if args.from_ or args.recording is not None else []
    for note in (*holds, *state.notes):
        print(f"note: {note}", file=sys.stderr)
    return state


def check_state_source(args: argparse.Namespace) -> None:
    """Exit with an error if the options name no source, or several."""
    is_recorded, is_live = args.recording is not None, bool(args.kubeconfig or args.context)
    if args.at is not None and not is_recorded:
        raise SystemExit(usage_error("--at needs --recording"))
    if bool(args.from_) + is_recorded + is_live > 1:
        text = (
            "--from, --recording and --kubeconfig or --context name different sources; choose one"
        )
        raise SystemExit(usage_error(text))


def _recorded(folder: str, at: str | None) -> ClusterState:
    from kubesched.insight.recording.reader import RecordingReader

    reader = RecordingReader.of_folder(folder)
    attempt, wall_time = recorded_time(reader, at)
    return reader.state_at(wall_time=wall_time, attempt=attempt)


def recorded_time(reader: RecordingReader, at: str | None) -> tuple[int | None, float | None]:
    """(attempt number, wall time) of --at; both None for the end of the recording."""
    from kubesched.api.times import parse_duration, parse_time

    if at is None:
        return None, None
    if at.isdecimal():
        return int(at), None
    try:
        if at.startswith("-"):
            return None, reader.end() - parse_duration(at[1:])
        return None, parse_time(at)
    except ValueError as error:
        raise SystemExit(usage_error(f"--at: {error}")) from None


def _live(kubeconfig: str, context: str) -> ClusterState:
    from kubesched.app.event_loop import run
    from kubesched.insight.state.live import load_live

    with ProgressLine() as line:
        return run(load_live(kubeconfig, context, line.show))


# -- the scheduler's configuration -----------------------------------------------------------------

REFERENCE = f"""\
--reference-version V {{|{"|".join(REFERENCES)}}}  the kube-scheduler release to stand in for
    (default: {DEFAULT_REFERENCE.version})"""
_GATES = f"""
--feature-gates A=true,... {{=}}  feature gates to assume; they change defaults and what is allowed
{REFERENCE}
--emulated-version V {{=}}  the version whose feature gates that release emulates (default: its own)
--min-compatibility-version V {{=}}  oldest version of the other components; some feature gates wait
    for it (default: one before the emulated version)
"""
_CONFIG = "--config FILE  the scheduler's configuration (default: the defaults)"


def add_configuration(parser: argparse.ArgumentParser, config: str = _CONFIG) -> None:
    """Add `--config`, which may be absent or different, and the options of `feature_gates`."""
    add_options(parser, f"{config}\n{_GATES}")


def feature_gates(args: argparse.Namespace) -> FeatureGates:
    """The gates of the options.

    Raises:
        ConfigError: unknown gates or versions.
    """
    from kubesched.config.features import from_flags

    return from_flags(
        args.feature_gates,
        args.reference_version or "",
        _listed(args.emulated_version),
        _listed(args.min_compatibility_version),
    )


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def has_gates(args: argparse.Namespace) -> bool:
    """Whether any option of `feature_gates` is given."""
    return bool(
        args.feature_gates
        or args.reference_version
        or args.emulated_version
        or args.min_compatibility_version
    )


def load_configuration(args: argparse.Namespace) -> tuple[KubeSchedulerConfiguration, FeatureGates]:
    """The named file, or the defaults, and the feature gates.

    Its plugins are imported, so that objects of the custom resources they declare are read.

    Raises:
        ConfigError: with all problems in gates or file.
    """
    from kubesched.config.load import default_config, load_file

    gates = feature_gates(args)
    if not args.config:
        return default_config(gates), gates
    from kubesched.plugins.registry import load_plugins

    config = load_file(args.config, gates)
    load_plugins(config)
    return config, gates
