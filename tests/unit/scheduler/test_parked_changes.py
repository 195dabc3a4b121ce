"""Changes that arrive while an attempt waits: applied afterwards, and a failing handler must not
end the scheduler.
"""

from __future__ import annotations

import json

import pytest

from kubesched.base.errors import KubeschedError, Unrecoverable
from kubesched.client.exchange import BufferedResponse
from kubesched.client.transport import Request
from kubesched.scheduler.event_gate import EventGate
from kubesched.testing import Cluster
from kubesched.testing.builders import make_node, make_pod

BINDER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://extender.example.com
  weight: 1
  nodeCacheCapable: true
  filterVerb: filter
  bindVerb: bind
"""


def fail_with(error):
    def change():
        raise error

    return change


@pytest.mark.parametrize("error", [KubeschedError("bad object"), RuntimeError("bug")], ids=str)
def test_a_failing_parked_change_does_not_keep_the_others_from_being_applied(error):
    gate, applied = EventGate(), []
    with gate.hold():
        gate.park(fail_with(error))
        gate.park(lambda: applied.append("second"))
    assert applied == ["second"]


def test_an_unrecoverable_parked_change_is_raised():
    gate = EventGate()
    with pytest.raises(Unrecoverable), gate.hold():
        gate.park(fail_with(Unrecoverable("cache is corrupted")))


class RestoredMeanwhile:
    """A transport to an extender; while it is first asked about nodes, a restored cluster's list
    arrives.
    """

    def __init__(self) -> None:
        self.world: Cluster
        self._is_first = True

    async def request(self, request: Request) -> BufferedResponse:
        pod, answer = self.world.pod("p"), {}
        if request.target.endswith("bind"):
            await self.world.client.bind_pod(pod, json.loads(request.body)["Node"])
        else:
            answer = {"NodeNames": ["n1"]}
            if self._is_first:
                self._is_first = False
                self.world.assembly.handlers.pod_deleted(pod, final_state_unknown=True)
                self.world.assembly.handlers.pod_added(pod)
        return BufferedResponse(200, [], json.dumps(answer).encode())

    async def aclose(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("binder", ["extender", "task", "callback"])
def test_a_pod_that_was_deleted_and_restored_meanwhile_is_tried_anew(binder):
    """Simulation seed 24797: it was bound where its room no longer counted, and its entry in the
    queue was dropped.
    """
    extender = RestoredMeanwhile()
    config = BINDER if binder == "extender" else BINDER.replace("  bindVerb: bind\n", "")
    with Cluster(config=config, extender_transport=extender) as world:
        extender.world = world
        were_counted = []

        def note(pod, _node_name):
            cache = world.assembly.scheduler.cache
            were_counted.append(cache.get_pod(pod.metadata.uid) is not None)

        def start(pod, node_name, done):
            note(pod, node_name)
            done(lambda: world.client.bind_pod(pod, node_name))
            return lambda: None

        if binder == "callback":
            world.client.start_binding = start
        else:
            world.client.before["bind_pod"] = note
        world.add(make_node("n1").build())
        world.add(make_pod("p").build())
        world.settle()
        world.advance(3)
        assert were_counted == [True]
        assert world.client.bindings == {"default/p": "n1"}
        world.assembly.scheduler.check_invariants()
