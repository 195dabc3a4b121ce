"""Permit: allow, reject, or wait."""

from __future__ import annotations

from dataclasses import dataclass, field

from kubesched.api.core_v1 import Pod
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.interfaces import Plugin, Wait
from kubesched.framework.runtime.framework import Framework
from kubesched.framework.runtime.guard import as_status, raised, rejection_or_failure
from kubesched.framework.runtime.timing import timed
from kubesched.framework.status import Code, Status

ASKED_TO_WAIT = "one or more plugins asked to wait and no plugin rejected pod"


@dataclass(slots=True)
class PermitOutcome:
    """`status` None: continue.

    With code Wait, `timeouts_s` holds the maximum wait of each waiting plugin.
    """

    status: Status | None = None
    timeouts_s: dict[str, float] = field(default_factory=dict)


GO_ON = PermitOutcome()
"""The outcome without plugins; never modified."""


def run_permit(framework: Framework, state: CycleState, pod: Pod, node_name: str) -> PermitOutcome:
    """Run the Permit plugins; the first rejection or error ends the phase, waits are collected."""
    if not framework.permit:
        return GO_ON
    outcome = PermitOutcome()
    last_reasons: tuple[str, ...] = ()
    for plugin in framework.permit:
        try:
            answer = timed(state.timer, plugin, "Permit", plugin.permit)(state, pod, node_name)
            if isinstance(answer, Wait):
                outcome.timeouts_s[plugin.name] = float(answer.timeout_s)
                last_reasons = (answer.reason,) if answer.reason else ()
                continue
            status = as_status(plugin, answer)
        except Exception as error:  # a plugin failure fails only this attempt
            return PermitOutcome(raised(_prefix(plugin), error, plugin=plugin.name))
        if status is None or status.is_success:
            continue
        return PermitOutcome(rejection_or_failure(_prefix(plugin), status, plugin.name))
    if outcome.timeouts_s:
        outcome.status = Status(Code.WAIT, (*last_reasons, ASKED_TO_WAIT))
    return outcome


def _prefix(plugin: Plugin) -> str:
    return f'running Permit plugin "{plugin.name}": '
