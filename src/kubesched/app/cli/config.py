"""`kubesched config view` and `kubesched config validate`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kubesched.app.cli.options import add_options, add_output
from kubesched.app.cli.records import write_record
from kubesched.app.cli.sources import add_configuration, feature_gates
from kubesched.base.errors import ConfigError, FieldProblem

if TYPE_CHECKING:
    from kubesched.api.yaml_nodes import Plain
    from kubesched.config.expansion import ExpandedPlugins
    from kubesched.config.features import FeatureGates
    from kubesched.config.types import (
        ExtensionPoint,
        KubeSchedulerConfiguration,
        KubeSchedulerProfile,
    )
    from kubesched.config.versions import Versions

_VIEW = """\
Print the effective configuration: defaults filled in, default plugins merged, MultiPoint expanded.

For each profile it shows the plugins of every extension point in the order in which they run, and
the weights of those that score. Without --config it shows what runs by default. The yaml and json
forms are complete configurations that kubesched and kube-scheduler read back to the same effect.
"""

_VALIDATE = """\
Check configuration files and report every problem with its field, line and column.

Besides the syntax and the values this covers what would only fail when a scheduler starts: plugins
that do not exist, that do not fit their extension point, or that are there twice or not at all.
Third-party plugins are imported and constructed over an empty cluster: this runs their code, so
check only files whose plugins you would run. With --no-import plugins are not looked at, and
nothing of what the file names is executed. The exit code is 0 if all files are fine and 1
otherwise.
"""

_VALIDATED = """
files FILE {+}  - reads standard input
--no-import     only check syntax and values; import no plugin, so that no code runs
"""

DESCRIPTION = "Show and check KubeSchedulerConfiguration files."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="config_command", metavar="COMMAND", required=True)

    view = commands.add_parser("view", help="print the effective configuration", description=_VIEW)
    add_output(view, "table", "yaml", "json")
    add_configuration(view, "--config FILE  the file; - reads standard input")

    validate = commands.add_parser(
        "validate", help="report everything wrong with a file", description=_VALIDATE
    )
    add_options(validate, _VALIDATED)
    add_output(validate, "text", "json", "yaml")
    add_configuration(validate, "")


def main(args: argparse.Namespace) -> int:
    gates = feature_gates(args)
    return _view(args, gates) if args.config_command == "view" else _validate(args, gates)


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    from kubesched.config.load import read_file

    return read_file(path)


# -- validate --------------------------------------------------------------------------------------


def _validate(args: argparse.Namespace, gates: FeatureGates) -> int:
    results = [_check(path, gates, imports=not args.no_import) for path in args.files]
    if args.output == "text":
        for result in results:
            _print_result(result)
    else:
        write_record(args.output, [_plain_result(result) for result in results])
    return 1 if any(result.problems for result in results) else 0


@dataclass(frozen=True, slots=True)
class _Result:
    path: str
    problems: Sequence[FieldProblem] = ()
    warnings: Sequence[FieldProblem] = ()


def _check(path: str, gates: FeatureGates, *, imports: bool) -> _Result:
    """Without `imports`, no plugin is imported, and only syntax and values are checked."""
    from kubesched.app.cli.plugin_lookup import args_type, construct, implements
    from kubesched.config.load import check, check_values

    try:
        data = _read(path)
        if not imports:
            check_values(data, path, gates)
            return _Result(path)
        checked = check(
            data, path, gates, implements=implements, args_type=args_type, construct=construct
        )
    except ConfigError as error:
        return _Result(path, problems=error.problems)
    return _Result(path, warnings=checked.warnings)


def _print_result(result: _Result) -> None:
    from kubesched.app.cli import terminal

    for problem in result.problems:
        terminal.problem(problem, result.path)
    for problem in result.warnings:
        terminal.problem(replace(problem, message=f"warning: {problem.message}"), result.path)
    count = len(result.problems)
    if not count:
        print(f"{result.path}: ok")
        return
    sys.stdout.flush()
    sys.stderr.write(f"{result.path}: {count} problem{'s' if count != 1 else ''}\n")


def _plain_result(result: _Result) -> Plain:
    return {
        "file": result.path,
        "valid": not result.problems,
        "problems": [_plain_problem(problem) for problem in result.problems],
        "warnings": [_plain_problem(problem) for problem in result.warnings],
    }


def _plain_problem(problem: FieldProblem) -> Plain:
    told: dict[str, Plain] = {"field": problem.path, "message": problem.message}
    told |= {"line": problem.line, "column": problem.column}
    return {name: value for name, value in told.items() if value}


# -- view ------------------------------------------------------------------------------------------


def _view(args: argparse.Namespace, gates: FeatureGates) -> int:
    from kubesched.app.cli.plugin_lookup import args_type, implements
    from kubesched.config.default_plugins import as_of
    from kubesched.config.effective import effective_plain
    from kubesched.config.load import check, default_config

    if args.config is None:
        config = default_config(gates)
    else:
        data = _read(args.config)
        config = check(data, args.config, gates, implements=implements, args_type=args_type).config
    if args.output in ("yaml", "json"):
        write_record(args.output, effective_plain(config, as_of(gates.reference, implements)))
    else:
        _print_config(config, gates.versions)
    return 0


def _print_config(config: KubeSchedulerConfiguration, versions: Versions) -> None:
    from kubesched.app.cli import terminal
    from kubesched.app.cli.plugin_lookup import implements
    from kubesched.config.default_plugins import as_of
    from kubesched.config.expansion import expand

    for index, profile in enumerate(config.profiles):
        if index:
            print()
        terminal.heading(f"Profile {profile.scheduler_name}")
        terminal.table(
            ("EXTENSION POINT", "PLUGINS IN ORDER (WEIGHT)"),
            _plugin_rows(expand(profile, as_of(versions.reference, implements)), versions),
            indent=2,
        )
        terminal.section(("PLUGIN", "ARGUMENTS"), _argument_rows(profile), indent=2)


def _plugin_rows(expanded: ExpandedPlugins, versions: Versions) -> list[tuple[str, str]]:
    from kubesched.config.types import POINTS_IN_ORDER_OF_USE, ExtensionPoint

    points = list(POINTS_IN_ORDER_OF_USE)
    if not versions.reference.pod_group_post_filter:
        points.remove(ExtensionPoint.POD_GROUP_POST_FILTER)
    return [(point.value, _plugin_list(expanded, point)) for point in points]


def _plugin_list(expanded: ExpandedPlugins, point: ExtensionPoint) -> str:
    plugins = expanded.weighted(point)
    if not plugins:
        return "-"
    return ", ".join(
        f"{plugin.name}({plugin.weight})" if plugin.weight else plugin.name for plugin in plugins
    )


def _argument_rows(profile: KubeSchedulerProfile) -> list[tuple[str, str]]:
    from kubesched.config.plugin_args import PluginArgs
    from kubesched.config.schema import RawArgs, encode

    rows: list[tuple[str, str]] = []
    for entry in profile.plugin_config:
        plain: Plain = None
        if isinstance(entry.args, PluginArgs):
            plain = encode(entry.args)
        elif isinstance(entry.args, RawArgs):
            plain = entry.args.value
        if not plain:
            continue
        if isinstance(plain, dict):
            text = ", ".join(f"{name}={_shown(value)}" for name, value in plain.items())
        else:
            text = _shown(plain)
        rows.append((entry.name, text))
    return rows


def _shown(value: Plain) -> str:
    import json

    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
