"""Pod status updates as minimal strategic merge patches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from kubesched.api.core_v1 import Pod, PodCondition
from kubesched.api.times import format_time
from kubesched.base.errors import Conflict, ConnectFailed, KubeschedError, ServerError
from kubesched.framework.handle import SchedulerClient
from kubesched.framework.nominating_info import NominatingInfo

POD_SCHEDULED: Final = "PodScheduled"
REASON_UNSCHEDULABLE: Final = "Unschedulable"
REASON_SCHEDULER_ERROR: Final = "SchedulerError"

ATTEMPTS: Final = 4
FIRST_RETRY_S: Final = 0.01
RETRY_FACTOR: Final = 5.0
RETRY_JITTER: Final = 0.1


def status_patch(
    pod: Pod, condition: PodCondition | None, nomination: NominatingInfo | None, now: float
) -> dict[str, Any] | None:
    """The patch that sets the wanted condition and nomination on `pod`; None if it has both."""
    status: dict[str, Any] = {}
    if condition is not None:
        status.update(_condition_patch(pod, condition, now))
    if nomination is not None and nomination.override:
        # `pod` may be stale and lack a nomination that was just written. So every patch also clears
        # the nomination explicitly: otherwise the room could stay reserved.
        withdraws = status and not nomination.node_name
        if withdraws or nomination.node_name != pod.status.nominated_node_name:
            status["nominatedNodeName"] = nomination.node_name or None
    return {"status": status} if status else None


def _condition_patch(pod: Pod, wanted: PodCondition, now: float) -> dict[str, Any]:
    """Upsert by type.

    An unchanged status keeps its transition time; observedGeneration alone is not a change.
    """
    existing, old = pod.status.conditions or [], None
    for condition in existing:
        if condition.type == wanted.type:
            old = condition
            break
    if old is None:
        added: dict[str, Any] = {
            "type": wanted.type,
            "status": wanted.status,
            "lastProbeTime": None,
            "lastTransitionTime": format_time(now),
        }
        if wanted.reason:
            added["reason"] = wanted.reason
        if wanted.message:
            added["message"] = wanted.message
        if wanted.observed_generation:
            added["observedGeneration"] = wanted.observed_generation
        order = [{"type": c.type} for c in (*existing, wanted)]
        return {"conditions": [added]} | (
            {"$setElementOrder/conditions": order} if existing else {}
        )
    if (old.status, old.reason, old.message) == (wanted.status, wanted.reason, wanted.message):
        return {}
    changed: dict[str, Any] = {"type": wanted.type}
    if old.status != wanted.status:
        changed |= {"status": wanted.status, "lastTransitionTime": format_time(now)}
    if old.reason != wanted.reason:
        changed["reason"] = wanted.reason or None
    if old.message != wanted.message:
        changed["message"] = wanted.message or None
    if old.observed_generation != wanted.observed_generation:
        changed["observedGeneration"] = wanted.observed_generation
    return {
        "$setElementOrder/conditions": [{"type": c.type} for c in existing],
        "conditions": [changed],
    }


async def write_status(
    client: SchedulerClient,
    pod: Pod,
    make_patch: Callable[[], Mapping[str, Any] | None],
    random: Random,
) -> None:
    """Patch a pod's status with retries.

    Each try recomputes the patch; None means nothing is left to do.

    Raises:
        KubeschedError: the last try failed, or the error is not retriable.
    """

    async def send() -> None:
        patch = make_patch()
        if patch is not None:
            await client.patch_pod_status(pod, patch)

    await with_retries(send, random)


async def with_retries(send: Callable[[], Awaitable[object]], random: Random) -> None:
    """Send a status until it arrives.

    Raises:
        KubeschedError: the last try failed, or the error is not retriable.
    """
    delay_s = FIRST_RETRY_S
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await send()
        except KubeschedError as error:
            if attempt == ATTEMPTS or not _is_retriable(error):
                raise
        else:
            return
        await asyncio.sleep(delay_s * (1 + random.random() * RETRY_JITTER))
        delay_s *= RETRY_FACTOR


def _is_retriable(error: KubeschedError) -> bool:
    return isinstance(error, Conflict | ConnectFailed) or (
        isinstance(error, ServerError) and error.code in (500, 503)
    )
