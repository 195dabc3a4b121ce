"""PostFilter: make room when no node is feasible."""

from __future__ import annotations

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import PostFilterPlugin, PostFilterResult
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, failure, raised
from kubesched.framework.status import Code, NodeToStatus, Status, unschedulable

ALL_SKIPPED = "All PostFilter plugins are skipped"


def run_post_filter(
    framework: Framework, state: CycleState, pod: Pod, statuses: NodeToStatus
) -> tuple[PostFilterResult | None, Status | None]:
    """Run PostFilter plugins until one succeeds, declares the pod hopeless, or fails.

    Plain rejections add up: their reasons are joined, the first such plugin signs, and the last result that says
    anything about the nomination is kept.
    """
    if state.skip_all_post_filter_plugins:
        return None, unschedulable(ALL_SKIPPED)
    kept: PostFilterResult | None = None
    reasons: list[str] = []
    rejector = ""
    for plugin in framework.post_filter:
        result, status = _ask(plugin, state, pod, statuses)
        if status is None or status.is_success:
            return result, status
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return result, status.with_plugin(plugin.name)
        if not status.is_rejected:
            return None, status
        if (
            result is not None
            and result.nominating_info is not None
            and result.nominating_info.override
        ):
            kept = result
        reasons.extend(status.all_reasons)
        rejector = rejector or plugin.name
    return kept, Status(Code.UNSCHEDULABLE, reasons, plugin=rejector)


def _ask(
    plugin: PostFilterPlugin, state: CycleState, pod: Pod, statuses: NodeToStatus
) -> tuple[PostFilterResult | None, Status | None]:
    try:
        result, answer = plugin.post_filter(state, pod, statuses)
        status = as_status(plugin, answer)
    except Exception as error:  # a plugin's fault is this attempt's failure, nothing more
        return None, raised("", error, plugin=plugin.name)
    if status is not None and not status.is_success and not status.is_rejected:
        return None, failure("", status, plugin=plugin.name)
    return result, status
