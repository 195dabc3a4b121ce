"""Events over REST, for `events.EventBroadcaster`."""

from __future__ import annotations

from collections.abc import Mapping

from kubesched.client.event_series import EventEntry, EventRecord
from kubesched.client.patch import strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.client.retry import Done
from kubesched.client.transport import StartedRequest


class RestEventClient:
    """An `events.EventClient`; needs a separate client, to spare the bindings' rate limit."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    async def create(self, event: EventRecord) -> None:
        await self._client.create_event(event)

    def start_create(self, event: EventEntry, done: Done) -> StartedRequest:
        return self._client.start_event(event, done)

    async def patch(self, event: EventRecord, change: Mapping[str, object]) -> None:
        metadata = event.metadata
        await self._client.patch(
            type(event), metadata.name, metadata.namespace, strategic_merge_patch(change)
        )
