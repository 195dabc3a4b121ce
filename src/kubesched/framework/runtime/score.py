"""PreScore, Score, NormalizeScore and weights over the feasible nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import (
    MAX_NODE_SCORE,
    MIN_NODE_SCORE,
    PreScorePlugin,
    ScorePlugin,
)
from kubesched.framework.nodes.columns import Indices, Ints, Levels
from kubesched.framework.nodes.views import NodeColumns
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import (
    WrongAnswer,
    as_status,
    checked_levels,
    checked_scores,
    failure,
    raised,
)
from kubesched.framework.runtime.timing import PRE_SCORE, SCORE, timed
from kubesched.framework.status import SKIP, Code, Status, error_status


class ScoreOutcome:
    """Weighted scores per plugin and in total, over the feasible nodes in the view's order."""

    __slots__ = ("_feasible", "columns", "constants", "error", "raw")

    def __init__(self, feasible: NodeColumns, error: Status | None = None) -> None:
        self._feasible = feasible
        self.error = error
        self.columns: dict[str, Ints] = {}
        """Weighted scores of the plugins whose scores differ between nodes. Read-only."""
        self.constants: dict[str, int] = {}
        """Weighted scores of plugins that score all nodes equally."""
        self.raw: dict[str, Levels | int] | None = None
        """Scores before NormalizeScore, if they are to be kept."""

    @property
    def by_plugin(self) -> dict[str, Ints]:
        """Weighted scores of all plugins, for diagnostics and comparisons."""
        length = len(self._feasible)
        same = {name: np.full(length, score) for name, score in self.constants.items()}
        return {**same, **self.columns}

    @property
    def totals(self) -> Ints:
        total: Ints = np.full(len(self._feasible), sum(self.constants.values()), dtype=np.int64)
        for column in self.columns.values():
            total += column
        return total

    def best_rows(self) -> Indices:
        """Table rows sharing the highest total, in the order of the view."""
        totals = self.totals
        # `argmax` is twice as fast as `max` on int64.
        best: Indices = self._feasible.row_indices()[totals == totals[totals.argmax()]]
        return best


def run_pre_score(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    feasible: NodeColumns,
    plugins: Sequence[PreScorePlugin] | None = None,
) -> Status | None:
    """Run the (given) PreScore plugins; those that skip are recorded in the state.

    Returns the error, if any.
    """
    skipped: set[str] = set()
    state.skip_score_plugins = skipped
    state.points_reached |= PRE_SCORE
    timer = state.timer
    for plugin in framework.pre_score if plugins is None else plugins:
        try:
            if timer is None:
                answer = plugin.pre_score(state, pod, feasible)
            else:
                answer = timer.call(plugin, "PreScore", plugin.pre_score, state, pod, feasible)
            if answer is None:
                continue
            if answer is SKIP:
                skipped.add(plugin.name)
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin may raise anything; it fails this attempt only
            return raised(f'running PreScore plugin "{plugin.name}": ', error)
        if status is not None and status.code is Code.SKIP:
            skipped.add(plugin.name)
        elif status is not None and not status.is_success:
            return failure(f'running PreScore plugin "{plugin.name}": ', status)
    return None


def run_score(
    framework: Framework,
    state: CycleState,
    pod: Pod,
    feasible: NodeColumns,
    *,
    keeps_raw: bool = False,
) -> ScoreOutcome:
    """Run Score and NormalizeScore of every plugin that did not skip, and apply the weights."""
    outcome = ScoreOutcome(feasible)
    if keeps_raw:
        outcome.raw = {}
    state.points_reached |= SCORE
    weights, skipped = framework.score_weights, state.skip_score_plugins
    for plugin in framework.score:
        name = plugin.name
        if name in skipped:
            continue
        raw = raw_scores(plugin, state, pod, feasible)
        if isinstance(raw, Status):
            outcome.error = raw
            return outcome
        if outcome.raw is not None:
            outcome.raw[name] = raw
        is_uniform = isinstance(raw, int)
        given: Levels = np.array([raw], dtype=np.int64) if isinstance(raw, int) else raw
        final = final_scores(plugin, state, pod, given, feasible)
        if isinstance(final, Status):
            outcome.error = final
            return outcome
        if is_uniform:
            outcome.constants[name] = int(final[0]) * weights[name]
        else:
            outcome.columns[name] = final.astype(np.int64, copy=False) * weights[name]
    return outcome


def raw_scores(
    plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Levels | int | Status:
    """A raw score per node, one integer if all nodes score equally, or the error."""
    timer = state.timer
    try:
        if not plugin.scores_columns:
            ask = timed(timer, plugin, "Score", _one_by_one)
            answer = ask(plugin, state, pod, nodes)
        elif timer is None:
            answer = plugin.score_nodes(state, pod, nodes)
        else:
            answer = timer.call(plugin, "Score", plugin.score_nodes, state, pod, nodes)
        if isinstance(answer, Status):
            return failure(_raw_prefix(plugin), answer)
        if type(answer) is int:
            return answer
        return checked_scores(plugin, answer, len(nodes))
    except Exception as error:  # as above
        return raised(_raw_prefix(plugin), error)


def _raw_prefix(plugin: ScorePlugin) -> str:
    return f'running Score plugins: plugin "{plugin.name}" failed with: '


def _one_by_one(
    plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Ints | Status:
    scores = np.zeros(len(nodes), dtype=np.int64)
    alive = np.flatnonzero(nodes.alive)
    for index, info in zip(alive.tolist(), nodes.infos(alive), strict=True):
        answer = plugin.score(state, pod, info)
        if isinstance(answer, Status):
            return answer
        if isinstance(answer, bool) or not isinstance(answer, int | np.integer):
            raise WrongAnswer(
                f"{plugin.name} returned {type(answer).__name__} "
                "where an integer score was expected"
            )
        scores[index] = answer
    return scores


def final_scores(
    plugin: ScorePlugin, state: CycleState, pod: Pod, scores: Levels, feasible: NodeColumns
) -> Levels | Status:
    """Normalized scores, checked to be in 0..100."""
    if plugin.normalizes:
        prefix = f'running Normalize on Score plugins: plugin "{plugin.name}" failed with: '
        raw = cast("Ints", scores)  # in-tree plugins know that theirs may have fewer bits
        try:
            if state.timer is None:
                answer = plugin.normalize_scores(state, pod, raw, feasible)
            else:
                normalize = timed(
                    state.timer, plugin, "ScoreExtensionNormalize", plugin.normalize_scores
                )
                answer = normalize(state, pod, raw, feasible)
            if isinstance(answer, Status):
                return failure(prefix, answer)
            scores = checked_levels(plugin, answer, len(raw))
        except Exception as error:  # as above
            return raised(prefix, error)
    is_single = len(scores) == 1  # one score for all nodes: a plain comparison is cheaper
    if not MIN_NODE_SCORE <= scores[0] <= MAX_NODE_SCORE if is_single else _is_out_of_range(scores):
        bad = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
        return error_status(
            f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" '
            f"returns an invalid score {bad}, "
            f"it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing"
        )
    return scores


def _is_out_of_range(scores: Levels) -> bool:
    """True if any score is out of range.

    Viewed as unsigned, negative scores are huge: one comparison covers both ends.
    """
    if not len(scores):
        return False
    unsigned = scores.view(f"u{scores.itemsize}")
    return bool(unsigned[unsigned.argmax()] > MAX_NODE_SCORE)
