"""OpenTelemetry tracing: a span per scheduling attempt, with one per extension point and API call.

The file is kube-apiserver's `TracingConfiguration`. OpenTelemetry is an extra
(`kubesched[tracing]`), imported only when attempts are sampled. A thread of the SDK exports spans
through a bounded queue: a slow or absent collector loses spans but does not slow scheduling.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import yaml

from kubesched import __version__
from kubesched.api.core_v1 import Pod
from kubesched.base.clock import Clock
from kubesched.base.errors import ConfigError, FieldProblem
from kubesched.base.logs import get_logger
from kubesched.client.observed_transport import Observe, ObservedTransport
from kubesched.client.transport import Request, Transport

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = get_logger(__name__)

DEFAULT_ENDPOINT = "localhost:4317"
"""OTLP over gRPC, without TLS, as in kube-apiserver."""
MAX_RATE = 1_000_000
FLUSH_S = 5.0
SERVICE_NAME = "kubesched"
_API_VERSIONS = tuple(f"apiserver.config.k8s.io/{v}" for v in ("v1", "v1beta1", "v1alpha1"))
_FIELDS = {"apiVersion", "kind", "endpoint", "samplingRatePerMillion"}
_SCHEMES = ("dns", "unix", "unix-abstract")


@dataclass(frozen=True, slots=True)
class TracingConfiguration:
    """Endpoint, and sampled attempts per million."""

    endpoint: str = DEFAULT_ENDPOINT
    sampling_rate_per_million: int = 0


def load_tracing(path: str) -> TracingConfiguration:
    """Read and check a `TracingConfiguration`.

    Raises:
        ConfigError: the file cannot be read, or is invalid.
    """
    try:
        document: Any = yaml.safe_load(Path(path).read_bytes())
    except OSError as error:
        problem = f"failed to read tracing config: {error.strerror}"
        raise ConfigError([FieldProblem("", problem)], source=path) from error
    except yaml.YAMLError as error:
        raise ConfigError([FieldProblem("", str(error))], source=path) from error
    problems = list(_problems(document))
    if problems:
        raise ConfigError(problems, source=path)
    return TracingConfiguration(
        document.get("endpoint") or DEFAULT_ENDPOINT, document.get("samplingRatePerMillion") or 0
    )


def _problems(document: object) -> Iterator[FieldProblem]:
    if not isinstance(document, dict):
        yield FieldProblem("", "must be a TracingConfiguration")
        return
    version, kind = document.get("apiVersion"), document.get("kind")
    if version not in _API_VERSIONS or kind != "TracingConfiguration":
        yield FieldProblem(
            "",
            f'no kind "{kind}" is registered for version "{version}"; '
            f"wanted: TracingConfiguration of {_API_VERSIONS[0]}",
        )
    for name in sorted(set(map(str, document)) - _FIELDS):
        yield FieldProblem(name, "unknown field")
    rate = document.get("samplingRatePerMillion")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int)):
        yield FieldProblem("samplingRatePerMillion", "must be a number")
    elif rate is not None and rate < 0:
        told = f"Invalid value: {rate}: sampling rate must be positive"
        yield FieldProblem("samplingRatePerMillion", told)
    elif rate is not None and rate > MAX_RATE:
        told = (
            f"Invalid value: {rate}: sampling rate per million must be less than or equal to one "
            "million"
        )
        yield FieldProblem("samplingRatePerMillion", told)
    yield from _endpoint_problems(document.get("endpoint"))


def _endpoint_problems(endpoint: object) -> Iterator[FieldProblem]:
    if endpoint is None:
        return
    if not isinstance(endpoint, str):
        yield FieldProblem("endpoint", "must be a string")
        return
    try:
        scheme = urlsplit(endpoint if "//" in endpoint else f"dns://{endpoint}").scheme
    except ValueError as error:
        yield FieldProblem("endpoint", f'Invalid value: "{endpoint}": {error}')
        return
    if scheme not in _SCHEMES:
        yield FieldProblem(
            "endpoint",
            f'Invalid value: "{endpoint}": unsupported scheme: {scheme}.  '
            "Options are none, dns, unix, or unix-abstract.",
        )


class OpenTelemetryTracing:
    """A `framework.tracing.AttemptTracing` on OpenTelemetry's SDK."""

    def __init__(self, provider: TracerProvider, rate: int, clock: Clock, random: Random) -> None:
        from opentelemetry import trace

        self._trace = trace
        self._tracer = provider.get_tracer("kubesched", __version__)
        self._rate = rate
        self._random = random
        self._clock = clock

    def begin(self, pod: Pod, profile: str, attempt: int) -> Context | None:
        """See the protocol. Sampling happens here: an unsampled attempt costs one random number."""
        if self._random.random() * MAX_RATE >= self._rate:
            return None
        meta = pod.metadata
        span = self._tracer.start_span(
            "Scheduling attempt",
            attributes={
                "k8s.pod.name": meta.name,
                "k8s.pod.uid": meta.uid,
                "k8s.namespace.name": meta.namespace,
                "kubesched.profile": profile,
                "kubesched.attempt": attempt,
            },
        )
        context = copy_context()
        context.run(self._make_current, span)
        return context

    def _make_current(self, span: Any) -> None:  # noqa: ANN401  # opentelemetry is imported late
        from opentelemetry import context

        context.attach(self._trace.set_span_in_context(span))

    def point_done(self, point: str, started: float, ended: float, code: str) -> None:
        if self._trace.get_current_span().is_recording():
            self._add(point, started, ended, {"kubesched.status": code})

    def attempt_done(self, result: str) -> None:
        span = self._trace.get_current_span()
        if span.is_recording():
            span.set_attribute("kubesched.result", result)
            if result == "error":
                span.set_status(self._trace.StatusCode.ERROR)
            span.end()

    def call_done(
        self, request: Request, started: float, status: int, _body_bytes: int | None
    ) -> None:
        """Records an API call; `status` is 0 without a response."""
        if not self._trace.get_current_span().is_recording():
            return
        attributes: dict[str, Any] = {
            "http.request.method": request.method,
            "url.path": request.target.partition("?")[0],
        }
        if status:
            attributes["http.response.status_code"] = status
        self._add(f"HTTP {request.method}", started, self._clock.monotonic(), attributes)

    def _add(self, name: str, started: float, ended: float, attributes: dict[str, Any]) -> None:
        # Spans carry the time of day; durations come from the monotonic clock.
        now_ns = int(self._clock.now() * 1e9)
        now = self._clock.monotonic()
        span = self._tracer.start_span(
            name, start_time=now_ns - int((now - started) * 1e9), attributes=attributes
        )
        span.end(now_ns - int((now - ended) * 1e9))


