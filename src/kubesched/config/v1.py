"""`kubescheduler.config.k8s.io/v1` as users write it.

Optional fields are None when the file does not have them, so that defaulting can tell "not said"
from "said zero". Fields that Go always writes are plain; those it leaves out when empty carry
`OMIT_EMPTY`. Arguments of plugins are raw here; `load` gives them their type.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from kubesched.api.meta import Record
from kubesched.config.schema import OMIT_EMPTY, Int32, Int64, RawArgs, Seconds

GROUP = "kubescheduler.config.k8s.io"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "KubeSchedulerConfiguration"

_Text = Annotated[str, OMIT_EMPTY]
_Flag = Annotated[bool, OMIT_EMPTY]


class Plugin(Record):
    """A plugin's name and, for scoring, its weight."""

    name: str = ""
    weight: Int32 | None = None


class PluginSet(Record):
    """Additions to and removals from the plugins of a point; `*` disables all defaults."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Plugins(Record):
    """The lists of a profile, by extension point."""

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


class PluginConfig(Record):
    """Arguments for one plugin, of any shape."""

    name: str = ""
    args: RawArgs | None = None


class KubeSchedulerProfile(Record):
    """A way of scheduling, chosen by a pod's `spec.schedulerName`."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: Plugins | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class LeaderElectionConfiguration(Record):
    """Leader election by Lease."""

    leader_elect: bool | None = None
    lease_duration_s: Seconds = field(default=0.0, name="leaseDuration")
    renew_deadline_s: Seconds = field(default=0.0, name="renewDeadline")
    retry_period_s: Seconds = field(default=0.0, name="retryPeriod")
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnectionConfiguration(Record):
    """The connection to the API server."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: float = 0.0
    burst: Int32 = 0


class ExtenderManagedResource(Record):
    """An extended resource that an extender looks after."""

    name: str = ""
    ignored_by_scheduler: _Flag = False


class ExtenderTLSConfig(Record):
    """TLS towards an extender."""

    insecure: _Flag = False
    server_name: _Text = ""
    cert_file: _Text = ""
    key_file: _Text = ""
    ca_file: _Text = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class Extender(Record):
    """An HTTP service that takes part in scheduling."""

    url_prefix: str = ""
    filter_verb: _Text = ""
    preempt_verb: _Text = ""
    prioritize_verb: _Text = ""
    weight: Annotated[Int64, OMIT_EMPTY] = 0
    bind_verb: _Text = ""
    enable_https: _Flag = field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLSConfig | None = None
    http_timeout_s: Seconds = field(default=0.0, name="httpTimeout")
    node_cache_capable: _Flag = False
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: _Flag = False


class KubeSchedulerConfiguration(Record):
    """The file."""

    api_version: str = ""
    kind: str = ""
    parallelism: Int32 | None = None
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: _Flag = False
