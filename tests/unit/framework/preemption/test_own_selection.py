"""Preemption with a plugin's own choice of victims, through `Handle.preemption`."""

from __future__ import annotations

from kubesched.framework import PostFilterPlugin, unresolvable
from kubesched.framework.api import PodDisruptionBudget
from kubesched.testing import Cluster, make_node, make_pod

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    postFilter:
      enabled: [{name: LastInName}]
      disabled: [{name: DefaultPreemption}]
"""


class LastInName(PostFilterPlugin):
    """Evicts the pod with the last name from nodes that end in `b`, whatever its priority."""

    name = "LastInName"
    lists = (PodDisruptionBudget,)

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self.preemption = handle.preemption(self.name, self.select)

    def post_filter(self, state, pod, statuses):
        return self.preemption.preempt(state, pod, statuses)

    def select(self, node):
        if not node.node_name.endswith("b"):
            return unresolvable("not here")
        victim = max(node.pods, key=lambda pod: pod.name)
        assert node.rejection() is not None
        assert node.take(victim) is None
        assert node.rejection() is None
        assert node.violated_by([victim]) == [False]
        return node.victims(node.ranked([victim]), 0)


def pod(name: str, node: str = ""):
    built = make_pod(name).request("cpu", "1").spec(priority=9)
    return (built.spec(nodeName=node) if node else built).build()


def cluster(*names: str) -> Cluster:
    nodes = [make_node(name).capacity(cpu="2", memory="4Gi", pods=10).build() for name in names]
    pods = [pod(f"{name}-{number}", name) for name in names for number in (1, 2)]
    return Cluster([*nodes, *pods], CONFIG, plugins=[LastInName])


def test_victims_are_the_plugins_choice_and_may_have_the_same_priority():
    with cluster("a", "b") as small:
        small.add(pod("p"))
        small.settle()
        assert small.client.deleted == ["default/b-2"]
        small.advance(2)
        assert small.node_of("p") == "b"


def test_a_status_says_why_a_node_is_no_candidate():
    with cluster("a") as small:
        small.add(pod("p"))
        small.settle()
        assert small.client.deleted == []
        assert small.condition("p")[1].endswith("0/1 nodes are available: 1 not here.")
