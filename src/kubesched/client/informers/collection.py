"""One selected collection on the server: the reflector's view of a `RestClient`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
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
        self._selection = selection
        labels = selection.label_selector
        self._list = partial(client.list_page, kind, label_selector=labels)
        self._watch = partial(client.watch, kind, selection.namespace, label_selector=labels)

    async def list_page(self, *, limit: int, continue_token: str) -> ListOf[R]:
        fields = self._selection.field_selector
        return await self._list(
            self._selection.namespace,
            field_selector=fields,
            limit=limit,
            continue_token=continue_token,
        )

    async def read(self, namespace: str, name: str) -> ListOf[R]:
        fields = filter(None, (f"metadata.name={name}", self._selection.field_selector))
        return await self._list(namespace, field_selector=",".join(fields))

    def watch(
        self, *, resource_version: str, timeout_s: float, send_initial_events: bool
    ) -> Watch[R]:
        return self._watch(
            field_selector=self._selection.field_selector,
            resource_version=resource_version,
            timeout_s=timeout_s,
            send_initial_events=send_initial_events,
        )
