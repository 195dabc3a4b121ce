"""Marks: the node that came last is marked, once after every change, by players and replays
alike.
"""

from kubesched.lab.conformance.player import NodeMarks
from kubesched.lab.conformance.replay import replay
from kubesched.lab.conformance.sequences import Decision, Sequence, Step

IMAGES = [{"names": ["app:1"], "sizeBytes": 900 << 20}]


def node(name, cpu="4", **status):
    allocatable = {"cpu": cpu, "memory": "4Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"size": name}},
        "status": {"allocatable": allocatable, "capacity": allocatable, **status},
    }


def pod(name, image, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }


def test_the_node_that_came_last_is_marked_once():
    marks = NodeMarks()
    assert not marks.is_due()
    assert marks.node() == ""
    for name in ("a", "b", "c"):
        marks.note(Step("create", node(name)))
    marks.note(Step("patch", node("a")))
    assert (marks.is_due(), marks.is_due()) == (True, False)
    assert marks.node() == "c"
    marks.note(Step("delete", node("c")))
    assert marks.is_due()
    assert marks.node() == "b"
    marks.note(Step("delete", node("a")))
    marks.note(Step("create", node("a")))
    assert marks.node() == "a"


def test_marks_differ_from_each_other():
    marks = NodeMarks()
    assert marks.next() != marks.next()
    assert marks.made == 2


def test_a_replay_makes_the_marks_of_the_player_whose_decisions_are_recorded():
    """Marked, the big node learns that its image is on both by now, and no longer comes second for
    it.
    """
    steps = [
        Step("create", node("small", cpu="3")),
        Step("create", node("big", cpu="4", images=IMAGES)),
        Step("create", pod("first", "other:1", nodeSelector={"size": "small"})),
        Step("patch", node("small"), {"status": {"images": IMAGES}}, "status"),
        Step("create", pod("second", "app:1")),
    ]
    assert replay(Sequence(steps))[4] == Decision(node="big")
