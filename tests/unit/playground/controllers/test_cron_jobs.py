"""CronJobs start a Job at every moment their schedule names, and keep only some of them."""

from __future__ import annotations

import datetime
import re

import pytest

from kubesched.base.errors import Invalid
from kubesched.playground.resources.cron_schedule import parse_schedule, parse_zone

C, J = "cronjobs.batch", "jobs.batch"


def moment(text):
    return datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        pytest.param("*/15 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:15:00Z", id="step"),
        pytest.param("0 3 * * *", "", "2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z",
                     id="strictly after"),
        pytest.param("5 4 * * sun", "", "2026-01-01T00:00:00Z", "2026-01-04T04:05:00Z",
                     id="a named weekday"),
        pytest.param("0 0 13 * 5", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z",
                     id="either day"),
        pytest.param("0 0 13 * *", "", "2026-01-01T00:00:00Z", "2026-01-13T00:00:00Z",
                     id="a star day decides nothing"),
        pytest.param("0 0 29 feb *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z",
                     id="leap day"),
        pytest.param("0 0 1-7/3,20 12 ?", "", "2026-12-05T00:00:00Z", "2026-12-07T00:00:00Z",
                     id="list, range and step"),
        pytest.param("@monthly", "", "2026-12-02T00:00:00Z", "2027-01-01T00:00:00Z",
                     id="descriptor"),
        pytest.param("@every 90s", "", "2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z", id="every"),
        pytest.param("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z",
                     id="a skipped hour has no moment"),
        pytest.param("0 9 * * *", "America/New_York", "2026-01-01T00:00:00Z",
                     "2026-01-01T14:00:00Z", id="zone"),
    ],
)  # fmt: skip
def test_moments_of_a_schedule(schedule, zone, after, expected):
    parsed = parse_schedule(schedule, parse_zone(zone))
    assert parsed.next_after(moment(after)) == moment(expected)


def test_a_day_that_never_comes_has_no_moment():
    assert parse_schedule("0 0 30 2 *").next_after(moment("2026-01-01T00:00:00Z")) is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"schedule": "x"},
                     'spec.schedule: Invalid value: "x": expected exactly 5 fields, found 1: [x]',
                     id="too few fields"),
        pytest.param({"schedule": "61 * * * *"}, "end of range (61) above maximum (59): 61",
                     id="out of range"),
        pytest.param({"schedule": "*/0 * * * *"}, "step of range should be a positive number: */0",
                     id="no step"),
        pytest.param({"schedule": "* * * * *", "timeZone": "Mars/Base"},
                     'spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base',
                     id="no such zone"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_read_is_refused(world, spec, words):
    with pytest.raises(Invalid, match=re.escape(words)):
        cron_job(world, **spec)


def cron_job(world, name="tick", *, run_s=None, **spec):
    template = world.template(labels={"cron": name}, restartPolicy="Never")
    if run_s is not None:
        template["metadata"]["annotations"] = {"kubelet.kubesched.io/run-duration": f"{run_s}s"}
    body = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}, **spec}
    return world.create(C, {"metadata": {"name": name}, "spec": body})


def jobs(world):
    return sorted(job["metadata"]["name"] for job in world.list(J))


def test_a_job_is_started_every_minute_and_named_after_it(world):
    cron_job(world)
    world.run(59)
    assert jobs(world) == []
    world.run(2)
    minute = int(moment("2026-01-01T00:01:00Z")) // 60
    assert jobs(world) == [f"tick-{minute}"]
    status = world.get(C, "tick")["status"]
    assert status["lastScheduleTime"] == "2026-01-01T00:01:00Z"
    assert [entry["name"] for entry in status["active"]] == [f"tick-{minute}"]
    [job] = world.list(J)
    assert (
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
        == "2026-01-01T00:01:00Z"
    )
    world.run(30)
    status = world.get(C, "tick")["status"]
    assert "active" not in status
    assert status["lastSuccessfulTime"] > status["lastScheduleTime"]
    assert {"SuccessfulCreate", "SawCompletedJob"} <= set(world.reasons("tick"))


def test_only_some_finished_jobs_are_kept(world):
    cron_job(world, successfulJobsHistoryLimit=2)
    world.run(60 * 6 + 30)
    assert len(jobs(world)) == 2
    assert "SuccessfulDelete" in world.reasons("tick")


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        pytest.param("Allow", 3, id="allow"),
        pytest.param("Forbid", 1, id="forbid"),
        pytest.param("Replace", 1, id="replace"),
    ],
)
def test_concurrency_policies(world, policy, count):
    cron_job(world, run_s=3600, concurrencyPolicy=policy)
    world.run(60 * 3 + 20)
    assert len(jobs(world)) == count
    newest = f"tick-{int(moment('2026-01-01T00:03:00Z')) // 60}"
    assert (newest in jobs(world)) is (policy != "Forbid")


def test_a_suspended_schedule_starts_nothing_and_then_the_latest_only(world):
    cron_job(world, suspend=True)
    world.run(60 * 5 + 30)
    assert jobs(world) == []
    world.patch(C, "tick", {"spec": {"suspend": False}})
    world.settle()
    assert jobs(world) == [f"tick-{int(moment('2026-01-01T00:05:00Z')) // 60}"]


def test_a_moment_missed_by_more_than_the_deadline_is_left_out(world):
    cron_job(world, suspend=True, startingDeadlineSeconds=10)
    world.run(60 * 5 + 30)
    world.patch(C, "tick", {"spec": {"suspend": False}})
    world.settle()
    assert jobs(world) == []
    assert "MissSchedule" in world.reasons("tick")


def test_a_restart_does_not_start_a_job_twice(world):
    cron_job(world, run_s=3600)
    world.run(61)
    world.patch(C, "tick", {"status": {"lastScheduleTime": None}}, subresource="status")
    world.restart()
    world.run(5)
    assert len(jobs(world)) == 1
