"""Reads a live cluster's state with paged list calls; nothing is written.

Pods are listed first, and every other kind at the revision of that list, so that the state is
consistent. If the server cannot do that (the revision is compacted, or the kind is in another
store), the newest list is used, with a note.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import Kind, kind_of
from kubesched.api.meta import CustomObject
from kubesched.base.errors import (
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotFound,
    ServerError,
)
from kubesched.client.client_config import ClientConfig, load_default_config
from kubesched.client.pool import HttpTransport
from kubesched.client.rest import RestClient, user_agent
from kubesched.insight.state.cluster_state import KINDS, ClusterState, StateError

PAGE_SIZE = 500
_NOT_FINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_INDISPENSABLE = (Pod, Node)
_NO_EXACT_READ = (Gone, BadRequest, Invalid, ServerError)
"""Errors caused by the requested revision: expired, unknown, or in the future."""


OnProgress = Callable[[str], object]
"""Gets a line of text for every page of a list."""


async def load_live(
    kubeconfig: str = "", context: str = "", on_progress: OnProgress = str
) -> ClusterState:
    """The state of the cluster that kubectl would use.

    Raises:
        StateError: listing pods or nodes is forbidden.
        CredentialsError: no cluster is configured, or its credentials cannot be used.
        ApiError, TransportError: the server refuses or cannot be reached.
    """
    async with live_client("state", kubeconfig, context) as (client, config):
        host = f"{config.connection.host}:{config.connection.port}"
        return await list_state(client, f"cluster at {host}", on_progress)


@asynccontextmanager
async def live_client(
    component: str, kubeconfig: str = "", context: str = ""
) -> AsyncIterator[tuple[RestClient, ClientConfig]]:
    """A client of the cluster that kubectl would use."""
    config = load_default_config(kubeconfig, context=context)
    transport = HttpTransport(config.connection)
    try:
        yield RestClient(transport, user_agent=user_agent(component), random=Random()), config
    finally:
        await transport.aclose()


async def check_answers(client: RestClient) -> None:
    """Raise an error if the server does not answer: informers would try again without end."""
    with suppress(Forbidden, NotFound):
        await client.get_raw("/version")


async def list_state(
    client: RestClient, source: str, on_progress: OnProgress = str
) -> ClusterState:
    """List every kind of `KINDS`, and of plugins, that the server has and the caller may read."""
    listing = _Listing(client, ClusterState(source), on_progress)
    for kind in (*KINDS, *map(kind_of, CustomObject.records.values())):
        await listing.add(kind)
    return listing.state


class _Listing:
    def __init__(self, client: RestClient, state: ClusterState, on_progress: OnProgress) -> None:
        self._client = client
        self.state = state
        self._on_progress = on_progress
        self._revision = ""
        """Revision of the first list, at which the others are read."""

    async def add(self, kind: Kind[Any]) -> None:
        try:
            items, revision = await self._consistent(kind)
        except (NotFound, MethodNotAllowed):
            return  # this server does not have the kind, so no decision depends on it
        except Forbidden as error:
            if kind.record in _INDISPENSABLE:
                raise StateError(f"{self.state.source}: {error}") from None
            self.state.missing[kind.resource] = str(error)
            self.state.notes.append(f"{kind.resource} are missing: {error}")
            return
        self._revision = self._revision or revision
        if revision != self._revision:
            self.state.notes.append(
                f"{kind.resource} were listed at revision {revision}, not at {self._revision}"
            )
        self.state.resource_versions[kind.resource] = revision
        for item in items:
            self.state.put(item)

    async def _consistent(self, kind: Kind[Any]) -> tuple[list[Any], str]:
        """The list at the common revision if the server supports it, else the newest."""
        if self._revision:
            try:
                return await self._list(kind, PAGE_SIZE, self._revision)
            except _NO_EXACT_READ:
                pass  # the newest list follows, with a note of its revision
        try:
            return await self._list(kind, PAGE_SIZE, "")
        except Gone:
            # The continue token expired. A list without pages cannot expire.
            return await self._list(kind, 0, "")

    async def _list(self, kind: Kind[Any], limit: int, revision: str) -> tuple[list[Any], str]:
        items: list[Any] = []
        token = ""
        while True:
            first = not token
            page = await self._client.list_page(
                kind,
                field_selector=_NOT_FINISHED if kind.record is Pod else "",
                limit=limit,
                continue_token=token,
                resource_version=revision if first else "",
                resource_version_match="Exact" if revision and first else "",
            )
            items += page.items
            token = page.metadata.continue_
            remaining = page.metadata.remaining_item_count  # the server's estimate
            of = f" of {len(items) + remaining}" if remaining else ""
            self._on_progress(f"listing {kind.resource}: {len(items)}{of}")
            if not token:
                return items, page.metadata.resource_version
