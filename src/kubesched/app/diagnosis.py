"""On SIGUSR2 the scheduler checks its state and writes it to the log.

Two steps, as upstream: compare queue and cache with the informers, dump cache and queue. The dump
is written in slices, because thousands of nodes make many lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Final

from kubesched.api.core_v1 import Node, Pod
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.logs import get_logger
from kubesched.framework.nodes.node_info import NodeInfo, Resource
from kubesched.framework.nodes.views import NodeColumns

log = get_logger(__name__)

SIGNAL: Final = signal.SIGUSR2
NODES_PER_LINE: Final = 20
PODS_PER_LINE: Final = 500
MAX_CHECKED_PODS: Final = 10_000
MAX_NAMED: Final = 100
"""Differences listed by name; the rest are only counted."""


@contextlib.asynccontextmanager
async def diagnosis(app: SchedulerApp) -> AsyncIterator[None]:
    """Handle SIGUSR2 while the body runs. Signals during a diagnosis are ignored."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:

        def asked() -> None:
            if not running:
                task = group.create_task(_diagnose(app), name="diagnosis")
                running.add(task)
                task.add_done_callback(running.discard)

        loop.add_signal_handler(SIGNAL, asked)
        try:
            yield
        finally:
            loop.remove_signal_handler(SIGNAL)
            for task in running:
                task.cancel()


async def _diagnose(app: SchedulerApp) -> None:
    try:
        compare_with_informers(app)
        check(app)
        await dump_nodes(app)
        await dump_queue(app)
    except Exception:  # a failing diagnosis must not end the scheduler
        log.exception("Diagnosis failed")


def check(app: SchedulerApp) -> None:
    """Check sums and indexes; skipped for sizes that would block scheduling too long."""
    if app.assembly.scheduler.cache.pod_count > MAX_CHECKED_PODS:
        log.info("Too many pods to check sums and indexes", limit=MAX_CHECKED_PODS)
        return
    try:
        app.assembly.scheduler.check_invariants()
    except AssertionError as error:
        log.error("The scheduler's state contradicts itself", error)


# Comparing.


def compare_with_informers(app: SchedulerApp) -> bool:
    """Whether cache and queue match the informers; logs differences."""
    log.info("Cache comparer started", v=3)
    scheduler = app.assembly.scheduler
    nodes = {node.metadata.name for node in app.informers.of(Node).list()}
    cached_nodes = set(app.assembly.table.row_of)
    pods = {
        pod.metadata.uid
        for pod in app.informers.of(Pod).list()
        if pod.spec.node_name or pod.spec.scheduler_name in scheduler.frameworks
    }
    pending, _ = scheduler.queue.pending_pods()
    held = {pod.metadata.uid for pod in pending} | {pod.uid for pod in scheduler.cache.pods()}
    # A pod being scheduled is neither queued nor on a node; a deleted one may still be in flight.
    in_flight = set(scheduler.queue.in_flight_uids())
    missed_nodes, redundant_nodes = nodes - cached_nodes, cached_nodes - nodes
    if missed_nodes or redundant_nodes:
        log.info(
            "Cache mismatch", missedNodes=_some(missed_nodes), redundantNodes=_some(redundant_nodes)
        )
    missed_pods, redundant_pods = pods - held - in_flight, held - pods - in_flight
    if missed_pods or redundant_pods:
        log.info(
            "Cache mismatch", missedPods=_some(missed_pods), redundantPods=_some(redundant_pods)
        )
    log.info("Cache comparer finished", v=3)
    return not (missed_nodes or redundant_nodes or missed_pods or redundant_pods)


def _some(names: set[str]) -> list[str]:
    listed = sorted(names)[:MAX_NAMED]
    return [*listed, f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else listed


# Dumping.


async def dump_nodes(app: SchedulerApp) -> None:
    """Log every node with its sums and pods."""
    table = app.assembly.table
    names = sorted(table.row_of)
    for start in range(0, len(names), NODES_PER_LINE):
        view = NodeColumns(table)
        shown = [
            _described(view.info_at(table.row_of[name]))
            for name in names[start : start + NODES_PER_LINE]
            if name in table.row_of
        ]
        log.info("Dump of cached NodeInfo", nodes="\n\n".join(shown))
        await asyncio.sleep(0)


def _described(info: NodeInfo) -> str:
    lines = [
        f"Node name: {info.name}",
        f"Requested Resources: {_amounts(info.requested)}",
        f"Allocatable Resources: {_amounts(info.allocatable)}",
        f"Scheduled Pods(number: {len(info.pods)}):",
        *(_pod_line(pod.pod) for pod in info.pods),
    ]
    return "\n".join(lines)


def _amounts(resource: Resource) -> str:
    amounts: Mapping[str, int] = {
        "MilliCPU": resource.milli_cpu,
        "Memory": resource.memory,
        "EphemeralStorage": resource.ephemeral_storage,
        "AllowedPodNumber": resource.allowed_pods,
        **resource.scalars,
    }
    return "{" + " ".join(f"{name}:{amount}" for name, amount in amounts.items()) + "}"


async def dump_queue(app: SchedulerApp) -> None:
    """Log pod counts per queue, and the pods."""
    pods, summary = app.assembly.scheduler.queue.pending_pods()
    for start in range(0, max(len(pods), 1), PODS_PER_LINE):
        lines = "".join(f"{_pod_line(pod)}\n" for pod in pods[start : start + PODS_PER_LINE])
        log.info("Dump of scheduling queue", summary=summary, pods=lines)
        await asyncio.sleep(0)


def _pod_line(pod: Pod) -> str:
    meta = pod.metadata
    return (
        f"name: {meta.name}, namespace: {meta.namespace}, uid: {meta.uid}, "
        f"phase: {pod.status.phase}, nominated node: {pod.status.nominated_node_name}"
    )
