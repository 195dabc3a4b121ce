"""`check_plugin`: does a plugin keep the promises that the scheduler relies on?

Hypothesis draws small clusters and changes to them (`testing.drawing`) and shrinks what fails. Each
check asks the plugin the way the scheduler does and compares two answers that must be equal, or
that must be far enough apart to matter: see `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, assume, given, settings
from hypothesis import strategies as st

from kubesched.api.core_v1 import Node, Pod
from kubesched.base.clock import ManualClock
from kubesched.base.errors import KubeschedError, describe
from kubesched.base.logs import silence
from kubesched.config.features import DEFAULT_GATES
from kubesched.config.schema import RawArgs
from kubesched.framework.basis import is_kept, is_lasting
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.events import Hint
from kubesched.framework.handle import Handle
from kubesched.framework.interfaces import (
    EXTENSION_POINTS,
    FilterPlugin,
    Plugin,
    ReservePlugin,
    ScorePlugin,
)
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.nodes.pods import PodInfo
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.profile import construct
from kubesched.framework.registry import checked_class
from kubesched.framework.rules import Rule, Scope, always
from kubesched.framework.runtime import Framework
from kubesched.framework.runtime.filter import run_filters
from kubesched.framework.runtime.guard import as_status
from kubesched.framework.runtime.pre_filter import run_add_pod, run_pre_filter, run_remove_pod
from kubesched.framework.runtime.score import final_scores, raw_scores, run_pre_score
from kubesched.framework.status import Status
from kubesched.insight.state.memory import MemoryListers, NoEvents, PretendingClient
from kubesched.scheduler.classes.signature import Signature, class_signature
from kubesched.scheduler.factory import plugin_events
from kubesched.scheduler.queue.hints import build_hint_map
from kubesched.testing.drawing import Change, Drawing, Tape, World, drawing_for, shown

T = TypeVar("T")

PASSES = "passes"
EXAMPLES = 300

SHRINKS = 300
"""Clusters to try after the first fault, to find a smaller one."""


class _Enough(BaseException):
    """Ends Hypothesis' search; it would take any Exception for a fault of the plugin."""


class PluginFault(KubeschedError, AssertionError):
    """A plugin breaks a promise; the message has the smallest example found."""


@dataclass
class _Attempt:
    """What a plugin answered about a pod."""

    state: CycleState
    gate: str = PASSES
    """PreEnqueue's answer."""
    is_rejected_early: bool = False
    """True if `pre_filter` rejected the pod."""
    is_skipped: bool = False
    verdicts: dict[str, str] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    """Raw scores of the nodes that pass."""
    rules: dict[str, Rule | None] = field(default_factory=dict)

    @property
    def answers(self) -> dict[str, Mapping[str, object]]:
        return {"pre_enqueue": {"": self.gate}, "filter": self.verdicts, "score": self.scores}

    @property
    def rejects(self) -> bool:
        return self.gate != PASSES or any(text != PASSES for text in self.verdicts.values())


