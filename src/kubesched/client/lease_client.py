"""One Lease over REST, for leader election."""

from __future__ import annotations

from kubesched.api.codec import Preserved
from kubesched.api.coordination_v1 import Lease
from kubesched.client.rest import RestClient


class RestLeaseClient:
    """A `leader_election.LeaseClient`; needs a separate client, or it queues behind requests."""

    def __init__(self, client: RestClient, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def get(self) -> Preserved[Lease]:
        return await self._client.get_preserved(Lease, self._name, self._namespace)

    async def create(self, lease: Lease) -> Preserved[Lease]:
        return await self._client.create_preserved(lease)

    async def update(self, lease: Preserved[Lease]) -> Preserved[Lease]:
        return await self._client.update_preserved(lease)
