"""What SIGUSR2 finds: differences between cache and informers, and what it dumps."""

from dataclasses import dataclass

import pytest

from kubesched.api.core_v1 import Node, Pod
from kubesched.app import diagnosis
from kubesched.testing import Cluster, make_node, make_pod


@dataclass
class FakeApp:
    assembly: object
    informers: object


@pytest.fixture
def messages(caplog):
    caplog.set_level(10)
    return lambda: [record.msg for record in caplog.records]


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


def test_many_differences_are_counted_not_listed():
    some = diagnosis._some({f"n{number:03d}" for number in range(150)})
    assert len(some) == 101
    assert some[-1] == "and 50 more"