class _Stage:
    """A plugin over a node table with the objects of a world."""

    def __init__(self, make: Callable[[Handle], Plugin], world: World) -> None:
        self.table, self.clock = NodeTable(capacity=4), ManualClock()
        self.listers = MemoryListers()
        self.handle = Handle(
            table=self.table,
            clock=self.clock,
            listers=self.listers,
            recorder=NoEvents(),
            client=PretendingClient(),
        )
        self.plugin = make(self.handle)
        points = {
            point: [self.plugin]
            for point, kind in EXTENSION_POINTS.items()
            if kind in type(self.plugin).__mro__
        }
        self.framework = Framework(self.handle, points, {self.plugin.name: 1})
        self._world = World((), (), ())
        self.pods: dict[str, PodInfo] = {}
        self.become(world)

    def become(self, world: World, seconds: float = 0.0) -> None:
        """Change the objects into those of another world."""
        table, old = self.table, self._world
        gone = {node.metadata.name for node in old.nodes} - {n.metadata.name for n in world.nodes}
        for pod in old.placed:
            if pod not in world.placed:
                table.remove_pod(self.pods.pop(pod.metadata.uid), pod.spec.node_name)
        for name in gone:
            table.remove_node(name)
        for node in world.nodes:
            if node not in old.nodes:
                table.set_node(node)
        for pod in world.placed:
            if pod.metadata.uid not in self.pods:
                info = self.pods[pod.metadata.uid] = PodInfo(pod)
                table.add_pod(info, pod.spec.node_name)
        for obj in old.objects:
            if obj not in world.objects:
                self.listers.of(type(obj)).remove(obj.metadata.namespace, obj.metadata.name)
        for obj in world.objects:
            if obj not in old.objects:
                self.listers.put(obj)
        self.clock.advance(seconds)
        self._world = world
        table.refresh()

    def row(self, name: str) -> NodeColumns:
        """A view of one node."""
        return NodeColumns(self.table, np.array([self.table.row_of[name]]))

    def names(self, view: NodeColumns) -> list[tuple[int, str]]:
        """Index and name of the nodes of a view."""
        return [(index, view.name_at(index)) for index in np.flatnonzero(view.alive).tolist()]

    def ask(self, pod: Pod, memo: dict[Any, Any] | None = None) -> _Attempt:
        """One attempt, from PreEnqueue to the raw scores; errors are faults."""
        self.handle.random.seed(0)
        attempt = _Attempt(CycleState())
        state, plugin, view = attempt.state, self.plugin, NodeColumns(self.table)
        state.class_memo = {} if memo is None else memo
        for gate in self.framework.pre_enqueue:
            answer = self.call("pre_enqueue", pod, gate.pre_enqueue, pod)
            attempt.gate = _text(as_status(plugin, answer))
        outcome = run_pre_filter(self.framework, state, pod, view)
        self._no_error(outcome.status, pod)
        attempt.is_rejected_early = outcome.status is not None
        attempt.is_skipped = plugin.name in state.skip_filter_plugins
        names = self.names(view)
        if outcome.status is not None:
            attempt.verdicts = dict.fromkeys((name for _, name in names), _text(outcome.status))
        else:
            attempt.verdicts = self.filtered(state, pod, view)
            if outcome.node_names is not None:
                out = (name for _, name in names if name not in outcome.node_names)
                attempt.verdicts.update(dict.fromkeys(out, "not among the nodes of pre_filter"))
        if hasattr(plugin, "filter_rule"):
            rule = self.call("filter_rule", pod, plugin.filter_rule, state, pod)
            attempt.rules["filter"] = rule
        if not self.framework.score:
            return attempt
        passing = [self.table.row_of[name] for _, name in names if attempt.verdicts[name] == PASSES]
        if passing:
            self._score(attempt, pod, NodeColumns(self.table, np.array(passing)))
        return attempt

    def filtered(self, state: CycleState, pod: Pod, view: NodeColumns) -> dict[str, str]:
        outcome = run_filters(self.framework, state, pod, view)
        self._no_error(outcome.error, pod)
        return {name: _text(outcome.status_at(index)) for index, name in self.names(view)}

    def _score(self, attempt: _Attempt, pod: Pod, view: NodeColumns) -> None:
        state, plugin = attempt.state, cast("ScorePlugin", self.plugin)
        self._no_error(run_pre_score(self.framework, state, pod, view), pod)
        if plugin.name not in state.skip_score_plugins:
            attempt.scores = self.scored(state, pod, view)
            raw = np.array([attempt.scores[name] for _, name in self.names(view)])
            final = final_scores(plugin, state, pod, raw, view)
            self._no_error(final if isinstance(final, Status) else None, pod)
        attempt.rules["score"] = self.call("score_rule", pod, plugin.score_rule, state, pod)

    def scored(self, state: CycleState, pod: Pod, view: NodeColumns) -> dict[str, int]:
        raw = raw_scores(cast("ScorePlugin", self.plugin), state, pod, view)
        if isinstance(raw, Status):
            self._no_error(raw, pod)
            raise AssertionError("a score is not a rejection")
        values = [raw] * len(view) if isinstance(raw, int) else raw.tolist()
        return {name: values[index] for index, name in self.names(view)}

    def call(self, what: str, pod: Pod, function: Callable[..., T], *arguments: object) -> T:
        try:
            return function(*arguments)
        except Exception as error:  # third-party code
            raise self.fault(f"{what} raised {describe(error)}", pod) from error

    def _no_error(self, status: Status | None, pod: Pod) -> None:
        if status is not None and not status.is_rejected:
            raise self.fault(status.message, pod)

    def fault(self, text: str, pod: Pod, node: str = "", **details: object) -> PluginFault:
        """A fault with what is needed to understand it."""
        lines = [f"{self.plugin.name}: {text}", f"  pod     {shown(pod)}"]
        nodes = [n for n in self._world.nodes if not node or n.metadata.name == node]
        lines += [f"  node    {shown(obj)}" for obj in nodes]
        lines += [f"  on it   {shown(p)}" for p in self._world.placed if p.spec.node_name == node]
        lines += [f"  {name:<7} {value}" for name, value in details.items()]
        return PluginFault("\n".join(lines))

    def compare(
        self,
        text: str,
        pod: Pod,
        first: Mapping[str, Mapping[str, object]],
        second: Mapping[str, Mapping[str, object]],
        names: tuple[str, str],
        **details: object,
    ) -> None:
        """Raise a fault for the first node whose two answers differ."""
        for what, answers in first.items():
            for node, answer in answers.items():
                other = second[what].get(node)
                if answer != other:
                    pair = dict(zip(names, (f"{what}: {answer}", f"{what}: {other}"), strict=True))
                    raise self.fault(text, pod, node, **details, **pair)


