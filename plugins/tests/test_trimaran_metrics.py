"""Where load comes from, and what happens when it does not come."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from kubesched.framework.api import Node
from kubesched.testing import Cluster, make_node
from kubesched_plugins.golden.clusters import config_of
from kubesched_plugins.golden.trimaran import TargetLoadPacking
from kubesched_plugins.trimaran.args import MetricProvider, TrimaranArgs
from kubesched_plugins.trimaran.metrics import (
    STALE_AFTER_S,
    Collector,
    Metric,
    Snapshot,
    from_load_watcher,
    from_metrics_server,
    from_prometheus,
    report_of,
)


def metrics_of(_node: Node, metrics: Sequence[Metric] | None) -> Sequence[Metric] | None:
    return metrics


@contextmanager
def serving(answers: dict[str, object]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """An HTTP server: path or Prometheus query -> JSON. Yields its address and what was asked."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            key = parse_qs(url.query).get("query", [url.path])[0]
            asked.append((key, self.headers.get("Authorization", "")))
            body = answers.get(key)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def samples(**values: str) -> object:
    result = [
        {"metric": {"instance": name.replace("_", ":")}, "value": [1.5, value]}
        for name, value in values.items()
    ]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


CPU_RULE, MEMORY_RULE = "instance:node_cpu:ratio", "instance:node_memory_utilisation:ratio"


def test_prometheus_is_asked_for_mean_and_deviation_of_both_resources() -> None:
    answers = {
        f"avg_over_time({CPU_RULE}[15m])": samples(n1="0.5", n2_9100="0.25"),
        f"avg_over_time({MEMORY_RULE}[15m])": samples(n1="0.75"),
        f"stddev_over_time({CPU_RULE}[15m])": samples(n1="0.125", n2_9100="NaN"),
        f"stddev_over_time({MEMORY_RULE}[15m])": samples(),
    }
    with serving(answers) as (address, asked):
        found = from_prometheus(MetricProvider("Prometheus", address, token="secret"))
    assert found.nodes == {
        "n1": [Metric("CPU", "AVG", 50), Metric("Memory", "AVG", 75), Metric("CPU", "STD", 12.5)],
        "n2": [Metric("CPU", "AVG", 25)],  # a port is no part of the name, NaN is no measurement
    }
    assert [authorization for _, authorization in asked] == ["Bearer secret"] * 4


def test_metrics_server_gives_usage_that_becomes_percent_of_the_capacity() -> None:
    item = {"metadata": {"name": "n1"}, "usage": {"cpu": "500m", "memory": "2Gi"}}
    with serving({"/apis/metrics.k8s.io/v1beta1/nodes": {"items": [item]}}) as (address, _asked):
        found = from_metrics_server(MetricProvider("KubernetesMetricsServer", address))
    collector = Collector(TrimaranArgs(), metrics_of)
    collector.show(found)
    node = make_node("n1").capacity(cpu="4", memory="8Gi").build()
    shown = [Metric("CPU", "Latest", 12.5), Metric("Memory", "Latest", 25.0)]
    assert collector.of(node) == shown
    assert collector.of(make_node("n2").build()) is None
    larger = make_node("n1").capacity(cpu="8", memory="8Gi").build()
    assert collector.of(larger)[0] == Metric("CPU", "Latest", 6.25)


def test_load_watcher_says_when_its_window_ends() -> None:
    metrics = [{"name": "x", "type": "CPU", "operator": "AVG", "rollup": "15m", "value": 80}]
    answer = {"window": {"end": 1700}, "data": {"NodeMetricsMap": {"n1": {"metrics": metrics}}}}
    with serving({"/watcher": answer}) as (address, _asked):
        found = from_load_watcher(address)
    assert (found.window_end, found.nodes) == (1700, {"n1": [Metric("CPU", "AVG", 80.0)]})


@pytest.mark.parametrize(
    "answer", [None, b"<html>", {"status": "error", "error": "too slow"}, {"status": "success"}, []]
)
def test_a_wrong_answer_is_a_problem_and_no_metrics(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({f"avg_over_time({CPU_RULE}[15m])": answer}) as (address, _asked):
        collector = Collector(
            TrimaranArgs(metric_provider=MetricProvider("Prometheus", address)), metrics_of
        )
        collector.refresh()
    assert not collector.snapshot.nodes
    assert "Unable to update metrics" in caplog.text


def test_failures_are_logged_once_and_old_metrics_expire(caplog: pytest.LogCaptureFixture) -> None:
    now, fails = [100.0], [False]

    def fetch() -> Snapshot:
        if fails[0]:
            raise ConnectionRefusedError("gone")
        return Snapshot({"n1": [Metric("CPU", "AVG", 50.0)]}, 1000)

    collector = Collector(TrimaranArgs(), metrics_of, fetch=fetch, monotonic=lambda: now[0])
    collector.refresh()
    first, node = collector.version(), make_node("n1").build()
    assert collector.version() is first
    fails[0] = True
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            collector.refresh()
    assert caplog.text.count("Unable to update metrics") == 1
    now[0] += STALE_AFTER_S
    assert collector.of(node) == [Metric("CPU", "AVG", 50.0)]
    now[0] += 1
    assert collector.of(node) is None
    assert collector.version() is not first, "kept scores must not outlive the metrics"
    fails[0] = False
    collector.refresh()
    assert collector.of(node) == [Metric("CPU", "AVG", 50.0)]
    assert "available again" in caplog.text


def test_nodes_whose_load_is_unknown_are_counted() -> None:
    now, nodes, fails = [100.0], {"n1": [Metric("CPU", "AVG", 50.0)], "n2": None}, [False]

    def fetch() -> Snapshot:
        if fails[0]:
            raise TimeoutError("timed out")
        return Snapshot(dict(nodes), 1000)

    config = config_of({"TargetLoadPacking": {"watcherAddress": "http://watcher"}})
    there = [make_node(f"n{number}").build() for number in (1, 2, 3)]
    with Cluster(there, config, plugins=[TargetLoadPacking]) as cluster:
        handle = cluster.assembly.frameworks["default-scheduler"].handle
        report = report_of(handle, TargetLoadPacking.name)
        assert report_of(handle, TargetLoadPacking.name), "an instance in another profile"
        collector = Collector(
            TrimaranArgs(), metrics_of, fetch=fetch, monotonic=lambda: now[0], report=report
        )

        def unknown() -> str:
            collector.refresh()
            labels = '{profile="default-scheduler",plugin="TargetLoadPacking"}'
            start = f"kubesched_nodes_without_load_metrics{labels} "
            (line,) = [line for line in cluster.metrics.text().splitlines() if start in line]
            return line.removeprefix(start)

        assert unknown() == "2"
        nodes |= {"n2": [], "n3": [Metric("CPU", "AVG", 5.0)]}
        assert unknown() == "1", "an entry without measurements says nothing"
        fails[0], now[0] = True, now[0] + STALE_AFTER_S
        assert unknown() == "1", "the last metrics are good enough"
        now[0] += 1
        assert unknown() == "3"
        fails[0] = False
        assert unknown() == "1"


def test_the_first_pods_have_metrics() -> None:
    threads: list[str] = []

    def fetch() -> Snapshot:
        threads.append(threading.current_thread().name)
        return Snapshot({"n1": []}, 1)

    collector = Collector(TrimaranArgs(), metrics_of, runs=True, fetch=fetch)
    try:
        assert collector.snapshot.nodes == {"n1": []}
        assert threads == ["trimaran metrics"]
    finally:
        collector.close()
