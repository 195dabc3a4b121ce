"""Load of the nodes, fetched by a thread beside the scheduler's loop.

Three sources: a load watcher service (`GET /watcher`), Prometheus' query API, and metrics.k8s.io.
A fetch that fails leaves the last metrics in use until they are `STALE_AFTER_S` old; then there are
none, every node gets the lowest score, and the other plugins of the profile decide.
"""

from __future__ import annotations

import logging
import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import msgspec

from kubesched.framework import Handle
from kubesched.framework.api import Node, parse_quantity
from kubesched_plugins.trimaran.args import PROMETHEUS, MetricProvider, TrimaranArgs

CPU: Final = "CPU"
MEMORY: Final = "Memory"
AVERAGE: Final = "AVG"
STD: Final = "STD"
LATEST: Final = "Latest"

INTERVAL_S: Final = 30
STALE_AFTER_S: Final = 300
"""The longest that a load watcher keeps metrics."""
TIMEOUT_S: Final = 10
MAX_BYTES: Final = 64 * 2**20
DEFAULT_PROMETHEUS: Final = "http://prometheus-k8s:9090"
WINDOW: Final = "15m"
_QUERIES: Final = {
    (AVERAGE, CPU): f"avg_over_time(instance:node_cpu:ratio[{WINDOW}])",
    (AVERAGE, MEMORY): f"avg_over_time(instance:node_memory_utilisation:ratio[{WINDOW}])",
    (STD, CPU): f"stddev_over_time(instance:node_cpu:ratio[{WINDOW}])",
    (STD, MEMORY): f"stddev_over_time(instance:node_memory_utilisation:ratio[{WINDOW}])",
}
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

log = logging.getLogger(__name__)
T = TypeVar("T")


class Metric(NamedTuple):
    """A measurement of a node, in percent of its capacity."""

    type: str
    operator: str
    value: float


class Usage(NamedTuple):
    """What a node uses, as metrics.k8s.io tells it; becomes percent with the node's capacity."""

    milli_cpu: int
    memory: int

    def metrics(self, node: Node) -> list[Metric]:
        capacity = node.status.capacity or {}
        found = []
        if cpu := parse_quantity(capacity.get("cpu", 0)).milli_value():
            found.append(Metric(CPU, LATEST, 100 * self.milli_cpu / cpu))
        if memory := parse_quantity(capacity.get("memory", 0)).value():
            found.append(Metric(MEMORY, LATEST, 100 * self.memory / memory))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The metrics of one fetch."""

    nodes: Mapping[str, Sequence[Metric] | Usage | None]
    window_end: int
    """Unix seconds."""
    fetched_at: float = math.inf
    """Seconds of the collector's clock."""


NO_METRICS: Final = Snapshot({}, 0)
Fetch = Callable[[], Snapshot]