def _text(status: Status | None) -> str:
    if status is None or status.is_success:
        return PASSES
    return f"{status.code.upstream_name}: {status.message}"


@dataclass
class _Case:
    """What one example of a check may use."""

    data: st.DataObject
    drawing: Drawing
    make: Callable[[Handle], Plugin]
    world: World
    pod: Pod

    def stage(self, world: World | None = None, seconds: float = 0.0) -> _Stage:
        stage = _Stage(self.make, world or self.world)
        stage.clock.advance(seconds)
        return stage

    def change(self) -> Change:
        return self.drawing.change(self.data, self.world, self.pod)


def _deterministic(case: _Case) -> None:
    """Two instances answer alike, and so does one that is asked again."""
    stage, text = case.stage(), "answers differ although nothing has changed"
    first, pair = stage.ask(case.pod).answers, ("first", "second")
    stage.compare(text, case.pod, first, case.stage().ask(case.pod).answers, pair)
    stage.compare(text, case.pod, first, stage.ask(case.pod).answers, pair)


def _forms(case: _Case) -> None:
    """A node gets the same answer alone as among others, and in columns as on its own."""
    stage, pair = case.stage(), ("among", "alone")
    attempt, plugin = stage.ask(case.pod), stage.plugin
    state, pod = attempt.state, case.pod
    is_filtered = plugin.name not in state.skip_filter_plugins and stage.framework.filter
    for node, verdict in attempt.verdicts.items():
        if not is_filtered or attempt.is_rejected_early or "not among" in verdict:
            continue
        alone = stage.filtered(state, pod, stage.row(node))
        text = "filter answers otherwise for a node alone than among all nodes"
        stage.compare(text, pod, {"filter": {node: verdict}}, {"filter": alone}, pair)
        one = cast("FilterPlugin", plugin)
        if one.filters_columns and type(one).filter is not FilterPlugin.filter:
            info = stage.row(node).info_at(0)
            status = stage.call("filter", pod, one.filter, state, pod, info)
            text, single = "filter_nodes and filter disagree", {"filter": {node: _text(status)}}
            stage.compare(text, pod, {"filter": {node: verdict}}, single, ("columns", "single"))
    for node, score in attempt.scores.items():
        alone_scores = stage.scored(state, pod, stage.row(node))
        text = "score answers otherwise for a node alone than among all nodes"
        stage.compare(text, pod, {"score": {node: score}}, {"score": alone_scores}, pair)
        scorer = cast("ScorePlugin", plugin)
        if scorer.scores_columns and type(scorer).score is not ScorePlugin.score:
            info = stage.row(node).info_at(0)
            value = stage.call("score", pod, scorer.score, state, pod, info)
            text, one_score = "score_nodes and score disagree", {"score": {node: value}}
            stage.compare(text, pod, {"score": {node: score}}, one_score, ("columns", "single"))


