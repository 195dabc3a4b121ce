"""What the queue shows of groups: their pods, where they wait, and until when."""

from __future__ import annotations

from group_scenarios import Groups

from kubesched.api.core_v1 import Pod
from kubesched.insight.page.pending import pending_pods, queued_pods

GATE = [{"name": "example.com/wait"}]


def _crowded() -> Groups:
    """A gang that fits nowhere, one that is gated, one without its group, and a single pod."""
    world = Groups(2)
    world.pods("", "alone", cpu=9)
    world.group("large", 3)
    world.pods("large", "a", "b", "c")
    world.group("gated", 2)
    world.pods("gated", "d")
    world.pods("gated", "e", schedulingGates=GATE)
    world.pods("later", "f")
    world.settle()
    return world


def test_pods_of_groups_are_among_the_pending():
    with _crowded() as world:
        queue = world.assembly.scheduler.queue
        pods, summary = queue.pending_pods()
        assert sorted(pod.metadata.name for pod in pods) == ["a", "alone", *"bcdef"]
        assert summary == (
            "activeQ:0; backoffQ:3; unschedulableEntities:3; "
            "pendingPodGroupMemberPods:0; incompletePodGroupPods:1"
        )
        assert queue.sizes == (0, 3, 4)
        sizes = {
            name: cell.current() for (name,), cell in queue._metrics.pending_pods.cells().items()
        }
        assert sizes == {
            **dict.fromkeys(("active", "pending"), 0),
            "backoff": 3,
            "unschedulable": 1,
            "gated": 2,
            "incomplete": 1,
        }
        assert [(it.info.pod_info.name, it.place) for it in queue.entries()] == [
            ("alone", "unschedulable"),
            ("a", "backoff"),
            ("b", "backoff"),
            ("c", "backoff"),
            ("d", "gated"),
            ("e", "gated"),
            ("f", "incomplete"),
        ]


def test_ready_groups_stand_between_the_pods_before_and_behind_them():
    with Groups(9) as world:
        world.group("gang", 2, priority=5)
        world.pods("", "last", priority=1)
        world.pods("gang", "a", "b", priority=5)
        world.pods("", "first", priority=9)
        ready = world.assembly.scheduler.queue.entries()
        names = [it.info.pod_info.name for it in ready]
        assert names == ["first", "a", "b", "last"]
        assert {it.place for it in ready} == {"active"}


def test_the_page_shows_groups_as_one():
    with _crowded() as world:
        shown = queued_pods(world.assembly, ())
        rows = {row["pod"].removeprefix("default/"): row for row in shown["pods"]}
        assert {name: (row["group"], row["place"]) for name, row in rows.items()} == {
            "alone": ("", "unschedulable"),
            **dict.fromkeys("abc", ("PodGroup/large", "backoff")),
            **dict.fromkeys("de", ("PodGroup/gated", "gated")),
            "f": ("PodGroup/later", "incomplete"),
        }
        assert len({rows[name]["why"] for name in "abc"}) == 1
        assert "minCount" in rows["a"]["why"]
        assert rows["a"]["retryAt"] == rows["c"]["retryAt"] > 0
        assert rows["d"]["why"] == rows["e"]["why"] == "scheduling gates: example.com/wait"
        assert rows["f"]["why"] == "PodGroup/later, or a group above it, does not exist"
        counts = {place: count for place, count in shown["counts"].items() if count}
        assert counts == {"unschedulable": 1, "backoff": 3, "gated": 2, "incomplete": 1}
        told = pending_pods(world.assembly, world.objects(Pod))
        assert {row["group"] for row in told["pods"]} == {
            "",
            *(it["group"] for it in rows.values()),
        }
