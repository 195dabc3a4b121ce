"""Process-wide metrics: build, feature gates, lost events, recording."""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from kubesched.app.flags import RunOptions
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.base.metrics.process import register_process_metrics
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.base.version import __version__
from kubesched.client import events
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.informers.informer import Informer
from kubesched.config.features import FeatureGates
from kubesched.insight.recording.recorder import Recorder

_REVISION_DIGITS = 15
_LOSSES = (events.QUEUE_FULL, events.REJECTED, events.GAVE_UP, events.SHUT_DOWN, events.BAD_EVENT)


def make_registry(options: RunOptions) -> MetricsRegistry:
    """An empty registry configured by the metrics flags.

    Raises:
        ConfigError: an allow list is invalid.
    """
    allowed = _manifest(options.allow_metric_labels_manifest) | dict(options.allow_metric_labels)
    return MetricsRegistry(
        disabled=options.disabled_metrics,
        allowed_labels={_metric_and_label(key): _values(values) for key, values in allowed.items()},
        shows_hidden=bool(options.show_hidden_metrics_for_version),
    )


def _metric_and_label(key: str) -> tuple[str, str]:
    metric, comma, label = key.partition(",")
    if not (metric and comma and label):
        problem = f'--allow-metric-labels: "{key}" is not of the form metric,label'
        raise ConfigError([FieldProblem("", problem)])
    return metric.strip(), label.strip()


def _values(text: str) -> frozenset[str]:
    return frozenset(value.strip() for value in text.strip("'\"").split(","))


def _manifest(path: str) -> dict[str, str]:
    if not path:
        return {}
    import yaml

    try:
        document: Any = yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        problem = f"failed to read allow list manifest: {path}: {error.strerror}"
        raise ConfigError([FieldProblem("metrics.allowListMappingManifest", problem)]) from error
    except yaml.YAMLError as error:
        raise ConfigError([FieldProblem("", str(error))], source=path) from error
    mapping = document.get("allowListMapping") if isinstance(document, dict) else None
    if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
        problem = "allowListMapping must map metric,label to a list of values"
        raise ConfigError([FieldProblem("", problem)], source=path)
    return {str(key): str(value) for key, value in mapping.items()}


def register_common(registry: MetricsRegistry, gates: FeatureGates) -> None:
    """Metrics that every Kubernetes component has."""
    register_process_metrics(registry)
    current = gates.versions
    release = current.reference.release
    major, minor, _patch = release.split(".")
    info = registry.gauge("kubernetes_build_info")
    system = f"{platform.system().lower()}/{platform.machine()}"
    python = f"python{platform.python_version()}"
    info.labels("", "kubesched", "", "", f"v{release}", python, major, minor, system).set(1)
    versions = registry.gauge("version_info")
    versions.labels(release, "kube", current.emulated, current.min_compatibility).set(1)
    own = registry.gauge("kubesched_build_info")
    own.labels(__version__).set(1)
    features = registry.gauge("kubernetes_feature_enabled")
    for name, stage, is_on in gates.states():
        features.labels(name, stage.value).set(1 if is_on else 0)


def register_event_losses(registry: MetricsRegistry, dropped: Counter[str]) -> None:
    """Events dropped by the background writer, by reason."""
    family = registry.counter("kubesched_events_dropped_total")
    for reason in _LOSSES:
        family.labels(reason).read_from(partial(dropped.__getitem__, reason))


def register_informers(
    registry: MetricsRegistry, informers: InformerFactory, *, as_upstream: bool = True
) -> None:
    """Staleness per informer: seconds since a list, a watch event or a revision check.

    `as_upstream`: also what client-go reports about informers.
    """
    family = registry.gauge("kubesched_informer_unconfirmed_seconds")
    for informer in informers.informers():
        family.labels(informer.name).read_from(informer.unconfirmed_s)
    if as_upstream:
        _register_client_go(registry, informers)


def _register_client_go(registry: MetricsRegistry, informers: InformerFactory) -> None:
    queued = registry.gauge("informer_queued_items")
    latency = registry.histogram("informer_processing_latency_seconds")
    revision = registry.gauge("informer_store_resource_version")
    for kind, informer in informers.by_kind().items():
        if not kind.has_record:
            continue  # custom resources have none upstream
        # Upstream: the plural is the kind and an s, also where that is wrong.
        values = ("kube-scheduler", kind.group, kind.version, f"{kind.kind.lower()}s")
        queued.labels(*values)
        informer.on_processed = latency.labels(*values).observe
        revision.labels(*values).read_from(partial(_last_digits, informer))


def _last_digits(informer: Informer[Any]) -> float:
    digits = informer.reflector.resource_version[-_REVISION_DIGITS:]
    return float(digits) if digits.isdecimal() else 0.0


def register_tasks(registry: MetricsRegistry, loop: asyncio.AbstractEventLoop) -> None:
    """Number of tasks on the scheduling loop; steady growth indicates a leak."""
    tasks = registry.gauge("kubesched_tasks")
    tasks.labels().read_from(lambda: float(len(asyncio.all_tasks(loop))))


def register_recorder(registry: MetricsRegistry, recorder: Recorder) -> None:
    """Whether decisions are being recorded, and the size of the recording."""
    active = registry.gauge("kubesched_recorder_active")
    active.labels().read_from(lambda: 0.0 if recorder.stopped_reason else 1.0)
    size = registry.gauge("kubesched_recorder_bytes")
    size.labels().read_from(lambda: float(recorder.written_bytes))
