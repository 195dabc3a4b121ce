"""What in-tree plugins give beside the contract is true: rows get the same answers alone as in
columns, and hints read no more of a pod than they say.

The clusters are drawn by `check_plugin`, which itself knows the contract alone.
"""

from __future__ import annotations

import pytest

from kubesched.framework import (
    Action,
    EnqueueExtensions,
    FilterPlugin,
    Hint,
    Resource,
    ScorePlugin,
    Verdicts,
    on_event,
    unschedulable,
)
from kubesched.framework.engine import RowRule, fields_read, reads
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.classes.signature import class_signature
from kubesched.testing import PluginFault, check_plugin, plugin_checks
from kubesched.testing.drawing import shown

NO = unschedulable("no")


@pytest.fixture
def compared(monkeypatch):
    """What was compared: phases of row forms, and what hints read."""
    found = set()

    def rows(case):
        stage = case.stage()
        attempt = stage.ask(case.pod)
        is_filtered = stage.plugin.name not in attempt.state.skip_filter_plugins
        judged = attempt.verdicts if is_filtered and not attempt.is_rejected_early else {}
        said = {node: text == plugin_checks.PASSES for node, text in judged.items()}
        for phase, told in (("filter", said), ("score", attempt.scores)):
            rule = attempt.rules.get(phase)
            if isinstance(rule, RowRule) and told:
                found.add(phase)
                at = {node: rule.at(stage.table.row_of[node]) for node in told}
                pair = ("columns", "at")
                stage.compare("forms disagree", case.pod, {phase: told}, {phase: at}, pair)

    def hints(case):
        twin, stage, change = case.drawing.twin(case.data, case.pod), case.stage(), case.change()
        signatures = [class_signature(stage.framework, pod) for pod in (case.pod, twin)]
        if None in signatures or change.pod is not None:
            return
        one, other = signatures
        if one.shape != other.shape:
            return
        shared = ("class", "spec") if one.whole == other.whole else ("spec",)
        for registered in stage.plugin.events_to_register():
            hint = registered.hint
            fields = None if hint is None else fields_read(hint)
            if fields in shared and any(map(registered.event.matches, change.events)):
                found.add(fields)
                answers = {hint(pod, change.old, change.new) for pod in (case.pod, twin)}
                if len(answers) > 1:
                    text = f"a hint reads more than the {fields}"
                    raise stage.fault(text, case.pod, other=shown(twin), change=change.text)

    monkeypatch.setitem(plugin_checks.CHECKS, "rows", rows)
    monkeypatch.setitem(plugin_checks.CHECKS, "hints", hints)
    return found


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("NodePorts", {"filter"}),
        ("NodeResourcesFit", {"filter", "score"}),
        ("NodeResourcesBalancedAllocation", {"score"}),
        ("ImageLocality", {"score"}),
    ],
)
def test_rows_get_the_same_answers_alone(name, phases, compared):
    check_plugin(in_tree_registry().get(name), checks=["rows"], examples=60)
    assert compared == phases


@pytest.mark.parametrize(
    ("name", "fields", "examples"),
    [
        ("InterPodAffinity", {"class"}, 120),
        ("NodeAffinity", {"spec"}, 120),
        ("NodePorts", {"spec"}, 400),
        ("NodeResourcesFit", {"spec"}, 120),
        ("NodeUnschedulable", {"spec"}, 120),
        ("PodTopologySpread", {"class"}, 120),
        ("TaintToleration", {"spec"}, 120),
    ],
)
def test_hints_read_no_more_than_they_say(name, fields, examples, compared):
    check_plugin(in_tree_registry().get(name), checks=["hints"], words=["rack"], examples=examples)
    assert compared == fields


class OtherRows(FilterPlugin, ScorePlugin):
    name = "OtherRows"

    def filter_nodes(self, state, pod, nodes):
        return Verdicts.reject(nodes.pod_count > 0, NO)

    def filter_rule(self, state, pod):
        return RowRule(at=lambda row: True)

    def score_nodes(self, state, pod, nodes):
        return 7

    def score_rule(self, state, pod):
        return RowRule(at=lambda row: 7)


class OtherScores(OtherRows):
    def filter_rule(self, state, pod):
        return None

    def score_rule(self, state, pod):
        return RowRule(at=lambda row: row)


class HintOfOneForItsClass(FilterPlugin, EnqueueExtensions):
    name = "HintOfOne"

    def filter_nodes(self, state, pod, nodes):
        return None

    def events_to_register(self):
        return [on_event(Resource.NODE, Action.ALL, self.hint)]

    @reads("class")
    def hint(self, pod, old, new):
        return Hint.SKIP if pod.metadata.name.endswith("twin") else Hint.QUEUE


class HintOfOneForItsSpec(HintOfOneForItsClass):
    def class_fields(self, pod):
        return None

    @reads("spec")
    def hint(self, pod, old, new):
        return Hint.QUEUE if pod.metadata.labels else Hint.SKIP


class HintThatSaysNothing(HintOfOneForItsClass):
    def hint(self, pod, old, new):
        return super().hint(pod, old, new)


@pytest.mark.parametrize(
    ("plugin", "check", "text"),
    [
        (OtherRows, "rows", "forms disagree"),
        (OtherScores, "rows", "forms disagree"),
        (HintOfOneForItsClass, "hints", "reads more than the class"),
        (HintOfOneForItsSpec, "hints", "reads more than the spec"),
    ],
)
def test_a_planted_fault_is_found(plugin, check, text, compared):
    with pytest.raises(PluginFault, match=text):
        check_plugin(plugin, checks=[check])


def test_a_hint_that_overrides_another_has_to_say_what_it_reads(compared):
    check_plugin(HintThatSaysNothing, checks=["hints"], examples=20)
    assert compared == set()
