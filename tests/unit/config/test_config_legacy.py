"""Proves that files of the past are refused with the names of their successors."""

from __future__ import annotations

import pytest

from kubesched.base.errors import ConfigError
from kubesched.config.default_plugins import IN_TREE_PLUGINS
from kubesched.config.legacy import plugin_hint
from kubesched.config.load import load


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text.encode())
    return [str(problem) for problem in caught.value.problems]


PREDICATES = [
    ("PodFitsHostPorts", "NodePorts"),
    ("PodFitsResources", "NodeResourcesFit"),
    ("NoDiskConflict", "VolumeRestrictions"),
    ("NoVolumeZoneConflict", "VolumeZone"),
    ("MatchNodeSelector", "NodeAffinity"),
    ("HostName", "NodeName"),
    ("MaxEBSVolumeCount", "NodeVolumeLimits"),
    ("MaxCSIVolumeCountPred", "NodeVolumeLimits"),
    ("CheckVolumeBinding", "VolumeBinding"),
    ("PodToleratesNodeTaints", "TaintToleration"),
    ("CheckNodeUnschedulable", "NodeUnschedulable"),
    ("MatchInterPodAffinity", "InterPodAffinity"),
    ("EvenPodsSpread", "PodTopologySpread"),
    ("GeneralPredicates", "NodeResourcesFit, NodeName, NodePorts and NodeAffinity"),
]
PRIORITIES = [
    ("LeastRequestedPriority", "NodeResourcesFit with scoringStrategy type LeastAllocated"),
    ("MostRequestedPriority", "NodeResourcesFit with scoringStrategy type MostAllocated"),
    ("BalancedResourceAllocation", "NodeResourcesBalancedAllocation"),
    ("SelectorSpreadPriority", "PodTopologySpread with its System default constraints"),
    ("InterPodAffinityPriority", "InterPodAffinity"),
    ("NodeAffinityPriority", "NodeAffinity"),
    ("TaintTolerationPriority", "TaintToleration"),
    ("ImageLocalityPriority", "ImageLocality"),
    ("EvenPodsSpreadPriority", "PodTopologySpread"),
]


@pytest.mark.parametrize(("predicate", "plugin"), PREDICATES)
def test_a_predicate_is_named_with_its_filter_plugin(predicate, plugin):
    result = problems(f"apiVersion: v1\nkind: Policy\npredicates:\n- name: {predicate}\n")
    assert result[1] == (
        f'predicates[0].name: predicate "{predicate}" is today the Filter plugin {plugin} '
        "(line 4, column 9)"
    )


@pytest.mark.parametrize(("priority", "plugin"), PRIORITIES)
def test_a_priority_is_named_with_its_score_plugin(priority, plugin):
    result = problems(f"apiVersion: v1\nkind: Policy\npriorities: [{{name: {priority}}}]\n")
    assert result[1] == (
        f'priorities[0].name: priority "{priority}" is today the Score plugin {plugin} '
        "(line 3, column 21)"
    )


def test_a_policy_in_json_is_explained_line_by_line():
    text = """{
  "kind": "Policy",
  "apiVersion": "v1",
  "predicates": [{"name": "HostName"}, {"name": "MyOwn"}, {}],
  "priorities": [{"name": "EqualPriority", "weight": 1}],
  "hardPodAffinitySymmetricWeight": 10,
  "alwaysCheckAllPredicates": true,
  "extenders": []
}"""
    result = problems(text)
    assert result[0].startswith('kind: no kind "Policy" is registered for version "v1"')
    assert "predicates are Filter plugins and priorities are Score plugins" in result[0]
    assert [problem.split(":")[0] for problem in result[1:]] == [
        "predicates[0].name",
        "predicates[1].name",
        "predicates[2].name",
        "priorities[0].name",
        "extenders",
        "hardPodAffinitySymmetricWeight",
        "alwaysCheckAllPredicates",
    ]
    assert 'predicate "MyOwn" has no in-tree equivalent' in result[2]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Policy\npredicates: 12\n",
        "apiVersion: v1\nkind: Policy\npredicates: [1, [2], {name: []}]\n",
        "apiVersion: v1\nkind: Policy\n",
    ],
    ids=["predicates that are no list", "predicates that are no maps", "an empty policy"],
)
def test_a_broken_policy_is_still_explained(text):
    assert problems(text)[0].startswith("kind: no kind")


@pytest.mark.parametrize(
    ("provider", "instead"),
    [
        (
            "ClusterAutoscalerProvider",
            "a profile with NodeResourcesFit and scoringStrategy type MostAllocated",
        ),
        ("DefaultProvider", "a profile without plugins"),
        ("MyProvider", "a profile that names its plugins"),
    ],
)
def test_an_algorithm_provider_is_named_with_its_profile(provider, instead):
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"
        f"algorithmSource: {{provider: {provider}}}\n"
    )
    result = problems(text)
    assert result[1].startswith(
        f'algorithmSource.provider: algorithm provider "{provider}" does not exist any more; '
        f"write {instead}"
    )
    assert result[1].endswith("(line 3, column 29)")


def test_a_policy_source_is_explained():
    text = (
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"
        "algorithmSource: {policy: {file: {path: p}}}\n"
    )
    assert problems(text)[1].startswith("algorithmSource.policy: scheduling policies were removed")


def test_no_living_plugin_is_called_dead():
    assert [name for name in IN_TREE_PLUGINS if plugin_hint(name)] == []
