"""What the plugins named in a configuration can do, third-party ones included.

In-tree plugins are answered from a table, without importing them. Others are found the way the
scheduler finds them: by entry point, or as `module:Class`.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points

from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.types import ExtensionPoint
from kubesched.errors import ConfigError, FieldProblem

ENTRY_POINT_GROUP = "kubesched.plugins"


def implements(name: str, point: ExtensionPoint) -> bool | None:
    """Whether the named plugin implements a point; None if there is no such plugin.

    Raises:
        ConfigError: the plugin exists but cannot be loaded.
    """
    if name in IN_TREE_PLUGINS:
        return point in IN_TREE_PLUGINS[name]
    plugin = _third_party(name)
    if plugin is None:
        return None
    from kubesched.framework.interfaces import EXTENSION_POINTS

    interface = EXTENSION_POINTS.get(point.value)
    return interface is not None and issubclass(plugin, interface)


@cache
def _third_party(name: str) -> type | None:
    try:
        for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
            return _plugin_class(name, entry.load())
        module, colon, attribute = name.partition(":")
        if not (colon and module and attribute):
            return None
        found: object = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs foreign code, which may raise anything
        problem = FieldProblem("", f'plugin "{name}" cannot be loaded: {error}')
        raise ConfigError([problem]) from error
    return _plugin_class(name, found)


def _plugin_class(name: str, found: object) -> type:
    from kubesched.framework.interfaces import Plugin

    if isinstance(found, type) and issubclass(found, Plugin):
        return found
    problem = FieldProblem("", f'plugin "{name}" is not a class derived from framework.Plugin')
    raise ConfigError([problem])
