"""Between the file's records (`v1`) and the program's (`types`), both ways.

Towards `types`, what the file leaves out takes the default written there; plugin lists stay as the
user wrote them until `defaults` merges them. Back to `v1`, everything is spelled out the way
kube-scheduler writes its configuration for `--write-config-to` and `/configz`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubesched.config import types, v1
from kubesched.config.plugin_args import PluginArgs
from kubesched.config.schema import RawArgs, encode
from kubesched.config.yaml_nodes import Plain

Args = PluginArgs | RawArgs | None
ReadArgs = Callable[[str, str, RawArgs | None], Args]
"""Gives arguments their type: takes the path of a pluginConfig entry, the plugin, the raw data."""


def from_v1(
    file: v1.KubeSchedulerConfiguration, read_args: ReadArgs
) -> types.KubeSchedulerConfiguration:
    """What a file says, as internal types."""
    profiles = file.profiles or (v1.KubeSchedulerProfile(),)
    contention = file.enable_contention_profiling
    if contention is None and file.enable_profiling is False:
        contention = False
    return types.KubeSchedulerConfiguration(
        leader_election=_leader_election(file.leader_election),
        client_connection=_client_connection(file.client_connection),
        profiles=tuple(
            _profile(profile, f"profiles[{index}]", read_args, alone=len(profiles) == 1)
            for index, profile in enumerate(profiles)
        ),
        extenders=tuple(_extender(extender) for extender in file.extenders),
        delay_cache_until_active=file.delay_cache_until_active,
        **_given(
            parallelism=file.parallelism,
            enable_profiling=file.enable_profiling,
            enable_contention_profiling=contention,
            percentage_of_nodes_to_score=file.percentage_of_nodes_to_score,
            pod_initial_backoff_seconds=file.pod_initial_backoff_seconds,
            pod_max_backoff_seconds=file.pod_max_backoff_seconds,
        ),
    )


def _given(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _leader_election(file: v1.LeaderElectionConfiguration) -> types.LeaderElectionConfiguration:
    # Zero durations and empty names count as absent.
    return types.LeaderElectionConfiguration(
        **_given(
            leader_elect=file.leader_elect,
            lease_duration_s=file.lease_duration_s or None,
            renew_deadline_s=file.renew_deadline_s or None,
            retry_period_s=file.retry_period_s or None,
            resource_lock=file.resource_lock or None,
            resource_name=file.resource_name or None,
            resource_namespace=file.resource_namespace or None,
        )
    )


def _client_connection(
    file: v1.ClientConnectionConfiguration,
) -> types.ClientConnectionConfiguration:
    return types.ClientConnectionConfiguration(
        kubeconfig=file.kubeconfig,
        accept_content_types=file.accept_content_types,
        **_given(
            content_type=file.content_type or None, qps=file.qps or None, burst=file.burst or None
        ),
    )


def _profile(
    file: v1.KubeSchedulerProfile, path: str, read_args: ReadArgs, *, alone: bool
) -> types.KubeSchedulerProfile:
    name = file.scheduler_name
    if name is None:
        # With several profiles each must say its name; validation sees to it.
        name = types.DEFAULT_SCHEDULER_NAME if alone else ""
    return types.KubeSchedulerProfile(
        scheduler_name=name,
        percentage_of_nodes_to_score=file.percentage_of_nodes_to_score,
        plugins=None if file.plugins is None else _plugins(file.plugins),
        plugin_config=tuple(
            types.PluginConfig(
                entry.name, read_args(f"{path}.pluginConfig[{index}]", entry.name, entry.args)
            )
            for index, entry in enumerate(file.plugin_config)
        ),
    )


def _plugins(file: v1.Plugins) -> types.Plugins:
    return types.Plugins(
        **{
            name: types.PluginSet(_plugin_list(given.enabled), _plugin_list(given.disabled))
            for name in v1.Plugins.__struct_fields__
            for given in (getattr(file, name),)
        }
    )


def _plugin_list(file: tuple[v1.Plugin, ...]) -> tuple[types.Plugin, ...]:
    return tuple(types.Plugin(plugin.name, plugin.weight or 0) for plugin in file)


def _extender(file: v1.Extender) -> types.Extender:
    return types.Extender(
        **{
            **_attributes(file),
            "tls_config": file.tls_config
            and types.ExtenderTLSConfig(**_attributes(file.tls_config)),
            "managed_resources": tuple(
                types.ExtenderManagedResource(resource.name, resource.ignored_by_scheduler)
                for resource in file.managed_resources
            ),
        }
    )


# -- to the file's records ------------------------------------------------------------------------


def to_plain(config: types.KubeSchedulerConfiguration) -> dict[str, Plain]:
    """The configuration as plain data, ready to be written as YAML or JSON."""
    return encode(to_v1(config))


def to_v1(config: types.KubeSchedulerConfiguration) -> v1.KubeSchedulerConfiguration:
    """The configuration as a file would say it."""
    return v1.KubeSchedulerConfiguration(
        api_version=v1.API_VERSION,
        kind=v1.KIND,
        parallelism=config.parallelism,
        leader_election=_same(v1.LeaderElectionConfiguration, config.leader_election),
        client_connection=_same(v1.ClientConnectionConfiguration, config.client_connection),
        enable_profiling=config.enable_profiling,
        enable_contention_profiling=config.enable_contention_profiling,
        percentage_of_nodes_to_score=config.percentage_of_nodes_to_score,
        pod_initial_backoff_seconds=config.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=config.pod_max_backoff_seconds,
        profiles=tuple(_profile_to_v1(profile) for profile in config.profiles),
        extenders=tuple(_extender_to_v1(extender) for extender in config.extenders),
        delay_cache_until_active=config.delay_cache_until_active,
    )


def _profile_to_v1(profile: types.KubeSchedulerProfile) -> v1.KubeSchedulerProfile:
    return v1.KubeSchedulerProfile(
        scheduler_name=profile.scheduler_name,
        percentage_of_nodes_to_score=profile.percentage_of_nodes_to_score,
        plugins=None if profile.plugins is None else _plugins_to_v1(profile.plugins),
        plugin_config=tuple(
            v1.PluginConfig(name=entry.name, args=_args_to_v1(entry.args))
            for entry in profile.plugin_config
        ),
    )


def _plugins_to_v1(plugins: types.Plugins) -> v1.Plugins:
    def as_written(listed: tuple[types.Plugin, ...]) -> tuple[v1.Plugin, ...]:
        return tuple(v1.Plugin(name=plugin.name, weight=plugin.weight) for plugin in listed)

    return v1.Plugins(
        **{
            name: v1.PluginSet(
                enabled=as_written(given.enabled), disabled=as_written(given.disabled)
            )
            for name in v1.Plugins.__struct_fields__
            for given in (getattr(plugins, name),)
        }
    )


def _args_to_v1(args: Args) -> RawArgs | None:
    if isinstance(args, PluginArgs):
        kind = type(args).__name__
        return RawArgs({"apiVersion": v1.API_VERSION, "kind": kind, **encode(args)})
    return args


def _extender_to_v1(extender: types.Extender) -> v1.Extender:
    return v1.Extender(
        **{
            **_attributes(extender),
            "tls_config": extender.tls_config and _same(v1.ExtenderTLSConfig, extender.tls_config),
            "managed_resources": tuple(
                _same(v1.ExtenderManagedResource, resource)
                for resource in extender.managed_resources
            ),
        }
    )


def _attributes(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a struct or a slotted dataclass
    names: tuple[str, ...] = getattr(record, "__struct_fields__", ()) or record.__slots__
    return {name: getattr(record, name) for name in names}


def _same(record: Any, source: object) -> Any:  # noqa: ANN401 - whichever record the caller names
    """A record that has the same fields as its source."""
    return record(**_attributes(source))
