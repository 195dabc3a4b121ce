"""The provisioner of a benchmark, whose control planes have none."""

from __future__ import annotations

import asyncio
from random import Random

from kubesched.api import codec
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.kinds import kind_of
from kubesched.base.clock import Clock
from kubesched.client.informers.collection import Collection, Selection
from kubesched.client.informers.informer import EventHandler, Informer
from kubesched.client.patch import merge_patch
from kubesched.client.rest import RestClient
from kubesched.testing.volume_controller import bound_to, made_for, wants_volume

WORKERS = 10
"""Volumes created concurrently. The external provisioner has up to 100 workers."""

_CLAIMS = kind_of(PersistentVolumeClaim)
_VOLUMES = kind_of(PersistentVolume)


class Provisioner:
    """Creates a volume for every claim with a selected node, and binds the two."""

    def __init__(self, client: RestClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._due: asyncio.Queue[PersistentVolumeClaim] = asyncio.Queue()
        self._taken: set[str] = set()

    async def run(self) -> None:
        """Runs until cancelled."""
        source = Collection(self._client, _CLAIMS, Selection())
        informer = Informer(source, name="claims", clock=self._clock, random=Random())
        informer.add_event_handler(
            EventHandler(on_add=self._take, on_update=lambda _old, new: self._take(new))
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(informer.run())
            for _ in range(WORKERS):
                group.create_task(self._work())

    def _take(self, claim: PersistentVolumeClaim) -> None:
        if wants_volume(claim) and claim.metadata.uid not in self._taken:
            self._taken.add(claim.metadata.uid)
            self._due.put_nowait(claim)

    async def _work(self) -> None:
        while True:
            claim = await self._due.get()
            volume = made_for(claim)
            await self._client.post_raw(_VOLUMES.collection_path(""), codec.encode(volume))
            change = merge_patch(bound_to(volume["metadata"]["name"]))
            metadata = claim.metadata
            await self._client.patch(_CLAIMS, metadata.name, metadata.namespace, change)
