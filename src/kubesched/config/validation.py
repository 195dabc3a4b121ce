"""Static checks of a complete configuration; reports every problem.

Paths and texts are upstream's. `expansion` checks what depends on the framework (a named plugin
exists, exactly one sorts the queue).

Upstream: the validator of NodeResourcesFit is registered under a name that no plugin has, so its
arguments are first checked when the plugin is built, and the message then starts with `initializing
plugin "NodeResourcesFit"`. `validate` skips them as well; `validate_start`, which `config validate`
also runs, reports them.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from kubesched.api import times
from kubesched.api.names import label_key_problems
from kubesched.api.resources import is_extended
from kubesched.base.errors import FieldProblem
from kubesched.config.defaults import ignored_by_extenders
from kubesched.config.features import FeatureGates
from kubesched.config.field_problems import duplicate, forbidden, invalid, required
from kubesched.config.legacy import plugin_hint
from kubesched.config.plugin_args import ARGS_BY_PLUGIN, NodeResourcesFitArgs, PluginArgs
from kubesched.config.plugin_args_validation import validate_args
from kubesched.config.schema import RawArgs, encode
from kubesched.config.types import (
    API_VERSION,
    VERSION,
    Extender,
    ExtensionPoint,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    LeaderElectionConfiguration,
    Plugin,
    PluginConfig,
    PluginSet,
)

REMOVED_PLUGINS = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
"""Plugins that the v1 API once had."""

ELECTION_JITTER = 1.2
"""The renew deadline must exceed this many retry periods, or a leader could not keep its lease."""

_FIT = "NodeResourcesFit"
Problems = Iterator[FieldProblem]


def validate_start(config: KubeSchedulerConfiguration, gates: FeatureGates) -> Problems:
    """Problems of a valid configuration that would prevent the scheduler from starting."""
    election = config.leader_election
    if (
        election.leader_elect
        and election.renew_deadline_s <= ELECTION_JITTER * election.retry_period_s
    ):
        yield invalid(
            "leaderElection.renewDeadline",
            times.format_duration(election.renew_deadline_s),
            "renewDeadline must be greater than retryPeriod*JitterFactor "
            f"({times.format_duration(election.retry_period_s)} * {ELECTION_JITTER})",
        )
    for index, extender in enumerate(config.extenders):
        if not _is_http_url(extender.url_prefix):
            yield invalid(
                f"extenders[{index}].urlPrefix",
                extender.url_prefix,
                "must be an http or https URL with a host",
            )
        tls = extender.tls_config
        if tls is not None and tls.insecure and (tls.ca_file or tls.ca_data):
            yield invalid(
                f"extenders[{index}].tlsConfig.insecure",
                True,
                "specifying a root certificates file with the insecure flag is not allowed",
            )
    ignored = ignored_by_extenders(config.extenders)
    for index, profile in enumerate(config.profiles):
        if ignored and not any(entry.name == _FIT for entry in profile.plugin_config):
            yield FieldProblem(
                f"profiles[{index}].pluginConfig",
                "can't find NodeResourcesFitArgs in plugin config",
            )
        for position, entry in enumerate(profile.plugin_config):
            if entry.name == _FIT and isinstance(entry.args, NodeResourcesFitArgs):
                path = f"profiles[{index}].pluginConfig[{position}].args"
                yield from validate_args(path, entry.args, gates)


def validate(config: KubeSchedulerConfiguration, gates: FeatureGates) -> Problems:
    """Every problem of the configuration, without positions."""
    if (burst := config.client_connection.burst) < 0:
        yield invalid("clientConnection.burst", burst, "must be non-negative")
    yield from _leader_election("leaderElection", config.leader_election)
    if config.parallelism <= 0:
        yield invalid(
            "parallelism", config.parallelism, "should be an integer value greater than zero"
        )
    if not config.profiles:
        yield required("profiles")
    else:
        yield from _profiles("profiles", config.profiles, gates)
        yield from _shadows("profiles", config, gates)
    yield from _percentage("percentageOfNodesToScore", config.percentage_of_nodes_to_score)
    initial, maximum = config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    if maximum < initial:
        yield invalid(
            "podMaxBackoffSeconds",
            maximum,
            "must be greater than or equal to PodInitialBackoffSeconds",
        )
    yield from _extenders("extenders", config.extenders)


def _leader_election(path: str, election: LeaderElectionConfiguration) -> Problems:
    if not election.leader_elect:
        return
    lease, renew = election.lease_duration_s, election.renew_deadline_s
    for name, seconds in (
        ("leaseDuration", lease),
        ("renewDeadline", renew),
        ("retryPeriod", election.retry_period_s),
    ):
        if seconds <= 0:
            yield invalid(
                f"{path}.{name}", times.format_duration(seconds), "must be greater than zero"
            )
    if lease <= renew:
        # Upstream: the path is the lease's, the value the deadline's.
        yield invalid(
            f"{path}.leaseDuration",
            times.format_duration(renew),
            "must be greater than `RenewDeadline`",
        )
    for name, value in (
        ("resourceLock", election.resource_lock),
        ("resourceNamespace", election.resource_namespace),
        ("resourceName", election.resource_name),
    ):
        if not value:
            yield required(f"{path}.{name}")
    if election.resource_lock != "leases":
        yield invalid(
            f"{path}.resourceLock", election.resource_lock, 'resourceLock value must be "leases"'
        )


def _percentage(path: str, percentage: int | None) -> Problems:
    if percentage is not None and not 0 <= percentage <= 100:
        yield invalid(path, percentage, "not in valid range [0-100]")


# -- profiles -------------------------------------------------------------------------------------


def _profiles(
    path: str, profiles: tuple[KubeSchedulerProfile, ...], gates: FeatureGates
) -> Problems:
    seen = set()
    for index, profile in enumerate(profiles):
        where = f"{path}[{index}]"
        if not profile.scheduler_name:
            yield required(f"{where}.schedulerName")
        yield from _percentage(
            f"{where}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score
        )
        yield from _removed_plugins(f"{where}.plugins", profile)
        yield from _plugin_config(f"{where}.pluginConfig", profile.plugin_config, gates)
        yield from _misnamed_config(f"{where}.pluginConfig", profile)
        if profile.scheduler_name in seen:
            # Upstream: the value shown is the path of the first one, which prints as empty.
            yield duplicate(f"{where}.schedulerName", {})
        seen.add(profile.scheduler_name)
    yield from _common_queue_sort(path, profiles)


def _shadows(path: str, config: KubeSchedulerConfiguration, gates: FeatureGates) -> Problems:
    """A shadow needs a live profile, and decides by plugins alone, one pod at a time."""
    live = [profile.scheduler_name for profile in config.profiles if profile.shadow is None]
    for index, profile in enumerate(config.profiles):
        if profile.shadow is None:
            continue
        where, of = f"{path}[{index}].shadow", profile.shadow.of
        if not of:
            yield required(f"{where}.of", "the scheduler name of the profile to decide beside")
        elif of not in live:
            detail = f"must name a profile without shadow: {', '.join(live) or 'there is none'}"
            yield invalid(f"{where}.of", of, detail)
        if config.extenders:
            yield forbidden(where, "a shadow does not ask extenders, so it cannot be compared")
        if gates.GenericWorkload:
            yield forbidden(where, "not implemented beside the feature gate GenericWorkload")


def _removed_plugins(path: str, profile: KubeSchedulerProfile) -> Problems:
    if profile.plugins is None:
        return
    # Upstream: multiPoint and the placement points are not looked at.
    unchecked = (ExtensionPoint.PLACEMENT_GENERATE, ExtensionPoint.PLACEMENT_SCORE)
    for point in ExtensionPoint:
        if point not in unchecked:
            for index, plugin in enumerate(profile.plugins.at(point).enabled):
                yield from _removed(f"{path}.{point.value}.enabled[{index}]", plugin.name)


def _removed(path: str, name: str) -> Problems:
    if name in REMOVED_PLUGINS:
        yield invalid(
            path,
            name,
            f'was invalid in version "{VERSION}" '
            f'(KubeSchedulerConfiguration is version "{API_VERSION}"); {plugin_hint(name)}',
        )


def _plugin_config(path: str, entries: tuple[PluginConfig, ...], gates: FeatureGates) -> Problems:
    seen = set()
    for index, entry in enumerate(entries):
        where = f"{path}[{index}]"
        if entry.name in seen:
            yield duplicate(where, entry.name)
        seen.add(entry.name)
        if entry.name in REMOVED_PLUGINS:
            yield from _removed(where, entry.name)
        elif entry.name in ARGS_BY_PLUGIN and entry.name != _FIT:
            if isinstance(entry.args, ARGS_BY_PLUGIN[entry.name]):
                yield from validate_args(f"{where}.args", entry.args, gates)
            else:
                yield invalid(f"{where}.args", _shown_args(entry), "has to match plugin args")


def _misnamed_config(path: str, profile: KubeSchedulerProfile) -> Problems:
    """Arguments under another name than the one under which the plugin is enabled.

    Arguments of plugins that are not enabled at all have no effect, as upstream; `lint` says so.
    """
    enabled = () if profile.plugins is None else tuple(profile.plugins.enabled_names())
    by_class = {name.rpartition(":")[2]: name for name in enabled}
    for index, entry in enumerate(profile.plugin_config):
        meant = by_class.get(entry.name.rpartition(":")[2])
        if meant is not None and entry.name not in (*enabled, *ARGS_BY_PLUGIN):
            yield invalid(
                f"{path}[{index}].name",
                entry.name,
                f'has no effect: the plugin is enabled as "{meant}"',
            )


def _common_queue_sort(path: str, profiles: tuple[KubeSchedulerProfile, ...]) -> Problems:
    """All profiles share one queue, so their queue sort plugins must agree."""
    first = _queue_sort(profiles[0])
    if len(first.enabled) > 1:
        yield invalid(
            f"{path}[0].plugins.queueSort.Enabled",
            len(first.enabled),
            "only one queue sort plugin can be enabled",
        )
    name = first.enabled[0].name if first.enabled else ""
    # Upstream: of several entries for the plugin the last one counts.
    args = None
    for entry in profiles[0].plugin_config:
        if name and entry.name == name:
            args = entry.args
    for index, profile in enumerate(profiles[1:], start=1):
        other = _queue_sort(profile)
        if other != first:
            yield invalid(
                f"{path}[{index}].plugins.queueSort",
                _shown_set(other),
                "must be the same for all profiles",
            )
        for entry in profile.plugin_config:
            if entry.name == name and entry.args != args:
                yield invalid(
                    f"{path}[{index}].pluginConfig.args",
                    _shown_args(entry),
                    "queueSort must be the same for all profiles",
                )


def _queue_sort(profile: KubeSchedulerProfile) -> PluginSet:
    return PluginSet() if profile.plugins is None else profile.plugins.queue_sort


def _shown_set(plugin_set: PluginSet) -> object:
    def listed(plugins: tuple[Plugin, ...]) -> object:
        return [{"Name": plugin.name, "Weight": plugin.weight} for plugin in plugins] or None

    return {"Enabled": listed(plugin_set.enabled), "Disabled": listed(plugin_set.disabled)}


def _shown_args(entry: PluginConfig) -> object:
    if isinstance(entry.args, PluginArgs):
        return encode(entry.args)
    return entry.args.value if isinstance(entry.args, RawArgs) else None


# -- extenders ------------------------------------------------------------------------------------


def _extenders(path: str, extenders: tuple[Extender, ...]) -> Problems:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        where = f"{path}[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(
                f"{where}.weight", extender.weight, "must have a positive weight applied to it"
            )
        for position, resource in enumerate(extender.managed_resources):
            name_path = f"{where}.managedResources[{position}].name"
            yield from _extended_resource(name_path, resource.name)
            if resource.name in managed:
                yield invalid(name_path, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        yield invalid(
            path,
            f"found {binders} extenders implementing bind",
            "only one extender can implement bind",
        )


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or too large
        return False


def _extended_resource(path: str, name: str) -> Problems:
    rules = label_key_problems(name)
    for rule in rules:
        yield invalid(path, name, rule)
    if not rules and not is_extended(name):
        yield invalid(path, name, "is an invalid extended resource name")
