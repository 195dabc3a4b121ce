"""PreScore, Score, NormalizeScore and weights over the feasible nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
from kubesched.framework.nodes.views import NodeColumns, PassingColumns
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
    """Weighted scores per plugin and in total, over the feasible nodes in the view's order.

    Where most nodes are feasible, plugins score all rows, which is faster than gathering the
    feasible ones; the scores of other rows are dropped on reading.
    """

    __slots__ = ("_apart", "_feasible", "_together", "constants", "error", "raw")

    def __init__(self, feasible: NodeColumns, error: Status | None = None) -> None:
        self._feasible = feasible
        self.error = error
        self._together: dict[str, Ints] = {}
        """Weighted scores of plugins that scored every row of the table."""
        self._apart: dict[str, Ints] = {}
        """Weighted scores of plugins that scored the feasible nodes only."""
        self.constants: dict[str, int] = {}
        """Weighted scores of plugins that score all nodes equally."""
        self.raw: dict[str, Ints | int] | None = None
        """Scores before NormalizeScore, if they are to be kept."""

    def add(self, plugin: str, weighted: Ints, *, all_rows: bool) -> None:
        """Add a plugin's scores, which must not be changed afterwards."""
        (self._together if all_rows else self._apart)[plugin] = weighted

    @property
    def columns(self) -> dict[str, Ints]:
        """Weighted scores of the plugins whose scores differ between nodes."""
        rows = self._feasible.rows
        return {name: column[rows] for name, column in self._together.items()} | self._apart

    @property
    def by_plugin(self) -> dict[str, Ints]:
        """Weighted scores of all plugins, for diagnostics and comparisons."""
        length = len(self._feasible)
        same = {name: np.full(length, score) for name, score in self.constants.items()}
        return {**same, **self.columns}

    @property
    def totals(self) -> Ints:
        return self._sum() + sum(self.constants.values())

    def _sum(self) -> Ints:
        """The totals without the constants."""
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
    """Indices of the highest value. `argmax` is twice as fast as `max` on int64."""
    indices: Indices = (totals == totals[totals.argmax()]).nonzero()[0]
    return indices


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
    everything = _all_rows(feasible)
    for plugin in framework.score:
        name = plugin.name
        if name in skipped:
            continue
        all_rows = everything is feasible or (
            everything is not None and not plugin.normalizes and plugin.scores_columns
        )
        nodes = everything if all_rows and everything is not None else feasible
        raw = raw_scores(plugin, state, pod, nodes)
        if isinstance(raw, Status):
            outcome.error = raw
            return outcome
        if outcome.raw is not None:
            is_gathered = nodes is feasible
            outcome.raw[name] = raw if isinstance(raw, int) or is_gathered else raw[feasible.rows]
        if isinstance(raw, int):
            if not plugin.normalizes and MIN_NODE_SCORE <= raw <= MAX_NODE_SCORE:
                outcome.constants[name] = raw * weights[name]
                continue
            uniform = final_scores(plugin, state, pod, np.array([raw], dtype=np.int64), feasible)
            if isinstance(uniform, Status):
                outcome.error = uniform
                return outcome
            outcome.constants[name] = int(uniform[0]) * weights[name]
            continue
        final = raw
        if nodes is feasible or _is_out_of_range(raw):
            # Only feasible nodes count: the raw scores of others may be out of range.
            own = raw if nodes is feasible else raw[feasible.rows]
            checked = final_scores(plugin, state, pod, own, feasible)
            if isinstance(checked, Status):
                outcome.error = checked
                return outcome
            final = raw if nodes is not feasible else checked.astype(np.int64, copy=False)
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


def raw_scores(
    plugin: ScorePlugin, state: CycleState, pod: Pod, nodes: NodeColumns
) -> Ints | int | Status:
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
    plugin: ScorePlugin, state: CycleState, pod: Pod, raw: Ints, feasible: NodeColumns
) -> Levels | Status:
    """Normalized scores, checked to be in 0..100."""
    scores: Levels = raw
    if plugin.normalizes:
        prefix = f'running Normalize on Score plugins: plugin "{plugin.name}" failed with: '
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
