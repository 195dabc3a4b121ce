"""PreEnqueue: the plugins that may keep a pod out of the queues before any attempt.

The verdict is stored in the entry: a pod is *gated* by the first plugin that rejects it, until
every plugin of its profile accepts. The caller decides which queue holds the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.base.clock import Clock
from kubesched.base.logs import get_logger
from kubesched.base.metrics import Histogram, SchedulerMetrics
from kubesched.framework.queued_pod import QueuedPodInfo
from kubesched.framework.status import Code, Status, code_of, error_status
from kubesched.scheduler.queue.hints import HintMap

log = get_logger(__name__)

PreEnqueueFn = Callable[[Pod], Status | None]

_POINT: Final = "PreEnqueue"
_NO_PLUGINS: Final[Mapping[str, PreEnqueueFn]] = {}


class PreEnqueueRunner:
    """Runs the PreEnqueue plugins of a pod's profile."""

    def __init__(
        self,
        plugins: Mapping[str, Mapping[str, PreEnqueueFn]],
        hints: HintMap,
        *,
        clock: Clock,
        random: Random,
        metrics: SchedulerMetrics,
        sample_percent: float,
    ) -> None:
        """`plugins` holds, per scheduler name, the plugins by name in call order."""
        self._plugins = plugins
        self._hints = hints
        self._now = clock.monotonic
        self._random = random
        self._metrics = metrics
        self._sample_percent = sample_percent
        self._durations: dict[str, Histogram] = {}

    def run(self, info: QueuedPodInfo) -> None:
        """Run plugins until one rejects; sets `info.is_gated`."""
        pod = info.pod_info.pod
        profile = pod.spec.scheduler_name
        is_sampled = self._random.random() * 100 < self._sample_percent
        started = self._now()
        plugins = self._plugins.get(profile, _NO_PLUGINS)
        if info.gating_plugin:
            plugins = _first(info.gating_plugin, plugins)
        for name, plugin in plugins.items():
            asked = self._now() if is_sampled else 0.0
            try:
                status = plugin(pod)
                if status is not None and not isinstance(status, Status):
                    raise TypeError(f"expected a Status or None, got {type(status).__name__}")
            except Exception as error:
                # Third-party code: a failing plugin gates the pod, and the failure is logged.
                log.exception("A plugin failed", plugin=name, extensionPoint=_POINT, pod=pod)
                status = error_status(error)
            if is_sampled:
                code = code_of(status).upstream_name
                durations = self._metrics.plugin_execution_duration_seconds
                durations.labels(name, _POINT, code).observe(self._now() - asked)
            if status is not None and not status.is_success:
                self._gate(info, profile, name, status)
                break
        else:
            # Upstream: the plugins stay in `unschedulable_plugins`; only the gate opens.
            info.gating_plugin = ""
            info.gating_plugin_events = ()
        self._duration_of(profile).observe(self._now() - started)

    def _gate(self, info: QueuedPodInfo, profile: str, plugin: str, status: Status) -> None:
        pod = info.pod_info.pod
        if status.code is Code.ERROR:
            log.error(
                "Unexpected error running PreEnqueue plugin", status.message, pod=pod, plugin=plugin
            )
        else:
            log.info(
                "Status after running PreEnqueue plugin",
                v=4,
                pod=pod,
                plugin=plugin,
                status=status.message,
            )
        if plugin not in info.unschedulable_plugins and plugin not in info.pending_plugins:
            self._metrics.unschedulable_pods.labels(plugin, profile).inc()
        info.unschedulable_plugins = info.unschedulable_plugins | {plugin}
        info.gating_plugin = plugin
        info.gating_plugin_events = self._hints.events_of(plugin)

    def _duration_of(self, profile: str) -> Histogram:
        duration = self._durations.get(profile)
        if duration is None:
            # Upstream: reported as Success even when a plugin refuses.
            family = self._metrics.framework_extension_point_duration_seconds
            duration = self._durations[profile] = family.labels(_POINT, "Success", profile)
        return duration


def _first(name: str, plugins: Mapping[str, PreEnqueueFn]) -> Mapping[str, PreEnqueueFn]:
    """The plugins with the last rejecting one first: it is most likely to reject again."""
    return {name: plugins[name], **plugins} if name in plugins else plugins
