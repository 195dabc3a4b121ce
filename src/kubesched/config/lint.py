"""Warnings about settings without effect; never errors."""

from __future__ import annotations

from collections.abc import Iterator

from kubesched.base.errors import FieldProblem
from kubesched.config.default_plugins import default_plugins
from kubesched.config.defaults import ALL
from kubesched.config.expansion import ExpandedPlugins
from kubesched.config.features import FeatureGates
from kubesched.config.legacy import plugin_hint
from kubesched.config.types import ExtensionPoint, KubeSchedulerProfile, Plugins, PluginSet

_DEFAULT_BINDER = "DefaultBinder"
_WEIGHTED = (ExtensionPoint.SCORE, ExtensionPoint.PLACEMENT_SCORE)


def warnings(
    profile: KubeSchedulerProfile, expanded: ExpandedPlugins, path: str, gates: FeatureGates
) -> Iterator[FieldProblem]:
    """Settings of the profile that are probably unintended."""
    plugins = profile.plugins or Plugins()
    defaults = {plugin.name for plugin in default_plugins(gates).multi_point.enabled}
    candidates = defaults | set(plugins.enabled_names())
    yield from _idle_disabled(f"{path}.plugins.multiPoint", plugins.multi_point, candidates)
    for point in ExtensionPoint:
        where, plugin_set = f"{path}.plugins.{point.value}", plugins.at(point)
        yield from _idle_disabled(where, plugin_set, candidates)
        if point not in _WEIGHTED:
            yield from _idle_weights(where, plugin_set)
    yield from _unused_config(profile, expanded, path)
    yield from _unreached_binders(expanded, path)


def _idle_disabled(
    path: str, plugin_set: PluginSet, candidates: set[str]
) -> Iterator[FieldProblem]:
    for index, plugin in enumerate(plugin_set.disabled):
        if plugin.name != ALL and plugin.name not in candidates:
            hint = plugin_hint(plugin.name)
            yield FieldProblem(
                f"{path}.disabled[{index}].name",
                f'disabling "{plugin.name}" has no effect: it is not enabled anywhere'
                + (f" ({hint})" if hint else ""),
            )


def _idle_weights(path: str, plugin_set: PluginSet) -> Iterator[FieldProblem]:
    for index, plugin in enumerate(plugin_set.enabled):
        if plugin.weight:
            yield FieldProblem(
                f"{path}.enabled[{index}].weight", "has no effect: only scores are weighted"
            )


def _unused_config(
    profile: KubeSchedulerProfile, expanded: ExpandedPlugins, path: str
) -> Iterator[FieldProblem]:
    running = {name for names in expanded.by_point.values() for name in names}
    for index, entry in enumerate(profile.plugin_config):
        if entry.name not in running:
            yield FieldProblem(
                f"{path}.pluginConfig[{index}].name",
                f'arguments for "{entry.name}" have no effect: it runs at no extension point',
            )


def _unreached_binders(expanded: ExpandedPlugins, path: str) -> Iterator[FieldProblem]:
    binders = expanded.at(ExtensionPoint.BIND)
    if _DEFAULT_BINDER in binders[:-1]:
        later = ", ".join(binders[binders.index(_DEFAULT_BINDER) + 1 :])
        yield FieldProblem(
            f"{path}.plugins.bind",
            f"{later} will never bind a pod: {_DEFAULT_BINDER} comes first and binds every pod; "
            "disable it",
        )
