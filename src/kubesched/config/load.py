"""Reads a configuration file: runs all steps and reports all problems in one error."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kubesched.api.yaml_nodes import Mapping, Node, Scalar, is_json, parse
from kubesched.base import files
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config import legacy
from kubesched.config.default_plugins import as_of
from kubesched.config.defaults import complete, default_profile
from kubesched.config.expansion import ExpandedPlugins, Implements, expand_profiles
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.lint import warnings
from kubesched.config.plugin_args import ARGS_BY_PLUGIN, PluginArgs
from kubesched.config.references import Reference
from kubesched.config.schema import Decoder, RawArgs, decode_args
from kubesched.config.types import (
    API_VERSION,
    DEFAULT_SCHEDULER_NAME,
    GROUP,
    KIND,
    Args,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugins,
)
from kubesched.config.validation import validate, validate_start

Adjust = Callable[[KubeSchedulerConfiguration], KubeSchedulerConfiguration]

_MAX_BYTES = 64 << 20
_LONGEST_QUOTE = 1000  # limit for the file's text in "Object 'Kind' is missing in '…'"


def load_file(
    path: str | Path, gates: FeatureGates = DEFAULT_GATES, *, adjust: Adjust | None = None
) -> KubeSchedulerConfiguration:
    """Loads the configuration in a file; see `load`.

    Raises:
        ConfigError: also when the file cannot be read.
    """
    return load(read_file(path), str(path), gates, adjust=adjust, imports=True)


def read_file(path: str | Path) -> bytes:
    """Reads a configuration file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return files.read_file(path, _MAX_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problem = FieldProblem("", f"cannot read the configuration file: {reason}")
        raise ConfigError([problem], source=str(path)) from error


def load(
    data: bytes,
    source: str = "",
    gates: FeatureGates = DEFAULT_GATES,
    *,
    adjust: Adjust | None = None,
    imports: bool = False,
) -> KubeSchedulerConfiguration:
    """Decodes, defaults and validates the configuration in `data`.

    `adjust` is applied before validation, for flags that override the file. `imports` allows
    importing plugin modules; set it only for the configuration that the user of this process
    specified. A configuration from the network or a recording may only name plugins of loaded
    modules.

    Raises:
        ConfigError: with every problem, each with field path, line and column.
    """
    document = decode(data, source, gates)
    config = document.config if adjust is None else adjust(document.config)
    problems = list(validate(config, gates))
    if not imports:
        problems += [document.as_written(problem) for problem in _not_loaded(config)]
    document.raise_for(document.problems_with(problems))
    return config


def _not_loaded(config: KubeSchedulerConfiguration) -> Iterator[FieldProblem]:
    """Plugins named `module:Class` whose modules are not loaded."""
    for index, profile in enumerate(config.profiles):
        plugins = profile.plugins or Plugins()
        lists = {point.value: plugins.at(point) for point in ExtensionPoint}
        for point, listed in {"multiPoint": plugins.multi_point, **lists}.items():
            for position, plugin in enumerate(listed.enabled):
                module, colon, _ = plugin.name.partition(":")
                if colon and module not in sys.modules:
                    path = f"profiles[{index}].plugins.{point}.enabled[{position}]"
                    yield FieldProblem(
                        path,
                        f'plugin "{plugin.name}" is not loaded, and only the configuration file '
                        "of this process may have modules imported (--config, where a command "
                        "takes it); declare the entry point kubesched.plugins to name it anywhere",
                    )


def default_config(gates: FeatureGates = DEFAULT_GATES) -> KubeSchedulerConfiguration:
    """The configuration used without a file."""
    profile = KubeSchedulerProfile(scheduler_name=DEFAULT_SCHEDULER_NAME)
    return KubeSchedulerConfiguration(profiles=(default_profile(profile, gates),))


ArgsType = Callable[[str], type | None]
"""The argument type of a third-party plugin; None if it declares none."""

Construct = Callable[[KubeSchedulerConfiguration, FeatureGates], Iterable[FieldProblem]]
"""Problems when constructing the plugins of a configuration."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A valid configuration, its expansion, and warnings about parts without effect."""

    config: KubeSchedulerConfiguration
    expanded: tuple[ExpandedPlugins, ...]
    warnings: tuple[FieldProblem, ...]


def check_values(data: bytes, source: str = "", gates: FeatureGates = DEFAULT_GATES) -> None:
    """Like `check`, without access to plugins.

    Raises:
        ConfigError: with every problem.
    """
    document = decode(data, source, gates)
    config = document.config
    problems = [*validate(config, gates), *validate_start(config, gates)]
    document.raise_for(document.problems_with(problems))


def check(
    data: bytes,
    source: str = "",
    gates: FeatureGates = DEFAULT_GATES,
    *,
    implements: Implements,
    args_type: ArgsType = lambda _plugin: None,
    construct: Construct = lambda _config, _gates: (),
) -> Checked:
    """Like `load`, and also finds what would only fail when the scheduler is built.

    That is: plugins that do not exist or do not fit their point, points with too many or too few
    plugins, the arguments of NodeResourcesFit and of third-party plugins, timings that the leader
    elector rejects. `construct` tries the constructors if there are no other problems, and returns
    theirs.

    Raises:
        ConfigError: with every problem.
    """
    document = decode(data, source, gates)
    config = document.config
    invalid = [*validate(config, gates), *validate_start(config, gates)]
    invalid += _third_party_args(config, args_type)
    reported = {problem.path for problem in invalid}
    expanded, problems = expand_profiles(config.profiles, as_of(gates.reference, implements))
    invalid += [
        document.as_written(problem) for problem in problems if problem.path not in reported
    ]
    document.raise_for(document.problems_with(invalid))
    document.raise_for(document.problems_with(list(construct(config, gates))))
    noted = [
        document.decoder.located(warning)
        for index, profile in enumerate(config.profiles)
        for warning in warnings(profile, expanded[index], f"profiles[{index}]", gates)
    ]
    return Checked(config, expanded, tuple(sorted(noted, key=_position)))


def _third_party_args(
    config: KubeSchedulerConfiguration, args_type: ArgsType
) -> Iterator[FieldProblem]:
    for index, profile in enumerate(config.profiles):
        for position, entry in enumerate(profile.plugin_config):
            if isinstance(entry.args, PluginArgs):
                continue
            wanted = args_type(entry.name)
            if wanted is not None:
                try:
                    path = f"profiles[{index}].pluginConfig[{position}].args"
                    decode_args(entry.args, wanted, path)
                except ConfigError as error:
                    yield from error.problems


_MULTI_POINT_ENTRY = re.compile(
    r"profiles\[(?P<profile>\d+)\]\.plugins\.multiPoint\.enabled\[(?P<entry>\d+)\]"
)


def _position(problem: FieldProblem) -> tuple[int, int]:
    return problem.line or 0, problem.column or 0


@dataclass(frozen=True, slots=True)
class Document:
    """A decoded file: its content, the problems so far, and the positions of its fields."""

    config: KubeSchedulerConfiguration
    written: KubeSchedulerConfiguration
    """Without the default plugins."""
    decoder: Decoder
    source: str

    def problems_with(self, problems: list[FieldProblem]) -> list[FieldProblem]:
        """Decoding problems and `problems`, with positions, in file order.

        A field that could not be decoded has its default, so problems of it and in it are dropped.
        """
        undecoded = {problem.path for problem in self.decoder.problems}
        inside = tuple(f"{path}{mark}" for path in undecoded for mark in ".[")
        rest = [
            problem if problem.line is not None else self.decoder.located(problem)
            for problem in problems
            if problem.path not in undecoded and not problem.path.startswith(inside)
        ]
        return sorted([*self.decoder.problems, *rest], key=_position)

    def as_written(self, problem: FieldProblem) -> FieldProblem:
        """Maps a problem in MultiPoint's merged list to the entry the user wrote."""
        match = _MULTI_POINT_ENTRY.fullmatch(problem.path)
        if match is None:
            return problem
        profile = int(match["profile"])
        plugins, written = (
            self.config.profiles[profile].plugins,
            self.written.profiles[profile].plugins,
        )
        if plugins is None or written is None:
            return problem
        name = plugins.multi_point.enabled[int(match["entry"])].name
        entries = written.multi_point.enabled
        index = max((i for i, entry in enumerate(entries) if entry.name == name), default=None)
        if index is None:
            return problem
        where = f"profiles[{profile}].plugins.multiPoint.enabled[{index}]"
        return replace(problem, path=where)

    def raise_for(self, problems: list[FieldProblem]) -> None:
        if problems:
            raise ConfigError(problems, source=self.source)


def decode(data: bytes, source: str = "", gates: FeatureGates = DEFAULT_GATES) -> Document:
    """Decodes the file to internal types with defaults, collecting problems.

    Raises:
        ConfigError: it is not YAML, or not a v1 `KubeSchedulerConfiguration`, so its fields
            cannot be checked.
    """
    root = parse(data, source)
    _require_kind(root, data, source)
    decoder = Decoder(json=is_json(data))
    file = decoder.read(root, KubeSchedulerConfiguration, "")
    _report_newer_fields(decoder, file, gates.reference)
    written = complete(file, decoder.given, _ArgsReader(decoder))
    profiles = tuple(default_profile(profile, gates) for profile in written.profiles)
    return Document(replace(written, profiles=profiles), written, decoder, source)


def _report_newer_fields(
    decoder: Decoder, file: KubeSchedulerConfiguration, reference: Reference
) -> None:
    """Fields that a later release added are as unknown as any other."""
    if reference.pod_group_post_filter:
        return
    name = ExtensionPoint.POD_GROUP_POST_FILTER.value
    for index in range(len(file.profiles)):
        decoder.report_unknown(f"profiles[{index}].plugins", name)


def _require_kind(root: Node, data: bytes, source: str) -> None:
    entries = root.entries if isinstance(root, Mapping) else []
    texts = {
        key.text: value.value
        for key, value in entries
        if isinstance(value, Scalar) and isinstance(value.value, str)
    }
    api_version, kind = texts.get("apiVersion", ""), texts.get("kind", "")
    problems: list[FieldProblem] = []
    if not (isinstance(root, Mapping) or (isinstance(root, Scalar) and root.value is None)):
        problems.append(
            FieldProblem("", "the document is not a map of fields", root.line, root.column)
        )
    elif not (api_version and kind):
        quoted = data[:_LONGEST_QUOTE].decode("utf-8", "replace")
        quoted += "…" if len(data) > _LONGEST_QUOTE else ""
        missing = [
            name for name, given in (("Kind", kind), ("apiVersion", api_version)) if not given
        ]
        problems += [
            FieldProblem("", f"Object '{name}' is missing in '{quoted}'") for name in missing
        ]
    elif (api_version, kind) != (API_VERSION, KIND):
        assert isinstance(root, Mapping)
        problems += legacy.unsupported_kind(root, api_version, kind)
    if problems:
        raise ConfigError(problems, source=source)


class _ArgsReader:
    """Converts the arguments of in-tree plugins to their type and leaves others raw."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def __call__(self, path: str, plugin: str, raw: Args) -> Args:
        args_type = ARGS_BY_PLUGIN.get(plugin)
        if not isinstance(raw, RawArgs) or raw.node is None or args_type is None:
            return raw
        where = f"{path}.args"
        if not isinstance(raw.node, Mapping):
            self._decoder.wrong_type(where, raw.node, "a map")
            return args_type()
        if not self._kind_fits(path, plugin, raw.node):
            return args_type()
        fields = [
            (key, value)
            for key, value in raw.node.entries
            if key.text not in ("apiVersion", "kind")
        ]
        node = Mapping(raw.node.line, raw.node.column, entries=fields)
        return self._decoder.read(node, args_type, where)

    def _kind_fits(self, path: str, plugin: str, args: Mapping) -> bool:
        given = {
            key.text: value
            for key, value in args.entries
            if key.text in ("apiVersion", "kind") and isinstance(value, Scalar)
        }
        kind = _text(given.get("kind")) or f"{plugin}Args"
        version = _text(given.get("apiVersion")) or API_VERSION
        prefix = f"decoding .{path}: "
        known = {f"{name}Args" for name in ARGS_BY_PLUGIN} | {KIND}
        if version != API_VERSION or kind not in known:
            message = (
                f"decoding args for plugin {plugin}: "
                f'no kind "{kind}" is registered for version "{version}"'
            )
        elif kind != f"{plugin}Args":
            message = (
                f"args for plugin {plugin} were not of type {plugin}Args.{GROUP}, "
                f"got {kind}.{GROUP}"
            )
        else:
            return True
        self._decoder.report(f"{path}.args", prefix + message, args)
        return False


def _text(node: Scalar | None) -> str:
    return node.value if node is not None and isinstance(node.value, str) else ""
