"""Which pods are asked about an event, where plugins know whom it is about."""

import logging

import pytest

from kubesched.framework.events import Action, ClusterEvent, Hint, Resource, on_event

CLAIM = ClusterEvent(Resource.RESOURCE_CLAIM, Action.UPDATE)


class Claims:
    """A plugin whose events name the pod that they are about; its hints keep a record."""

    def __init__(self, name="Claims"):
        self.name, self.asked = name, []

    def events(self, narrow):
        return [on_event(Resource.RESOURCE_CLAIM, Action.ALL, self.hint, narrow=narrow)]

    def hint(self, pod, old, new):
        self.asked.append(pod.metadata.name)
        return Hint.QUEUE


def named(old, new):
    return lambda pod: pod.metadata.name == new


def evaluations(world):
    cells = world.metrics.pre_queueing_hint_evaluations_total.cells()
    return {labels: int(cell.value) for labels, cell in cells.items()}


@pytest.mark.parametrize("narrows", [True, False])
def test_only_the_pods_that_an_event_is_about_are_asked(make_world, narrows):
    """Y4"""
    claims = Claims()
    world = make_world(registered={"Claims": claims.events(named)}, narrows=narrows)
    for name in ("a", "b"):
        world.reject(name, "Claims")
    world.move(CLAIM, "before", "a")
    assert claims.asked == (["a"] if narrows else ["a", "b"])
    assert world.where("b") == ("unschedulable" if narrows else "backoff")
    assert evaluations(world) == ({("Claims", "narrowed"): 1} if narrows else {})


def test_a_plugin_that_cannot_tell_has_all_pods_asked(make_world, caplog):
    caplog.set_level(logging.CRITICAL)

    def fails(old, new):
        raise ValueError("no")

    for narrow, counted in ((lambda old, new: None, {("Claims", "all_pods"): 1}), (fails, {})):
        claims = Claims()
        world = make_world(registered={"Claims": claims.events(narrow)}, narrows=True)
        world.reject("a", "Claims")
        world.reject("b", "Claims")
        world.move(CLAIM, "before", "a")
        assert claims.asked == ["a", "b"]
        assert evaluations(world) == counted


def test_an_event_without_objects_is_about_all_pods(make_world):
    claims = Claims()
    world = make_world(registered={"Claims": claims.events(named)}, narrows=True)
    world.reject("a", "Claims")
    world.move(CLAIM)
    assert claims.asked == ["a"]
    assert evaluations(world) == {}


def test_other_plugins_are_asked_for_the_same_pods_only(make_world):
    """A plugin with a list is asked for its own pods, one without for those of any list."""
    one, two, silent = Claims("One"), Claims("Two"), Claims("Silent")
    world = make_world(
        registered={
            "One": one.events(named),
            "Two": two.events(lambda old, new: lambda pod: pod.metadata.name == old),
            "Silent": silent.events(None),
        },
        narrows=True,
    )
    for name in ("a", "b", "c"):
        world.reject(name, "One", "Two", "Silent", pending=["Silent"])
    world.move(CLAIM, "b", "a")
    assert (one.asked, two.asked, silent.asked) == (["a"], ["b"], ["a", "b"])
    assert world.where("c") == "unschedulable"


def test_profiles_are_asked_each(make_world):
    claims = Claims()
    world = make_world(
        registered={"Claims": claims.events(named)},
        profiles=("default-scheduler", "other"),
        narrows=True,
    )
    world.move(CLAIM, "before", "a")
    assert evaluations(world) == {("Claims", "narrowed"): 2}, "also if nobody waits"