def _rules(case: _Case) -> None:
    """What a rule calls untouched keeps its answer."""
    change = case.change()
    assume(change.pod is None)
    stage, memo = case.stage(), dict[Any, Any]()
    before = stage.ask(case.pod, memo)
    kept = {phase: rule for phase, rule in before.rules.items() if is_kept(rule)}
    premises = {
        phase: stage.call("premise", case.pod, rule.premise or always)
        for phase, rule in kept.items()
    }
    epoch = stage.table.epoch
    stage.become(change.after, change.seconds)
    if not kept or epoch != stage.table.epoch:
        return
    after = stage.ask(case.pod, memo).answers
    for phase, rule in kept.items():
        now = stage.call("premise", case.pod, rule.premise or always)
        if now != premises[phase]:
            continue
        is_touched = change.is_of_node or rule.depends_on is Scope.ROW
        first, second = (
            {
                node: answer
                for node, answer in answers[phase].items()
                if not (is_touched and node == change.node)
                and (phase == "filter" or (node in before.scores and node in after["score"]))
            }
            for answers in (before.answers, after)
        )
        gone = first.keys() - second.keys()
        stage.compare(
            f"{phase}_rule keeps an answer that has changed (depends on {rule.depends_on.value})",
            case.pod,
            {phase: {node: answer for node, answer in first.items() if node not in gone}},
            {phase: second},
            ("before", "after"),
            change=change.text,
        )


def _classes(case: _Case) -> None:
    """Pods of one class get one answer, and `class_fields` has whatever else is read."""
    twin = case.drawing.twin(case.data, case.pod)
    stage = case.stage()

    def signature(pod: Pod) -> Signature | None:
        return class_signature(stage.framework, pod)

    signed = stage.call("class_fields", case.pod, signature, case.pod)
    other = stage.call("class_fields", twin, signature, twin)
    if signed is None or other is None or signed.shape != other.shape:
        return
    is_one_class = signed.whole == other.whole
    memo: dict[Any, Any] = {}
    first = stage.ask(case.pod, memo)
    second = stage.ask(twin, memo if is_one_class else None)
    for phase in ("filter", "score"):
        rules = first.rules.get(phase), second.rules.get(phase)
        if all(is_lasting(r) if is_one_class else is_kept(r) for r in rules):
            stage.compare(
                "pods of one class get different answers; "
                "class_fields must return what is read besides spec and namespace",
                case.pod,
                {phase: first.answers[phase]},
                {phase: second.answers[phase]},
                ("it", "twin"),
                other=shown(twin),
            )


def _events(case: _Case) -> None:
    """A change that undoes a rejection wakes the pod."""
    change = case.change()
    assume(change.events or change.resource)
    stage = case.stage()
    before = stage.ask(case.pod)
    if not before.rejects:
        return
    pod = change.pod or case.pod
    after = case.stage(change.after, change.seconds).ask(pod)
    helped = [
        node
        for node, text in after.verdicts.items()
        if text == PASSES and before.verdicts.get(node) != PASSES
    ]
    if before.gate != PASSES:
        helped = [""] if after.gate == PASSES else []
    if not helped:
        return
    hints = build_hint_map({"": plugin_events(stage.framework)})
    for event in change.events:
        for hint in hints.resolve(event).hints_by_profile[""]:
            answer = stage.call("a hint", pod, hint.decide, pod, change.old, change.new)
            if answer is not Hint.SKIP:
                return
    labels = ", ".join(event.label for event in change.events) or "no event"
    known = before.gate if before.gate != PASSES else before.verdicts.get(helped[0], "no such node")
    raise stage.fault(
        f"nothing wakes the pod although it would fit now: {labels} is not registered for, or its "
        "hint says SKIP",
        case.pod,
        helped[0],
        change=change.text,
        before=known,
        after=PASSES,
    )


