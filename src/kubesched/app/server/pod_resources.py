"""/metrics/resources: requests and limits of every pod, computed for each scrape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Final

from kubesched.api.core_v1 import Pod
from kubesched.api.quantity import QuantityError
from kubesched.api.resources import CPU, HUGE_PAGES_PREFIX, MEMORY, limit_amounts, request_amounts
from kubesched.base.logs import get_logger
from kubesched.base.metrics.instruments import escape_value, format_number

log = get_logger(__name__)

NANO: Final = 10**9
BATCH: Final = 100
"""Pods per slice, before the loop is released: about a millisecond."""

_BYTES: Final = frozenset({MEMORY, "storage", "ephemeral-storage"})
_TERMINAL: Final = ("Succeeded", "Failed")
_PAGES: Final = (
    ("kube_pod_resource_limit", "Limits of a pod, as scheduler and kubelet reckon with them."),
    ("kube_pod_resource_request", "Requests of a pod, as scheduler and kubelet reckon with them."),
)


def unit_of(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in _BYTES or resource.startswith(HUGE_PAGES_PREFIX):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""


async def page(pods: Iterable[Pod]) -> AsyncGenerator[bytes, None]:
    """The page in chunks, for the pods known at the request; yields between them."""
    counted = [pod for pod in pods if not (pod.spec.node_name and pod.status.phase in _TERMINAL)]
    for name, help_text in _PAGES:
        amounts_of = limit_amounts if name == "kube_pod_resource_limit" else request_amounts
        header = f"# HELP {name} [STABLE] {help_text}\n# TYPE {name} gauge\n"
        for start in range(0, len(counted), BATCH):
            lines = [
                line
                for pod in counted[start : start + BATCH]
                for line in _lines(name, pod, amounts_of)
            ]
            if lines:
                yield (header + "".join(lines)).encode()
                header = ""
            await asyncio.sleep(0)


def _lines(metric: str, pod: Pod, amounts_of: Callable[[Pod], Mapping[str, int]]) -> Iterable[str]:
    try:
        amounts = amounts_of(pod)
    except QuantityError as error:
        log.error("Resources of a pod cannot be parsed", error, pod=pod)
        return
    priority = "" if pod.spec.priority is None else str(pod.spec.priority)
    labels = ",".join(
        f'{label}="{escape_value(value)}"'
        for label, value in (
            ("namespace", pod.metadata.namespace),
            ("pod", pod.metadata.name),
            ("node", pod.spec.node_name),
            ("scheduler", pod.spec.scheduler_name),
            ("priority", priority),
        )
    )
    for resource, nanos in sorted(amounts.items()):
        if nanos:
            value = format_number(nanos / NANO)
            name = escape_value(resource)
            yield f'{metric}{{{labels},resource="{name}",unit="{unit_of(resource)}"}} {value}\n'
