"""MultiPoint expansion: which plugins run at which point, in which order, with which weight.

A pure function of a profile's plugin lists and of what each plugin implements. The framework calls
it with the real classes, `config view` with the table of `default_plugins`.

    explicit list of the point, checked
      + MultiPoint plugins that implement the point, unless disabled there
      = overrides (in both, in explicit order), then MultiPoint's, then the other explicit ones

Errors have upstream's texts. Upstream stops at the first; here all are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config.defaults import ALL
from kubesched.config.legacy import plugin_hint
from kubesched.config.types import ExtensionPoint, KubeSchedulerProfile, Plugin, Plugins

MAX_NODE_SCORE = 100
MAX_TOTAL_SCORE = 2**63 - 1

Implements = Callable[[str, ExtensionPoint], bool | None]
"""Whether the named plugin implements a point; None if there is no such plugin.

May raise `ConfigError` if the plugin cannot be loaded.
"""


@dataclass(frozen=True, slots=True)
class ExpandedPlugins:
    """Expanded plugins: names in order by point, and the weights of score plugins."""

    by_point: Mapping[ExtensionPoint, tuple[str, ...]]
    score_weights: Mapping[str, int]
    placement_score_weights: Mapping[str, int]

    def at(self, point: ExtensionPoint) -> tuple[str, ...]:
        return self.by_point[point]

    def weighted(self, point: ExtensionPoint) -> tuple[Plugin, ...]:
        """The plugins of a point with their weights; 0 where weights do not apply."""
        weights: Mapping[str, int] = {}
        if point is ExtensionPoint.SCORE:
            weights = self.score_weights
        elif point is ExtensionPoint.PLACEMENT_SCORE:
            weights = self.placement_score_weights
        return tuple(Plugin(name, weights.get(name, 0)) for name in self.by_point[point])


def expand(
    profile: KubeSchedulerProfile, implements: Implements, path: str = ""
) -> ExpandedPlugins:
    """Expands the profile's plugins; `path` locates the profile in error messages.

    Raises:
        ConfigError: with every problem.
    """
    plugins = profile.plugins or Plugins()
    expansion = _Expansion(plugins, implements, f"{path}.plugins" if path else "plugins")
    expanded = expansion.run()
    problems = [*_repeated_config(profile, path), *expansion.problems]
    if not expansion.problems:
        # Counts are meaningful only once every named plugin is accepted.
        problems += _counts(expanded, profile.scheduler_name, expansion.path)
    if problems:
        raise ConfigError(problems)
    return expanded


def expand_profiles(
    profiles: Sequence[KubeSchedulerProfile], implements: Implements
) -> tuple[tuple[ExpandedPlugins, ...], list[FieldProblem]]:
    """Expands every profile; returns the plugins and the problems.

    With problems, the first part is incomplete.
    """
    expanded: list[ExpandedPlugins] = []
    problems: list[FieldProblem] = []
    for index, profile in enumerate(profiles):
        try:
            expanded.append(expand(profile, implements, f"profiles[{index}]"))
        except ConfigError as error:
            problems += error.problems
    if not problems:
        problems += profile_problems(profiles, expanded)
    return tuple(expanded), problems


def profile_problems(
    profiles: Sequence[KubeSchedulerProfile], expanded: Sequence[ExpandedPlugins]
) -> Iterator[FieldProblem]:
    """Problems across profiles, and missing requirements of a profile.

    `expanded` holds the expansion of each profile, in the same order.
    """
    seen: set[str] = set()
    sorter, sorter_args = "", None
    for index, (profile, plugins) in enumerate(zip(profiles, expanded, strict=True)):
        path, name = f"profiles[{index}]", profile.scheduler_name
        own_sorter = next(iter(plugins.at(ExtensionPoint.QUEUE_SORT)), "")
        own_args = _args_of(profile, own_sorter)
        if index == 0:
            sorter, sorter_args = own_sorter, own_args
        if not name:
            yield FieldProblem(f"{path}.schedulerName", "scheduler name is needed")
        elif profile.plugins is None:
            yield FieldProblem(path, f'plugins required for profile with scheduler name "{name}"')
        elif name in seen:
            yield FieldProblem(
                f"{path}.schedulerName", f'duplicate profile with scheduler name "{name}"'
            )
        elif own_sorter != sorter:
            yield FieldProblem(
                f"{path}.plugins.queueSort",
                f'different queue sort plugins for profile "{name}": '
                f'"{own_sorter}", first: "{sorter}"',
            )
        elif own_args != sorter_args:
            yield FieldProblem(
                f"{path}.pluginConfig", f'different queue sort plugin args for profile "{name}"'
            )
        seen.add(name)


def _args_of(profile: KubeSchedulerProfile, plugin: str) -> object:
    return next((entry.args for entry in profile.plugin_config if entry.name == plugin), None)


def _repeated_config(profile: KubeSchedulerProfile, path: str) -> Iterator[FieldProblem]:
    seen = set()
    for index, entry in enumerate(profile.plugin_config):
        if entry.name in seen:
            where = f"pluginConfig[{index}]"
            yield FieldProblem(
                f"{path}.{where}" if path else where, f"repeated config for plugin {entry.name}"
            )
        seen.add(entry.name)


class _Expansion:
    """One profile; collects problems instead of stopping."""

    def __init__(self, plugins: Plugins, implements: Implements, path: str) -> None:
        self.path = path
        self.problems: list[FieldProblem] = []
        self._plugins = plugins
        self._capabilities = {
            name: _capabilities(name, implements) for name in set(plugins.enabled_names())
        }

    def run(self) -> ExpandedPlugins:
        explicit = {point: self._explicit(point) for point in ExtensionPoint}
        multi_point = self._multi_point()
        by_point = {
            point: self._combined(point, explicit[point], multi_point) for point in ExtensionPoint
        }
        return ExpandedPlugins(
            by_point,
            self._weights(ExtensionPoint.SCORE, "score plugins"),
            self._weights(ExtensionPoint.PLACEMENT_SCORE, "placement score plugins"),
        )

    def _explicit(self, point: ExtensionPoint) -> tuple[str, ...]:
        """The point's own list; invalid entries are reported and left out."""
        names: list[str] = []
        for index, plugin in enumerate(self._plugins.at(point).enabled):
            where = f"{self.path}.{point.value}.enabled[{index}]"
            if not self._exists(plugin.name, point, where):
                continue
            if not self._can(plugin.name, point):
                self._report(
                    where, f'plugin "{plugin.name}" does not extend {point.plugin_type} plugin'
                )
            elif plugin.name in names:
                self._report(where, _already(plugin.name, point))
            else:
                names.append(plugin.name)
        return tuple(names)

    def _multi_point(self) -> tuple[tuple[int, str], ...]:
        """MultiPoint's list with indexes, without unknown names."""
        # Upstream: the complaint names the first point that is expanded.
        point = next(
            (candidate for candidate in ExtensionPoint if not self._closed(candidate)), None
        )
        if point is None:
            return ()
        return tuple(
            (index, plugin.name)
            for index, plugin in enumerate(self._plugins.multi_point.enabled)
            if self._exists(plugin.name, point, f"{self.path}.multiPoint.enabled[{index}]")
        )

    def _combined(
        self,
        point: ExtensionPoint,
        explicit: tuple[str, ...],
        multi_point: Iterable[tuple[int, str]],
    ) -> tuple[str, ...]:
        if self._closed(point):
            return explicit
        disabled = {plugin.name for plugin in self._plugins.at(point).disabled}
        overrides: set[str] = set()
        added: list[str] = []
        for index, name in multi_point:
            if not self._can(name, point) or name in disabled:
                continue
            if name in explicit:
                overrides.add(name)
            elif name in added:
                where = f"{self.path}.multiPoint.enabled[{index}]"
                self._report(where, _already(name, point))
            else:
                added.append(name)
        return (
            *(name for name in explicit if name in overrides),
            *added,
            *(name for name in explicit if name not in overrides),
        )

    def _weights(self, point: ExtensionPoint, what: str) -> Mapping[str, int]:
        """The point's own weight, else MultiPoint's, else 1; zero counts as unset.

        Upstream: plugins disabled at the point are counted too, and negative weights pass.
        """
        weights: dict[str, int] = {}
        total = 0
        for plugin in (*self._plugins.at(point).enabled, *self._plugins.multi_point.enabled):
            if plugin.name in weights or not self._can(plugin.name, point):
                continue
            weight = weights[plugin.name] = plugin.weight or 1
            if weight * MAX_NODE_SCORE > MAX_TOTAL_SCORE - total:
                self._report(
                    f"{self.path}.{point.value}",
                    f"{what}: total score of Score plugins could overflow",
                )
                break
            total += weight * MAX_NODE_SCORE
        return weights

    def _closed(self, point: ExtensionPoint) -> bool:
        return any(plugin.name == ALL for plugin in self._plugins.at(point).disabled)

    def _exists(self, name: str, point: ExtensionPoint, where: str) -> bool:
        capabilities = self._capabilities[name]
        if capabilities is None:
            self._report(where, _missing(name, point))
        elif isinstance(capabilities, ConfigError):
            self._report(where, "; ".join(problem.message for problem in capabilities.problems))
        return isinstance(capabilities, frozenset)

    def _can(self, name: str, point: ExtensionPoint) -> bool:
        capabilities = self._capabilities[name]
        return isinstance(capabilities, frozenset) and point in capabilities

    def _report(self, path: str, message: str) -> None:
        # A duplicate in MultiPoint recurs at every point it implements: report it once.
        if not any(known.path == path for known in self.problems):
            self.problems.append(FieldProblem(path, message))


