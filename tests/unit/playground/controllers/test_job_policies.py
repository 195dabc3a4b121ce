"""Failure policies, limits per index and success policies of Jobs."""

from __future__ import annotations

import re

import pytest

from kubesched.base.errors import Invalid
from kubesched.playground.controllers.job.policies import success_policy_message
from kubesched.playground.registry.deletion import DeleteOptions
from kubesched.playground.registry.eviction import evict

J = "jobs.batch"
EXIT_CODE = "kubelet.kubesched.io/exit-code"


def job(world, *, exit_code=None, restart="Never", **spec):
    template = world.template(labels={"job": "work"}, restartPolicy=restart)
    if exit_code is not None:
        template["metadata"]["annotations"] = {EXIT_CODE: str(exit_code)}
    return world.create(J, {"metadata": {"name": "work"}, "spec": {"template": template, **spec}})


def status(world):
    return world.get(J, "work")["status"]


def condition(world, kind):
    for entry in status(world).get("conditions", ()):
        if entry["type"] == kind and entry["status"] == "True":
            return entry["reason"], entry["message"]
    return None


def exit_rule(action, *codes, operator="In", container=None):
    requirement = {"operator": operator, "values": list(codes)}
    if container is not None:
        requirement["containerName"] = container
    return {"action": action, "onExitCodes": requirement}


def test_a_rule_ends_the_job_at_the_first_failure(world):
    job(world, exit_code=42, podFailurePolicy={"rules": [exit_rule("FailJob", 42)]})
    world.run(20)
    [pod] = world.pods()
    name = pod["metadata"]["name"]
    assert condition(world, "Failed") == (
        "PodFailurePolicy",
        f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at "
        "index 0",
    )
    assert status(world)["failed"] == 1


def test_a_deleted_pod_is_replaced_once_it_has_failed(world):
    """A policy for failures waits for the end of a pod, which the kubelet reports before it is
    gone.
    """
    job(world, podReplacementPolicy="Failed")
    world.run(1.5)
    [first] = world.pods()
    world.delete("pods", first["metadata"]["name"])
    world.settle()
    assert len(world.pods()) == 1
    world.run(30)
    assert status(world)["failed"] == 1
    assert condition(world, "Complete") is not None


def test_an_evicted_pod_is_ignored_by_its_condition(world):
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job(world, backoffLimit=0, podFailurePolicy={"rules": [rule]})
    world.run(1.5)
    [first] = world.pods()
    evict(world.api.registry, "default", first["metadata"]["name"], DeleteOptions())
    [reason] = [
        entry["reason"]
        for entry in world.get("pods", first["metadata"]["name"])["status"]["conditions"]
        if entry["type"] == "DisruptionTarget"
    ]
    assert reason == "EvictionByEvictionAPI"
    world.run(30)
    assert "failed" not in status(world)
    assert condition(world, "Complete") is not None


def test_an_ignored_failure_is_replaced_and_not_counted(world):
    rules = [exit_rule("Ignore", 3), exit_rule("FailJob", 0, operator="NotIn")]
    job(world, exit_code=3, backoffLimit=0, podFailurePolicy={"rules": rules})
    world.run(20)
    assert len(world.pods()) > 1
    assert "failed" not in status(world)
    assert condition(world, "Failed") is None


def test_a_rule_about_another_container_does_not_match(world):
    rules = [exit_rule("FailJob", 3, container="other")]
    job(world, exit_code=3, backoffLimit=0, podFailurePolicy={"rules": rules})
    world.run(20)
    assert condition(world, "Failed")[0] == "BackoffLimitExceeded"


