"""Capabilities of the plugins named in a configuration, third-party ones included.

In-tree plugins are looked up in a table, without importing them. Others are found as the scheduler
finds them: by entry point, or as `module:Class`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kubesched.base.errors import FieldProblem
from kubesched.config import default_plugins
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.types import ExtensionPoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kubesched.config.features import FeatureGates
    from kubesched.config.types import KubeSchedulerConfiguration
    from kubesched.framework.interfaces import Plugin
    from kubesched.framework.registry import Registry


def implements(name: str, point: ExtensionPoint) -> bool | None:
    """Whether the named plugin implements a point; None if there is no such plugin.

    Raises:
        ConfigError: the plugin exists but cannot be loaded.
    """
    known = default_plugins.implements(name, point)
    if known is not None or not name:
        return known
    from kubesched.framework.registry import RegistryError, as_config_error

    try:
        return installed_plugins().implements(name, point.value)
    except RegistryError as error:
        raise as_config_error(error) from error


def args_type(name: str) -> type | None:
    """The arguments type of a third-party plugin; None if it declares none."""
    if name in IN_TREE_PLUGINS or not name:
        return None
    from kubesched.framework.registry import RegistryError

    try:
        plugin = installed_plugins().get(name)
    except RegistryError:
        return None  # `implements` reports it where the plugin is enabled
    return None if plugin is None else plugin.args_type


def construct(config: KubeSchedulerConfiguration, gates: FeatureGates) -> list[FieldProblem]:
    """Problems that third-party plugins show only when constructed, with an empty cluster."""
    problems: list[FieldProblem] = []
    for index, profile in enumerate(config.profiles):
        named = {entry.name: entry.args for entry in profile.plugin_config}
        names = profile.plugins.enabled_names() if profile.plugins is not None else ()
        third_party = [name for name in dict.fromkeys(names) if name not in IN_TREE_PLUGINS]
        texts = _construct(profile.scheduler_name, third_party, named, gates)
        problems += [FieldProblem(f"profiles[{index}].plugins", text) for text in texts]
    return problems


def _construct(
    profile: str, names: list[str], args: Mapping[str, object], gates: FeatureGates
) -> list[str]:
    if not names:
        return []
    from kubesched.base.metrics.registry import MetricsRegistry
    from kubesched.base.metrics.scheduler import SchedulerMetrics
    from kubesched.framework.handle import Handle
    from kubesched.framework.nodes.node_table import NodeTable
    from kubesched.framework.profile import ConstructionError, construct, name_clashes
    from kubesched.insight.state.memory import MemoryListers, NoEvents

    handle = Handle(
        table=NodeTable(),
        profile_name=profile,
        listers=MemoryListers(),
        recorder=NoEvents(),
        metrics=SchedulerMetrics(MetricsRegistry()),
        feature_gates=gates,
    )
    texts: list[str] = []
    classes: dict[str, type[Plugin]] = {}
    for name in names:
        plugin_class = installed_plugins().get(name)
        assert plugin_class is not None, f"expansion accepted the unknown plugin {name}"
        classes[name] = plugin_class
        try:
            construct(plugin_class, name, args.get(name), handle, gates).close()
        except ConstructionError as error:
            texts.append(str(error))
    return [*texts, *name_clashes(classes)]


@cache
def installed_plugins() -> Registry:
    """In-tree plugins and those of installed packages."""
    from kubesched.plugins.registry import installed_registry

    return installed_registry()
