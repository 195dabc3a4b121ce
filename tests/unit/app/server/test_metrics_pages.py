"""/metrics in pieces, resets, and what /metrics/resources says about pods."""

import asyncio
import gzip
from itertools import pairwise

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubesched.api.core_v1 import Pod
from kubesched.api.resources import limit_amounts
from kubesched.app.server import pod_resources
from kubesched.app.server.metrics_pages import LINES_PER_PIECE, MetricsPage, ResourcesPage, page
from kubesched.app.server.pod_resources import unit_of
from kubesched.app.server.requests import PageRequest
from kubesched.base.metrics import MetricsRegistry
from kubesched.base.metrics.instruments import exponential_buckets


def answer_to(registry, **request):
    """The answer, and its body in the pieces it comes in."""

    async def main():
        answer = await MetricsPage(registry)(PageRequest(path="/metrics", **request))
        if answer.stream is None:
            return answer, [answer.body]
        return answer, [piece async for piece in answer.stream]

    return asyncio.run(main())


def large_registry():
    registry = MetricsRegistry()
    for number in range(20):
        family = registry.histogram(
            f"h_{number}_seconds", "H.", buckets=exponential_buckets(1, 2, 15), labels=("a",)
        )
        for value in range(200):
            family.labels(f"{value:03}").observe(1)
    return registry


def test_the_page_is_the_registrys_text():
    registry = MetricsRegistry()
    registry.counter("a_total", "A.").labels().inc(3)
    answer, pieces = answer_to(registry)
    assert b"".join(pieces).decode() == registry.text()
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


def test_a_page_without_metrics_is_empty():
    assert answer_to(MetricsRegistry())[1] == []


def test_a_compressed_page_says_the_same():
    registry = large_registry()
    answer, pieces = answer_to(registry, accepts_gzip=True)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(b"".join(pieces)).decode() == registry.text()


def test_a_large_page_comes_in_pieces_of_bounded_length():
    registry = large_registry()
    pieces = answer_to(registry)[1]
    assert b"".join(pieces).decode() == registry.text()
    largest_cell = 15 + 3
    assert max(piece.count(b"\n") for piece in pieces) < LINES_PER_PIECE + largest_cell
    assert len(pieces) >= registry.text().count("\n") // (LINES_PER_PIECE + largest_cell)


@pytest.mark.parametrize("accepts_gzip", [False, True], ids=["plain", "compressed"])
def test_others_run_between_any_two_pieces(accepts_gzip):
    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        running = asyncio.ensure_future(other())
        request = PageRequest(path="/metrics", accepts_gzip=accepts_gzip)
        answer = await MetricsPage(large_registry())(request)
        seen = [turns async for _piece in answer.stream]
        running.cancel()
        return seen

    seen = asyncio.run(main())
    assert len(seen) > 1
    assert all(later > earlier for earlier, later in pairwise(seen[:-1]))


def test_a_family_in_many_pieces_is_of_one_moment():
    registry = MetricsRegistry()
    family = registry.histogram("h_seconds", "H.", buckets=(1, 2), labels=("a",))
    cells = [family.labels(f"{number:04}") for number in range(LINES_PER_PIECE)]

    async def main():
        text = b""
        async for piece in page(registry):
            text += piece
            for cell in cells:
                cell.observe(1)
        return text.decode()

    samples = [
        sample
        for family in text_string_to_metric_families(asyncio.run(main()))
        for sample in family.samples
    ]
    assert len(samples) == 5 * len(cells)
    assert {sample.value for sample in samples} == {0.0}


def test_delete_starts_counters_anew_and_leaves_gauges():
    registry = MetricsRegistry()
    counter = registry.counter("a_total", "A.").labels()
    gauge = registry.gauge("b", "B.").labels()
    histogram = registry.histogram("c_seconds", "C.", buckets=(1,)).labels()
    counter.inc(3)
    gauge.set(2)
    histogram.observe(5)
    assert answer_to(registry, method="DELETE")[1] == [b"metrics reset\n"]
    assert counter.value == 0
    assert gauge.value == 2
    assert (histogram.count, histogram.sum) == (0, 0)
    counter.inc()
    assert "a_total 1\n" in registry.text()


def test_a_disabled_metric_is_off_the_page_but_can_be_observed():
    registry = MetricsRegistry(disabled=["a_total"])
    registry.counter("a_total", "A.").labels().inc()
    registry.counter("b_total", "B.").labels().inc()
    assert "a_total" not in registry.text()
    assert "b_total 1" in registry.text()
    with pytest.raises(ValueError, match="registered already"):
        registry.counter("a_total", "A.")


def test_label_values_off_the_list_become_unexpected():
    registry = MetricsRegistry(allowed_labels={("a_total", "x"): {"1", "2"}})
    family = registry.counter("a_total", "A.", labels=("x", "y"))
    family.labels("1", "q").inc()
    family.labels("7", "q").inc()
    family.labels("8", "q").inc()
    page = registry.text()
    assert 'a_total{x="1",y="q"} 1\n' in page
    assert 'a_total{x="unexpected",y="q"} 2\n' in page
    assert page.count("a_total{") == 2