def test_a_condition_decides(world):
    rules = [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    job(world, podFailurePolicy={"rules": rules})
    world.settle()
    [pod] = world.pods()
    name = pod["metadata"]["name"]
    broken = {"type": "DisruptionTarget", "status": "True"}
    world.patch(
        "pods", name, {"status": {"phase": "Failed", "conditions": [broken]}}, subresource="status"
    )
    world.run(5)
    assert condition(world, "Failed") == (
        "PodFailurePolicy",
        f"Pod default/{name} has condition DisruptionTarget matching FailJob rule at index 0",
    )


def indexed(world, completions=3, **spec):
    return job(
        world, completionMode="Indexed", completions=completions, parallelism=completions, **spec
    )


def test_indexes_fail_on_their_own_and_then_the_job(world):
    indexed(world, exit_code=1, backoffLimitPerIndex=1)
    world.run(12)
    assert status(world)["failedIndexes"] == "", "the second try of each index waits ten seconds"
    world.run(40)
    assert status(world)["failedIndexes"] == "0-2"
    assert condition(world, "Failed") == ("FailedIndexes", "Job has failed indexes")
    counts = sorted(
        (pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"],
         pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"])
        for pod in world.pods()
    )  # fmt: skip
    assert counts == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1"), ("2", "0"), ("2", "1")]


def test_too_many_failed_indexes_end_the_job(world):
    indexed(world, exit_code=1, backoffLimitPerIndex=0, maxFailedIndexes=1)
    world.run(30)
    assert condition(world, "Failed") == (
        "MaxFailedIndexesExceeded",
        "Job has exceeded the specified maximal number of failed indexes",
    )


def test_a_rule_fails_an_index_for_good(world):
    rules = [exit_rule("FailIndex", 7)]
    indexed(world, exit_code=7, backoffLimitPerIndex=5, podFailurePolicy={"rules": rules})
    world.run(10)
    assert status(world)["failedIndexes"] == "0-2"
    assert len(world.pods()) == 3


def test_the_count_of_an_index_survives_a_restart(world):
    indexed(world, exit_code=1, backoffLimitPerIndex=1)
    world.run(8)
    world.restart()
    world.run(40)
    assert status(world)["failedIndexes"] == "0-2"
    assert len(world.pods()) == 6


def test_a_success_policy_ends_the_job_early(world):
    rules = [{"succeededIndexes": "0-1", "succeededCount": 1}]
    indexed(world, successPolicy={"rules": rules})
    for pod in world.pods():
        index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        if index != "0":
            world.patch(
                "pods",
                pod["metadata"]["name"],
                {"metadata": {"annotations": {"kubelet.kubesched.io/run-duration": "1h"}}},
            )
    world.run(20)
    assert condition(world, "SuccessCriteriaMet") == ("SuccessPolicy", "Matched rules at index 0")
    assert condition(world, "Complete") == ("SuccessPolicy", "Matched rules at index 0")
    assert status(world)["succeeded"] == 1


@pytest.mark.parametrize(
    ("rule", "succeeded", "is_met"),
    [
        pytest.param({"succeededCount": 2}, {1, 5}, True, id="any two"),
        pytest.param({"succeededCount": 2}, {1}, False, id="one is not enough"),
        pytest.param({"succeededIndexes": "0,2-3"}, {0, 2, 3, 9}, True, id="all that are named"),
        pytest.param({"succeededIndexes": "0,2-3"}, {0, 2}, False, id="one of them is missing"),
        pytest.param({"succeededIndexes": "0,2", "succeededCount": 1}, {2}, True, id="one of them"),
    ],
)
def test_success_rules(rule, succeeded, is_met):
    job = {"spec": {"successPolicy": {"rules": [rule]}}}
    assert bool(success_policy_message(job, succeeded)) is is_met


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param(
            {"backoffLimitPerIndex": 1},
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            id="limit without indexes",
        ),
        pytest.param(
            {"maxFailedIndexes": 1},
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            id="maximum without limit",
        ),
        pytest.param(
            {"restart": "OnFailure", "podFailurePolicy": {"rules": []}},
            'only "Never" is supported when podFailurePolicy is specified',
            id="containers restart",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": [exit_rule("FailIndex", 1)]}},
            'rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be '
            "set",
            id="index rule without limit",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": [exit_rule("Count", 0)]}},
            "values[0]: Invalid value: 0: must not be 0 for the In operator",
            id="success as a failure",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": [{"action": "Count"}]}},
            "specifying one of OnExitCodes and OnPodConditions is required",
            id="a rule about nothing",
        ),
        pytest.param(
            {
                "completionMode": "Indexed",
                "completions": 3,
                "successPolicy": {"rules": [{"succeededIndexes": "0-9"}]},
            },
            'error parsing succeededIndexes: too large index: "9"',
            id="an index out of range",
        ),
        pytest.param(
            {
                "completionMode": "Indexed",
                "completions": 3,
                "successPolicy": {"rules": [{"succeededIndexes": "0,1", "succeededCount": 3}]},
            },
            "Invalid value: 3: must be less than or equal to 2 (the number of indexes",
            id="more than are named",
        ),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(world, spec, words):
    """The messages are kube-apiserver 1.36's."""
    with pytest.raises(Invalid, match=re.escape(words)):
        job(world, **spec)