class TracedTransport(ObservedTransport):
    """A transport whose calls become spans of the current attempt."""

    def __init__(self, transport: Transport, tracing: OpenTelemetryTracing, clock: Clock) -> None:
        super().__init__(transport, clock)
        self._tracing = tracing

    def observer(self) -> Observe:
        context = copy_context()  # of the attempt: answers come in another
        return lambda *answer: context.run(self._tracing.call_done, *answer)


@contextlib.contextmanager
def traced(path: str, clock: Clock, instance: str) -> Iterator[OpenTelemetryTracing | None]:
    """Tracing as configured by the file at `path`; None without a file or sampling.

    Raises:
        ConfigError: the file is invalid, or OpenTelemetry is not installed.
    """
    settings = load_tracing(path) if path else TracingConfiguration()
    if not settings.sampling_rate_per_million:
        if path:
            log.info("Tracing is configured, but samplingRatePerMillion is 0: there are no spans")
        yield None
        return
    provider = _provider(settings, path, instance)
    try:
        yield OpenTelemetryTracing(provider, settings.sampling_rate_per_million, clock, Random())
    finally:
        provider.force_flush(int(FLUSH_S * 1000))
        provider.shutdown()


def _provider(settings: TracingConfiguration, path: str, instance: str) -> TracerProvider:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        problem = f"tracing needs OpenTelemetry: pip install 'kubesched[tracing]' ({error})"
        raise ConfigError([FieldProblem("", problem)], source=path) from error
    resource = Resource.create(
        {
            "service.name": SERVICE_NAME,
            "service.version": __version__,
            "service.instance.id": instance,
        }
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
