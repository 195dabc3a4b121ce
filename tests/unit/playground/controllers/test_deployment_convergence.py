"""Whatever is done to a Deployment, it never leaves its bounds by itself and ends as asked.

Random sequences of scaling, template changes, pausing, killing pods and waiting run against the
real cast. After every single turn of every controller the surge bound is checked; availability is
checked against what the controllers themselves took away.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

D = "deployments.apps"

STEPS = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 8)),
    st.tuples(st.just("image"), st.integers(1, 4)),
    st.tuples(st.just("kill"), st.integers(0, 20)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.4, 1.3, 5.0])),
    st.tuples(st.just("turns"), st.integers(1, 6)),
)
BOUND = st.one_of(st.integers(0, 3), st.sampled_from(["25%", "50%", "100%"]))


def share(bound, total, rounded) -> int:
    return bound if isinstance(bound, int) else rounded(int(bound.rstrip("%")) * total / 100)


def is_serving(pod) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


class Checked:
    """A world whose Deployment is watched after every turn."""

    def __init__(self, world, bounds, order) -> None:
        self.world = world
        self.bounds = bounds
        self.order = order
        self.largest = 0
        self.fewest = math.inf  # what was decided under an earlier size may still be carried out

    def spec_total(self) -> int:
        return sum(each["spec"]["replicas"] for each in self.world.list("replicasets.apps"))

    def turn(self) -> int:
        """One key of one controller after another; whoever removes pods leaves enough that
        serve.
        """
        done = 0
        names = ["deployment", "replicaset", "kubelet-pods", "garbagecollector"]
        self.order.shuffle(names)
        for name in names:
            serving = sum(is_serving(pod) for pod in self.world.pods())
            done += self.world.cast[name].process(1)
            if name == "replicaset":
                self.check_availability(serving)
            self.check_surge()
        return done + self.world.schedule()

    def check_surge(self) -> None:
        wanted = self.world.get(D, "web")["spec"]["replicas"]
        bounds = self.bounds(wanted)
        total = self.spec_total()
        # After a scale-down the sets may still add up to what was allowed before; never to more.
        self.largest = max(bounds[1], min(self.largest, total))
        assert total <= self.largest, (total, bounds, self.largest)

    def check_availability(self, serving_before: int) -> None:
        wanted = self.world.get(D, "web")["spec"]["replicas"]
        serving = sum(is_serving(pod) for pod in self.world.pods())
        owed = min(serving_before, self.fewest, self.bounds(wanted)[0])
        assert serving >= owed, (serving, serving_before)

    def settle(self) -> None:
        for _ in range(1000):
            if not self.turn():
                self.fewest = math.inf
                return
        raise AssertionError("no rest")

    def wait(self, seconds: float) -> None:
        end = self.world.clock.monotonic() + seconds
        self.settle()
        while True:
            waits = [
                wait
                for name in ("deployment", "replicaset", "kubelet-pods")
                if (wait := self.world.cast[name].queue.next_due_s()) is not None
            ]
            pause = min(waits, default=None)
            if pause is None or self.world.clock.monotonic() + pause > end:
                break
            self.world.clock.advance(pause)
            self.settle()
        self.world.clock.advance(max(0.0, end - self.world.clock.monotonic()))
        self.settle()


@pytest.mark.slow
@given(
    replicas=st.integers(1, 6),
    surge=BOUND,
    unavailable=BOUND,
    steps=st.lists(STEPS, min_size=1, max_size=12),
    seed=st.integers(0, 3),
    order=st.randoms(use_true_random=False),
)
@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a cluster takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_handling_converges_within_bounds(
    make_world, replicas, surge, unavailable, steps, seed, order
):
    if surge == 0 and unavailable == 0:
        surge = 1
    world = make_world(3, seed=seed, events=False)
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    world.deployment(replicas=replicas, strategy=strategy, progressDeadlineSeconds=60)

    def bounds(wanted):
        """The fewest that must serve and the most there may be, straight from the definition."""
        surge_count = share(surge, wanted, math.ceil)
        unavailable_count = share(unavailable, wanted, math.floor)
        if surge_count == 0 and unavailable_count == 0:
            unavailable_count = 1
        return wanted - unavailable_count, wanted + surge_count

    checked = Checked(world, bounds, order)
    checked.wait(5)  # begin with pods that serve, or there is nothing to lose
    wanted, image = replicas, 1
    for kind, value in steps:
        if kind == "scale":
            checked.largest = max(checked.largest, checked.spec_total())
            checked.fewest = min(checked.fewest, bounds(wanted)[0])
            wanted = value
            world.patch(D, "web", {"spec": {"replicas": value}})
        elif kind == "image":
            image = value
            containers = [{"name": "main", "image": f"web:{value}"}]
            world.patch(D, "web", {"spec": {"template": {"spec": {"containers": containers}}}})
        elif kind in ("kill", "delete") and world.pods():
            pod = world.pods()[value % len(world.pods())]["metadata"]["name"]
            if kind == "delete":
                world.delete("pods", pod)
            else:
                world.patch("pods", pod, {"status": {"phase": "Failed"}}, subresource="status")
        elif kind == "pause":
            world.patch(D, "web", {"spec": {"paused": value}})
        elif kind == "wait":
            checked.wait(value)
        elif kind == "turns":
            for _ in range(value):
                checked.turn()
    world.patch(D, "web", {"spec": {"paused": False}})
    checked.wait(120)
    assert [pod["spec"]["containers"][0]["image"] for pod in world.active_pods()] == [
        f"web:{image}"
    ] * wanted
    assert all(is_serving(pod) for pod in world.active_pods())
    status = world.get(D, "web")["status"]
    assert status.get("replicas", 0) == status.get("availableReplicas", 0) == wanted
    world.registry.store.check_invariants()
