"""Nothing the cast needs lives in memory only: after a restart at any moment it carries on."""

from __future__ import annotations

import pytest

from kubesched.playground.controllers.volumes import StorageDriver


@pytest.fixture
def stories(make_world):
    """A cluster in the middle of everything at once."""

    def begin():
        world = make_world(3, storage=(StorageDriver(binding_mode="Immediate"),), events=False)
        world.deployment(replicas=4)
        world.run(10)
        containers = [{"name": "main", "image": "web:2"}]
        world.patch(
            "deployments.apps", "web", {"spec": {"template": {"spec": {"containers": containers}}}}
        )
        world.workload(
            "statefulsets.apps",
            "db",
            labels={"app": "db"},
            replicas=3,
            volumeClaimTemplates=[
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "standard",
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        )
        world.workload("daemonsets.apps", "log", labels={"app": "log"})
        template = world.template(labels={"app": "job"}, restartPolicy="Never")
        world.create(
            "jobs.batch",
            {
                "metadata": {"name": "work"},
                "spec": {"completions": 3, "parallelism": 2, "template": template},
            },
        )
        world.workload("deployments.apps", "doomed", labels={"app": "doomed"}, replicas=2)
        world.settle()
        world.delete("deployments.apps", "doomed", propagation="Foreground")
        return world

    return begin


def check(world):
    images = [pod["spec"]["containers"][0]["image"] for pod in world.active_pods("app=web")]
    assert images == ["web:2"] * 4
    assert [pod["metadata"]["name"] for pod in world.active_pods("app=db")] == [
        "db-0",
        "db-1",
        "db-2",
    ]
    claims = world.list("persistentvolumeclaims")
    assert [claim["status"]["phase"] for claim in claims] == ["Bound"] * 3
    assert len(world.list("persistentvolumes")) == 3
    assert len(world.active_pods("app=log")) == 3
    job = world.get("jobs.batch", "work")["status"]
    assert (job["succeeded"], job.get("failed", 0)) == (3, 0)
    assert len(world.pods("app=job")) == 3
    assert world.pods("app=doomed") == []
    assert not world.exists("deployments.apps", "doomed")


def test_without_a_restart_everything_ends_well(stories):
    world = stories()
    world.run(60)
    check(world)


@pytest.mark.parametrize("moment_s", [0.0, 0.3, 0.7, 1.1, 1.7, 2.5, 4.0])
def test_a_restart_changes_nothing_about_the_end(stories, moment_s):
    world = stories()
    world.run(moment_s)
    world.restart()
    world.run(60)
    check(world)


def test_a_restart_after_every_few_steps_changes_nothing_either(stories):
    world = stories()
    for _ in range(25):
        for name in ("deployment", "replicaset", "job", "statefulset", "kubelet-pods"):
            world.cast[name].process(3)
        world.schedule()
        world.clock.advance(0.4)
        world.restart()
    world.run(120)
    check(world)
