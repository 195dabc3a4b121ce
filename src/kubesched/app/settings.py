"""Merges the command line and the configuration file into a complete configuration.

Upstream's rules, exactly: with `--config` the deprecated flags are ignored and given
leader-election flags override the file; without it both kinds apply to the defaults. `--master` and
`--pod-max-in-unschedulable-pods-duration` always apply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kubesched.app.flag_parsing import CommandLine
from kubesched.app.flags import RunOptions, attribute, problems
from kubesched.base import logs
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.config import features
from kubesched.config.features import FeatureGates
from kubesched.config.load import default_config, load_file
from kubesched.config.types import KubeSchedulerConfiguration

_FILE_FIELDS = {
    "leader-elect": "leader_elect",
    "leader-elect-lease-duration": "lease_duration_s",
    "leader-elect-renew-deadline": "renew_deadline_s",
    "leader-elect-retry-period": "retry_period_s",
    "leader-elect-resource-lock": "resource_lock",
    "leader-elect-resource-name": "resource_name",
    "leader-elect-resource-namespace": "resource_namespace",
}

_CLIENT_FIELDS = {
    "kubeconfig": "kubeconfig",
    "kube-api-content-type": "content_type",
    "kube-api-qps": "qps",
    "kube-api-burst": "burst",
}

IGNORED_WITH_FILE = (*_CLIENT_FIELDS, "profiling", "contention-profiling")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The complete settings of a scheduler process."""

    options: RunOptions
    config: KubeSchedulerConfiguration
    gates: FeatureGates
    ignored_flags: tuple[str, ...] = ()
    """Flags that were given but are ignored because there is a file."""


def complete(line: CommandLine, gates: FeatureGates) -> RunSettings:
    """Apply the flags to the file, or to the defaults.

    Raises:
        ConfigError: with everything wrong in flags or file.
    """
    invalid = list(problems(line.options))
    if invalid:
        raise ConfigError(invalid)
    options = line.options
    if options.config:
        config = load_file(
            options.config, gates, adjust=lambda read: _with_leader_election(read, line)
        )
        ignored = tuple(name for name in IGNORED_WITH_FILE if name in line.given)
    else:
        # Upstream: what flags do to the defaults is not validated again; timings that no elector
        # accepts are found out when it is made.
        config = _with_leader_election(_with_deprecated(default_config(gates), line), line)
        ignored = ()
    return RunSettings(options=options, config=config, gates=gates, ignored_flags=ignored)


def _with_leader_election(
    config: KubeSchedulerConfiguration, line: CommandLine
) -> KubeSchedulerConfiguration:
    return replace(
        config, leader_election=replace(config.leader_election, **_given(line, _FILE_FIELDS))
    )


def _with_deprecated(
    config: KubeSchedulerConfiguration, line: CommandLine
) -> KubeSchedulerConfiguration:
    options, given = line.options, line.given
    connection = replace(config.client_connection, **_given(line, _CLIENT_FIELDS))
    config = replace(config, client_connection=connection)
    if "profiling" in given:
        config = replace(config, enable_profiling=options.profiling)
    if "contention-profiling" in given:
        config = replace(config, enable_contention_profiling=options.contention_profiling)
    return config


def _given(line: CommandLine, names: dict[str, str]) -> dict[str, Any]:
    """The flags among `names` that were given, as fields of a configuration record."""
    return {
        target: getattr(line.options, attribute(name))
        for name, target in names.items()
        if name in line.given
    }


def log_settings(options: RunOptions, gates: FeatureGates) -> logs.LogSettings:
    """How to log.

    Raises:
        ConfigError: with upstream's wording.
    """
    is_json = options.logging_format == "json"
    invalid: list[FieldProblem] = []
    if options.logging_format not in ("text", "json"):
        invalid.append(
            FieldProblem(
                "format", f'Invalid value: "{options.logging_format}": Unsupported log format'
            )
        )
    alpha = gates.enabled("LoggingAlphaOptions")
    for name, form, wanted in (
        ("splitStream", "text", options.log_text_split_stream),
        ("infoBufferSize", "text", options.log_text_info_buffer_size),
        ("splitStream", "json", options.log_json_split_stream),
        ("infoBufferSize", "json", options.log_json_info_buffer_size),
    ):
        path = f"options.{form}.{name}"
        if wanted and not alpha:
            invalid.append(FieldProblem(path, "Forbidden: Feature LoggingAlphaOptions is disabled"))
        elif wanted and name == "infoBufferSize":
            invalid.append(FieldProblem(path, "this program writes each line at once"))
    if options.vmodule and is_json:
        invalid.append(FieldProblem("vmodule", "Forbidden: Only supported for text log format"))
    if invalid:
        raise ConfigError(invalid)
    split = options.log_json_split_stream if is_json else options.log_text_split_stream
    return logs.LogSettings(
        format=logs.Format.JSON if is_json else logs.Format.TEXT,
        verbosity=options.v,
        vmodule=logs.parse_vmodule(options.vmodule),
        split_stream=split,
    )


def feature_gates(options: RunOptions) -> FeatureGates:
    """The gates the command line asks for."""
    return features.from_flags(
        options.feature_gates,
        options.reference_version,
        options.emulated_version,
        options.min_compatibility_version,
    )