class Collector(Generic[T]):
    """The newest metrics, and the thread that fetches them."""

    def __init__(
        self,
        args: TrimaranArgs,
        derive: Callable[[Node, Sequence[Metric] | None], T],
        *,
        runs: bool = False,
        fetch: Fetch | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        report: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """`derive` makes of a node and its metrics what scores are computed from.

        With `runs`, waits for the first fetch, as the first pods should not do without it.
        `report` is told after every fetch which metrics are in use.
        """
        self._report = report
        self._derive = derive
        self._derived: dict[str, tuple[Node, T]] = {}
        self._derived_from = NO_METRICS
        self._fetch = fetch or source_of(args)
        self._monotonic = monotonic
        self._newest = NO_METRICS
        self._problem: str | None = None
        self._is_over = threading.Event()
        self._has_tried = threading.Event()
        if runs:
            threading.Thread(target=self._run, name="trimaran metrics", daemon=True).start()
            self._has_tried.wait(TIMEOUT_S)

    def close(self) -> None:
        self._is_over.set()

    @property
    def snapshot(self) -> Snapshot:
        """The newest metrics; none if they are too old."""
        newest = self._newest
        is_stale = self._monotonic() - newest.fetched_at > STALE_AFTER_S
        return NO_METRICS if is_stale else newest

    def show(self, snapshot: Snapshot) -> None:
        """Use these metrics from now on."""
        self._newest = snapshot

    def version(self) -> Snapshot:
        """The premise of scores: they hold as long as this is the same object."""
        return self.snapshot

    def of(self, node: Node | None) -> T:
        """What is derived for a node, once per fetch and version of the node."""
        assert node is not None, "a row that is scored has a node"
        snapshot, name = self.snapshot, node.metadata.name
        if snapshot is not self._derived_from:
            self._derived, self._derived_from = {}, snapshot
        known = self._derived.get(name)
        if known is None or known[0] is not node:
            metrics = snapshot.nodes.get(name)
            metrics = metrics.metrics(node) if isinstance(metrics, Usage) else metrics
            known = self._derived[name] = node, self._derive(node, metrics)
        return known[1]

    def refresh(self) -> None:
        """Fetch once. Problems are logged when they begin, change or end."""
        problem = None
        try:
            snapshot = self._fetch()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if not snapshot.nodes:
                problem = "the answer names no node"
            self.show(Snapshot(snapshot.nodes, snapshot.window_end, fetched_at=self._monotonic()))
        if problem is not None and problem != self._problem:
            log.warning(
                "Unable to update metrics; the last ones are used for at most %d s: %s",
                STALE_AFTER_S,
                problem,
            )
        elif problem is None and self._problem is not None:
            log.warning("Metrics are available again")
        self._problem = problem
        if self._report is not None:
            self._report(self.snapshot)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self.refresh()
            self._has_tried.set()
            self._is_over.wait(INTERVAL_S)


def report_of(handle: Handle, plugin: str) -> Callable[[Snapshot], None] | None:
    """Shows on the metrics page how many nodes have no metrics, which scores do not tell."""
    if handle.metrics is None:
        return None
    family = handle.metrics.gauge(
        "kubesched_nodes_without_load_metrics",
        "Nodes that a plugin cannot score by load: their metrics are missing or too old.",
        labels=("profile", "plugin"),
    )
    gauge, rows = family.labels(handle.profile_name, plugin), handle.table.row_of

    def report(snapshot: Snapshot) -> None:
        gauge.set(sum(not snapshot.nodes.get(name) for name in list(rows)))

    return report


def source_of(args: TrimaranArgs) -> Fetch:
    """The source that the arguments name."""
    provider = args.metric_provider
    if args.watcher_address:
        address = args.watcher_address
        return lambda: from_load_watcher(address)
    if provider.type == PROMETHEUS:
        return lambda: from_prometheus(provider)
    return lambda: from_metrics_server(provider)


# -- load watcher ---------------------------------------------------------------------------------


class _WatcherMetric(msgspec.Struct):
    type: str = ""
    operator: str = ""
    value: float = 0.0


class _WatcherNode(msgspec.Struct):
    metrics: list[_WatcherMetric] | None = None


class _WatcherData(msgspec.Struct):
    nodes: dict[str, _WatcherNode] | None = msgspec.field(default=None, name="NodeMetricsMap")


class _Window(msgspec.Struct):
    end: int = 0


class _WatcherAnswer(msgspec.Struct):
    data: _WatcherData = msgspec.field(default_factory=_WatcherData)
    window: _Window = msgspec.field(default_factory=_Window)


def from_load_watcher(address: str) -> Snapshot:
    answer = _get(address.rstrip("/") + "/watcher", _WatcherAnswer)
    return Snapshot(
        {name: _metrics(node.metrics) for name, node in (answer.data.nodes or {}).items()},
        answer.window.end,
    )


def _metrics(found: Iterable[_WatcherMetric] | None) -> list[Metric] | None:
    if found is None:
        return None
    return [Metric(m.type, m.operator, m.value) for m in found if math.isfinite(m.value)]


# -- Prometheus -----------------------------------------------------------------------------------


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _PrometheusData(msgspec.Struct):
    result_type: str = msgspec.field(name="resultType")
    result: list[_Sample]


class _PrometheusAnswer(msgspec.Struct):
    status: str
    data: _PrometheusData | None = None
    error: str = ""


def from_prometheus(provider: MetricProvider) -> Snapshot:
    """Mean and deviation over the window, by the recording rules of the node mixin.

    The label `instance` is the node's name; a port after it is ignored.
    """
    end = int(time.time())
    nodes: dict[str, list[Metric]] = {}
    address = (provider.address or DEFAULT_PROMETHEUS).rstrip("/")
    for (operator, kind), query in _QUERIES.items():
        url = f"{address}/api/v1/query?" + urlencode({"query": query, "time": end})
        tls = ssl._create_unverified_context() if provider.insecure_skip_verify else None
        answer = _get(url, _PrometheusAnswer, provider.token, tls)
        if answer.status != "success" or answer.data is None:
            raise ValueError(f"Prometheus cannot answer {query}: {answer.error}")
        for sample in answer.data.result:
            value = float(sample.value[1]) * 100
            name = sample.metric.get("instance", "").partition(":")[0]
            if name and math.isfinite(value):
                nodes.setdefault(name, []).append(Metric(kind, operator, value))
    return Snapshot(nodes, end)


# -- metrics.k8s.io -------------------------------------------------------------------------------


class _Name(msgspec.Struct):
    name: str


class _NodeMetrics(msgspec.Struct):
    metadata: _Name
    usage: dict[str, str | int | float]


class _NodeMetricsList(msgspec.Struct):
    items: list[_NodeMetrics]


def from_metrics_server(provider: MetricProvider) -> Snapshot:
    """The newest usage, from the API server of the cluster or at the provider's address."""
    address, token, tls = provider.address, provider.token, None
    if not address:
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if host is None:
            raise ValueError("outside of a cluster, metricProvider.address has to be given")
        host = f"[{host}]" if ":" in host else host
        address = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        token = (_ACCOUNT / "token").read_text().strip()
        tls = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    elif provider.insecure_skip_verify:
        tls = ssl._create_unverified_context()
    url = address.rstrip("/") + "/apis/metrics.k8s.io/v1beta1/nodes"
    answer = _get(url, _NodeMetricsList, token, tls)
    return Snapshot(
        {
            item.metadata.name: Usage(
                parse_quantity(item.usage.get("cpu", 0)).milli_value(),
                parse_quantity(item.usage.get("memory", 0)).value(),
            )
            for item in answer.items
        },
        int(time.time()),
    )


def _get(url: str, answer: type[T], token: str = "", tls: ssl.SSLContext | None = None) -> T:
    request = Request(url, headers={"Accept": "application/json"})
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    body, deadline = bytearray(), time.monotonic() + TIMEOUT_S
    try:
        response = urlopen(request, timeout=TIMEOUT_S, context=tls)
    except HTTPError as refused:
        refused.close()  # it holds the connection
        raise
    with response:
        while piece := response.read1():
            body += piece
            if len(body) > MAX_BYTES:
                raise ValueError(f"the answer is longer than {MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the answer takes longer than {TIMEOUT_S} s")
    return msgspec.json.decode(body, type=answer)
