"""Generated sequences: reproducible and covering all that a scheduler looks at; differences are
found, counted and written out. The schedulers themselves are stood in for here; `kubesched
conformance run` brings real ones.
"""

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from kubesched.app.cli.main import main
from kubesched.base.errors import KubeschedError
from kubesched.lab.conformance import golden
from kubesched.lab.conformance.comparison import Aspect
from kubesched.lab.conformance.generate_devices import SHARED_CLAIMS
from kubesched.lab.conformance.generate_sequence import sequence
from kubesched.lab.conformance.golden import evaluate
from kubesched.lab.conformance.player import PlayResult
from kubesched.lab.conformance.replay import replay
from kubesched.lab.conformance.run import (
    ConformanceSettings,
    Played,
    first_difference,
    recorded,
    reference_of,
    run,
)
from kubesched.lab.conformance.sequences import Decision
from kubesched.testing.control_plane import ASSETS_VARIABLE

DATA = Path(__file__).parent / "data"


def outcome(scenario, change=None):
    """What we decide, with one decision changed."""
    decisions = {at: Decision(node="n000") for at, _ in scenario.decisions()}
    return PlayResult(decisions | (change or {}))


def test_the_same_seed_gives_the_same_sequence():
    assert sequence("1/2", 40) == sequence("1/2", 40)
    assert sequence("1/2", 40) != sequence("1/3", 40)


def test_sequences_use_all_that_pods_can_ask_for():
    made = [sequence(seed, 150) for seed in range(4)]
    specs = [
        s.object["spec"]
        for one in made
        for s in one.steps
        if (s.action, s.kind) == ("create", "Pod")
    ]
    asked = Counter(name for spec in specs for name in (*spec, *spec.get("affinity", {})))
    assert {
        *("initContainers", "overhead", "resources", "hostNetwork", "tolerations", "nodeSelector"),
        *("nodeAffinity", "podAffinity", "podAntiAffinity", "topologySpreadConstraints"),
        *("priorityClassName", "schedulingGates", "volumes", "resourceClaims", "nodeName"),
    } <= set(asked)
    kinds = Counter((s.action, s.kind) for one in made for s in one.steps)
    assert {("patch", "Node"), ("delete", "Node"), ("patch", "Pod"), ("delete", "Pod")} <= set(
        kinds
    )


def test_sequences_hold_what_limits_volumes_and_what_protects_pods():
    made = [sequence(f"objects {number}", 150) for number in range(4)]
    kinds = Counter(item["kind"] for one in made for item in one.objects)
    assert {
        "CSINode",
        "PodDisruptionBudget",
        "StorageClass",
    } <= set(kinds)
    claimed = Counter(
        volume["persistentVolumeClaim"]["claimName"]
        for one in made
        for step in one.steps
        for volume in step.object.get("spec", {}).get("volumes", ())
        if "persistentVolumeClaim" in volume
    )
    assert {"late-0", "made", "exclusive", "zonal", "missing", "lost"} <= set(claimed)
    changed = {(s.action, s.kind) for one in made for s in one.steps}
    assert {("patch", "Namespace"), ("patch", "PodDisruptionBudget")} <= changed
    assert any(
        step.object["spec"].get("nodeName") and not step.asks_for_decision
        for one in made
        for step in one.steps
        if step.kind == "Pod" and step.action == "create"
    )


def test_no_two_volumes_that_wait_for_a_claim_are_equally_big():
    for number in range(20):
        sizes = [
            item["spec"]["capacity"]["storage"]
            for item in sequence(f"sizes {number}", 1).objects
            if item["kind"] == "PersistentVolume" and item["spec"]["storageClassName"] == "late"
        ]
        assert len(sizes) == len(set(sizes)) > 1


def test_a_second_profile_has_pods_of_its_own():
    made = sequence("profiles", 150)
    names = [profile["schedulerName"] for profile in made.configuration["profiles"]]
    asked = {step.object.get("spec", {}).get("schedulerName") for step in made.steps}
    assert names == ["default-scheduler", "other-scheduler"]
    assert asked >= set(names)


