"""HTTP extenders: wire format, error handling, and which pods an extender is interested in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from kubesched.api.core_v1 import Container, Node, Pod
from kubesched.base.errors import ConnectFailed, CredentialsError, KubeschedError, NotFound
from kubesched.client.pool import HttpTransport
from kubesched.client.tls_context import Pem, TlsSettings, build_context
from kubesched.client.transport import AnonymousCredentials, ConnectionConfig, Request, Transport
from kubesched.config import types
from kubesched.framework.extenders import ExtenderFilterResult, Victims
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.framework.preemption.extenders import find_victims
from kubesched.scheduler.unknown_binding import resolve_unknown_binding

DEFAULT_TIMEOUT_S = 5.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
BASE_ANSWER_BYTES = 1024 * 1024
BYTES_PER_ASKED_BYTE = 4
"""How much longer than the request a response may be, plus the base: it repeats the nodes, with a
reason for each rejected one. Decoded, it takes about ten times its length in memory.
"""
SCORE_SCALE = 10
"""Extenders give 0..10 points, plugins 0..100."""

JsonObject = dict[str, Any]


class ExtenderError(KubeschedError):
    """An extender could not be reached, returned an error, or sent an invalid response."""


class ExtenderNotReached(ExtenderError):
    """No connection was made: the extender did not receive the request."""


class WholeObjects(Protocol):
    """Complete API objects: extenders may read fields that the scheduler does not decode."""

    def pod(self, pod: Pod) -> Awaitable[JsonObject]:
        """The current pod."""
        ...

    def victim(self, pod: Pod) -> Awaitable[JsonObject]:
        """The pod at the known revision."""
        ...

    def nodes(self, nodes: Sequence[Node]) -> Awaitable[list[JsonObject]]: ...


class HttpExtender:
    """One configured extender."""

    def __init__(
        self,
        config: types.Extender,
        whole: WholeObjects,
        table: NodeTable,
        transport: Transport | None = None,
        connect: Callable[[ConnectionConfig], Transport] = HttpTransport,
    ) -> None:
        self.name = config.url_prefix
        self.is_ignorable = config.ignorable
        self.is_filter = bool(config.filter_verb)
        self.is_prioritizer = bool(config.prioritize_verb)
        self.is_binder = bool(config.bind_verb)
        self.supports_preemption = bool(config.preempt_verb)
        self._config = config
        self._whole = whole
        self._table = table
        self._timeout_s = config.http_timeout_s or DEFAULT_TIMEOUT_S
        self._transport = transport or connect(_connection(config))
        self._base = config.url_prefix.rstrip("/")
        self._path = urlsplit(self._base).path
        self._managed = frozenset(resource.name for resource in config.managed_resources)

    def is_interested(self, pod: Pod) -> bool:
        """True if no resources are managed, or the pod requests or limits one of them."""
        if not self._managed:
            return True
        containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        return any(self._uses_managed(container) for container in containers)

    def _uses_managed(self, container: Container) -> bool:
        resources = container.resources
        return not self._managed.isdisjoint(
            {*(resources.requests or ()), *(resources.limits or ())}
        )

    async def aclose(self) -> None:
        await self._transport.aclose()

    # -- verbs -------------------------------------------------------------------------------------

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> ExtenderFilterResult:
        answer = await self._ask(self._config.filter_verb, await self._arguments(pod, nodes))
        fields = _fields(answer, self.name)
        if fields.get("error"):
            raise ExtenderError(str(fields["error"]))
        failed = _texts(fields.get("failednodes"), self.name, "FailedNodes")
        unresolvable = _texts(
            fields.get("failedandunresolvablenodes"), self.name, "FailedAndUnresolvableNodes"
        )
        names = fields.get("nodenames")
        if self._config.node_cache_capable and names is not None:
            kept = tuple(
                _text(name, self.name, "NodeNames") for name in _list(names, self.name, "NodeNames")
            )
            return ExtenderFilterResult(kept, failed, unresolvable)
        listed = fields.get("nodes")
        if listed is None:
            return ExtenderFilterResult((), failed, unresolvable)
        items = _list(_fields(listed, self.name).get("items") or [], self.name, "Nodes.items")
        kept = tuple(
            _text(_name_of(item), self.name, "Nodes.items.metadata.name") for item in items
        )
        return ExtenderFilterResult(kept, failed, unresolvable, forgets_pods=True)

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> Sequence[tuple[str, int]]:
        if not self.is_prioritizer:
            return [(node.metadata.name, 0) for node in nodes]
        answer = await self._ask(self._config.prioritize_verb, await self._arguments(pod, nodes))
        scale = self._config.weight * SCORE_SCALE
        points = []
        for entry in _list(answer or [], self.name, "answer"):
            fields = _fields(entry, self.name)
            host = _text(fields.get("host", ""), self.name, "Host")
            score = _int64(fields.get("score", 0), self.name, f"Score of {host!r}")
            points.append((host, score * scale))
        return points

    async def bind(self, pod: Pod, node_name: str) -> None:
        meta = pod.metadata
        body = {
            "PodName": meta.name,
            "PodNamespace": meta.namespace,
            "PodUID": meta.uid,
            "Node": node_name,
        }
        try:
            fields = _fields(await self._ask(self._config.bind_verb, body), self.name)
        except ExtenderNotReached:
            raise
        except KubeschedError as error:
            await resolve_unknown_binding(
                pod, node_name, error, read_node=lambda: self._node_of(pod), sleep=asyncio.sleep
            )
            return
        if fields.get("error"):
            raise ExtenderError(str(fields["error"]))

    async def _node_of(self, pod: Pod) -> str:
        current = await self._whole.pod(pod)
        metadata, spec = current.get("metadata"), current.get("spec")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if uid != pod.metadata.uid:
            raise NotFound(f'pods "{pod.metadata.name}" not found')
        return str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""

    async def process_preemption(
        self, pod: Pod, victims: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        body: JsonObject = {
            "Pod": await self._whole.pod(pod),
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": None,
        }
        if self._config.node_cache_capable:
            body["NodeNameToMetaVictims"] = {
                node: {
                    "Pods": [{"UID": victim.metadata.uid} for victim in proposed.pods],
                    "NumPDBViolations": proposed.pdb_violations,
                }
                for node, proposed in victims.items()
            }
        else:
            body["NodeNameToVictims"] = {
                node: {
                    "Pods": [await self._whole.victim(victim) for victim in proposed.pods],
                    "NumPDBViolations": proposed.pdb_violations,
                }
                for node, proposed in victims.items()
            }
        fields = _fields(await self._ask(self._config.preempt_verb, body), self.name)
        left = fields.get("nodenametometavictims") or {}
        return {
            node: self._resolved(node, _fields(meta_victims, self.name))
            for node, meta_victims in _mapping(left, self.name).items()
        }

    def _resolved(self, node: str, meta_victims: JsonObject) -> Victims:
        pods = _list(meta_victims.get("pods") or [], self.name, "Pods")
        uids = [_text(_fields(victim, self.name).get("uid"), self.name, "UID") for victim in pods]
        violations = _int64(meta_victims.get("numpdbviolations", 0), self.name, "NumPDBViolations")
        return find_victims(self._table, self.name, node, uids, violations)

    # -- the wire ----------------------------------------------------------------------------------

    async def _arguments(self, pod: Pod, nodes: Sequence[Node]) -> JsonObject:
        if self._config.node_cache_capable:
            listed, names = None, [node.metadata.name for node in nodes]
        else:
            items = await self._whole.nodes(nodes)
            listed, names = {"metadata": {}, "items": items}, None
        return {"Pod": await self._whole.pod(pod), "Nodes": listed, "NodeNames": names}

    async def _ask(self, verb: str, body: JsonObject) -> Any:  # noqa: ANN401  # any JSON
        url = f"{self._base}/{verb}"
        question = msgspec.json.encode(body)
        request = Request(
            method="POST",
            target=f"{self._path}/{verb}",
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            body=question,
            deadline_s=self._timeout_s,
            max_body_bytes=min(
                BASE_ANSWER_BYTES + BYTES_PER_ASKED_BYTE * len(question), MAX_ANSWER_BYTES
            ),
        )
        try:
            response = await self._transport.request(request)
            try:
                raw = await response.read(request.max_body_bytes)
            finally:
                response.close()
        except KubeschedError as error:
            kind = ExtenderNotReached if isinstance(error, ConnectFailed) else ExtenderError
            raise kind(f'Post "{url}": {error}') from error
        if response.status != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status}")
        try:
            return msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError) as error:  # the latter: too deeply nested
            raise ExtenderError(
                f"extender at URL {url} did not answer with JSON: {error}"
            ) from None


def make_extenders(
    configured: Sequence[types.Extender],
    whole: WholeObjects,
    table: NodeTable,
    transport: Transport | None = None,
    connect: Callable[[ConnectionConfig], Transport] = HttpTransport,
) -> list[HttpExtender]:
    """Extenders in call order: ignorable ones last. `connect` creates missing transports."""
    ordered = sorted(configured, key=lambda extender: extender.ignorable)
    return [HttpExtender(extender, whole, table, transport, connect) for extender in ordered]


def _connection(config: types.Extender) -> ConnectionConfig:
    parts = urlsplit(config.url_prefix)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CredentialsError(
            f"extender urlPrefix {config.url_prefix!r} is not an http or https URL"
        )
    secure = parts.scheme == "https"
    tls = config.tls_config
    return ConnectionConfig(
        host=parts.hostname,
        port=parts.port or (443 if secure else 80),
        scheme=parts.scheme,
        server_name=tls.server_name if tls is not None else "",
        credentials=AnonymousCredentials(_tls_context(config) if secure else None),
    )


def _tls_context(config: types.Extender) -> ssl.SSLContext:
    """TLS settings for the extender.

    # Upstream: with `enableHTTPS` and no authority given, the certificate is not verified.
    """
    tls = config.tls_config or types.ExtenderTLSConfig()
    authority = Pem(
        "caData" if tls.ca_data else "caFile", "" if tls.ca_data else tls.ca_file, tls.ca_data
    )
    return build_context(
        TlsSettings(
            ca=authority,
            certificate=Pem("certFile", "" if tls.cert_data else tls.cert_file, tls.cert_data),
            key=Pem("keyFile", "" if tls.key_data else tls.key_file, tls.key_data),
            insecure=tls.insecure or (config.enable_https and not authority),
        )
    )


# -- responses: decoded case-insensitively, as Go does ---------------------------------------------


def _fields(answer: object, extender: str) -> JsonObject:
    return {key.lower(): value for key, value in _mapping(answer, extender).items()}


def _mapping(answer: object, extender: str) -> JsonObject:
    if answer is None:
        return {}
    if not isinstance(answer, dict):
        raise ExtenderError(
            f"extender {extender} answered with {type(answer).__name__} "
            "where an object was expected"
        )
    return answer


def _list(value: object, extender: str, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ExtenderError(
            f"extender {extender}: {what} is {type(value).__name__} where a list was expected"
        )
    return value


def _text(value: object, extender: str, what: str) -> str:
    if not isinstance(value, str):
        raise ExtenderError(f"extender {extender}: {what} holds {value!r} where text was expected")
    return value


def _int64(value: object, extender: str, what: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise ExtenderError(
            f"extender {extender}: {what} is {value!r} where an integer was expected"
        )
    return value


def _texts(value: object, extender: str, what: str) -> dict[str, str]:
    return {key: _text(text, extender, what) for key, text in _mapping(value, extender).items()}


def _name_of(item: object) -> object:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return metadata.get("name") if isinstance(metadata, dict) else None
