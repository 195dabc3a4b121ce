"""Arguments common to the Trimaran plugins, in the spelling of `kubescheduler.config.k8s.io/v1`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

METRICS_SERVER: Final = "KubernetesMetricsServer"
PROMETHEUS: Final = "Prometheus"


def _check_address(field: str, address: str) -> None:
    if address and urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(f"{field}: must be an http or https URL, got {address!r}")


@dataclass(frozen=True)
class MetricProvider:
    """Where metrics come from if there is no load watcher service."""

    type: str = ""
    address: str = ""
    token: str = ""
    insecure_skip_verify: bool | None = None

    def __post_init__(self) -> None:
        _check_address("metricProvider.address", self.address)


@dataclass(frozen=True, kw_only=True)
class TrimaranArgs:
    """The source of the metrics: a load watcher service, or a provider asked directly."""

    api_version: str = ""
    kind: str = ""
    metric_provider: MetricProvider = MetricProvider()
    watcher_address: str | None = None

    def __post_init__(self) -> None:
        provider = self.metric_provider
        if self.watcher_address is None and not provider.type:
            provider = replace(provider, type=METRICS_SERVER)
        if provider.type == PROMETHEUS and provider.insecure_skip_verify is None:
            provider = replace(provider, insecure_skip_verify=True)
        self._set("metric_provider", provider)
        _check_address("watcherAddress", self.watcher_address or "")
        if not self.watcher_address and provider.type not in (METRICS_SERVER, PROMETHEUS):
            raise ValueError(f"invalid MetricProvider.Type, got {provider.type}")

    def _set(self, name: str, value: object) -> None:
        """Fills in a default that depends on other values."""
        object.__setattr__(self, name, value)
