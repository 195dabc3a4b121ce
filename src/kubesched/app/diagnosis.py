"""On SIGUSR2 the scheduler checks its state and writes it to the log.

Three steps: compare queue and cache with the informers, compare the informers with the API server,
dump cache and queue. The dump is written in slices, because thousands of nodes make many lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.app.scheduler_app import SchedulerApp
from kubesched.base.errors import KubeschedError
from kubesched.base.logs import get_logger
from kubesched.client.informers.factory import UndeclaredKind
from kubesched.client.rest import RestClient
from kubesched.framework.nodes.node_info import NodeInfo, Resource
from kubesched.framework.nodes.views import NodeColumns
from kubesched.insight.state.watching import NOT_FINISHED
from kubesched.plugins.dynamic_resources.claim_tracker import ClaimTracker

log = get_logger(__name__)

SIGNAL: Final = signal.SIGUSR2
NODES_PER_LINE: Final = 20
PODS_PER_LINE: Final = 500
CLAIMS_PER_LINE: Final = 100
MAX_CHECKED_PODS: Final = 10_000
SETTLING_S: Final = 2.0
"""A difference to the API server that disappears within this time was a watch event in transit."""
MAX_NAMED: Final = 100
"""Differences listed by name; the rest are only counted."""


@contextlib.asynccontextmanager
async def diagnosis(app: SchedulerApp, client: RestClient) -> AsyncIterator[None]:
    """Handle SIGUSR2 while the body runs. Signals during a diagnosis are ignored."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:

        def asked() -> None:
            if not running:
                task = group.create_task(_diagnose(app, client), name="diagnosis")
                running.add(task)
                task.add_done_callback(running.discard)

        loop.add_signal_handler(SIGNAL, asked)
        try:
            yield
        finally:
            loop.remove_signal_handler(SIGNAL)
            for task in running:
                task.cancel()


async def _diagnose(app: SchedulerApp, client: RestClient) -> None:
    try:
        compare_with_informers(app)
        check(app)
        await compare_with_server(app, client)
        await dump_nodes(app)
        await dump_queue(app)
        await dump_claims(app)
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


async def compare_with_server(app: SchedulerApp, client: RestClient) -> bool:
    """Whether the informers match the API server; compared twice, as events may be in transit."""
    first = await _differences(app, client)
    if first is None or not any(first.values()):
        return first is not None
    await asyncio.sleep(SETTLING_S)
    second = await _differences(app, client)
    if second is None:
        return False
    lasting = {what: first[what] & second[what] for what in first}
    if not any(lasting.values()):
        return True
    log.error(
        "Informers do not agree with the API server",
        nodes=_some(lasting["nodes"]),
        pods=_some(lasting["pods"]),
    )
    return False


async def _differences(app: SchedulerApp, client: RestClient) -> dict[str, set[str]] | None:
    """Objects (with revision) that only one side has; None if the API server cannot be reached."""
    try:
        nodes = await client.list(Node)
        pods = await client.list(Pod, field_selector=NOT_FINISHED.field_selector)
    except KubeschedError as error:
        log.error("The API server could not be asked for comparison", error)
        return None
    return {
        "nodes": _revisions(nodes.items) ^ _revisions(app.informers.of(Node).list()),
        "pods": _revisions(pods.items) ^ _revisions(app.informers.of(Pod).list()),
    }


def _revisions(objects: Iterable[Node] | Iterable[Pod]) -> set[str]:
    return {f"{key_of(meta)}@{meta.resource_version}" for meta in (obj.metadata for obj in objects)}


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


async def dump_claims(app: SchedulerApp) -> None:
    """Log every resource claim with devices and reservations; nothing without DynamicResources."""
    try:
        listed = sorted(app.informers.of(ResourceClaim).list(), key=lambda it: key_of(it.metadata))
    except UndeclaredKind:
        return
    # All profiles share one tracker.
    tracker = next(iter(app.assembly.frameworks.values())).handle.dra_manager.claims
    for start in range(0, len(listed), CLAIMS_PER_LINE):
        some = listed[start : start + CLAIMS_PER_LINE]
        lines = "".join(f"{_claim_line(tracker, claim)}\n" for claim in some)
        log.info("Dump of resource claims", claims=lines)
        await asyncio.sleep(0)


def _claim_line(tracker: ClaimTracker, listed: ResourceClaim) -> str:
    """The claim as the scheduler sees it, which may be ahead of the watch."""
    meta = listed.metadata
    claim = tracker.get(meta.namespace, meta.name) or listed
    allocation = claim.status.allocation
    results = (allocation.devices.results or ()) if allocation is not None else ()
    devices = [f"{it.request}={it.driver}/{it.pool}/{it.device}" for it in results]
    consumers = [it.name for it in claim.status.reserved_for or ()]
    state = "in flight" if tracker.is_in_flight(meta.uid) else "allocated" if allocation else "open"
    return (
        f"name: {meta.name}, namespace: {meta.namespace}, uid: {meta.uid}, state: {state}, "
        f"devices: {' '.join(devices)}, reserved for: {' '.join(consumers)}"
    )


def _pod_line(pod: Pod) -> str:
    meta = pod.metadata
    return (
        f"name: {meta.name}, namespace: {meta.namespace}, uid: {meta.uid}, "
        f"phase: {pod.status.phase}, nominated node: {pod.status.nominated_node_name}"
    )