# Resources.


def pod(name="p", *, node="", phase="Pending", priority=None, **spec):
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {
                "nodeName": node,
                "schedulerName": "default-scheduler",
                **({} if priority is None else {"priority": priority}),
                **spec,
            },
            "status": {"phase": phase},
        },
        Pod,
    )


def container(name="c", *, requests=None, limits=None, **fields):
    return {
        "name": name,
        "resources": {"requests": requests or {}, "limits": limits or {}},
        **fields,
    }


def resources_page(*pods):
    async def main():
        return b"".join([piece async for piece in pod_resources.page(pods)]).decode()

    return asyncio.run(main())


def samples(page):
    return {
        (
            sample.name,
            sample.labels["pod"],
            sample.labels["node"],
            sample.labels["priority"],
            sample.labels["resource"],
            sample.labels["unit"],
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_requests_and_limits_are_listed_with_units():
    spec = container(requests={"cpu": "250m", "memory": "1Gi"}, limits={"cpu": "1", "gpu.io/x": 2})
    page = resources_page(pod(node="n1", priority=5, containers=[spec]))
    assert samples(page) == {
        ("kube_pod_resource_request", "p", "n1", "5", "cpu", "cores"): 0.25,
        ("kube_pod_resource_request", "p", "n1", "5", "memory", "bytes"): 2**30,
        ("kube_pod_resource_limit", "p", "n1", "5", "cpu", "cores"): 1.0,
        ("kube_pod_resource_limit", "p", "n1", "5", "gpu.io/x", ""): 2.0,
    }


def test_zeros_and_finished_pods_are_left_out():
    none = container(requests={"cpu": 0})
    some = container(requests={"cpu": 1})
    page = resources_page(
        pod("zero", containers=[none]),
        pod("done", node="n", phase="Succeeded", containers=[some]),
        pod("failed", node="n", phase="Failed", containers=[some]),
        pod("odd", phase="Failed", containers=[some]),
    )
    assert {key[1] for key in samples(page)} == {"odd"}


def test_a_pod_without_priority_has_an_empty_one():
    page = resources_page(pod(containers=[container(requests={"cpu": 1})]))
    assert 'priority=""' in page


def test_a_pod_that_cannot_be_understood_does_not_spoil_the_page():
    bad = pod("bad", containers=[container(requests={"cpu": "lots"})])
    good = pod("good", containers=[container(requests={"cpu": 1})])
    assert {key[1] for key in samples(resources_page(bad, good))} == {"good"}


def test_labels_are_escaped():
    odd = pod(node='n"\\', containers=[container(requests={"cpu": 1})])
    assert {key[2] for key in samples(resources_page(odd))} == {'n"\\'}


def test_limits_of_init_containers_count_where_they_are_higher():
    sidecar = container("s", limits={"cpu": "1"}, restartPolicy="Always")
    init = container("i", limits={"cpu": "4"})
    main = container("m", limits={"cpu": "2"})
    limits = limit_amounts(pod(containers=[main], initContainers=[sidecar, init]))
    assert limits["cpu"] == 5 * 10**9  # the init container beside the sidecar


def test_pod_level_limits_replace_those_of_containers():
    spec = pod(
        containers=[container(limits={"cpu": "2", "gpu.io/x": 1})],
        resources={"limits": {"cpu": "3", "gpu.io/x": 9}},
    )
    limits = limit_amounts(spec)
    assert limits == {"cpu": 3 * 10**9, "gpu.io/x": 10**9}


def test_overhead_counts_only_where_there_is_a_limit():
    spec = pod(
        containers=[container(limits={"cpu": "2"})], overhead={"cpu": "500m", "memory": "1Mi"}
    )
    assert limit_amounts(spec) == {"cpu": 2_500_000_000}


@pytest.mark.parametrize(
    ("resource", "unit"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("storage", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("hugepages-2Mi", "bytes"),
        ("attachable-volumes-csi-x", "integer"),
        ("nvidia.com/gpu", ""),
    ],
)
def test_units(resource, unit):
    assert unit_of(resource) == unit


@pytest.mark.parametrize("is_active", [True, False])
def test_a_standby_says_nothing_about_pods(is_active):
    page = ResourcesPage(
        lambda: [pod(containers=[container(requests={"cpu": 1})])], lambda: is_active
    )

    async def main():
        answer = await page(PageRequest(path="/metrics/resources"))
        if answer.stream is None:
            return answer.body
        return b"".join([piece async for piece in answer.stream])

    assert bool(asyncio.run(main())) is is_active


def test_a_page_of_many_pods_comes_in_pieces():
    pods = [pod(f"p{n}", containers=[container(requests={"cpu": 1})]) for n in range(1000)]

    async def main():
        return [piece async for piece in pod_resources.page(pods)]

    pieces = asyncio.run(main())
    assert len(pieces) == 10
    assert b"".join(pieces).count(b"# TYPE") == 1
