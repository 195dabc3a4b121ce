"""Generated clusters: reproducible, usable, and rich enough to be worth comparing on."""

import json
from random import Random

import generated_placements
import msgspec
import odd_objects

from kubesched.lab.conformance.placements import Cluster
from kubesched.lab.conformance.recordings import Placement


def test_the_same_seed_gives_the_same_clusters():
    assert generated_placements.placements(7, 3) == generated_placements.placements(7, 3)
    assert generated_placements.placements(7, 3) != generated_placements.placements(8, 3)


def test_a_longer_series_begins_like_a_shorter_one():
    assert generated_placements.placements(7, 5)[:2] == generated_placements.placements(7, 2)


def test_every_plugin_of_the_default_profile_gets_to_reject_and_to_score():
    rejecting, scoring = set(), set()
    for made in generated_placements.placements(1, 60):
        for pending in made["pending"]:
            pending["expect"] = {"feasible": [], "total": {}, "scores": {}, "rejected": {}}
        placement = msgspec.json.decode(json.dumps(made), type=Placement)
        cluster = Cluster(placement)
        for pending in placement.pending:
            answer = cluster.place(pending.pod)
            assert not answer.error
            rejecting |= {item.plugin for item in answer.rejected.values()}
            for scores in answer.scores.values():
                scoring |= {plugin for plugin, score in scores.items() if score}
    assert rejecting == {
        "",  # NodeAffinity and NodeName, in PreFilter
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodePorts",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "PodTopologySpread",
        "TaintToleration",
    }
    assert scoring == {
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "TaintToleration",
    }


def test_malformed_parts_appear_only_where_asked_for():
    def operators(malformed):
        results = set()
        for number in range(300):
            pod = odd_objects.pod(Random(number), "p", malformed=malformed)
            affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
            required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
            for term in required.get("nodeSelectorTerms") or []:
                results |= {
                    expression["operator"] for expression in term.get("matchExpressions") or []
                }
        return results

    assert "Near" not in operators(malformed=False)
    assert "Near" in operators(malformed=True)


def test_workloads_and_configurations_appear_only_where_asked_for():
    plain = generated_placements.placement(Random(1))
    assert "services" not in plain
    assert "configuration" not in plain
    rich = [
        generated_placements.placement(Random(n), owned=True, configured=True) for n in range(20)
    ]
    assert any(item["services"] for item in rich)
    assert any("ownerReferences" in p["pod"]["metadata"] for item in rich for p in item["pending"])
    configured = [
        c["name"] for item in rich for c in item["configuration"]["profiles"][0]["pluginConfig"]
    ]
    assert len(set(configured)) == 5
