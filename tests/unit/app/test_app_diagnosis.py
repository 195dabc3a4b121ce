"""What SIGUSR2 finds: differences between cache, informers and API server, and only those that
last.
"""

from dataclasses import dataclass, field

import pytest
from msgspec import convert

from kubesched.api.codec import ListOf
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.meta import ListMeta
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.app import diagnosis
from kubesched.base.errors import ServerError
from kubesched.testing import Cluster, make_node, make_pod


@dataclass
class FakeApp:
    assembly: object
    informers: object


@dataclass
class FakeServer:
    """Lists what it was given, a different thing each time if there are several."""

    nodes: list
    pods: list
    error: Exception | None = None
    asked: int = 0
    pods_by_look: list = field(default_factory=list)

    async def list(self, kind, **_selection):
        if self.error is not None:
            raise self.error
        if kind is Node:
            return ListOf(metadata=ListMeta(), items=self.nodes)
        self.asked += 1
        pods = self.pods_by_look.pop(0) if self.pods_by_look else self.pods
        return ListOf(metadata=ListMeta(), items=pods)


@pytest.fixture
def messages(caplog):
    caplog.set_level(10)
    return lambda: [record.msg for record in caplog.records]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(diagnosis, "SETTLING_S", 0.0)


def scheduled(harness):
    harness.add(make_node("n1").build())
    harness.add(make_pod("a").build())
    harness.add(make_pod("big").cpu("100").build())
    harness.settle()
    return FakeApp(harness.assembly, harness.listers)


async def test_a_healthy_scheduler_has_nothing_to_report(messages):
    with Cluster() as harness:
        app = scheduled(harness)
        assert diagnosis.compare_with_informers(app)
        diagnosis.check(app)
    assert "Cache mismatch" not in messages()


async def test_what_the_cache_missed_is_named(caplog):
    with Cluster() as harness:
        app = scheduled(harness)
        harness.listers.of(Node).put(make_node("unseen").build())
        harness.listers.of(Pod).put(make_pod("unseen").on("n1").build())
        with caplog.at_level(10):
            assert not diagnosis.compare_with_informers(app)
    nodes, pods = [r.values for r in caplog.records if r.msg == "Cache mismatch"]
    assert nodes == {"missedNodes": ["unseen"], "redundantNodes": []}
    assert len(pods["missedPods"]) == 1
    assert pods["redundantPods"] == []


async def test_pods_of_other_schedulers_are_not_missed():
    with Cluster() as harness:
        app = scheduled(harness)
        foreign = make_pod("foreign")
        foreign.json["spec"]["schedulerName"] = "other"
        harness.listers.of(Pod).put(foreign.build())
        assert diagnosis.compare_with_informers(app)


async def test_informers_and_server_agree():
    with Cluster() as harness:
        app = scheduled(harness)
        server = FakeServer(harness.listers.of(Node).list(), list(harness.listers.of(Pod).list()))
        assert await diagnosis.compare_with_server(app, server)
        assert server.asked == 1


async def test_a_difference_that_passes_is_only_a_watch_event_under_way(messages):
    with Cluster() as harness:
        app = scheduled(harness)
        pods = list(harness.listers.of(Pod).list())
        server = FakeServer(harness.listers.of(Node).list(), pods, pods_by_look=[pods[1:], pods])
        assert await diagnosis.compare_with_server(app, server)
        assert server.asked == 2
    assert "Informers do not agree with the API server" not in messages()


async def test_a_difference_that_lasts_is_an_error(messages):
    with Cluster() as harness:
        app = scheduled(harness)
        pods = list(harness.listers.of(Pod).list())
        server = FakeServer(harness.listers.of(Node).list(), pods[1:])
        assert not await diagnosis.compare_with_server(app, server)
    assert "Informers do not agree with the API server" in messages()


async def test_a_server_that_cannot_be_asked_is_said_so(messages):
    with Cluster() as harness:
        app = scheduled(harness)
        server = FakeServer([], [], error=ServerError("down"))
        assert not await diagnosis.compare_with_server(app, server)
    assert "The API server could not be asked for comparison" in messages()


async def test_the_dump_has_every_node_and_waiting_pod(caplog):
    with Cluster() as harness:
        app = scheduled(harness)
        with caplog.at_level(10):
            await diagnosis.dump_nodes(app)
            await diagnosis.dump_queue(app)
    nodes, queue = [r.values for r in caplog.records if r.msg.startswith("Dump of")]
    assert "Node name: n1" in nodes["nodes"]
    assert "Scheduled Pods(number: 1):" in nodes["nodes"]
    assert queue["summary"] == "activeQ:0; backoffQ:0; unschedulableEntities:1"
    assert queue["pods"].startswith("name: big, namespace: default")


def claim(name, **status):
    body = {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}
    return convert(body, ResourceClaim)


async def test_the_dump_has_claims_with_their_devices(caplog):
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    reserved = [{"resource": "pods", "name": "a", "uid": "a"}]
    with Cluster() as harness:
        harness.put(claim("open"))
        allocation = {"devices": {"results": [result]}}
        harness.put(claim("held", allocation=allocation, reservedFor=reserved))
        with caplog.at_level(10):
            await diagnosis.dump_claims(FakeApp(harness.assembly, harness.listers))
    (line,) = [r.values["claims"] for r in caplog.records if r.msg == "Dump of resource claims"]
    assert line.splitlines() == [
        "name: held, namespace: default, uid: held, state: allocated, "
        "devices: gpu=gpu.example.com/n1/gpu-0, reserved for: a",
        "name: open, namespace: default, uid: open, state: open, devices: , reserved for: ",
    ]


def test_many_differences_are_counted_not_listed():
    some = diagnosis._some({f"n{number:03d}" for number in range(150)})
    assert len(some) == 101
    assert some[-1] == "and 50 more"
