"""A running scheduler against an API server: informers, handlers, loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from kubesched.app.scheduling_calls import CarefulCalls
from kubesched.app.watching import ask_for_informers, connect
from kubesched.client.rest import RestClient
from kubesched.clock import Clock, SystemClock
from kubesched.config.features import FeatureGates
from kubesched.config.types import KubeSchedulerConfiguration
from kubesched.framework.handle import EventRecorder
from kubesched.framework.registry import Registry
from kubesched.informers.factory import InformerFactory
from kubesched.metrics.registry import Registry as MetricsRegistry
from kubesched.metrics.scheduler import SchedulerMetrics
from kubesched.plugins.registry import in_tree_registry
from kubesched.scheduler.factory import Assembly, Surroundings, assemble

logger = logging.getLogger(__name__)

SYNC_TIMEOUT_S = 300.0


class SchedulerApp:
    """Everything between a REST client and the scheduling loop. Must be built inside a running event loop."""

    def __init__(
        self,
        config: KubeSchedulerConfiguration,
        gates: FeatureGates,
        client: RestClient,
        recorder: Callable[[str], EventRecorder],
        *,
        registry: Registry | None = None,
        metrics_registry: MetricsRegistry | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        classes: bool = True,
        max_in_unschedulable_s: float = 300.0,
    ) -> None:
        clock = clock or SystemClock()
        random = random or Random()
        self.metrics_registry = metrics_registry or MetricsRegistry()
        self.metrics = SchedulerMetrics(self.metrics_registry)
        self.informers = InformerFactory(client, clock=clock, random=random)
        if registry is None:
            registry = in_tree_registry()
            registry.add_installed()
        enabled = {
            name
            for p in config.profiles
            if p.plugins is not None
            for name in p.plugins.enabled_names()
        }
        ask_for_informers(self.informers, enabled)
        loop = asyncio.get_running_loop()
        self.assembly: Assembly = assemble(
            config,
            gates,
            registry,
            Surroundings(
                listers=self.informers,
                client=CarefulCalls(client),
                recorder=recorder,
                clock=clock,
                random=random,
                call_later=loop.call_later,
                metrics=self.metrics,
            ),
            classes=classes,
            max_in_unschedulable_s=max_in_unschedulable_s,
        )
        connect(self.informers, self.assembly)
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Watch, wait until everything is known, then schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self.start_informers(group)
            await self.schedule()

    async def start_informers(self, group: asyncio.TaskGroup) -> None:
        self.informers.start(group)
        await self.informers.wait_for_sync(SYNC_TIMEOUT_S)
        self.synced.set()

    async def schedule(self) -> None:
        """The scheduling loop; to be called once the informers have synced."""
        try:
            await self.assembly.scheduler.run()
        finally:
            for framework in self.assembly.frameworks.values():
                framework.close()
