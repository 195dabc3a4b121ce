"""PostFilter: preemption and the like, when no node is feasible."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import PostFilterAnswer, PostFilterPlugin, PostFilterResult
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised
from kubesched.framework.runtime.timing import timed
from kubesched.framework.status import Code, NodeToStatus, Status, unschedulable

ALL_SKIPPED = "All PostFilter plugins are skipped"


def run_post_filter(
    framework: Framework, state: CycleState, pod: Pod, statuses: NodeToStatus
) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
    """Run PostFilter plugins until one succeeds, fails, or returns UnschedulableAndUnresolvable.

    Unschedulable statuses are merged: reasons are joined, the status carries the first plugin's
    name, and the last result that overrides the nomination is kept. Returns an awaitable as soon as
    one plugin does.
    """
    if state.skip_all_post_filter_plugins:
        return None, unschedulable(ALL_SKIPPED)
    rejections = _Rejections()
    for number, plugin in enumerate(framework.post_filter, start=1):
        answer = _ask(plugin, state, pod, statuses)
        # A tuple is not awaitable; `isawaitable` is ten times slower than this check.
        if type(answer) is not tuple and inspect.isawaitable(answer):
            plugins = framework.post_filter[number:]
            return _ask_rest(plugin, answer, plugins, rejections, state, pod, statuses)
        final = rejections.take(plugin, answer)
        if final is not None:
            return final
    return rejections.summary()


async def _ask_rest(
    plugin: PostFilterPlugin,
    answer: Awaitable[PostFilterAnswer],
    plugins: Sequence[PostFilterPlugin],
    rejections: _Rejections,
    state: CycleState,
    pod: Pod,
    statuses: NodeToStatus,
) -> PostFilterAnswer:
    """Continue from the first plugin that must be awaited."""
    final = rejections.take(plugin, await answer)
    for later in plugins:
        if final is not None:
            break
        asked = _ask(later, state, pod, statuses)
        final = rejections.take(later, await asked if inspect.isawaitable(asked) else asked)
    return final or rejections.summary()


def _ask(
    plugin: PostFilterPlugin, state: CycleState, pod: Pod, statuses: NodeToStatus
) -> PostFilterAnswer | Awaitable[PostFilterAnswer]:
    try:
        ask = timed(state.timer, plugin, "PostFilter", plugin.post_filter)
        answer: PostFilterAnswer | Awaitable[PostFilterAnswer] = ask(state, pod, statuses)
    except Exception as error:  # a plugin may raise anything; it fails this attempt only
        return None, raised("", error, plugin=plugin.name)
    if type(answer) is not tuple and inspect.isawaitable(answer):
        return _guarded(plugin, answer)
    return answer


async def _guarded(
    plugin: PostFilterPlugin, answer: Awaitable[PostFilterAnswer]
) -> PostFilterAnswer:
    try:
        return await answer
    except Exception as error:  # as above
        return None, raised("", error, plugin=plugin.name)


class _Rejections:
    """The merged Unschedulable answers so far."""

    def __init__(self) -> None:
        self._kept: PostFilterResult | None = None
        self._reasons: list[str] = []
        self._rejector = ""

    def take(self, plugin: PostFilterPlugin, answer: PostFilterAnswer) -> PostFilterAnswer | None:
        """Merge a plugin's answer; returns the final answer if it ends the phase."""
        try:
            result, given = answer
            status = as_status(plugin, given)
        except (TypeError, ValueError) as error:
            return None, raised("", error, plugin=plugin.name)
        if status is None or status.is_success:
            return result, status
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return result, status.with_plugin(plugin.name)
        if not status.is_rejected:
            return None, failure("", status, plugin=plugin.name)
        nomination = None if result is None else result.nominating_info
        if nomination is not None and nomination.override:
            self._kept = result
        self._reasons.extend(status.all_reasons)
        self._rejector = self._rejector or plugin.name
        return None

    def summary(self) -> PostFilterAnswer:
        return self._kept, Status(Code.UNSCHEDULABLE, self._reasons, plugin=self._rejector)
