"""Pods that a plugin asks to activate are tried again, at whichever point it asks."""

from __future__ import annotations

import pytest

from kubesched.api.core_v1 import Pod
from kubesched.framework.interfaces import PermitPlugin, PostBindPlugin, ReservePlugin
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod

WAITS = "default/waits"


class Reserving(ReservePlugin):
    name = "Asker"

    def reserve(self, state, pod, node_name):
        ask(self, state)

    def unreserve(self, state, pod, node_name):
        """Nothing was reserved."""


class Permitting(PermitPlugin):
    name = "Asker"

    def permit(self, state, pod, node_name):
        ask(self, state)


class AfterBinding(PostBindPlugin):
    name = "Asker"

    def post_bind(self, state, pod, node_name):
        ask(self, state)


def ask(plugin, state):
    state.pods_to_activate.pods[WAITS] = plugin.handle.listers.of(Pod).get("default", "waits")


CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: Asker}]
"""


@pytest.mark.parametrize("plugin", [Reserving, Permitting, AfterBinding])
def test_a_pod_that_waits_is_tried_when_a_plugin_asks_for_it(plugin):
    world = Cluster(config=CONFIG, plugins=[plugin])
    try:
        world.add(make_node("n").capacity(cpu="1").build())
        world.add(make_pod("waits").cpu("2").build())
        world.settle()
        before = attempts(world)
        world.add(make_pod("other").cpu("100m").build())
        world.settle()
        world.advance(60)
        assert world.client.bindings == {"default/other": "n"}
        assert attempts(world) == before + 1
    finally:
        world.close()


def attempts(world):
    return world.assembly.scheduler.queue.get_pod("default", "waits").attempts
