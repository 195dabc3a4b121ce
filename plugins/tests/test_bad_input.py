"""CRDs that are not there or not whole, quotas and zones that do not add up, and a Prometheus that
fails.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import console
import msgspec
import pytest
import yaml

from kubesched.client.client_config import load_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient
from kubesched.testing import Cluster, make_node, make_pod
from kubesched.testing.control_plane import free_ports
from kubesched_plugins import trimaran
from kubesched_plugins.capacity_scheduling import CapacityScheduling, ElasticQuota
from kubesched_plugins.golden.clusters import config_of
from kubesched_plugins.node_resource_topology import NodeResourceTopologyMatch
from kubesched_plugins.node_resource_topology.topology import NodeResourceTopology
from kubesched_plugins.trimaran import metrics

MANIFESTS = Path(__file__).parents[1] / "manifests"
DEADLINE_S = 60.0
LISTENING = "--bind-address=127.0.0.1 --secure-port={}"


# -- custom resources ------------------------------------------------------------------------------


def definition_of_another_version(file: str) -> str:
    """The CRD as another release has it: the version that is read is not served."""
    (crd, *_) = yaml.safe_load_all((MANIFESTS / file).read_text())
    assert crd["kind"] == "CustomResourceDefinition"
    (version,) = crd["spec"]["versions"]
    version["name"] = "v1alpha9"
    return json.dumps(crd)


@pytest.mark.slow
async def test_kinds_that_are_missing_or_of_another_version_count_as_empty(tmp_path: Path) -> None:
    names = ("CapacityScheduling", "NodeResourceTopologyMatch", "Coscheduling")
    enabled = [{"name": name} for name in names]
    sort = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "kubeconfig"},
        "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}, "queueSort": sort}}],
    }
    async with console.terminal(tmp_path) as terminal:
        terminal.install_plugins()
        terminal.write("scheduler.yaml", json.dumps(config))
        await terminal.run("kubesched up --nodes 1 --no-scheduler --kubeconfig kubeconfig")
        transport = HttpTransport(load_config(str(tmp_path / "kubeconfig")).connection)
        try:
            rest = RestClient(transport, user_agent="test", random=Random(1))
            half = definition_of_another_version("podgroups.yaml").encode()
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await rest.post_raw(crds, half)
            command = (
                f"exec kubesched run --config scheduler.yaml {LISTENING.format(*free_ports(1))}"
            )
            running = await console.Running.start(command, tmp_path, terminal.environment)
            pod = {"apiVersion": "v1", "kind": "Pod", **make_pod("p").cpu("1").json}
            await rest.post_raw("/api/v1/namespaces/default/pods", json.dumps(pod).encode())
            async with asyncio.timeout(DEADLINE_S):
                while '"nodeName":"node-0"' not in await read(rest, "p"):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # another process decides
        finally:
            await transport.aclose()
        await running.stop()
        log = running.printed
    for kind in ("elasticquotas", "noderesourcetopologies", "podgroups"):
        lines = [line for line in log.splitlines() if kind in line]
        assert len(lines) == 1, log
        assert "Resource is not served, taken as empty until it is" in lines[0]


async def read(rest: RestClient, name: str) -> str:
    raw = await rest.get_raw(f"/api/v1/namespaces/default/pods/{name}")
    return json.dumps(json.loads(raw), separators=(",", ":"))


# -- quotas and zones ------------------------------------------------------------------------------


def test_quotas_that_promise_more_than_there_is_lend_nothing_and_block_nothing() -> None:
    def quota(namespace: str) -> ElasticQuota:
        spec = {"min": {"cpu": "100", "memory": "100Gi"}}
        meta = {"namespace": namespace, "name": "quota"}
        return msgspec.convert({"metadata": meta, "spec": spec}, ElasticQuota)

    node = make_node("n").capacity(cpu="2", memory="8Gi", pods=10).build()
    config = config_of({"CapacityScheduling": None}, "NodeResourcesFit")
    with Cluster([node, quota("a"), quota("b")], config, plugins=[CapacityScheduling]) as cluster:
        pods = [make_pod(f"p{at}", "a").request("cpu", "1").build() for at in range(3)]
        cluster.add(*pods, make_pod("q", "b").request("cpu", "1").build())
        cluster.settle()
        assert len(cluster.placements()) == 2
        waiting = [name for name in ("p0", "p1", "p2") if cluster.node_of(name, "a") is None]
        for name in waiting:
            assert "Insufficient cpu" in (cluster.condition(name, "a") or ("", ""))[1]


@pytest.mark.parametrize("cpus", [("0", "0"), ("-4", "-4"), ("1000", "1000")])
def test_zones_that_do_not_add_up_to_the_node_are_taken_as_they_are(cpus: tuple[str, str]) -> None:
    zones = [
        {"name": f"node-{at}", "type": "Node", "resources": [{"name": "cpu", "available": cpu}]}
        for at, cpu in enumerate(cpus)
    ]
    attributes = [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]
    manifest = {"metadata": {"name": "n"}, "zones": zones, "attributes": attributes}
    obj = msgspec.convert(manifest, NodeResourceTopology)
    node = make_node("n").capacity(cpu="4", memory="8Gi", pods=10).build()
    amounts = {"cpu": "3", "memory": "0"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    config = config_of({"NodeResourceTopologyMatch": None}, "NodeResourcesFit")
    with Cluster([node, obj], config, plugins=[NodeResourceTopologyMatch]) as cluster:
        pods = [make_pod(name).spec(containers=[container]).build() for name in ("p", "q")]
        pods = [set_qos(pod) for pod in pods]
        cluster.add(*pods)
        cluster.settle()
        conditions = [(cluster.condition(name) or ("", ""))[1] for name in ("p", "q")]
    if cpus == ("1000", "1000"):
        assert sorted("Insufficient cpu" in text for text in conditions) == [False, True]
    else:
        assert all("cannot align container" in text for text in conditions)


def set_qos(pod: Any) -> Any:
    status = msgspec.structs.replace(pod.status, qos_class="Guaranteed")
    return msgspec.structs.replace(pod, status=status)


# -- Prometheus ------------------------------------------------------------------------------------

Answer = Callable[[BaseHTTPRequestHandler], None]


def body(text: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def nothing_at_all(handler: BaseHTTPRequestHandler) -> None:
    """Takes the request and keeps the client waiting."""
    handler.rfile.read(1)


def drop_by_drop(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            threading.Event().wait(0.02)
    except OSError:
        return


def empty(handler: BaseHTTPRequestHandler) -> None:
    data = {"resultType": "vector", "result": []}
    body(json.dumps({"status": "success", "data": data}))(handler)


def wrong_type(handler: BaseHTTPRequestHandler) -> None:
    data = {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}
    body(json.dumps({"status": "success", "data": data}))(handler)


@contextmanager
def prometheus(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def gone() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


SOURCES = {
    "slow": (lambda: prometheus(nothing_at_all), "TimeoutError"),
    "slow, a byte at a time": (lambda: prometheus(drop_by_drop), "takes longer than"),
    "wrong": (lambda: prometheus(body("<html>")), "DecodeError"),
    "of another shape": (lambda: prometheus(wrong_type), "ValidationError"),
    "empty": (lambda: prometheus(empty), "the answer names no node"),
    "gone": (gone, "Connection refused"),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize(
    "plugin",
    [
        trimaran.TargetLoadPacking,
        trimaran.LoadVariationRiskBalancing,
        trimaran.LowRiskOverCommitment,
    ],
)
def test_pods_are_placed_whatever_prometheus_does(
    name: str,
    plugin: type[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(metrics, "TIMEOUT_S", 0.2)
    if name == "slow, a byte at a time":  # only the whole answer is late, no single byte
        open_url = metrics.urlopen
        monkeypatch.setattr(metrics, "urlopen", lambda to, **_given: open_url(to, timeout=60))
    source, problem = SOURCES[name]
    nodes = [
        make_node(f"n{at}").capacity(cpu="4", memory="8Gi", pods=10).build() for at in range(2)
    ]
    with source() as address, caplog.at_level(logging.WARNING):
        args = {"metricProvider": {"type": "Prometheus", "address": address}}
        config = config_of({plugin.name: args}, "NodeResourcesFit")
        with Cluster([*nodes], config, plugins=[plugin]) as cluster:
            (loaded,) = (
                each
                for each in cluster.assembly.frameworks["default-scheduler"].score
                if isinstance(each, plugin)
            )
            loaded.collector.refresh()
            loaded.collector.refresh()
            cluster.add(make_pod("p").request("cpu", "1").build())
            cluster.settle()
            assert cluster.node_of("p") in ("n0", "n1")
            assert f'plugin="{plugin.name}"}} 2' in cluster.metrics.text(), "both are unknown"
    lines = [record.getMessage() for record in caplog.records]
    lines = [line for line in lines if line.startswith("Unable to update metrics")]
    assert len(lines) == 1, "it is said once"
    assert problem in lines[0]
