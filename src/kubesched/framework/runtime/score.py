"""PreScore, Score, NormalizeScore and weights over the feasible nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from kubesched.framework.status import Code, Status, error_status
from kubesched.snapshot.columns import Ints
from kubesched.snapshot.views import NodeColumns


@dataclass(slots=True)
class ScoreOutcome:
    """Weighted scores per plugin and in total, over the feasible nodes in the view's order."""

    totals: Ints
    columns: dict[str, Ints] = field(default_factory=dict)
    """Weighted scores of the plugins that tell nodes apart."""
    constants: dict[str, int] = field(default_factory=dict)
    """Weighted scores of those that do not."""
    error: Status | None = None

    @property
    def by_plugin(self) -> dict[str, Ints]:
        """Weighted scores per plugin, for people and comparisons."""
        same = {name: np.full(len(self.totals), score) for name, score in self.constants.items()}
        return {**same, **self.columns}


def run_pre_score(
    framework: Framework, state: CycleState, pod: Pod, feasible: NodeColumns
) -> Status | None:
    """Run PreScore plugins; plugins that opt out are recorded in the state. Returns the error, if any."""
    skipped: set[str] = set()
    state.skip_score_plugins = skipped
    state.points_reached |= PRE_SCORE
    plugins: Sequence[PreScorePlugin] = framework.pre_score
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
            ask = timed(state.timer, plugin, "PreScore", plugin.pre_score)
            status = as_status(plugin, ask(state, pod, feasible))
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
    outcome = ScoreOutcome(np.zeros(len(feasible), dtype=np.int64))
    state.points_reached |= SCORE
    for plugin in framework.score:
        if plugin.name in state.skip_score_plugins:
            continue
        weight = framework.score_weights[plugin.name]
        same = _uniform_score(plugin, state, pod)
        if same is not None:
            outcome.constants[plugin.name] = same * weight
            continue
        raw = raw_scores(plugin, state, pod, feasible)
        if isinstance(raw, Status):
            outcome.error = raw
            return outcome
        final = final_scores(plugin, state, pod, raw, feasible)
        if isinstance(final, Status):
            outcome.error = final
            return outcome
        weighted = final if weight == 1 else final * weight
        outcome.columns[plugin.name] = weighted
        outcome.totals += weighted
    outcome.totals += sum(outcome.constants.values())
    return outcome


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
    prefix = f'running Score plugins: plugin "{plugin.name}" failed with: '
    try:
        if lifts(plugin):
            ask = timed(state.timer, plugin, "Score", _one_by_one)
            answer = ask(plugin, state, pod, nodes)
        else:
            ask = timed(state.timer, plugin, "Score", plugin.score_nodes)
            answer = ask(state, pod, nodes)
        if isinstance(answer, Status):
            return failure(prefix, answer)
        return checked_scores(plugin, answer, len(nodes))
    except Exception as error:  # as above
        return raised(prefix, error)


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
    # Read as unsigned, a negative score is a huge one: one look finds both kinds of trespass.
    if len(scores) and int(scores.view(np.uint64).max()) > MAX_NODE_SCORE:
        bad = int(scores[(scores < MIN_NODE_SCORE) | (scores > MAX_NODE_SCORE)][0])
        return error_status(
            f'applying score defaultWeights on Score plugins: plugin "{plugin.name}" returns an invalid score {bad}, '
            f"it should in the range of [{MIN_NODE_SCORE}, {MAX_NODE_SCORE}] after normalizing"
        )
    return scores
