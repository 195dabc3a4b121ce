"""Plays sequences on a control plane and records the attached scheduler's decisions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kubesched.api.core_v1 import Namespace, Node, PersistentVolume, Pod
from kubesched.api.kinds import Kind, find_kind, kind_of
from kubesched.api.meta import DeleteOptions, Record
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import AlreadyExists, ApiError, NotFound
from kubesched.client.patch import merge_patch, strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.lab.conformance.claims import Claims
from kubesched.lab.conformance.extender_server import ExtenderServer
from kubesched.lab.conformance.marks import NodeMarks
from kubesched.lab.conformance.scheduler_under_test import SchedulerUnderTest, scheduler_under_test
from kubesched.lab.conformance.sequences import Decision, Json, Step, running
from kubesched.lab.conformance.sequences import Sequence as Scenario
from kubesched.lab.conformance.watching import Patience, Pods, Volumes, watched
from kubesched.testing.control_plane import ControlPlane, ControlPlaneError

DECISION_TIMEOUT_S = 60.0
BINDING_TIMEOUT_S = 75.0
"""Deadline for a pod: both schedulers retry sooner (`MAX_REST_S` plus 30 s between flushes)."""

_POLL_S = 0.01
_MARKED = b"NodeAnnotation"
"""The event of a node whose annotations have changed, which affects no decision."""

_AT_ONCE = DeleteOptions(grace_period_seconds=0, propagation_policy="Background")
_PROBE: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"example.com/fits": "nowhere"},
        "containers": [{"name": "c", "image": "i"}],
    },
}


@dataclass(slots=True)
class PlayResult:
    """The result of a sequence."""

    decisions: dict[int, Decision] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    """Steps that the API server rejected."""
    admitted: dict[int, Json] = field(default_factory=dict)
    """Created objects as returned by the API server."""
    final: dict[str, str] = field(default_factory=dict)
    """Pod -> node, at the end."""


async def play(
    plane: ControlPlane,
    command: Sequence[str | Path],
    scenario: Scenario,
    extenders: ExtenderServer,
) -> PlayResult:
    """Create the objects, start the scheduler, play the steps, stop the scheduler, and clean up.

    Raises:
        ControlPlaneError: the scheduler ended, or did not decide in time.
    """
    async with watched(plane.client) as (pods, volumes):
        extenders.key_of = pods.key_of
        claims = Claims(plane.client, scenario)
        stage = _Stage(plane.client, pods, volumes, claims, extenders)
        try:
            # Before the scheduler starts, so that it knows all objects at its first pod.
            for manifest in scenario.objects:
                await stage.create(manifest)
            async with scheduler_under_test(plane, command) as scheduler:
                stage.scheduler = scheduler
                await stage.until_scheduling()
                for at, step in enumerate(scenario.steps):
                    await stage.perform(at, step)
                stage.outcome.final = pods.placements()
        finally:
            await wipe(plane.client, scenario)
    return stage.outcome


class _Stage:
    """One sequence on one control plane."""

    def __init__(
        self,
        client: RestClient,
        pods: Pods,
        volumes: Volumes,
        claims: Claims,
        extenders: ExtenderServer,
    ) -> None:
        self._client = client
        self._claims = claims
        self._extenders = extenders
        self._pods = pods
        self._volumes = volumes
        self.scheduler: SchedulerUnderTest | None = None
        self._marks = NodeMarks()
        self._started = 0
        self._unheard: dict[type[Record], None] = {}
        """Kinds changed since the last decision that the scheduler's metrics do not count."""
        self.outcome = PlayResult()

    async def until_scheduling(self) -> None:
        """Wait until the scheduler has rejected a pod that fits nowhere, so it is running."""
        await self.create(_PROBE)
        step = Step("create", _PROBE)
        await self._first_answer(step)
        await self._delete(step)

    # -- what the scheduler has heard of -----------------------------------------------------------

    async def _until_heard(self) -> None:
        """Wait until the scheduler knows all changes to kinds other than pods.

        Each kind has its own watch. Node changes arrive in order and the scheduler counts those
        it has handled, so it knows all of them once a final mark is counted. Kinds that are only
        looked up are not counted: wait until the API server's watches have the change, and after
        that until the scheduler has handled pods twice.
        """
        if self._marks.is_due():
            if node := self._marks.node():
                await self._until_heard_of(node)
            else:
                self._unheard[Node] = None
        for record in self._unheard:
            latest = (await self._client.list(record)).metadata.resource_version
            await self._client.list_page(
                record, resource_version=latest, resource_version_match="NotOlderThan"
            )
        if self._unheard:
            self._unheard = {}
            await self.until_scheduling()
            await self.until_scheduling()

    async def _until_heard_of(self, node: str) -> None:
        assert self.scheduler is not None, "nodes are steps"
        await self._client.patch(Node, node, "", merge_patch(self._marks.next()))
        patience = Patience(DECISION_TIMEOUT_S)
        while await self.scheduler.events_handled(_MARKED) < self._marks.made:
            self.scheduler.check()
            if patience.is_over():
                raise ControlPlaneError(
                    f"waited {DECISION_TIMEOUT_S:.0f} s for the scheduler to hear of a changed node"
                )
            await asyncio.sleep(_POLL_S)

    # -- steps -------------------------------------------------------------------------------------

    async def create(self, document: Json) -> Json:
        kind = _kind(document)
        path = kind.collection_path(document["metadata"].get("namespace", ""))
        try:
            answer = await self._client.post_raw(path, msgspec.json.encode(document))
        except AlreadyExists:
            if kind.record is not Namespace:
                raise
            name, labels = document["metadata"]["name"], document["metadata"].get("labels") or {}
            change = {"metadata": {"labels": {"env": None, "team": None, **labels}}}
            await self._client.patch(kind, name, "", merge_patch(change))
            return document
        made: Json = msgspec.json.decode(answer)
        if "status" in document and document["kind"] in _WRITES_STATUS_APART:
            change = {"status": document["status"]}
            namespace = document["metadata"].get("namespace", "")
            await self._client.patch(
                kind,
                document["metadata"]["name"],
                namespace,
                merge_patch(change),
                subresource="status",
            )
        return made

    async def perform(self, at: int, step: Step) -> None:
        if step.asks_for_decision:
            if await self._claims.release():
                self._unheard[ResourceClaim] = None
            await self._until_heard()
        gone_before, bound_before = len(self._pods.deleted), len(self._volumes.bound)
        try:
            if step.action == "create":
                made = await self.create(step.object)
                self.outcome.admitted[at] = _bare(made)
                if step.kind == "Pod":
                    await self._claims.make_for(made)
            elif step.action == "patch":
                await self._patch(step)
            else:
                await self._delete(step)
        except NotFound:
            # Equal on both sides unless another difference exists: a victim, or never placed.
            self.outcome.refused[at] = "not found"
            return
        except ApiError as error:
            self.outcome.refused[at] = str(error)
            return
        if step.asks_for_decision:
            self.outcome.decisions[at] = await self._decision(step, gone_before, bound_before)
        elif step.kind == "Node":
            self._marks.note(step)
        elif step.kind != "Pod":
            self._unheard[_kind(step.object).record] = None
        elif step.action == "create":
            if step.object["spec"].get("nodeName"):
                await self._start_running(step)
            await self._until(lambda: step.key in self._pods.current, f"pod {step.key} to appear")

    async def _patch(self, step: Step) -> None:
        await self._client.patch(
            _kind(step.object),
            step.name,
            step.namespace,
            strategic_merge_patch(step.patch) if step.is_strategic else merge_patch(step.patch),
            subresource=step.subresource,
        )

    async def _delete(self, step: Step) -> None:
        await self._client.delete(_kind(step.object), step.name, step.namespace, _AT_ONCE)
        if step.kind == "Pod":
            await self._until(lambda: step.key not in self._pods.current, f"pod {step.key} to go")

    # -- decisions ---------------------------------------------------------------------------------

    async def _decision(self, step: Step, gone_before: int, bound_before: int) -> Decision:
        message, nominated = await self._first_answer(step)
        if nominated:
            await self._bound(step)
        pod = self._pods.current.get(step.key)
        node = pod.spec.node_name if pod is not None else ""
        devices: tuple[str, ...] = ()
        if pod is not None and node:
            devices = await self._claims.devices(pod)
            await self._start_running(step)
        else:
            await self._delete(step)
        victims = [key for key in self._pods.deleted[gone_before:] if key != step.key]
        return Decision(
            node,
            self._extenders.impersonal(message),
            nominated,
            victims=tuple(sorted(victims)),
            volumes=tuple(sorted(self._volumes.bound[bound_before:])),
            devices=devices,
            # The number of attempts until a pod's victims are gone depends on timing.
            asked=() if nominated else tuple(sorted(self._extenders.asked_about(step.key))),
        )

    async def _start_running(self, step: Step) -> None:
        self._started += 1
        change = strategic_merge_patch(running(self._started))
        await self._client.patch(Pod, step.name, step.namespace, change, subresource="status")

    async def _first_answer(self, step: Step) -> tuple[str, str]:
        """Message and nominated node; both empty if the pod is placed."""
        answer: tuple[str, str] | None = None

        def answered() -> bool:
            nonlocal answer
            for pod in self._pods.versions.get(step.key, ()):
                if (answer := _answer(pod)) is not None:
                    return True
            return False

        await self._until(answered, f"a decision about pod {step.key}")
        assert answer is not None, "the loop above ended with one"
        return answer

    async def _bound(self, step: Step) -> None:
        """Wait until the pod is bound after preemption; it may stay unbound.

        # Upstream: if the victim that stood in the way goes before the last one does, that event
        # is forgotten, and the pod is retried only by the flush. Kubesched retries it when all are
        # gone.
        """
        patience = Patience(BINDING_TIMEOUT_S)
        while not patience.is_over():
            pod = self._pods.current.get(step.key)
            if pod is None or pod.spec.node_name:
                return
            await self._pods.change(1.0)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        patience = Patience(DECISION_TIMEOUT_S)
        while not condition():
            if self.scheduler is not None:
                self.scheduler.check()
            if patience.is_over():
                last_words = self.scheduler.last_words() if self.scheduler is not None else ""
                raise ControlPlaneError(
                    f"waited {DECISION_TIMEOUT_S:.0f} s for {what}\n{last_words}"
                )
            await self._pods.change(1.0)


