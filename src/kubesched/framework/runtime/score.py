"""PreScore, Score, NormalizeScore and weights over the feasible nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    PreScorePlugin,
    ScorePlugin,
)
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, checked_scores, failure, raised
from kubesched.framework.runtime.replay import Replay
from kubesched.framework.runtime.timing import PRE_SCORE, SCORE, timed
from kubesched.framework.status import SKIP, Code, Status, error_status
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.views import NodeColumns, PassingColumns

Indices = np.ndarray[Any, np.dtype[np.intp]]


class ScoreOutcome:
    """Weighted scores per plugin and in total, over the feasible nodes in the view's order.

    Where most nodes are feasible, plugins score all of them, which is faster than picking out the feasible ones; the
    scores of the others are left out when somebody reads.
    """

    __slots__ = ("_apart", "_feasible", "_together", "constants", "error")

    def __init__(self, feasible: NodeColumns, error: Status | None = None) -> None:
        self._feasible = feasible
        self.error = error
        self._together: dict[str, Ints] = {}
        """Weighted scores of plugins that scored every row of the table."""
        self._apart: dict[str, Ints] = {}
        """Of those that scored the feasible nodes."""
        self.constants: dict[str, int] = {}
        """Weighted scores of plugins that do not tell nodes apart."""

    def add(self, plugin: str, weighted: Ints, *, all_rows: bool) -> None:
        """Take a plugin's scores. They are not to be changed any more."""
        (self._together if all_rows else self._apart)[plugin] = weighted

    @property
    def columns(self) -> dict[str, Ints]:
        """Weighted scores of the plugins that tell nodes apart."""
        rows = self._feasible.rows
        return {name: column[rows] for name, column in self._together.items()} | self._apart

    @property
    def by_plugin(self) -> dict[str, Ints]:
        """Weighted scores per plugin, for people and comparisons."""
        length = len(self._feasible)
        same = {name: np.full(length, score) for name, score in self.constants.items()}
        return {**same, **self.columns}

    @property
    def totals(self) -> Ints:
        return self._sum() + sum(self.constants.values())

    def _sum(self) -> Ints:
        """What the totals differ by."""
        apart = _added_up(self._apart.values())
        together = _added_up(self._together.values())
        if together is not None:
            together = together[self._feasible.rows]
            return together if apart is None else together + apart
        return np.zeros(len(self._feasible), dtype=np.int64) if apart is None else apart

    def best_rows(self) -> Indices:
        """Table rows sharing the highest total, in the order of the view."""
        feasible = self._feasible
        if self._apart or not isinstance(feasible, PassingColumns):
            return feasible.row_indices()[_highest(self._sum())]
        together = _added_up(self._together.values())
        if together is None:
            return feasible.row_indices()
        return _highest(together if feasible.is_whole else np.where(feasible.mask, together, -1))


def _added_up(columns: Iterable[Ints]) -> Ints | None:
    total: Ints | None = None
    is_own = False
    for column in columns:
        if total is None:
            total = column
        elif is_own:
            total += column
        else:
            total, is_own = total + column, True
    return total


def _highest(totals: Ints) -> Indices:
    """Where the highest value stands. Finding a place of it is twice as fast as finding the value."""
    found: Indices = (totals == totals[totals.argmax()]).nonzero()[0]
    return found


def run_pre_score(
    framework: Framework, state: CycleState, pod: Pod, feasible: NodeColumns
) -> Status | None:
    """Run PreScore plugins; plugins that opt out are recorded in the state. Returns the error, if any."""
    skipped: set[str] = set()
    state.skip_score_plugins = skipped
    state.points_reached |= PRE_SCORE
    plugins: Sequence[PreScorePlugin] = framework.pre_score
    timer = state.timer
    pod_class, version = state.pod_class, len(feasible.table.lines)
    recording: Replay[PreScorePlugin] | None = None
    if pod_class is not None:
        replay = pod_class.pre_score
        if replay is not None and replay.serves(version):
            plugins = replay.apply(state, skipped)
        else:
            recording = Replay(version)
    for plugin in plugins:
        if recording is not None and plugin.pre_score_is_per_class:
            recording.watch(state)
        try:
            if timer is None:
                answer = plugin.pre_score(state, pod, feasible)
            else:
                answer = timer.call(plugin, "PreScore", plugin.pre_score, state, pod, feasible)
            if recording is None:  # the two common answers, without detours
                if answer is SKIP:
                    skipped.add(plugin.name)
                    continue
                if answer is None:
                    continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin's fault is this attempt's failure, nothing more
            return raised(f'running PreScore plugin "{plugin.name}": ', error)
        skips = status is not None and status.code is Code.SKIP
        if skips:
            skipped.add(plugin.name)
        elif status is not None and not status.is_success:
            return failure(f'running PreScore plugin "{plugin.name}": ', status)
        if recording is not None:
            if plugin.pre_score_is_per_class:
                recording.note(state, plugin.name, skipped=skips)
            else:
                recording.rest.append(plugin)
    if recording is not None and pod_class is not None:
        pod_class.pre_score = recording
    return None


