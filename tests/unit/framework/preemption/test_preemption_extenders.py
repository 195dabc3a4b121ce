"""Extenders in preemption: who is asked, in which order, and what follows from each answer."""

from __future__ import annotations

import pytest

from kubesched.base.errors import KubeschedError, NotFound
from kubesched.framework.extenders import Victims
from kubesched.framework.preemption.extenders import find_victims


class FakeExtender:
    """Answers with a function of the candidates; records the nodes it saw."""

    def __init__(
        self,
        answer=lambda victims: victims,
        *,
        ignorable=False,
        preempts=True,
        interested=True,
        name="http://extender",
    ):
        self._answer = answer
        self.name = name
        self.is_ignorable = ignorable
        self.supports_preemption = preempts
        self._interested = interested
        self.saw: list[list[str]] = []

    def is_interested(self, pod):
        return self._interested

    async def process_preemption(self, pod, victims):
        self.saw.append(sorted(victims))
        return self._answer(victims)


def only(*nodes):
    return lambda victims: {name: victims[name] for name in nodes}


def broken(_victims):
    raise KubeschedError("failed preempt with extender at URL http://extender, code 500")


def gone(_victims):
    raise NotFound('pods "p" not found')


def without_victims(victims):
    return {name: Victims(()) for name in victims}


def scene(make_world, *extenders, priorities=(1, 2, 3)):
    """Nodes n1, n2, ... each with one victim; without extenders n1 would be chosen."""
    world = make_world()
    for number, priority in enumerate(priorities, 1):
        world.node(f"n{number}", "1")
        world.on(f"n{number}", f"v{number}", priority=priority)
    world.handle.extenders = extenders
    return world


@pytest.mark.parametrize(
    ("extenders", "answer"),
    [
        pytest.param([], ("n1", ""), id="no extender"),
        pytest.param([FakeExtender()], ("n1", ""), id="one that agrees"),
        pytest.param([FakeExtender(only("n2", "n3"))], ("n2", ""),
                     id="one that rules out the best"),
        pytest.param(
            [FakeExtender(only("n2", "n3")), FakeExtender(only("n3"))], ("n3", ""),
            id="each sees what the one before left",
        ),
        pytest.param(
            [FakeExtender(lambda _: {})], (None, "preemption: no candidate node for preemption"),
            id="one that rules out everything",
        ),
        pytest.param(
            [FakeExtender(broken)],
            (None, "preemption: failed preempt with extender at URL http://extender, code 500"),
            id="one that fails",
        ),
        pytest.param([FakeExtender(broken, ignorable=True)], ("n1", ""), id="one that may fail"),
        pytest.param(
            [FakeExtender(gone, ignorable=True)],
            (None, 'preemption: pods "p" not found'),
            id="one that may fail, but was not asked because the pod is gone",
        ),
        pytest.param(
            [FakeExtender(broken, ignorable=True), FakeExtender(only("n2"))], ("n2", ""),
            id="after one that may fail the next is asked",
        ),
        pytest.param([FakeExtender(broken, interested=False)], ("n1", ""),
                     id="one with no interest"),
        pytest.param([FakeExtender(broken, preempts=False)], ("n1", ""),
                     id="one without a preempt verb"),
        pytest.param(
            [FakeExtender(without_victims)],
            (None, 'preemption: expected at least one victim pod on node "n{}"'),
            id="one that leaves a node without victims",
        ),
        pytest.param(
            [FakeExtender(without_victims, ignorable=True)],
            (None, "preemption: no candidate node for preemption"),
            id="one that may fail and leaves no victims: the nodes are dropped",
        ),
    ],
)  # fmt: skip
async def test_answers(make_world, extenders, answer) -> None:
    world = scene(make_world, *extenders)
    node, message = await world.preempt_and_wait(world.pending())
    assert node == answer[0]
    allowed = [answer[1].format(number) for number in (1, 2, 3)]
    assert message in allowed
    assert bool(world.spawned) == (node is not None), "nothing is evicted without a node"


async def test_victims_and_violations_are_taken_over_as_they_are(make_world) -> None:
    def swapped(victims):
        return {
            "n1": Victims(victims["n1"].pods, pdb_violations=5),
            "n3": Victims(victims["n3"].pods, pdb_violations=1),
        }

    world = scene(make_world, FakeExtender(swapped))
    assert await world.preempt_and_wait(world.pending()) == ("n3", "")


async def test_a_node_that_was_no_candidate_may_be_named(make_world) -> None:
    world = scene(make_world, priorities=(1, 2, 500))
    (other,) = world.table.pods[world.table.row_of["n3"]].values()
    world.handle.extenders = [FakeExtender(lambda _: {"n3": Victims((other.pod,))})]
    assert await world.preempt_and_wait(world.pending()) == ("n3", "")


async def test_no_extender_is_asked_without_candidates(make_world) -> None:
    extender = FakeExtender()
    world = scene(make_world, extender, priorities=(500,))
    assert (await world.preempt_and_wait(world.pending()))[0] == ""
    assert extender.saw == []


async def test_an_emptied_list_ends_the_asking(make_world) -> None:
    last = FakeExtender()
    world = scene(make_world, FakeExtender(lambda _: {}), last)
    await world.preempt_and_wait(world.pending())
    assert last.saw == []


def test_uids_are_resolved_on_their_node(world) -> None:
    world.node("n")
    pod = world.on("n", "a")
    found = find_victims(world.table, "http://extender", "n", [pod.metadata.uid], 2)
    assert found == Victims((pod,), 2)


@pytest.mark.parametrize(
    ("node", "uid", "message"),
    [
        pytest.param(
            "n", "absent",
            "extender: http://extender claims to preempt pod (UID: &{absent}) on node: n, "
            "but the pod is not found on that node",
            id="an unknown pod",
        ),
        pytest.param(
            "m", "x", 'extender: http://extender claims to preempt on unknown node "m"',
            id="an unknown node",
        ),
    ],
)  # fmt: skip
def test_what_an_extender_makes_up_is_an_error(world, node, uid, message) -> None:
    world.node("n")
    with pytest.raises(KubeschedError) as caught:
        find_victims(world.table, "http://extender", node, [uid], 0)
    assert str(caught.value) == message
