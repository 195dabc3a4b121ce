"""One selected collection on the server: the reflector's view of a `RestClient`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from kubesched.api.codec import ListOf
from kubesched.api.kinds import Kind
from kubesched.api.meta import Record
from kubesched.client.rest import RestClient
from kubesched.client.watch import Watch

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which objects of a kind: all by default. `namespace` "" means every namespace."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


class Collection(Generic[R]):
    """A `reflector.ListerWatcher` over REST."""

    def __init__(self, client: RestClient, kind: Kind[R], selection: Selection) -> None:
        self._client = client
        self._kind = kind
        self._selection = selection

    async def list_page(self, *, limit: int, continue_token: str) -> ListOf[R]:
        selection = self._selection
        return await self._client.list_page(
            self._kind,
            selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            limit=limit,
            continue_token=continue_token,
        )

    async def read(self, namespace: str, name: str) -> ListOf[R]:
        selection = self._selection
        is_it = f"metadata.name={name}"
        return await self._client.list_page(
            self._kind,
            namespace,
            label_selector=selection.label_selector,
            field_selector=",".join(filter(None, (is_it, selection.field_selector))),
        )

    def watch(
        self, *, resource_version: str, timeout_s: float, send_initial_events: bool
    ) -> Watch[R]:
        selection = self._selection
        return self._client.watch(
            self._kind,
            selection.namespace,
            label_selector=selection.label_selector,
            field_selector=selection.field_selector,
            resource_version=resource_version,
            timeout_s=timeout_s,
            send_initial_events=send_initial_events,
        )
