"""`kubesched run --tracing-config-file`: a real OTLP collector hears of attempts, extension points and API calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

ALONE = {"leaderElection": {"leaderElect": False}}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what is exported to it."""

    def __init__(self):
        self.spans = []
        self.resources = []

    def Export(self, request, context):  # noqa: N802  # the service's name for it
        for part in request.resource_spans:
            self.resources.append({a.key: a.value.string_value for a in part.resource.attributes})
            self.spans += [span for scope in part.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def attempts(self, pod):
        return [span for span in self.spans if attributes(span).get("k8s.pod.name") == pod]

    def inside(self, attempt):
        return [span for span in self.spans if span.parent_span_id == attempt.span_id]


def attributes(span):
    return {
        a.key: a.value.string_value or a.value.int_value or a.value.bool_value
        for a in span.attributes
    }


@pytest.fixture
def collector():
    heard = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(heard, server)
    heard.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield heard
    server.stop(None).wait()


def tracing_file(folder, endpoint, rate):
    path = folder / "tracing.yaml"
    path.write_text(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
        f"endpoint: {endpoint}\nsamplingRatePerMillion: {rate}\n"
    )
    return f"--tracing-config-file={path}"


async def test_an_attempt_is_a_span_with_its_points_and_calls(cluster, run, collector, tmp_path):
    await cluster.add_node("n0")
    scheduler = await run(tracing_file(tmp_path, collector.endpoint, 1_000_000), config=ALONE)
    await cluster.add_pod("fits")
    await cluster.bound("fits")
    await cluster.add_pod("large", cpu="99")
    await cluster.condition("large")
    await scheduler.terminated()

    (bound,) = collector.attempts("fits")
    found = attributes(bound)
    assert (found["kubesched.result"], found["kubesched.profile"]) == (
        "scheduled",
        "default-scheduler",
    )
    parts = collector.inside(bound)
    names = [part.name for part in parts]
    assert {"PreFilter", "Filter", "Reserve", "Permit", "Bind"} <= set(names)
    (call,) = (part for part in parts if part.name == "HTTP POST")
    asked = attributes(call)
    assert asked["url.path"].endswith("/pods/fits/binding")
    assert asked["http.response.status_code"] == 201
    for part in parts:
        assert part.trace_id == bound.trace_id
        assert bound.start_time_unix_nano <= part.start_time_unix_nano + 1_000_000
        assert part.start_time_unix_nano <= part.end_time_unix_nano

    (refused,) = collector.attempts("large")
    assert attributes(refused)["kubesched.result"] == "unschedulable"
    assert "PostFilter" in [part.name for part in collector.inside(refused)]
    assert collector.resources[0]["service.name"] == "kubesched"


async def test_an_attempt_that_awaits_an_extender_keeps_its_span(
    cluster, run, extender, collector, tmp_path
):
    await cluster.add_node("n0")
    extender.answers["filter"] = lambda body: {"NodeNames": body["NodeNames"], "Error": ""}
    entry = {"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True}
    scheduler = await run(
        tracing_file(tmp_path, collector.endpoint, 1_000_000),
        config={**ALONE, "extenders": [{"httpTimeout": "30s", **entry}]},
    )
    await cluster.add_pod("p")
    await cluster.bound("p")
    await scheduler.terminated()
    (attempt,) = collector.attempts("p")
    names = [part.name for part in collector.inside(attempt)]
    assert {"Filter", "Bind", "HTTP POST"} <= set(names)
    assert attributes(attempt)["kubesched.result"] == "scheduled"


async def test_a_collector_that_is_away_keeps_no_pod_waiting(cluster, run, tmp_path):
    await cluster.add_node("n0")
    scheduler = await run(tracing_file(tmp_path, "127.0.0.1:1", 1_000_000), config=ALONE)
    await cluster.add_pod("p")
    await cluster.bound("p")
    await scheduler.terminated()


async def test_a_wrong_file_ends_the_program_with_the_field(cluster, run, tmp_path):
    scheduler = await run(tracing_file(tmp_path, "http://x", 1), config=ALONE)
    assert await scheduler.ended() == 1
    assert "unsupported scheme: http" in scheduler.log
