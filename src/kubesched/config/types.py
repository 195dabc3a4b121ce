"""The configuration as the rest of the program reads it: complete, checked, frozen.

Every optional field of the file has its value here (see `defaults`), except where absence itself
means something. Field names are those of `KubeSchedulerConfiguration` v1 in Python spelling;
durations are seconds and say so in their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from kubesched.config.plugin_args import PluginArgs
from kubesched.config.schema import RawArgs

DEFAULT_SCHEDULER_NAME = "default-scheduler"


class ExtensionPoint(Enum):
    """Where plugins can be enabled; the value is the key under `plugins` in the file.

    Members stand in the order in which upstream builds its framework, which decides whose error is
    reported first.
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
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"

    @property
    def attribute(self) -> str:
        """The field of `Plugins`: `pre_filter`."""
        return self.name.lower()

    @property
    def plugin_type(self) -> str:
        """Upstream's interface name, as error messages quote it: `PreFilterPlugin`."""
        return f"{self.value[0].upper()}{self.value[1:]}Plugin"


POINTS_IN_ORDER_OF_USE = (
    ExtensionPoint.PRE_ENQUEUE,
    ExtensionPoint.QUEUE_SORT,
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.POST_FILTER,
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
"""How a pod meets them; for people."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin in an enabled or disabled list; weight 0 means none was given."""

    name: str
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What is enabled and disabled at one point, in order."""

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

    def at(self, point: ExtensionPoint) -> PluginSet:
        plugin_set: PluginSet = getattr(self, point.attribute)
        return plugin_set

    def enabled_names(self) -> Iterator[str]:
        """Every name enabled anywhere, MultiPoint first; a name may come several times."""
        for plugin_set in (self.multi_point, *(self.at(point) for point in ExtensionPoint)):
            for plugin in plugin_set.enabled:
                yield plugin.name


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """Arguments for one plugin: a record of `plugin_args`, or raw data for a third-party plugin."""

    name: str
    args: PluginArgs | RawArgs | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerProfile:
    """How pods that name this scheduler are scheduled."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    """None: the global value applies. 0: adaptive, whatever the global value."""
    plugins: Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionConfiguration:
    """Who of several replicas works, decided through a Lease."""

    leader_elect: bool = True
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnectionConfiguration:
    """How the API server is talked to."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    """Requests per second; negative switches the limit off."""
    burst: int = 100


@dataclass(frozen=True, slots=True)
class ExtenderManagedResource:
    """An extended resource that an extender looks after."""

    name: str
    ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderTLSConfig:
    """TLS towards an extender; the `_data` fields win over the files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""

    def __repr__(self) -> str:
        # Key material stays out of logs.
        return f"ExtenderTLSConfig(server_name={self.server_name!r}, insecure={self.insecure})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """An HTTP extender; an empty verb means that it does not take part in that step."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = False
    tls_config: ExtenderTLSConfig | None = None
    http_timeout_s: float = 0.0
    """Seconds for a whole request; 0 means the default of 5."""
    node_cache_capable: bool = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSchedulerConfiguration:
    """The whole configuration of a scheduler process."""

    parallelism: int = 16
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int = 100
    """0: upstream's adaptive sampling, which it also fills in when nothing is set.

    This scheduler does not need to sample, so by default every node is evaluated.
    """
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
