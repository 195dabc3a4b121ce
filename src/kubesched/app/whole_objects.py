"""Complete pods and nodes, as the API server has them, for extenders.

The scheduler's own copies hold only the fields it reads. An extender may read any field, so pods
are fetched for each call; nodes and victims, which are many per call, are cached by revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubesched.api.codec import MalformedObject, decode
from kubesched.api.core_v1 import Node, Pod
from kubesched.api.kinds import kind_of
from kubesched.api.names import key_of
from kubesched.base.errors import NotFound
from kubesched.client.rest import RestClient

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
