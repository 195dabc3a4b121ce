"""What the plugins named in a configuration can do, third-party ones included.

In-tree plugins are answered from a table, without importing them. Others are found the way the
scheduler finds them: by entry point, or as `module:Class`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.types import ExtensionPoint

if TYPE_CHECKING:
    from kubesched.framework.registry import Registry


def implements(name: str, point: ExtensionPoint) -> bool | None:
    """Whether the named plugin implements a point; None if there is no such plugin.

    Raises:
        ConfigError: the plugin exists but cannot be loaded.
    """
    if name in IN_TREE_PLUGINS:
        return point in IN_TREE_PLUGINS[name]
    if not name:
        return None
    from kubesched.framework.registry import RegistryError, as_config_error

    try:
        return _third_party().implements(name, point.value)
    except RegistryError as error:
        raise as_config_error(error) from error


def args_type(name: str) -> type | None:
    """The type of a third-party plugin's arguments; None if it declares none."""
    if name in IN_TREE_PLUGINS or not name:
        return None
    from kubesched.framework.registry import RegistryError

    try:
        plugin = _third_party().get(name)
    except RegistryError:
        return None  # `implements` complains where the plugin is enabled
    return None if plugin is None else plugin.args_type


@cache
def _third_party() -> Registry:
    from kubesched.framework.registry import Registry

    registry = Registry()
    registry.add_installed()
    return registry
