"""Jobs run pods until enough have succeeded, too many failed, or time is up; each counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubesched.base.errors import Invalid
from kubesched.playground.controllers.job.controller import MAX_PODS_PER_LOOK
from kubesched.playground.controllers.job.policies import format_indexes, parse_indexes

J = "jobs.batch"


def job(world, name="work", *, annotations=None, restart="Never", **spec):
    template = world.template(labels={"job": name}, restartPolicy=restart)
    template["metadata"]["annotations"] = annotations or {}
    return world.create(J, {"metadata": {"name": name}, "spec": {"template": template, **spec}})


def conditions(world, name="work"):
    return {
        each["type"]: (each["status"], each.get("reason"))
        for each in world.get(J, name)["status"].get("conditions", ())
    }


FAILING = {"kubelet.kubesched.io/exit-code": "3"}


def test_a_job_runs_one_pod_to_its_end(world):
    job(world)
    world.run(20)
    status = world.get(J, "work")["status"]
    assert status["succeeded"] == 1
    assert (status["ready"], status["terminating"], status["uncountedTerminatedPods"]) == (0, 0, {})
    assert "active" not in status
    assert status["startTime"] < status["completionTime"]
    assert conditions(world) == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    assert world.reasons("work") == ["SuccessfulCreate", "Completed"]
    [pod] = world.pods()
    assert pod["status"]["phase"] == "Succeeded"
    assert "finalizers" not in pod["metadata"]


def test_parallelism_limits_the_pods_at_a_time(world):
    job(world, parallelism=2, completions=5)
    most = 0
    for _ in range(200):
        world.run(0.25)
        most = max(most, len(world.active_pods()))
    assert most == 2
    assert world.get(J, "work")["status"]["succeeded"] == 5
    assert len(world.pods()) == 5


def test_a_work_queue_ends_with_its_first_success(world):
    job(world, parallelism=3)
    world.run(20)
    assert world.get(J, "work")["spec"].get("completions") is None
    assert world.get(J, "work")["status"]["succeeded"] == 3
    assert "Complete" in conditions(world)


def test_a_failed_pod_is_replaced_after_a_rest_until_the_limit(world):
    job(world, annotations=FAILING, backoffLimit=2)
    world.run(8)
    assert world.get(J, "work")["status"]["failed"] == 1
    assert world.active_pods() == []
    world.run(12)
    assert len(world.pods()) == 2
    world.run(120)
    status = world.get(J, "work")["status"]
    assert status["failed"] == 3
    assert conditions(world)["Failed"] == ("True", "BackoffLimitExceeded")
    assert conditions(world)["FailureTarget"] == ("True", "BackoffLimitExceeded")
    assert "succeeded" not in status
    assert "BackoffLimitExceeded" in world.reasons("work")


def test_restarts_count_against_the_limit_when_pods_restart_in_place(world):
    job(world, annotations=FAILING, restart="OnFailure", backoffLimit=2)
    world.run(200)
    assert conditions(world)["Failed"] == ("True", "BackoffLimitExceeded")
    assert world.active_pods() == []


def test_a_deadline_ends_the_job(world):
    job(world, annotations={"kubelet.kubesched.io/run-duration": "1h"}, activeDeadlineSeconds=30)
    world.run(25)
    assert len(world.active_pods()) == 1
    world.run(20)
    assert conditions(world)["Failed"] == ("True", "DeadlineExceeded")
    assert world.active_pods() == []


def test_a_suspended_job_has_no_pods_until_it_is_resumed(world):
    job(world, suspend=True)
    world.run(10)
    assert world.pods() == []
    assert conditions(world)["Suspended"] == ("True", "JobSuspended")
    assert "startTime" not in world.get(J, "work")["status"]
    world.patch(J, "work", {"spec": {"suspend": False}})
    world.run(20)
    assert conditions(world)["Suspended"] == ("False", "JobResumed")
    assert "Complete" in conditions(world)


def test_suspending_a_running_job_removes_its_pods_without_counting_them(world):
    job(
        world, parallelism=3, completions=3, annotations={"kubelet.kubesched.io/run-duration": "1h"}
    )
    world.run(10)
    world.patch(J, "work", {"spec": {"suspend": True}})
    world.run(20)
    assert world.pods() == []
    status = world.get(J, "work")["status"]
    assert (status.get("failed", 0), status.get("succeeded", 0)) == (0, 0)


def test_indexed_pods_cover_every_index_exactly_once(world):
    job(world, parallelism=2, completions=5, completionMode="Indexed")
    world.run(60)
    status = world.get(J, "work")["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (5, "0-4")
    indexes = [
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        for pod in world.pods()
    ]
    assert sorted(indexes) == ["0", "1", "2", "3", "4"]
    pod = world.pods()[0]
    assert pod["metadata"]["name"].startswith("work-0-")
    assert pod["spec"]["hostname"] == "work-0"
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"


def test_a_failed_index_is_run_again(world):
    job(world, parallelism=2, completions=2, completionMode="Indexed", annotations={})
    world.run(1.5)
    victim = world.active_pods()[0]
    world.patch(
        "pods", victim["metadata"]["name"], {"status": {"phase": "Failed"}}, subresource="status"
    )
    world.run(60)
    status = world.get(J, "work")["status"]
    assert (status["completedIndexes"], status["failed"]) == ("0,1", 1)


def test_a_deleted_pod_counts_as_failed_and_is_replaced_at_once_without_a_policy(world):
    job(world, annotations={"kubelet.kubesched.io/run-duration": "1h"}, backoffLimit=3)
    world.run(5)
    world.delete("pods", world.pods()[0]["metadata"]["name"])
    world.settle()
    assert world.get(J, "work")["status"]["failed"] == 1
    world.run(30)
    assert len(world.active_pods()) == 1


def test_more_parallelism_means_more_pods_and_less_means_fewer(world):
    job(
        world,
        parallelism=1,
        completions=10,
        annotations={"kubelet.kubesched.io/run-duration": "1h"},
    )
    world.run(5)
    world.patch(J, "work", {"spec": {"parallelism": 4}})
    world.run(5)
    assert len(world.active_pods()) == 4
    world.patch(J, "work", {"spec": {"parallelism": 2}})
    world.run(10)
    assert len(world.active_pods()) == 2
    assert world.get(J, "work")["status"].get("failed", 0) == 0


def test_a_finished_job_is_removed_with_its_pods_when_its_time_is_over(world):
    job(world, ttlSecondsAfterFinished=60)
    world.run(30)
    assert world.exists(J, "work")
    world.run(60)
    assert not world.exists(J, "work")
    assert world.pods() == []


def test_deleting_a_job_in_the_background_lets_its_pods_go(world):
    job(world, annotations={"kubelet.kubesched.io/run-duration": "1h"})
    world.run(5)
    world.delete(J, "work", propagation="Background")
    world.run(20)
    assert world.pods() == []


def test_pods_of_a_job_deleted_with_orphans_lose_only_their_tracking(world):
    job(world, annotations={"kubelet.kubesched.io/run-duration": "1h"})
    world.run(5)
    world.delete(J, "work", propagation="Orphan")
    world.run(20)
    [pod] = world.pods()
    assert "finalizers" not in pod["metadata"]
    assert "ownerReferences" not in pod["metadata"]
    assert pod["status"]["phase"] == "Running"


def test_a_pod_is_counted_once_whichever_write_is_lost(make_world, lose_write):
    """Fail the first write of the whole story, then the second, … until a run needs no retry."""
    for number in range(1, 100):
        world = make_world(1, events=False)
        job(world, completions=2, parallelism=2)
        with lose_write(number) as lost:
            world.run(60)
        status = world.get(J, "work")["status"]
        assert (status["succeeded"], status.get("failed", 0)) == (2, 0), number
        assert "Complete" in conditions(world)
        assert len(world.pods()) == 2
        if not lost.happened:
            break
    assert 5 < number < 99


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("", set(), id="nothing"),
        pytest.param("3", {3}, id="one"),
        pytest.param("0,2-4", {0, 2, 3, 4}, id="a range"),
        pytest.param("1,x,5", {1, 5}, id="what is no index is ignored"),
    ],
)
def test_indexes_are_read_as_kubernetes_writes_them(text, indexes):
    assert parse_indexes(text) == indexes


@given(st.sets(st.integers(0, 60)))
def test_indexes_survive_writing_and_reading(indexes):
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_a_job_may_ask_for_more_pods_than_fit_into_memory(world):
    """As many as a field holds; they come a hundred at a time."""
    job(world, parallelism=2**31 - 1, completions=2**31 - 1)
    assert world.cast["job"].sync(("job", "default/work")) == 0.0
    assert len(world.pods()) == MAX_PODS_PER_LOOK


def test_indexes_are_bounded(world):
    with pytest.raises(Invalid, match="must be less than or equal to 100000"):
        job(world, completionMode="Indexed", completions=100_001)
    assert len(parse_indexes("7,5-2147483646")) == 100_000 - 5