async def wipe(client: RestClient, scenario: Scenario) -> None:
    """Delete all objects of a sequence except namespaces, which the next sequence relabels."""
    documents = [*scenario.objects, *(step.object for step in scenario.steps)]
    # Volumes and claims are also created on demand.
    kinds: dict[str, Kind[Any]] = {"PersistentVolume": kind_of(PersistentVolume)}
    if any(document["kind"] == "DeviceClass" for document in documents):
        kinds["ResourceClaim"] = kind_of(ResourceClaim)
    kinds |= {
        document["kind"]: _kind(document)
        for document in documents
        if document["kind"] != "Namespace"
    }
    for kind in kinds.values():
        for obj in (await client.list(kind)).items:
            name, namespace = obj.metadata.name, obj.metadata.namespace
            if name == "kubernetes" or name.startswith("system-"):
                continue  # the API server's own objects
            with contextlib.suppress(NotFound):
                if kind.kind in _PROTECTED:
                    change = merge_patch({"metadata": {"finalizers": None}})
                    await client.patch(kind, name, namespace, change)
                await client.delete(kind, name, namespace, _AT_ONCE)


_WRITES_STATUS_APART = ("PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume")
_PROTECTED = ("PersistentVolumeClaim", "PersistentVolume", "ResourceClaim")
"""Have a finalizer that no controller removes here."""


def _answer(pod: Pod) -> tuple[str, str] | None:
    if pod.spec.node_name:
        return "", ""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.reason not in ("", "SchedulingGated"):
            return condition.message, pod.status.nominated_node_name
    return None


def _bare(document: Json) -> Json:
    """The object without fields that the API server set."""
    metadata = {
        name: value
        for name, value in document["metadata"].items()
        if name in ("name", "namespace", "labels", "annotations", "ownerReferences")
    }
    rest = {name: value for name, value in document.items() if name != "metadata"}
    if document["kind"] == "Pod":
        rest.pop("status", None)
    return {"metadata": metadata, **rest}


def _kind(document: Json) -> Kind[Any]:
    kind = find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        raise ControlPlaneError(f"unknown kind {document['apiVersion']} {document['kind']}")
    return kind
