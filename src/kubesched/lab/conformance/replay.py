"""Our decisions for a sequence: the production scheduler in memory and in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.kinds import Kind
from kubesched.api.meta import DeleteOptions
from kubesched.base.errors import ConfigError, NotFound
from kubesched.client.exchange import BufferedResponse
from kubesched.client.patch import MERGE_PATCH, Patch
from kubesched.client.rest import RestClient
from kubesched.client.transport import Request, Response
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.insight.state.claim_controller import FINISHED
from kubesched.insight.state.cluster import Cluster
from kubesched.insight.state.virtual_loop import VirtualLoop
from kubesched.lab.conformance.extenders import Cluster as AskedCluster
from kubesched.lab.conformance.extenders import question_in_words, reply, subject
from kubesched.lab.conformance.player import Player, kind_of_document
from kubesched.lab.conformance.recordings import RecordingError
from kubesched.lab.conformance.sequences import (
    CONFIGURATION,
    Decision,
    ExtenderPolicy,
    Json,
    Sequence,
)
from kubesched.lab.conformance.watching import Pods, Volumes
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.registry.patching.strategic import apply_strategic_patch
from kubesched.playground.registry.patching.verb import apply_merge_patch
from kubesched.testing.control_plane import ControlPlaneError

_JSON = [(b"content-type", b"application/json")]


def replay(sequence: Sequence, gates: FeatureGates = DEFAULT_GATES) -> dict[int, Decision]:
    """Our decision at each step that requires one, by step number.

    Raises:
        RecordingError: an object is invalid, or a decision does not come.
    """
    try:
        return VirtualLoop().run(_replay(sequence, gates))
    except (msgspec.ValidationError, KeyError, ConfigError, ControlPlaneError) as error:
        raise RecordingError(f"sequence {sequence.seed}: {error}") from error


async def _replay(sequence: Sequence, gates: FeatureGates) -> dict[int, Decision]:
    configuration = json.dumps({**CONFIGURATION, **sequence.configuration})
    api = _MemoryApi()
    client = cast("RestClient", api)
    extenders = _Extenders(api, sequence.extenders)
    with _ReplayedCluster(
        config=configuration, gates=gates, extender_transport=extenders
    ) as cluster:
        api.cluster = cluster
        volumes = Volumes(client)
        pods = _MemoryPods(cluster, volumes)
        player = _MemoryPlayer(client, pods, volumes, sequence)
        player.extenders, extenders.key_of = extenders, pods.key_of
        for manifest in sequence.objects:
            await player.create(manifest)
        for at, step in enumerate(sequence.steps):
            if step.expect is None or not step.expect.refused:
                await player.perform(at, step)
            elif step.asks_for_decision:  # rejected by the recorded API server
                await player.prepare_decision()
        cluster.settle()
    return player.outcome.decisions


class _MemoryPlayer(Player):
    """Plays to a scheduler that knows all changes at once."""

    binding_timeout_s = 12.0
    extenders: _Extenders

    def asked_about(self, pod: str) -> tuple[str, ...]:
        return tuple(sorted(self.extenders.asked.get(pod, ())))


class _ReplayedCluster(Cluster):
    """Shows changes to the player."""

    on_event: Callable[[str, Any], None]

    def _store(self, old: Any, new: Any) -> None:  # noqa: ANN401  # of whichever kind
        super()._store(old, new)
        self.on_event("ADDED" if old is None else "MODIFIED", new)

    def _drop(self, obj: Any) -> None:  # noqa: ANN401  # as above
        super()._drop(obj)
        self.on_event("DELETED", obj)


class _MemoryPods(Pods):
    """Runs the scheduler while the player waits for a change."""

    def __init__(self, cluster: _ReplayedCluster, volumes: Volumes) -> None:
        super().__init__()
        self._cluster = cluster
        self._volumes = volumes
        self._events = 0
        self._of_volumes: deque[tuple[str, Any]] = deque()
        cluster.on_event = self._note

    def _note(self, event: str, obj: Any) -> None:  # noqa: ANN401  # of whichever kind
        self._events += 1
        if isinstance(obj, Pod):
            self.take(event, obj)
        elif isinstance(obj, PersistentVolume | PersistentVolumeClaim):
            self._of_volumes.append((event, obj))

    async def change(self, timeout_s: float) -> None:
        """Run until nothing is left to do; let time pass if there was nothing."""
        before = self._events
        self._cluster.settle()
        while self._of_volumes:
            event, obj = self._of_volumes.popleft()
            if isinstance(obj, PersistentVolume):
                await self._volumes.take_volume(event, obj)
            else:
                await self._volumes.take_claim(event, obj)
        if self._events == before:
            self._cluster.advance(timeout_s)
            cast("VirtualLoop", asyncio.get_running_loop()).stall(timeout_s)


class _MemoryApi:
    """The API server, as far as players use it: `RestClient`'s verbs on the cluster's objects."""

    cluster: _ReplayedCluster

    def __init__(self) -> None:
        self._made = 0
        self._priorities: dict[str, Json] = {}

    async def post_raw(self, path: str, body: bytes) -> bytes:
        """Create an object."""
        del path  # follows from the object
        document: Json = msgspec.json.decode(body)
        metadata = document["metadata"]
        self._made += 1
        document["metadata"] = {**metadata, "uid": f"uid-{self._made}"}
        if document["kind"] == "Pod":
            document["spec"] = self._admitted(document["spec"])
        elif document["kind"] == "PriorityClass":
            self._priorities[metadata["name"]] = document
        self.cluster.put(msgspec.convert(document, kind_of_document(document).record))
        return msgspec.json.encode(document)

    def _admitted(self, spec: Json) -> Json:
        spec = {"schedulerName": "default-scheduler", **spec}
        priority = self._priorities.get(spec.get("priorityClassName", ""))
        if priority is not None:
            spec["priority"] = priority["value"]
            spec["preemptionPolicy"] = priority.get("preemptionPolicy", "PreemptLowerPriority")
        return spec

    async def get(self, kind: Kind[Any] | type[Any], name: str, namespace: str) -> Any:  # noqa: ANN401  # as asked for
        record = kind.record if isinstance(kind, Kind) else kind
        found = self.cluster.find(record, namespace, name)
        if found is None:
            raise NotFound(f"{record.__name__} {name!r} not found")
        return found

    async def list(self, kind: type[Any]) -> SimpleNamespace:
        return SimpleNamespace(items=self.cluster.objects(kind))

    async def patch(
        self,
        kind: Kind[Any] | type[Any],
        name: str,
        namespace: str,
        change: Patch,
        *,
        subresource: str = "",
    ) -> None:
        del subresource
        current = await self.get(kind, name, namespace)
        document, body = msgspec.to_builtins(current), msgspec.json.decode(change.body)
        if change.content_type == MERGE_PATCH:
            document = apply_merge_patch(document, body)
        else:
            schema = type_of_kind("", type(current).__name__)
            assert schema is not None, "only built-in kinds are patched so"
            document = apply_strategic_patch(schema, document, body)
        changed = msgspec.convert(document, type(current))
        if isinstance(changed, Pod) and changed.status.phase in FINISHED:
            self.cluster.delete(current)  # finished pods are not watched
        else:
            self.cluster.put(changed)

    async def delete(
        self, kind: Kind[Any] | type[Any], name: str, namespace: str, options: DeleteOptions
    ) -> None:
        del options
        self.cluster.delete(await self.get(kind, name, namespace))


class _Extenders:
    """Transport to the extenders of a recorded sequence, without a network; keeps the questions."""

    def __init__(self, api: _MemoryApi, policies: list[ExtenderPolicy]) -> None:
        self._api = api
        self._policies = {policy.name: policy for policy in policies}
        self.asked: dict[str, set[str]] = {}
        """Pod -> distinct questions about it."""
        self.key_of: Callable[[str], str] = str
        """Pod UID -> namespace and name."""

    async def request(self, request: Request) -> Response:
        _, name, verb = request.target.split("/")
        policy, question = self._policies[name], msgspec.json.decode(request.body)
        cluster = AskedCluster(self._find_pod, self.key_of)
        words = question_in_words(policy, verb, question, cluster)
        self.asked.setdefault(subject(verb, question), set()).add(words)
        answer = reply(policy, verb, question, cluster)
        body = await self._bind(question) if answer.binds else answer.body
        return BufferedResponse(answer.status, _JSON, msgspec.json.encode(body))

    def _find_pod(self, namespace: str, name: str) -> Json | None:
        pod = self._api.cluster.find(Pod, namespace, name)
        return None if pod is None else msgspec.to_builtins(pod)

    async def _bind(self, question: Json) -> Json:
        pod = self._api.cluster.find(Pod, question["PodNamespace"], question["PodName"])
        assert pod is not None, "it is being bound"
        await self._api.cluster.client.bind_pod(pod, question["Node"])
        return {}

    async def aclose(self) -> None:
        """No-op."""
