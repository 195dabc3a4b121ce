"""The effective configuration, with nothing left implicit.

The result is itself a valid configuration with the same meaning: MultiPoint is disabled and every
extension point lists its plugins in order, so that neither defaults nor expansion change anything
when it is read again, by this program or by kube-scheduler.
"""

from __future__ import annotations

from dataclasses import replace

from kubesched.api.yaml_nodes import Plain
from kubesched.base.errors import ConfigError
from kubesched.config.defaults import ALL, with_extender_resources
from kubesched.config.expansion import ExpandedPlugins, Implements, expand_profiles
from kubesched.config.output import to_plain
from kubesched.config.types import (
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugin,
    Plugins,
    PluginSet,
)


def effective(
    config: KubeSchedulerConfiguration, implements: Implements
) -> KubeSchedulerConfiguration:
    """The configuration with every profile's plugins spelled out.

    Raises:
        ConfigError: a profile cannot be expanded.
    """
    config = with_extender_resources(config)
    expanded, problems = expand_profiles(config.profiles, implements)
    if problems:
        raise ConfigError(problems)
    profiles = tuple(map(_effective_profile, config.profiles, expanded))
    return replace(config, profiles=profiles)


def _effective_profile(
    profile: KubeSchedulerProfile, expanded: ExpandedPlugins
) -> KubeSchedulerProfile:
    points = {
        point.attribute: PluginSet(enabled=expanded.weighted(point)) for point in ExtensionPoint
    }
    multi_point = PluginSet(disabled=(Plugin(ALL),))
    return replace(profile, plugins=Plugins(multi_point=multi_point, **points))


def effective_plain(config: KubeSchedulerConfiguration, implements: Implements) -> Plain:
    """The effective configuration as plain data, without empty lists and weights."""
    plain = to_plain(effective(config, implements))
    profiles = plain["profiles"]
    assert isinstance(profiles, list)
    for profile in profiles:
        assert isinstance(profile, dict)
        plugins = profile["plugins"]
        assert isinstance(plugins, dict)
        profile["plugins"] = {
            point: _without_zero_weights(lists) for point, lists in plugins.items() if lists
        }
    return plain


def _without_zero_weights(lists: Plain) -> Plain:
    if isinstance(lists, list):
        return [_without_zero_weights(item) for item in lists]
    if isinstance(lists, dict):
        return {
            name: _without_zero_weights(value)
            for name, value in lists.items()
            if (name, value) != ("weight", 0)
        }
    return lists
