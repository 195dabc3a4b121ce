"""The binding side: PreBindPreFlight, PreBind, Bind and PostBind, which may do I/O."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator

from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.direct_bind import BindOutcome, DirectBindPlugin
from kubesched.framework.interfaces import Plugin, PreBindPlugin, PreBindPreFlightResult
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised, rejection_or_failure
from kubesched.framework.status import SKIP, Code, Status, error_status

log = get_logger(__name__)


def run_pre_bind_pre_flight(
    framework: Framework, state: CycleState, pod: Pod, node_name: str
) -> Status | None:
    """Determine which PreBind plugins will act, and which may run in parallel.

    SKIP if none will act; an error if one failed or returned an unsupported code.
    """
    skipped: set[str] = set()
    parallel: set[str] = set()
    state.skip_pre_bind_plugins, state.parallel_pre_bind_plugins = skipped, parallel
    for plugin in framework.pre_bind:
        try:
            answer = plugin.pre_bind_pre_flight(state, pod, node_name)
            if isinstance(answer, PreBindPreFlightResult):
                if answer.allow_parallel:
                    parallel.add(plugin.name)
                if answer.skip:
                    skipped.add(plugin.name)
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin failure fails only this attempt
            return raised(f'running PreBindPreFlight "{plugin.name}": ', error, plugin=plugin.name)
        if status is None or status.is_success:
            continue
        if status.code is Code.SKIP:
            skipped.add(plugin.name)
        elif status.code is Code.ERROR:
            return failure(
                f'running PreBindPreFlight "{plugin.name}": ', status, plugin=plugin.name
            )
        else:
            return error_status(
                f'PreBindPreFlight {plugin.name} returned "{status.code.upstream_name}", '
                "which is unsupported. "
                "It is supposed to return Success, Skip, or Error status",
                plugin=plugin.name,
            )
    return SKIP if len(skipped) == len(framework.pre_bind) else None


async def run_pre_bind(
    framework: Framework, state: CycleState, pod: Pod, node_name: str
) -> Status | None:
    """Run the PreBind plugins group by group, up to the first failure."""
    for group in pre_bind_groups(framework, state):
        if len(group) == 1:
            status = await _pre_bind(group[0], state, pod, node_name)
        else:
            status = await _side_by_side(framework, group, state, pod, node_name)
        if status is not None:
            return status
    return None


def pre_bind_groups(framework: Framework, state: CycleState) -> Iterator[list[PreBindPlugin]]:
    """Consecutive plugins that allow it form a parallel group.

    Any other plugin ends a group, even if it is skipped.
    """
    group: list[PreBindPlugin] = []
    for plugin in framework.pre_bind:
        is_skipped = plugin.name in state.skip_pre_bind_plugins
        if plugin.name in state.parallel_pre_bind_plugins:
            if not is_skipped:
                group.append(plugin)
            continue
        if group:
            yield group
            group = []
        if not is_skipped:
            yield [plugin]
    if group:
        yield group


async def _side_by_side(
    framework: Framework, plugins: list[PreBindPlugin], state: CycleState, pod: Pod, node_name: str
) -> Status | None:
    """Run a group concurrently; the first failure cancels the others."""
    metrics = framework.handle.metrics
    running = None if metrics is None else metrics.goroutines.labels("PreBind")
    if running is not None:
        running.inc(len(plugins))
    tasks = [asyncio.ensure_future(_pre_bind(plugin, state, pod, node_name)) for plugin in plugins]
    try:
        for finished in asyncio.as_completed(tasks):
            status = await finished
            if status is not None:
                return status
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if running is not None:
            running.dec(len(plugins))


async def _pre_bind(
    plugin: PreBindPlugin, state: CycleState, pod: Pod, node_name: str
) -> Status | None:
    prefix = f'running PreBind plugin "{plugin.name}": '
    try:
        answer = await _ask(state, plugin, "PreBind", plugin.pre_bind, pod, node_name)
        status = as_status(plugin, answer)
    except Exception as error:  # as above
        return raised(prefix, error, plugin=plugin.name)
    if status is None or status.is_success:
        return None
    return rejection_or_failure(prefix, status, plugin.name)


async def run_bind(
    framework: Framework, state: CycleState, pod: Pod, node_name: str
) -> Status | None:
    """The first Bind plugin that does not skip decides. If all skip, returns the last Skip."""
    last: Status | None = SKIP
    for plugin in framework.bind:
        prefix = f'running Bind plugin "{plugin.name}": '
        try:
            answer = await _ask(state, plugin, "Bind", plugin.bind, pod, node_name)
            status = as_status(plugin, answer)
        except Exception as error:  # as above
            return raised(prefix, error, plugin=plugin.name)
        if status is None or status.is_success:
            return None
        if status.code is Code.SKIP:
            last = status
            continue
        return rejection_or_failure(prefix, status, plugin.name)
    return last


def direct_binder(framework: Framework) -> DirectBindPlugin | None:
    """The plugin that binds by callback, if no other Bind plugin is configured."""
    if len(framework.bind) != 1:
        return None
    plugin = framework.bind[0]
    # Like `isinstance`, which is slow for abstract classes; this runs for every pod.
    if DirectBindPlugin not in type(plugin).__mro__:
        return None
    direct: DirectBindPlugin = plugin  # type: ignore[assignment]
    return direct if direct.binds_directly else None


async def finish_bind(plugin: DirectBindPlugin, outcome: BindOutcome) -> Status | None:
    """Complete the rest of a plugin's `start_bind`; returns what `run_bind` would."""
    prefix = f'running Bind plugin "{plugin.name}": '
    try:
        status = as_status(plugin, await outcome())
    except Exception as error:  # as above
        return raised(prefix, error, plugin=plugin.name)
    return None if status is None else rejection_or_failure(prefix, status, plugin.name)


async def run_post_bind(framework: Framework, state: CycleState, pod: Pod, node_name: str) -> None:
    """Run PostBind. The pod is bound, so failures are only logged."""
    for plugin in framework.post_bind:
        try:
            await _ask(state, plugin, "PostBind", plugin.post_bind, pod, node_name)
        except Exception:  # a plugin may raise anything; the pod is bound
            log.exception("PostBind plugin failed", plugin=plugin.name, pod=pod)


async def _ask(
    state: CycleState,
    plugin: Plugin,
    point: str,
    function: Callable[..., Awaitable[object] | object],
    pod: Pod,
    node_name: str,
) -> object:
    """Call a plugin that may return its answer or an awaitable."""
    if state.timer is not None:
        return await state.timer.call_async(plugin, point, function, state, pod, node_name)
    answer = function(state, pod, node_name)
    if answer is None or not inspect.isawaitable(answer):
        return answer
    return await answer
