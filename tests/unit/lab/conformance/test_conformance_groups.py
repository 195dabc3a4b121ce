"""Generated sequences of pod groups, and what the player compares of them."""

import asyncio
from collections import Counter

import pytest

from kubesched.app.cli.main import main
from kubesched.lab.conformance.comparison import compare_decisions
from kubesched.lab.conformance.generate_groups import group_sequence
from kubesched.lab.conformance.play_groups import summary
from kubesched.lab.conformance.player import PlayResult
from kubesched.lab.conformance.run import ConformanceSettings, Played, first_difference, run
from kubesched.lab.conformance.sequences import Decision

GATED = {"reason": "SchedulingGated", "message": "gated"}


def failed(message, **more):
    return {"reason": "Unschedulable", "message": message, **more}


def test_a_seed_means_one_sequence_and_all_kinds_of_steps_come():
    made = [group_sequence(f"1/{number}") for number in range(60)]
    assert made[7] == group_sequence("1/7")
    steps = Counter((step.action, step.kind) for each in made for step in each.steps)
    for step in (
        ("create", "PodGroup"),
        ("create", "CompositePodGroup"),
        ("delete", "PodGroup"),
        ("delete", "Pod"),
        ("patch", "PodGroup"),
        ("patch", "Node"),
    ):
        assert steps[step] > 0, step
    assert len({tuple(each.gates) for each in made}) == 6


def test_groups_have_claims_and_members_share_them_or_have_their_own():
    made = [group_sequence(f"1/{number}") for number in range(60)]
    steps = [step.object for each in made for step in each.steps if step.action == "create"]

    def claims(kind):
        entries = (obj["spec"].get("resourceClaims") or () for obj in steps if obj["kind"] == kind)
        return {entry["resourceClaimName"] for each in entries for entry in each}

    made_before = {obj["metadata"]["name"] for obj in steps if obj["kind"] == "ResourceClaim"}
    assert claims("PodGroup") < claims("Pod") <= made_before
    assert any("-" in name for name in claims("Pod")), "claims of single members"
    for each in made:
        classes = [obj for obj in each.objects if obj["kind"] == "DeviceClass"]
        assert bool(classes) == ("DRAWorkloadResourceClaims" in each.gates)


def test_sequences_end_with_a_comparison():
    made = [group_sequence(f"1/{number}") for number in range(60)]
    assert all(each.steps[-1].asks_for_decision for each in made)


def test_what_was_said_counts_but_not_how_often():
    waits, fails = {"nominated": "n1"}, failed("0/1 nodes", nominated="n1")
    pods = {"a": [GATED, waits, fails, fails, {"node": "n1"}], "b": [{"node": "n2"}]}
    groups = {"g": [failed("no"), failed("no"), failed("never")], "h": [{"status": "True"}, {}]}
    assert summary(pods, groups) == {
        "pods": {"a": [GATED, fails, {"node": "n1"}], "b": [{"node": "n2"}]},
        "podGroups": {"g": [failed("no"), failed("never")], "h": [{"status": "True"}]},
    }


LOST = failed("claim default/c got allocated elsewhere in the meantime")


def test_members_that_lost_a_race_for_their_claim_are_not_compared():
    said = summary({"a": [GATED, LOST, {"node": "n1"}]}, {})
    assert said["pods"] == {"a": [GATED, {"node": "n1"}]}


class Stage:
    """Schedulers that said this about a pod in each step."""

    def __init__(self, theirs, ours):
        self.said, self.plays = (theirs, ours), 0

    async def play(self, scenario):
        self.plays += 1
        theirs, ours = (
            PlayResult(
                {at: Decision(seen=summary({"a": told}, {})) for at, told in enumerate(each)}
            )
            for each in self.said
        )
        return Played(scenario, theirs, ours, first_difference(scenario, theirs, ours))


@pytest.mark.parametrize("raced_at", [None, 0, 1, 2], ids=["never", "before", "then", "later"])
def test_a_difference_after_a_race_for_a_claim_is_listed_and_not_counted(raced_at):
    theirs, ours = [[{"node": n}] for n in "xyz"], [[{"node": n}] for n in "xzz"]
    if raced_at is not None:
        theirs[raced_at].insert(0, LOST)
    stage, settings = Stage(theirs, ours), ConformanceSettings(None, None, 1, groups=True)
    report = asyncio.run(run(settings, stage))
    if raced_at in (0, 1):
        assert (stage.plays, report.is_complete, report.sequences_in_agreement) == (1, True, 0)
        assert (report.decisions.compared, report.decisions.agreed) == (1, 1)
        assert ([each.at for each in report.raced], report.differences) == ([1], [])
    else:
        assert (stage.plays, report.is_complete, report.raced) == (2, False, [])
        assert (report.decisions.compared, report.decisions.agreed) == (2, 1)


def test_texts_of_the_first_of_several_placements_are_left_out():
    text = "0/{} placements are available, first placement status: x"
    for count, left in ((1, [failed("a"), failed("b")]), (2, [{"reason": "Unschedulable"}])):
        group = [failed(f"no, {text.format(count)}")]
        said = summary({"a": [failed("a"), failed("b")]}, {"g": group})
        assert said["pods"]["a"] == left


def test_every_pod_and_group_is_compared():
    theirs = Decision(seen={"pods": {"a": [{}]}, "podGroups": {"g": [{"status": "True"}]}})
    ours = Decision(seen={"pods": {"a": [{}], "b": [{}]}, "podGroups": {}})
    differing = [found.node for found in compare_decisions(theirs, ours) if not found.agrees]
    assert differing == ["b", "g"]


def test_groups_are_not_recorded(capsys):
    assert main(["conformance", "run", "--groups", "--record", "x", "--assets", "/none"]) == 2
    assert "--record does not take sequences of pod groups" in capsys.readouterr().err
