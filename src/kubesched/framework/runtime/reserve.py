"""Reserve and Unreserve: plugins claim resources that they manage themselves on the chosen node."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.base.logs import get_logger
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import Plugin
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised
from kubesched.framework.runtime.timing import timed
from kubesched.framework.status import Status

log = get_logger(__name__)


def run_reserve(framework: Framework, state: CycleState, pod: Pod, node_name: str) -> Status | None:
    """The first rejection or error, if any; the caller then runs `run_unreserve`."""
    timer = state.timer
    for plugin in framework.reserve:
        try:
            if timer is None:
                answer = plugin.reserve(state, pod, node_name)
            else:
                answer = timer.call(plugin, "Reserve", plugin.reserve, state, pod, node_name)
            if answer is None:
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin failure fails only this attempt
            return raised(_prefix(plugin), error)
        if status is None or status.is_success:
            continue
        if status.is_rejected:
            return status.with_plugin(plugin.name)
        return failure(_prefix(plugin), status)
    return None


def _prefix(plugin: Plugin) -> str:
    return f'running Reserve plugin "{plugin.name}": '


def run_unreserve(framework: Framework, state: CycleState, pod: Pod, node_name: str) -> None:
    """Run Unreserve of all plugins in reverse order, even if their `reserve` did not run."""
    for plugin in reversed(framework.reserve):
        try:
            timed(state.timer, plugin, "Unreserve", plugin.unreserve)(state, pod, node_name)
        except Exception:  # continue with the other plugins
            log.exception("Unreserve plugin failed", plugin=plugin.name, pod=pod)
