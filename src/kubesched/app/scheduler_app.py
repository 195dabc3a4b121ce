"""A running scheduler against an API server: informers, handlers, loop.

The scheduler's own copies of objects hold only the fields it reads. An extender may read any field,
so complete pods are fetched for each call; nodes and victims, which are many per call, are cached
by revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import copy
from random import Random
from typing import Any, cast

from kubesched.api.codec import MalformedObject, decode
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.names import key_of
from kubesched.app.scheduling_calls import CarefulCalls, MeasuredCalls
from kubesched.base.clock import Clock, SystemClock
from kubesched.base.errors import DeadlineExceeded, NotFound
from kubesched.base.logs import get_logger
from kubesched.base.metrics.registry import MetricsRegistry
from kubesched.client.informers.factory import InformerFactory
from kubesched.client.rest import RestClient
from kubesched.client.transport import Transport
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.handle import EventRecorder, SchedulerClient
from kubesched.framework.profile import enabled_plugins
from kubesched.framework.registry import Registry
from kubesched.insight.recording.recorded_dependencies import Recording, recorded_dependencies
from kubesched.insight.state.watching import ask_for_informers, connect
from kubesched.plugins.registry import installed_registry
from kubesched.scheduler.factory import Assembly, Dependencies, assemble, metrics_for
from kubesched.scheduler.http_extender import make_extenders

log = get_logger(__name__)

SYNC_REPORT_S = 10.0
"""Interval at which a hanging start logs what it waits for. It keeps waiting for the API server."""


class SchedulerApp:
    """Everything between a REST client and the scheduling loop; needs a running event loop."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        client: RestClient,
        recorder: Callable[[str], EventRecorder],
        *,
        calls: SchedulerClient | None = None,
        registry: Registry | None = None,
        metrics_registry: MetricsRegistry | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        max_in_unschedulable_s: float = 300.0,
        extender_transport: Transport | None = None,
        recording: Recording | None = None,
        before_handlers: Callable[[SchedulerApp], None] = lambda _app: None,
    ) -> None:
        """`extender_transport` replaces the connections to the extenders' URLs.

        `before_handlers` may add event handlers that are called before the scheduler's own.
        """
        clock = clock or SystemClock()
        random = random or Random()
        self.metrics_registry = metrics_registry or MetricsRegistry()
        self.metrics = metrics_for(config, gates, self.metrics_registry)
        self.informers = InformerFactory(client, clock=clock, random=random)
        if recording is not None:
            self.informers.on_change = recording.recorder.changed
        if registry is None:
            registry = installed_registry()
        ask_for_informers(self.informers, enabled_plugins(config, registry), gates)
        calls = calls or CarefulCalls(client, retries=gates.reference.bindings_are_retried)
        if gates.SchedulerAsyncAPICalls:
            calls = cast("SchedulerClient", MeasuredCalls(calls, self.metrics, clock))
        dependencies = Dependencies(
            listers=self.informers,
            client=calls,
            recorder=recorder,
            clock=clock,
            random=copy(random),  # decisions do not depend on retries of the client
            call_later=asyncio.get_running_loop().call_later,
            metrics=self.metrics,
            extenders=lambda configured, table: make_extenders(
                configured, WholeObjectsByRest(client), table, extender_transport
            ),
        )
        self.assembly: Assembly = assemble(
            config,
            gates,
            registry,
            dependencies if recording is None else recorded_dependencies(dependencies, recording),
            max_in_unschedulable_s=max_in_unschedulable_s,
        )
        before_handlers(self)
        connect(self.informers, self.assembly)
        if gates.SchedulerAsyncAPICalls:
            waiting = self.metrics.pending_async_api_calls.labels("pod_status_patch")
            writer = self.assembly.scheduler.status_writer
            waiting.read_from(lambda: float(writer.statistics()["waiting"]))
        self.synced = asyncio.Event()
        self.is_scheduling = False
        self.assembly.scheduler.may_begin = lambda: not self.informers.restore.is_under_way
        self.informers.restore.on_end = self._go_on

    async def run(self) -> None:
        """Start the informers, wait for sync, then schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self.start_informers(group)
            await self.schedule()

    async def run_cold(self) -> None:
        """Like `run`, for a new leader with cold informers; logs what it waits for."""
        log.info("Starting informers and waiting for sync...")
        async with asyncio.TaskGroup() as group:
            await self.start_informers(group)
            log.info("Sync completed")
            await self.schedule()

    async def start_informers(
        self, group: asyncio.TaskGroup, on_wait: Callable[[str], None] | None = None
    ) -> None:
        """Start watching, and return once every handler has synced.

        `on_wait` hears what is still missing.
        """
        self.informers.start(group)
        while True:
            try:
                await self.informers.wait_for_sync(SYNC_REPORT_S)
                break
            except DeadlineExceeded as error:
                log.warning("Still waiting for the state of the cluster", err=error)
                if on_wait is not None:
                    on_wait(str(error))
        self.synced.set()
        log.info("Handlers synced", v=3)

    async def schedule(self) -> None:
        """The scheduling loop; call it once the informers have synced."""
        self.is_scheduling = True
        try:
            await self.assembly.scheduler.run()
        finally:
            self.is_scheduling = False
            for framework in self.assembly.frameworks.values():
                framework.close()
            if self.assembly.shadows is not None:
                self.assembly.shadows.close()

    def _go_on(self) -> None:
        log.info("The restored cluster is known, scheduling goes on")
        self.assembly.scheduler.wake()

    def take_no_more_pods(self) -> None:
        self.assembly.scheduler.take_no_more_pods()

    async def drain(self, timeout_s: float) -> None:
        """Stop popping pods; finish bindings, evictions and status patches within a limit."""
        if not self.is_scheduling:
            return
        scheduler = self.assembly.scheduler
        try:
            async with asyncio.timeout(timeout_s):
                await scheduler.drain(timeout_s)
                await scheduler.status_writer.drain()
        except TimeoutError:
            log.warning("Not everything was finished in time", seconds=timeout_s)


FETCH_ONE_BY_ONE = 16
"""Up to this many changed nodes are fetched singly; above it, listing all nodes is cheaper."""

MAX_VICTIMS = 4096
"""Maximum number of cached victims."""

JsonObject = dict[str, Any]


class WholeObjectsByRest:
    """`scheduler.http_extender.WholeObjects` over the API."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._nodes: dict[str, JsonObject] = {}
        self._victims: dict[str, JsonObject] = {}
        """By UID, most recently used last."""

    async def pod(self, pod: Pod) -> JsonObject:
        """Raises `NotFound` also if another pod has the name now."""
        meta = pod.metadata
        obj = await self._get(kind_of(Pod).object_path(meta.name, meta.namespace))
        if _metadata(obj).get("uid") != meta.uid:
            raise NotFound(f"pod {key_of(meta)} with UID {meta.uid} is gone")
        return obj

    async def victim(self, pod: Pod) -> JsonObject:
        """The same, at the known revision."""
        uid = pod.metadata.uid
        obj = self._victims.pop(uid, None)
        if obj is None or _metadata(obj).get("resourceVersion") != pod.metadata.resource_version:
            obj = await self.pod(pod)
        self._victims[uid] = obj
        if len(self._victims) > MAX_VICTIMS:
            del self._victims[next(iter(self._victims))]
        return obj

    async def nodes(self, nodes: Sequence[Node]) -> list[JsonObject]:
        stale = [node for node in nodes if not self._is_current(node)]
        if len(stale) > FETCH_ONE_BY_ONE:
            listed = await self._get(kind_of(Node).collection_path(""))
            self._nodes = {_name(item): item for item in listed.get("items") or ()}
        else:
            for node in stale:
                name = node.metadata.name
                self._nodes[name] = await self._get(kind_of(Node).object_path(name, ""))
        return [
            self._nodes[node.metadata.name] for node in nodes if node.metadata.name in self._nodes
        ]

    def _is_current(self, node: Node) -> bool:
        known = self._nodes.get(node.metadata.name)
        return (
            known is not None
            and _metadata(known).get("resourceVersion") == node.metadata.resource_version
        )

    async def _get(self, path: str) -> JsonObject:
        return decode(await self._client.get_raw(path), JsonObject)


def _metadata(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        raise MalformedObject(str(obj.get("kind") or "object"), "metadata", "expected object")
    return metadata


def _name(obj: JsonObject) -> str:
    return str(_metadata(obj).get("name", ""))