def run_score(
    framework: Framework, state: CycleState, pod: Pod, feasible: NodeColumns
) -> ScoreOutcome:
    """Run Score and NormalizeScore of every plugin that did not opt out, and weigh the results."""
    outcome = ScoreOutcome(feasible)
    state.points_reached |= SCORE
    weights, skipped = framework.score_weights, state.skip_score_plugins
    everything = _all_rows(feasible)
    for plugin in framework.score:
        name = plugin.name
        if name in skipped:
            continue
        same = _uniform_score(plugin, state, pod)
        if same is not None:
            outcome.constants[name] = same * weights[name]
            continue
        all_rows = everything is feasible or (
            everything is not None and not plugin.normalizes and not lifts(plugin)
        )
        nodes = everything if all_rows and everything is not None else feasible
        raw = raw_scores(plugin, state, pod, nodes)
        if isinstance(raw, Status):
            outcome.error = raw
            return outcome
        final = raw
        if nodes is feasible or _trespasses(raw):
            # Of nodes that are not feasible anything may be said.
            own = raw if nodes is feasible else raw[feasible.rows]
            checked = final_scores(plugin, state, pod, own, feasible)
            if isinstance(checked, Status):
                outcome.error = checked
                return outcome
            final = checked if nodes is feasible else raw
        weight = weights[name]
        outcome.add(name, final if weight == 1 else final * weight, all_rows=all_rows)
    return outcome


def _all_rows(feasible: NodeColumns) -> NodeColumns | None:
    """A view of every row, if enough of them are feasible to score them all."""
    if not isinstance(feasible, PassingColumns):
        return None
    if feasible.is_whole:
        return feasible
    table = feasible.table
    return NodeColumns(table) if 2 * len(feasible) >= table.high_water else None


def _uniform_score(plugin: ScorePlugin, state: CycleState, pod: Pod) -> int | None:
    """One score for all nodes, if the plugin says so within the rules; otherwise nodes are scored one and all."""
    try:
        same = plugin.uniform_score(state, pod)
    except Exception:  # it will raise again, and be reported, when it scores nodes
        return None
    return same if same is not None and MIN_NODE_SCORE <= same <= MAX_NODE_SCORE else None


def lifts(plugin: ScorePlugin) -> bool:
    """Does the plugin look at one node at a time?"""
    return type(plugin).score_nodes is ScorePlugin.score_nodes


def raw_scores(
    plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Ints | Status:
    timer = state.timer
    try:
        if lifts(plugin):
            ask = timed(timer, plugin, "Score", _one_by_one)
            answer = ask(plugin, state, pod, nodes)
        elif timer is None:
            answer = plugin.score_nodes(state, pod, nodes)
        else:
            answer = timer.call(plugin, "Score", plugin.score_nodes, state, pod, nodes)
        if isinstance(answer, Status):
            return failure(_raw_prefix(plugin), answer)
        return checked_scores(plugin, answer, len(nodes))
    except Exception as error:  # as above
        return raised(_raw_prefix(plugin), error)


def _raw_prefix(plugin: ScorePlugin) -> str:
    return f'running Score plugins: plugin "{plugin.name}" failed with: '


def _one_by_one(
    plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Ints | Status:
    scores = np.zeros(len(nodes), dtype=np.int64)
    alive = nodes.alive
    for index in range(len(nodes)):
        if not alive[index]:
            continue
        answer = plugin.score(state, pod, nodes.info_at(index))
        if isinstance(answer, Status):
            return answer
        if isinstance(answer, bool) or not isinstance(answer, int | np.integer):
            raise TypeError(
                f"{plugin.name} returned {type(answer).__name__} where an integer score was expected"
            )
        scores[index] = answer
    return scores


def final_scores(
    plugin: ScorePlugin, state: CycleState, pod: Pod, raw: Ints, feasible: NodeColumns
) -> Ints | Status:
    """Normalised scores, checked to lie in 0..100."""
    scores = raw
    if plugin.normalizes:
        prefix = f'running Normalize on Score plugins: plugin "{plugin.name}" failed with: '
        try:
            normalize = timed(
                state.timer, plugin, "ScoreExtensionNormalize", plugin.normalize_scores
            )
            answer = normalize(state, pod, raw, feasible)
            if isinstance(answer, Status):
                return failure(prefix, answer)
            scores = checked_scores(plugin, answer, len(feasible))
        except Exception as error:  # as above
            return raised(prefix, error)
    if _trespasses(scores):
        bad = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
        return error_status(
            f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" returns an invalid score {bad}, '
            f"it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing"
        )
    return scores


def _trespasses(scores: Ints) -> bool:
    """Is any score out of range? Read as unsigned, a negative one is huge: one look finds both kinds."""
    if not len(scores):
        return False
    unsigned = scores.view(np.uint64)
    return bool(unsigned[unsigned.argmax()] > MAX_NODE_SCORE)