def test_pods_are_asked_for_one_node_by_name_at_most():
    for step in sequence("names", 400).steps:
        affinity = step.object.get("spec", {}).get("affinity", {}).get("nodeAffinity", {})
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        terms = required["nodeSelectorTerms"] if required else []
        assert len(terms) < 2 or not any("matchFields" in term for term in terms)


@pytest.mark.parametrize("seed", range(3))
def test_a_generated_sequence_can_be_replayed_in_memory(seed):
    # Steps apply directly here: leave out those whose target may be a victim.
    made = sequence(f"replay {seed}", 60, changes=False)
    decisions = replay(made)
    assert set(decisions) == {at for at, _ in made.decisions()}
    assert any(decision.node for decision in decisions.values())
    assert replay(made) == decisions


def test_the_first_difference_is_told_and_nothing_after_it():
    scenario = sequence(1, 10)
    at = [at for at, _ in scenario.decisions()][3:]
    ours = outcome(scenario, {at[0]: Decision(node="n001"), at[1]: Decision(node="n002")})
    difference = first_difference(scenario, outcome(scenario), ours)
    assert difference.at == at[0]
    told = [f for f in difference.findings if not f.agrees]
    assert [(f.aspect, f.expected, f.got) for f in told] == [(Aspect.NODE, "n000", "n001")]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"node": "n001"}, id="elsewhere"),
        pytest.param({"node": "n000", "victims": ("default/b",)}, id="with other victims"),
        pytest.param({"node": "n000", "nominated": "n001"}, id="nominated elsewhere"),
    ],
)
def test_a_pod_that_we_place_otherwise_is_a_difference(other):
    scenario = sequence(1, 10)
    at = next(at for at, _ in scenario.decisions())
    waiting = Decision(unschedulable="no room", nominated="n000", victims=("default/a",))
    ours = outcome(scenario, {at: msgspec.structs.replace(waiting, **other)})
    assert first_difference(scenario, outcome(scenario, {at: waiting}), ours) is not None


def test_what_an_api_server_refuses_is_compared_but_not_the_order_of_its_words():
    scenario = sequence(1, 5)
    theirs, ours = outcome(scenario), outcome(scenario)
    theirs.refused, ours.refused = (
        {3: "invalid: [cpu: 1, memory: 2]"},
        {3: "invalid: [memory: 2, cpu: 1]"},
    )
    assert first_difference(scenario, theirs, ours) is None
    ours.refused = {}
    assert first_difference(scenario, theirs, ours).at == 3
    ours.refused = {3: "not found"}
    assert first_difference(scenario, theirs, ours).at == 3


def test_where_pods_are_in_the_end_is_compared_too():
    scenario = sequence(1, 5)
    theirs, ours = outcome(scenario), outcome(scenario)
    theirs.final, ours.final = {"default/a": "n1"}, {"default/a": "n2"}
    assert first_difference(scenario, theirs, ours).what == "final state of pod default/a"


class Stages:
    """Plays every sequence as it is told."""

    def __init__(self, *our_changes):
        self._our_changes = list(our_changes)

    async def play(self, scenario):
        last = [at for at, _ in scenario.decisions()][-1]
        node = self._our_changes.pop(0) if self._our_changes else ""
        ours = outcome(scenario, {last: Decision(node=node)} if node else None)
        theirs = outcome(scenario)
        return Played(scenario, theirs, ours, first_difference(scenario, theirs, ours))


def settings(tmp_path, sequences=3):
    return ConformanceSettings(assets=None, folder=tmp_path, sequences=sequences, pods=10, seed=5)


async def test_a_long_run_can_be_done_in_parts(tmp_path):
    whole = settings(tmp_path, sequences=3)
    part = ConformanceSettings(None, tmp_path, sequences=2, pods=10, seed=5, first=1)
    assert list(part.scenarios()) == list(whole.scenarios())[1:]


async def test_agreement_is_counted_by_aspect(tmp_path):
    report = await run(settings(tmp_path), Stages())
    assert report.is_complete
    assert report.sequences == report.sequences_in_agreement == 3
    assert report.decisions.compared == report.decisions.agreed > 20
    assert report.agreement.by_aspect[Aspect.NODE].compared == report.decisions.compared


