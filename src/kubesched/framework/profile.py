"""Builds a framework per profile: instantiates plugins and assigns them to extension points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kubesched.base.errors import ConfigError, FieldProblem, KubeschedError, describe
from kubesched.config.expansion import ExpandedPlugins
from kubesched.config.features import FeatureGates
from kubesched.config.plugin_args import default_args
from kubesched.config.schema import RawArgs, decode_args
from kubesched.config.types import ExtensionPoint, KubeSchedulerConfiguration, KubeSchedulerProfile
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import EXTENSION_POINTS, Plugin
from kubesched.framework.registry import Registry, RegistryError, as_config_error
from kubesched.framework.runtime import Framework

MakeHandle = Callable[[str], Handle]
"""Scheduler name -> the handle its plugins share."""


class ConstructionError(KubeschedError):
    """A plugin's constructor raised; the message names the plugin."""


def build_frameworks(
    profiles: Sequence[KubeSchedulerProfile],
    registry: Registry,
    make_handle: MakeHandle,
    gates: FeatureGates,
) -> dict[str, Framework]:
    """A framework per scheduler name.

    Raises:
        ConfigError: with all problems of all profiles.
    """
    if not profiles:
        raise ConfigError([FieldProblem("profiles", "at least one profile is required")])
    expanded, problems = registry.expand(profiles, gates.reference)
    if problems:
        raise ConfigError(problems)
    return {
        profile.scheduler_name: _build(
            profile, plugins, registry, make_handle(profile.scheduler_name), gates, index
        )
        for index, (profile, plugins) in enumerate(zip(profiles, expanded, strict=True))
    }


def enabled_plugins(config: KubeSchedulerConfiguration, registry: Registry) -> list[type[Plugin]]:
    """The classes of all enabled plugins; `build_frameworks` reports unknown names."""
    names = {
        name: None
        for profile in config.profiles
        if profile.plugins is not None
        for name in profile.plugins.enabled_names()
    }
    try:
        classes = [registry.get(name) for name in names]
    except RegistryError as error:
        raise as_config_error(error) from error
    return [cls for cls in classes if cls is not None]


def _build(
    profile: KubeSchedulerProfile,
    expanded: ExpandedPlugins,
    registry: Registry,
    handle: Handle,
    gates: FeatureGates,
    index: int,
) -> Framework:
    args = {entry.name: entry.args for entry in profile.plugin_config}
    instances: dict[str, Plugin] = {}
    problems: list[FieldProblem] = []
    cause: ConstructionError | None = None
    names = dict.fromkeys(name for point in ExtensionPoint for name in expanded.at(point))
    for name in names:
        plugin = registry.get(name)
        assert plugin is not None, f"expansion accepted the unknown plugin {name}"
        try:
            instances[name] = construct(plugin, name, args.get(name), handle, gates)
        except ConstructionError as error:
            problems.append(FieldProblem(f"profiles[{index}]", str(error)))
            cause = cause or error
    problems += [FieldProblem(f"profiles[{index}]", text) for text in name_clashes(instances)]
    if problems:
        for instance in instances.values():
            instance.close()
        raise ConfigError(problems) from cause
    points: Mapping[str, list[Plugin]] = {
        point.value: [instances[name] for name in expanded.at(point)]
        for point in ExtensionPoint
        if point.value in EXTENSION_POINTS
    }
    return Framework(
        handle,
        points,
        _by_own_name(expanded.score_weights, instances),
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        placement_score_weights=_by_own_name(expanded.placement_score_weights, instances),
    )


def _by_own_name(weights: Mapping[str, int], instances: Mapping[str, Plugin]) -> dict[str, int]:
    """From here on, a plugin configured as `module:Class` has its own name."""
    # A plugin whose only point is disabled still has a weight.
    return {instances[name].name: weight for name, weight in weights.items() if name in instances}


def construct(
    plugin: type[Plugin],
    name: str,
    args: Any,  # noqa: ANN401  # each plugin has its own type
    handle: Handle,
    gates: FeatureGates,
) -> Plugin:
    """An instance for one profile.

    Raises:
        ConstructionError: the constructor raised any exception.
    """
    try:
        return plugin(_typed_args(plugin, name, args, gates), handle)
    except Exception as error:  # third-party code
        raise ConstructionError(f'initializing plugin "{name}": {describe(error)}') from error


def name_clashes(plugins: Mapping[str, Plugin | type[Plugin]]) -> Iterator[str]:
    """Plugins with equal own names, by their names in the configuration."""
    by_own_name: dict[str, str] = {}
    for configured, plugin in plugins.items():
        other = by_own_name.setdefault(plugin.name, configured)
        if other != configured:
            yield f'plugins "{other}" and "{configured}" have the same name, {plugin.name}'


def _typed_args(
    plugin: type[Plugin],
    name: str,
    given: Any,  # noqa: ANN401  # each plugin has its own type
    gates: FeatureGates,
) -> Any:  # noqa: ANN401  # as above
    """In-tree args are typed already; third-party args are decoded if a type is declared."""
    if given is None:
        given = default_args(name, gates)
    wanted = plugin.args_type
    if wanted is None:
        return given.value if isinstance(given, RawArgs) else given
    if isinstance(given, RawArgs) or given is None:
        return decode_args(given, wanted)
    return given
