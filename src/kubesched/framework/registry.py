"""The plugin registry: plugin classes by name.

In-tree plugins come from a table, third-party ones from installed packages (entry-point group
`kubesched.plugins`) or, named `module:Class` in the configuration, from any importable module (but
see `config.load.load`). Classes are imported on first use.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, entry_points
from time import monotonic
from typing import cast

from kubesched.base.errors import ConfigError, FieldProblem, KubeschedError
from kubesched.base.logs import get_logger
from kubesched.base.version import __version__
from kubesched.config.default_plugins import IN_TREE_PLUGINS, as_of
from kubesched.config.expansion import ExpandedPlugins, expand_profiles
from kubesched.config.references import Reference
from kubesched.config.types import ExtensionPoint, KubeSchedulerProfile
from kubesched.framework.interfaces import EXTENSION_POINTS, FilterPlugin, Plugin, ScorePlugin

log = get_logger(__name__)

ENTRY_POINT_GROUP = "kubesched.plugins"

SLOW_IMPORT_S = 1.0

_NEEDED = re.compile(r"kubesched\b(?!-)[^;]*?(>=|==|~=)\s*(\d+(\.\d+)*)")
"""The least version in `Requires-Dist` of a distribution; installers can be told to ignore it."""
_IN_TREE = "kubesched.plugins."
_ONE_OF: dict[type[Plugin], tuple[str, ...]] = {
    FilterPlugin: ("filter", "filter_nodes"),
    ScorePlugin: ("score", "score_nodes"),
}
"""Interfaces, each with the methods of which a plugin must implement at least one."""

PluginLoader = Callable[[], type[Plugin]]
Expansion = tuple[tuple[ExpandedPlugins, ...], list[FieldProblem]]


class RegistryError(KubeschedError):
    """A name is taken, unknown, or refers to something that is not a plugin."""


class Registry:
    """Name -> plugin class, loaded on demand."""

    def __init__(self, plugins: Mapping[str, PluginLoader] | None = None) -> None:
        self._loaders: dict[str, PluginLoader] = dict(plugins or {})
        self._classes: dict[str, type[Plugin]] = {}
        self._points: dict[str, frozenset[str]] = {}
        self._expanded: tuple[Sequence[KubeSchedulerProfile], Reference, Expansion] | None = None

    def register(self, name: str, loader: PluginLoader) -> None:
        if name in self._loaders:
            raise RegistryError(f"a plugin named {name} already exists")
        self._loaders[name] = loader
        self._expanded = None

    def unregister(self, name: str) -> None:
        if name not in self._loaders:
            raise RegistryError(f"no plugin named {name} exists")
        del self._loaders[name]
        self._classes.pop(name, None)
        self._points.pop(name, None)
        self._expanded = None

    def add_installed(self, *, loaded_only: bool = False) -> None:
        """Register every plugin that an installed package declares, without importing it.

        With `loaded_only`, only those of imported modules: requests of others may name them, and
        must not import code.
        """
        found: dict[str, EntryPoint] = {}
        for entry in _declared(tuple((path, _modified(path)) for path in sys.path)):
            if loaded_only and entry.module not in sys.modules:
                continue
            if entry.name in found:
                both = f"{_package(found[entry.name])} and {_package(entry)}"
                self._loaders[entry.name] = partial(_refuse, entry.name, both)
            elif entry.name in self._loaders:
                log.warning(
                    "A package declares a plugin with a name that is taken; it is left out",
                    plugin=entry.name,
                    package=_package(entry),
                )
            else:
                found[entry.name] = entry
                self.register(entry.name, partial(_load_installed, entry))

    def names(self) -> list[str]:
        return sorted(self._loaders)

    def get(self, name: str) -> type[Plugin] | None:
        """The class, or None for an unknown name. Raises if the plugin cannot be imported."""
        known = self._classes.get(name)
        if known is not None:
            return known
        loader = self._loaders.get(name)
        if loader is None:
            if ":" not in name:
                return None
            loader = lambda: load_by_path(name)  # noqa: E731  # same calling convention
        began = monotonic()
        try:
            loaded = loader()
        except RegistryError:
            raise
        except (Exception, SystemExit) as error:  # importing third-party code may raise anything
            raise RegistryError(
                f'plugin "{name}" cannot be imported: {type(error).__name__}: {error}'
            ) from error
        if name not in IN_TREE_PLUGINS and monotonic() - began > SLOW_IMPORT_S:
            seconds = round(monotonic() - began, 1)
            log.warning("A plugin was slow to import", plugin=name, seconds=seconds)
        self._classes[name] = checked_class(name, loaded)
        return loaded

    def implements(self, name: str, point: str) -> bool | None:
        """Whether the plugin serves the extension point (a configuration key); None if unknown."""
        points = self._points.get(name)
        if points is None:
            plugin = self.get(name)
            if plugin is None:
                return None
            points = self._points[name] = _points_of(plugin)
        return point in points

    def expand(self, profiles: Sequence[KubeSchedulerProfile], reference: Reference) -> Expansion:
        """The plugins and problems of every profile (`expand_profiles`); caches the last result."""
        last = self._expanded
        if last is None or last[0] is not profiles or last[1] is not reference:
            expansion = expand_profiles(profiles, as_of(reference, self._implements))
            last = self._expanded = profiles, reference, expansion
        return last[2]

    def _implements(self, name: str, point: ExtensionPoint) -> bool | None:
        try:
            return self.implements(name, point.value)
        except RegistryError as error:
            raise as_config_error(error) from error


@lru_cache(maxsize=1)
def _declared(_folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Plugins that installed packages declare, for the folders of `sys.path` and when they changed.

    Reading the metadata of 118 packages took 3 of the 7.5 ms of an empty cluster in memory.
    """
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _modified(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:  # it need not exist
        return 0


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module


def _refuse(name: str, packages: str) -> type[Plugin]:
    text = f'plugin "{name}" is declared by {packages}: uninstall one, or name it MODULE:CLASS'
    raise RegistryError(text)


def _load_installed(entry: EntryPoint) -> type[Plugin]:
    for requirement in (entry.dist and entry.dist.requires) or ():
        needed = _NEEDED.match(requirement)
        if needed is not None and _numbers(needed[2]) > _numbers(__version__):
            needs = f"needs kubesched {needed[2]} or newer, this is {__version__}"
            raise RegistryError(f'plugin "{entry.name}" of {_package(entry)} {needs}')
    return cast("type[Plugin]", entry.load())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _points_of(plugin: type[Plugin]) -> frozenset[str]:
    # The first issubclass() on an abstract class checks all its subclasses, twelve per plugin.
    bases = plugin.__mro__
    return frozenset(point for point, kind in EXTENSION_POINTS.items() if kind in bases)


def load_by_path(path: str) -> type[Plugin]:
    """The class behind `module:Class`."""
    module_name, _, attribute = path.partition(":")
    # Not getattr(): a module's own __getattr__ may import others.
    loaded = vars(importlib.import_module(module_name)).get(attribute)
    if loaded is None:
        raise RegistryError(f'plugin "{path}": module {module_name} has no {attribute}')
    return checked_class(path, loaded)


def checked_class(name: str, loaded: object) -> type[Plugin]:
    if not inspect.isclass(loaded) or Plugin not in loaded.__mro__:
        raise RegistryError(
            f'plugin "{name}" is not a class derived from kubesched.framework.interfaces.Plugin'
        )
    plugin = cast("type[Plugin]", loaded)
    if inspect.isabstract(plugin):
        missing = ", ".join(sorted(plugin.__abstractmethods__))
        raise RegistryError(f'plugin "{name}" does not implement {missing}')
    for kind, methods in _ONE_OF.items():
        if kind in plugin.__mro__ and not _defines_one(plugin, kind, methods):
            raise RegistryError(f'plugin "{name}" implements neither {" nor ".join(methods)}')
    own = getattr(plugin, "name", None)
    if not isinstance(own, str) or not own:
        raise RegistryError(f'plugin "{name}" has no name: set the class attribute `name`')
    if own in IN_TREE_PLUGINS and own != name and not plugin.__module__.startswith(_IN_TREE):
        raise RegistryError(f'plugin "{name}" has the name of a default plugin, {own}')
    return plugin


def _defines_one(plugin: type[Plugin], kind: type[Plugin], methods: Sequence[str]) -> bool:
    """True if the plugin, or a class between it and the interface, defines one of the methods."""
    below = plugin.__mro__[: plugin.__mro__.index(kind)]
    return any(method in vars(cls) for cls in below for method in methods)


def as_config_error(error: RegistryError) -> ConfigError:
    return ConfigError([FieldProblem("", str(error))])