async def test_a_difference_that_stays_counts_against_us(tmp_path):
    report = await run(settings(tmp_path), Stages("n001", "n001"))
    assert not report.is_complete
    assert [difference.seed for difference in report.differences] == ["5/0"]
    assert report.unsteady == []
    assert report.decisions.compared - report.decisions.agreed == 1


async def test_a_difference_that_goes_away_is_reported_as_unsteady(tmp_path):
    report = await run(settings(tmp_path), Stages("n001"))
    assert report.differences == []
    assert [(item.seed, item.who) for item in report.unsteady] == [("5/0", "kubesched")]
    assert not report.is_complete


def test_a_run_can_be_recorded_and_replayed(tmp_path):
    scenario = sequence("record", 25, changes=False)
    theirs = PlayResult(replay(scenario), {}, {0: scenario.steps[0].object})
    written = recorded(Played(scenario, theirs, theirs, None))
    path = tmp_path / "run.jsonl"

    path.write_bytes(msgspec.json.encode(written) + b"\n")
    assert main(["conformance", "golden", str(path)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--seed", "2"], "--assets or $KUBEBUILDER_ASSETS", id="no folder"),
        pytest.param(["--assets", "."], "does not hold etcd, kube-apiserver", id="nothing in it"),
    ],
)
def test_a_run_that_cannot_be_says_why(monkeypatch, capsys, arguments, message):
    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    assert main(["conformance", "run", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_without_programs_a_run_compares_what_was_recorded(monkeypatch, capsys):
    asked = []

    def only_some(files, *arguments, **options):
        """`test_every_recorded_sequence_is_decided_as_recorded` compares all of them."""
        asked.extend(files)
        return evaluate(files, *arguments, **{**options, "limit": 40})

    monkeypatch.delenv(ASSETS_VARIABLE, raising=False)
    monkeypatch.setattr(golden, "evaluate", only_some)
    assert main(["conformance", "run", "-o", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["podsInAgreement"] == json.loads(told.out)["pods"] == 40
    assert asked == [str(golden.SHIPPED)]
    assert "recorded answers of kube-scheduler 1.36 and 1.37 " in told.err
    assert "--assets or $KUBEBUILDER_ASSETS" in told.err


def test_no_device_is_given_to_two_claims_at_a_time():
    """Without steps that release anything, what all decisions together hand out must be
    distinct.
    """
    drawn = [sequence(f"devices {number}", 60, changes=False) for number in range(12)]
    for scenario in [one for one in drawn if has_devices(one)][:3]:
        decisions = replay(scenario).values()
        if any(decision.victims for decision in decisions):
            continue
        exclusive = [
            line.partition("=")[2]
            for decision in decisions
            for line in decision.devices
            if line.split(" ")[0] not in SHARED_CLAIMS
        ]
        assert len(exclusive) > 2
        assert len(exclusive) == len(set(exclusive))


def has_devices(made):
    return any(item["kind"] == "ResourceSlice" for item in made.objects)


def test_sequences_with_devices_change_slices_and_use_every_kind_of_claim():
    drawn = [sequence(f"devices {number}", 150) for number in range(8)]
    made = [one for one in drawn if has_devices(one)]
    changed = {(s.action, s.kind) for one in made for s in one.steps}
    assert {
        ("create", "ResourceSlice"),
        ("patch", "ResourceSlice"),
        ("delete", "ResourceSlice"),
    } <= (changed)
    used = {
        entry.get("resourceClaimTemplateName", entry.get("resourceClaimName"))
        for one in made
        for step in one.steps
        if step.kind == "Pod" and step.action == "create"
        for entry in step.object["spec"].get("resourceClaims", ())
    }
    assert {"one", "two", "first", "near", "all-nics", "pool-gpu"} <= used


@pytest.mark.parametrize(
    ("version", "reference"), [("v1.36.4", "1.36"), ("v1.37.0", "1.37"), ("v1.37.0-rc.1", "1.37")]
)
def test_a_kube_scheduler_is_compared_as_what_it_says_it_is(version, reference):
    assert reference_of(version) == reference


@pytest.mark.parametrize("version", ["v1.35.2", "v2", ""])
def test_a_kube_scheduler_that_is_not_known_has_to_be_compared_with_a_named_one(version):
    with pytest.raises(KubeschedError, match=r"not one of 1\.36 and 1\.37; --reference-version"):
        reference_of(version)