def _isolation(case: _Case) -> None:
    """An answer depends on the cluster, not on what the plugin was asked before."""
    other, change = case.drawing.pod(case.data, "other-pod"), case.change()
    assume(change.pod is None)
    stage, memo = case.stage(), dict[Any, Any]()
    stage.ask(other)
    fresh = case.stage()
    text, pair = "asked about another pod before, it answers differently", ("fresh", "after it")
    expected = fresh.ask(case.pod).answers
    stage.compare(
        text, case.pod, expected, stage.ask(case.pod, memo).answers, pair, other=shown(other)
    )
    stage.become(change.after, change.seconds)
    fresh = case.stage(change.after, change.seconds)
    text = "the answer after a change is not that of a new instance"
    expected, got = fresh.ask(case.pod).answers, stage.ask(case.pod, memo).answers
    fresh.compare(text, case.pod, expected, got, ("fresh", "kept"), change=change.text)


def _what_ifs(case: _Case) -> None:
    """`add_pod` and `remove_pod` amount to the pod being there or not."""
    assume(case.world.placed)
    other = Tape(case.data).pick(case.world.placed)
    node = other.spec.node_name
    placed = [pod for pod in case.world.placed if pod is not other]
    full = case.stage()
    less = case.stage(World(case.world.nodes, placed, case.world.objects))
    if not (full.framework.pre_filter or full.framework.filter):
        return
    with_it, without = full.ask(case.pod), less.ask(case.pod)
    if with_it.is_rejected_early or without.is_rejected_early:
        return
    info = full.pods[other.metadata.uid]
    for stage, start, wanted, verb in (
        (full, with_it, without, "remove_pod"),
        (less, without, with_it, "add_pod"),
    ):
        if start.is_skipped or any("not among" in a.verdicts[node] for a in (start, wanted)):
            continue
        state, live = start.state.clone(), stage.row(node)
        if verb == "remove_pod":
            view = live.what_if(0, remove=[info])
            status = run_remove_pod(stage.framework, state, case.pod, info, view)
        else:
            status = run_add_pod(stage.framework, state, case.pod, info, live)
            view = live.what_if(0, add=[info])
        if status is not None:
            raise stage.fault(status.message, case.pod, node, other=shown(other))
        pair = ("what if", "really")
        text = f"after {verb} the filter answers otherwise than if it were so"
        got, real = stage.filtered(state, case.pod, view), {node: wanted.verdicts[node]}
        stage.compare(text, case.pod, {"filter": got}, {"filter": real}, pair, other=shown(other))
        text = f"{verb} on a clone of the state changes the original: its value needs clone()"
        original = stage.filtered(start.state, case.pod, live)
        was = {node: start.verdicts[node]}
        stage.compare(text, case.pod, {"filter": was}, {"filter": original}, ("before", "after"))


def _reservations(case: _Case) -> None:
    """Unreserve undoes Reserve, may come twice, and may come without it."""
    stage, other = case.stage(), case.drawing.pod(case.data, "other-pod")
    if not isinstance(stage.plugin, ReservePlugin):
        return
    plugin, node = stage.plugin, Tape(case.data).pick(case.world.nodes).metadata.name

    def answers(stage: _Stage) -> dict[str, Mapping[str, object]]:
        reserver = cast("ReservePlugin", stage.plugin)
        all_answers: dict[str, Mapping[str, object]] = {}
        for pod in (case.pod, other):
            attempt = stage.ask(pod)
            all_answers |= {
                f"{what} of {pod.metadata.name}": a for what, a in attempt.answers.items()
            }
            status = stage.call("reserve", pod, reserver.reserve, attempt.state, pod, node)
            all_answers[f"reserve of {pod.metadata.name}"] = {node: _text(status)}
            stage.call("unreserve", pod, reserver.unreserve, attempt.state, pod, node)
        return all_answers

    state = stage.ask(case.pod).state
    for reserves in (False, True):
        if reserves:
            stage.call("reserve", case.pod, plugin.reserve, state, case.pod, node)
        for _ in range(2):
            stage.call("unreserve", case.pod, plugin.unreserve, state, case.pod, node)
        text = "unreserve does not undo reserve" if reserves else "unreserve without reserve counts"
        pair = ("fresh", "undone")
        stage.compare(text, case.pod, answers(case.stage()), answers(stage), pair)