def _capabilities(
    name: str, implements: Implements
) -> frozenset[ExtensionPoint] | ConfigError | None:
    """The points a plugin implements, None if it does not exist, or why it cannot be loaded."""
    try:
        answers = {point: implements(name, point) for point in ExtensionPoint}
    except ConfigError as error:
        return error
    if None in answers.values():
        return None
    return frozenset(point for point, able in answers.items() if able)


def _missing(name: str, point: ExtensionPoint) -> str:
    hint = plugin_hint(name)
    return f'{point.plugin_type} "{name}" does not exist' + (f"; {hint}" if hint else "")


def _already(name: str, point: ExtensionPoint) -> str:
    return f'plugin "{name}" already registered as "{point.plugin_type}"'


def _counts(expanded: ExpandedPlugins, scheduler_name: str, path: str) -> Iterator[FieldProblem]:
    profile = f'for profile with scheduler name "{scheduler_name}"'
    sorters = len(expanded.at(ExtensionPoint.QUEUE_SORT))
    if sorters != 1:
        yield FieldProblem(
            f"{path}.queueSort",
            f"only one queue sort plugin required {profile}, but got {sorters}",
        )
    if not expanded.at(ExtensionPoint.BIND):
        yield FieldProblem(f"{path}.bind", f"at least one bind plugin is needed {profile}")
    if len(expanded.at(ExtensionPoint.PLACEMENT_GENERATE)) > 1:
        yield FieldProblem(
            f"{path}.placementGenerate",
            f"at most one placement generate plugin is allowed {profile}",
        )
