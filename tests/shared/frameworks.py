"""Ready-made frameworks: the default profile, or just the plugins under test, over a node table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubesched.config.defaults import default_profile
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.config.types import (
    KubeSchedulerProfile,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)
from kubesched.framework.handle import Handle
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.profile import build_frameworks
from kubesched.framework.runtime import Framework
from kubesched.plugins.registry import in_tree_registry

_NAME = "default-scheduler"
_ALWAYS = ("PrioritySort", "DefaultBinder")


def default_framework(
    table: NodeTable, handle: Handle | None = None, gates: FeatureGates = DEFAULT_GATES
) -> Framework:
    """The default profile."""
    profile = default_profile(KubeSchedulerProfile(scheduler_name=_NAME), gates)
    return _build(profile, handle or Handle(table=table), gates)


def framework_of(
    table: NodeTable,
    *plugins: str,
    weights: Mapping[str, int] | None = None,
    args: Mapping[str, Any] | None = None,
    handle: Handle | None = None,
    gates: FeatureGates = DEFAULT_GATES,
) -> Framework:
    """A profile of the named plugins, in that order, at every point they serve."""
    weights = weights or {}
    names = [*(name for name in _ALWAYS if name not in plugins), *plugins]
    enabled = tuple(Plugin(name, weights.get(name, 0)) for name in names)
    profile = KubeSchedulerProfile(
        scheduler_name=_NAME,
        plugins=Plugins(multi_point=PluginSet(enabled=enabled)),
        plugin_config=tuple(PluginConfig(name, value) for name, value in (args or {}).items()),
    )
    return _build(profile, handle or Handle(table=table), gates)


def _build(profile: KubeSchedulerProfile, handle: Handle, gates: FeatureGates) -> Framework:
    return build_frameworks([profile], in_tree_registry(), lambda _name: handle, gates)[_NAME]