CHECKS: Mapping[str, Callable[[_Case], None]] = {
    "deterministic": _deterministic,
    "forms": _forms,
    "rules": _rules,
    "classes": _classes,
    "events": _events,
    "isolation": _isolation,
    "what-ifs": _what_ifs,
    "reservations": _reservations,
}
"""What is checked, in order; every attempt also checks types, errors and scores in 0..100."""


def check_plugin(
    plugin: type[Plugin],
    args: object = None,
    *,
    objects: Sequence[Any] = (),
    words: Sequence[str] = (),
    nodes: st.SearchStrategy[Node] | None = None,
    pods: st.SearchStrategy[Pod] | None = None,
    examples: int = EXAMPLES,
    checks: Sequence[str] = (),
) -> None:
    """Look for a cluster in which the plugin breaks a promise of the contract.

    Args:
        plugin: The class.
        args: Its arguments: an instance of `args_type`, or the mapping of `pluginConfig`.
        objects: Records of other kinds that the plugin looks up; each may come and go.
        words: More label keys and values to use; those in the plugin's code are found.
        nodes: Nodes to draw from, where arbitrary ones are not enough.
        pods: Pods to draw from, likewise.
        examples: How many clusters to try per check.
        checks: The checks to run, by their names in `CHECKS`; none means all.

    Raises:
        PluginFault: with the pod, the node, the change and the two answers, as small as possible.
        KubeschedError: it is not a plugin, or cannot be constructed.
    """
    drawn = {"objects": objects, "words": words, "nodes": nodes, "pods": pods}
    for _name, fault in results(plugin, args, examples, checks, **drawn):
        if fault is not None:
            raise fault


def results(
    plugin: type[Plugin],
    args: object = None,
    examples: int = EXAMPLES,
    checks: Sequence[str] = (),
    **drawn: Any,  # noqa: ANN401  # see `check_plugin`
) -> Iterator[tuple[str, PluginFault | None]]:
    """Each check's name with the fault it found, if any."""
    silence()
    name = getattr(plugin, "__qualname__", repr(plugin))
    checked_class(name, plugin)
    given_args = RawArgs(dict(args)) if isinstance(args, Mapping) else args

    def make(handle: Handle) -> Plugin:
        return construct(plugin, plugin.name, given_args, handle, DEFAULT_GATES)

    first = make(Handle(table=NodeTable(), listers=MemoryListers(), recorder=NoEvents()))
    drawing = drawing_for(plugin, first.args, **drawn)
    for check in checks or CHECKS:
        yield check, _searched(CHECKS[check], drawing, make, examples)


def _searched(
    check: Callable[[_Case], None],
    drawing: Drawing,
    make: Callable[[Handle], Plugin],
    examples: int,
) -> PluginFault | None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
    )
    @given(st.data())
    def search(data: st.DataObject) -> None:
        world = drawing.world(data)
        try:
            check(_Case(data, drawing, make, world, drawing.pod(data, "pod")))
        except PluginFault as fault:
            smaller.append(str(fault))
            raise
        finally:  # not before drawing: Hypothesis takes that for data that it cannot repeat
            if len(smaller) > SHRINKS:
                raise _Enough
        if smaller:
            smaller.append(smaller[0])

    smaller: list[str] = []
    try:
        search()
    except (PluginFault, _Enough):
        return PluginFault(min(smaller, key=len))  # without Hypothesis' notes
    return None
