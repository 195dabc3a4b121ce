"""Defaulting: fills in missing fields and merges plugin lists."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import TypeVar

import msgspec

from kubesched.config.default_plugins import default_plugins
from kubesched.config.features import FeatureGates
from kubesched.config.plugin_args import (
    NodeResourcesFitArgs,
    PluginArgs,
    default_args,
    with_defaults,
)
from kubesched.config.types import (
    DEFAULT_SCHEDULER_NAME,
    Args,
    ClientConnectionConfiguration,
    Extender,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)

ReadArgs = Callable[[str, str, Args], Args]
"""Converts arguments to their type: (path of the pluginConfig entry, plugin, raw data) -> Args."""

ALL = "*"
"""In a disabled list: every default plugin of that point."""


def complete(
    file: KubeSchedulerConfiguration, given: Collection[str], read_args: ReadArgs
) -> KubeSchedulerConfiguration:
    """Fills in the defaults of a file; `given` holds the paths of the fields it sets.

    Plugin lists stay as written until `default_profile` merges them.
    """
    profiles = file.profiles or (KubeSchedulerProfile(),)
    if len(profiles) == 1 and "profiles[0].schedulerName" not in given:
        # With several profiles each must have a name, which validation checks.
        profiles = (replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME),)
    contention = file.enable_contention_profiling
    if not file.enable_profiling and "enableContentionProfiling" not in given:
        contention = False
    return replace(
        file,
        # Zero durations and empty names count as absent.
        leader_election=_with_defaults(file.leader_election, keep=("leader_elect",)),
        client_connection=_with_defaults(file.client_connection),
        enable_contention_profiling=contention,
        profiles=tuple(
            replace(profile, plugin_config=_typed(profile, f"profiles[{index}]", read_args))
            for index, profile in enumerate(profiles)
        ),
    )


R = TypeVar("R", LeaderElectionConfiguration, ClientConnectionConfiguration)


def _with_defaults(record: R, keep: tuple[str, ...] = ()) -> R:
    given = {field.name: getattr(record, field.name) for field in fields(record)}
    return type(record)(**{name: value for name, value in given.items() if value or name in keep})


def _typed(
    profile: KubeSchedulerProfile, path: str, read_args: ReadArgs
) -> tuple[PluginConfig, ...]:
    return tuple(
        replace(entry, args=read_args(f"{path}.pluginConfig[{index}]", entry.name, entry.args))
        for index, entry in enumerate(profile.plugin_config)
    )


def default_profile(profile: KubeSchedulerProfile, gates: FeatureGates) -> KubeSchedulerProfile:
    """The profile with default plugins merged in and arguments for every plugin that takes any."""
    plugins = merge_plugins(default_plugins(gates), profile.plugins)
    given = tuple(_with_default_args(config, gates) for config in profile.plugin_config)
    configured = {config.name for config in given}
    added = []
    for name in sorted(set(plugins.enabled_names()) - configured):
        args = default_args(name, gates)
        if args is not None:
            added.append(PluginConfig(name, args))
    return replace(profile, plugins=plugins, plugin_config=(*given, *added))


def _with_default_args(config: PluginConfig, gates: FeatureGates) -> PluginConfig:
    if config.args is None:
        return replace(config, args=default_args(config.name, gates))
    if isinstance(config.args, PluginArgs):
        return replace(config, args=with_defaults(config.args, gates))
    return config


def ignored_by_extenders(extenders: tuple[Extender, ...]) -> tuple[str, ...]:
    """Resources managed by extenders that filtering must ignore."""
    return tuple(
        resource.name
        for extender in extenders
        for resource in extender.managed_resources
        if resource.ignored_by_scheduler
    )


def with_extender_resources(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    """The configuration as plugins see it: NodeResourcesFit ignores what extenders ignore.

    Upstream: these names replace `ignoredResources`, they are not added to it.
    """
    ignored = ignored_by_extenders(config.extenders)
    if not ignored:
        return config

    def ignoring(entry: PluginConfig) -> PluginConfig:
        if isinstance(entry.args, NodeResourcesFitArgs):
            args = msgspec.structs.replace(entry.args, ignored_resources=ignored)
            return replace(entry, args=args)
        return entry

    profiles = tuple(
        replace(profile, plugin_config=tuple(ignoring(entry) for entry in profile.plugin_config))
        for profile in config.profiles
    )
    return replace(config, profiles=profiles)


def merge_plugins(default: Plugins, custom: Plugins | None) -> Plugins:
    """Merges the user's lists into the default ones, point by point."""
    if custom is None:
        return default
    merged = {
        point.attribute: merge_plugin_set(default.at(point), custom.at(point))
        for point in ExtensionPoint
    }
    return Plugins(multi_point=merge_plugin_set(default.multi_point, custom.multi_point), **merged)


def merge_plugin_set(default: PluginSet, custom: PluginSet) -> PluginSet:
    """Merges one point: replaces in place, removes, appends.

    A default plugin that the user also enables takes the user's weight, or loses its own, and keeps
    its position; disabling it as well moves it to where the user wrote it. If a name occurs twice,
    the last one replaces and the others are appended, to be rejected as duplicates later. Disabled
    names are kept: MultiPoint expansion needs them.
    """
    disabled = (*custom.disabled, *default.disabled)
    disabled_names = {plugin.name for plugin in disabled}
    last_index = {plugin.name: index for index, plugin in enumerate(custom.enabled)}
    enabled: list[Plugin] = []
    replacing: set[int] = set()
    if ALL not in disabled_names:
        for plugin in default.enabled:
            if plugin.name in disabled_names:
                continue
            index = last_index.get(plugin.name)
            if index is None:
                enabled.append(plugin)
            else:
                enabled.append(custom.enabled[index])
                replacing.add(index)
    enabled += [plugin for index, plugin in enumerate(custom.enabled) if index not in replacing]
    return PluginSet(
        enabled=tuple(enabled), disabled=tuple(Plugin(plugin.name) for plugin in disabled)
    )


def without_extenders(
    config: KubeSchedulerConfiguration,
) -> tuple[KubeSchedulerConfiguration, list[str]]:
    """The configuration with extenders disabled, and a note about it."""
    if not config.extenders:
        return config, []
    asked = ", ".join(extender.url_prefix for extender in config.extenders)
    note = f"extenders were not asked: {asked}; they may reject or prefer nodes"
    # NodeResourcesFit ignores resources managed by extenders, even when these are not called.
    return replace(with_extender_resources(config), extenders=()), [note]
