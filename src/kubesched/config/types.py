"""`kubescheduler.config.k8s.io/v1` as frozen records, both for decoding and for internal use.

A field missing from a file has its default here, which `defaults` completes. Field names are those
of `KubeSchedulerConfiguration` in Python spelling; durations are seconds and have a suffix that
says so. Fields that Go omits when empty are marked `OMIT_EMPTY`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from kubesched.api.yaml_nodes import Plain
from kubesched.config.plugin_args import PluginArgs
from kubesched.config.schema import (
    OMIT_EMPTY,
    Codec,
    Int32,
    Int64,
    RawArgs,
    Seconds,
    encode,
    read_raw,
)

GROUP = "kubescheduler.config.k8s.io"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "KubeSchedulerConfiguration"

_Text = Annotated[str, OMIT_EMPTY]
_Flag = Annotated[bool, OMIT_EMPTY]

DEFAULT_SCHEDULER_NAME = "default-scheduler"


class ExtensionPoint(Enum):
    """Extension points; the value is the key under `plugins` in the file.

    Members are in the order in which upstream builds its framework, which decides the first error.
    """

    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    RESERVE = "reserve"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"
    PERMIT = "permit"
    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    POD_GROUP_POST_FILTER = "podGroupPostFilter"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"

    @property
    def attribute(self) -> str:
        """The field of `Plugins`: `pre_filter`."""
        return self.name.lower()

    @property
    def plugin_type(self) -> str:
        """Upstream's interface name, as used in error messages: `PreFilterPlugin`."""
        return f"{self.value[0].upper()}{self.value[1:]}Plugin"


POINTS_IN_ORDER_OF_USE = (
    ExtensionPoint.PRE_ENQUEUE,
    ExtensionPoint.QUEUE_SORT,
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.POST_FILTER,
    ExtensionPoint.POD_GROUP_POST_FILTER,
    ExtensionPoint.PRE_SCORE,
    ExtensionPoint.SCORE,
    ExtensionPoint.RESERVE,
    ExtensionPoint.PERMIT,
    ExtensionPoint.PRE_BIND,
    ExtensionPoint.BIND,
    ExtensionPoint.POST_BIND,
    ExtensionPoint.PLACEMENT_GENERATE,
    ExtensionPoint.PLACEMENT_SCORE,
)
"""The order in which a pod passes them, for display."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin in an enabled or disabled list; weight 0 means unset."""

    name: str = ""
    weight: Int32 = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """Plugins enabled and disabled at one point, in order."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """The plugin lists of a profile, MultiPoint not yet expanded."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()

    def at(self, point: ExtensionPoint) -> PluginSet:
        plugin_set: PluginSet = getattr(self, point.attribute)
        return plugin_set

    def enabled_names(self) -> Iterator[str]:
        """Every name enabled anywhere, MultiPoint first; may contain duplicates."""
        for plugin_set in (self.multi_point, *(self.at(point) for point in ExtensionPoint)):
            for plugin in plugin_set.enabled:
                yield plugin.name


Args = PluginArgs | RawArgs | None
"""A record of `plugin_args`, or raw data for a third-party plugin."""


def _write_args(args: PluginArgs | RawArgs) -> Plain:
    if isinstance(args, RawArgs):
        return args.value
    return {"apiVersion": API_VERSION, "kind": type(args).__name__, **encode(args)}


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """Arguments of one plugin, read as raw data; `load` converts those of in-tree plugins."""

    name: str = ""
    args: Annotated[Args, Codec(read_raw, _write_args)] = None


@dataclass(frozen=True, slots=True)
class Shadow:
    """An extension of ours: the profile decides beside another one and never acts."""

    of: str = ""
    """The scheduler name of the live profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerProfile:
    """How pods that name this scheduler are scheduled."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: Int32 | None = None
    """None: the global value applies. 0: adaptive, regardless of the global value."""
    plugins: Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()
    shadow: Shadow | None = None
    """None: a live profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfiguration:
    """Leader election among replicas, through a Lease."""

    leader_elect: bool = True
    lease_duration_s: Seconds = field(default=15.0, metadata={"name": "leaseDuration"})
    renew_deadline_s: Seconds = field(default=10.0, metadata={"name": "renewDeadline"})
    retry_period_s: Seconds = field(default=2.0, metadata={"name": "retryPeriod"})
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnectionConfiguration:
    """Connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    """Requests per second; negative disables the limit."""
    burst: Int32 = 100


@dataclass(frozen=True, slots=True)
class ExtenderManagedResource:
    """An extended resource managed by an extender."""

    name: str = ""
    ignored_by_scheduler: _Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTLSConfig:
    """TLS settings for an extender; the `_data` fields take precedence over the files."""

    insecure: _Flag = False
    server_name: _Text = ""
    cert_file: _Text = ""
    key_file: _Text = ""
    ca_file: _Text = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""

    def __repr__(self) -> str:
        # Keeps key material out of logs.
        return f"ExtenderTLSConfig(server_name={self.server_name!r}, insecure={self.insecure})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """An HTTP extender; it does not take part in steps whose verb is empty."""

    url_prefix: str = ""
    filter_verb: _Text = ""
    preempt_verb: _Text = ""
    prioritize_verb: _Text = ""
    weight: Annotated[Int64, OMIT_EMPTY] = 0
    bind_verb: _Text = ""
    enable_https: _Flag = field(default=False, metadata={"name": "enableHTTPS"})
    tls_config: ExtenderTLSConfig | None = None
    http_timeout_s: Seconds = field(default=0.0, metadata={"name": "httpTimeout"})
    """Seconds for a whole request; 0 means the default of 5."""
    node_cache_capable: _Flag = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: _Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerConfiguration:
    """The whole configuration of a scheduler process."""

    api_version: str = API_VERSION
    kind: str = KIND
    parallelism: Int32 = 16
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Int32 = 100
    """0: upstream's adaptive sampling, which is also upstream's default.

    This scheduler does not need to sample, so by default every node is evaluated.
    """
    pod_initial_backoff_seconds: Int64 = 1
    pod_max_backoff_seconds: Int64 = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: _Flag = False

    @property
    def has_shadows(self) -> bool:
        return any(profile.shadow is not None for profile in self.profiles)
