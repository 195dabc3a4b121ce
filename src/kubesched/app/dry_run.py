"""Dry run: scheduling decisions are logged instead of written to the cluster.

A pod that would have been bound stays assumed on its node, since its binding is never confirmed, so
later decisions take it into account. Preemption victims are not deleted; the preemptor waits, as it
would for a slow deletion.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kubesched.api.core_v1 import Pod
from kubesched.api.meta import Record
from kubesched.base.errors import NotFound
from kubesched.base.logs import get_logger

log = get_logger(__name__)

R = TypeVar("R", bound=Record)


class DryRunCalls:
    """A `SchedulerClient` that logs calls instead of making them."""

    async def bind_pod(self, pod: Pod, node_name: str) -> None:
        log.info("Would bind pod to node", pod=pod, node=node_name)

    async def patch_pod_status(self, pod: Pod, patch: Mapping[str, Any]) -> None:
        log.info("Would patch pod status", pod=pod, patch=patch)

    async def delete_pod(self, pod: Pod) -> None:
        log.info("Would delete pod", pod=pod, node=pod.spec.node_name)

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        raise NotFound(f'{kind.__name__} "{name}" was never written: this is a dry run')

    async def create(self, obj: R) -> R:
        log.info("Would create object", kind=type(obj).__name__, object=obj)
        return obj

    async def update(self, obj: R) -> R:
        log.info("Would update object", kind=type(obj).__name__, object=obj)
        return obj

    async def update_status(self, obj: R) -> R:
        log.info("Would update status", kind=type(obj).__name__, object=obj)
        return obj

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        log.info("Would patch status", kind=kind.__name__, name=f"{namespace}/{name}", patch=patch)
        raise NotFound(f'{kind.__name__} "{name}" was not patched: this is a dry run')

    async def delete(self, obj: Record) -> None:
        log.info("Would delete object", kind=type(obj).__name__, object=obj)


class DryRunRecorder:
    """Writes events as log lines."""

    def event(
        self,
        regarding: object,
        related: object | None,
        type_: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        log.info("Would record event", v=2, object=regarding, reason=reason, note=note)
