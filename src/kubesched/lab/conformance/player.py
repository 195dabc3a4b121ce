"""Plays the steps of a sequence through an API and reads the scheduler's decisions.

`play` does so on a control plane beside a scheduler's process, `replay` in memory. The player also
acts as kubelet and as the controllers that neither of them has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from kubesched.api.core_v1 import Namespace, Node, Pod
from kubesched.api.kinds import Kind, find_kind
from kubesched.api.meta import DeleteOptions, Record
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import AlreadyExists, ApiError, NotFound
from kubesched.client.patch import merge_patch, strategic_merge_patch
from kubesched.client.rest import RestClient
from kubesched.lab.claims import Claims
from kubesched.lab.conformance.sequences import Decision, Json, Sequence, Step, running
from kubesched.lab.conformance.watching import Patience, Pods, Volumes
from kubesched.testing.control_plane import ControlPlaneError

DECISION_TIMEOUT_S = 60.0

AT_ONCE = DeleteOptions(grace_period_seconds=0, propagation_policy="Background")

_WRITES_STATUS_APART = ("PodDisruptionBudget", "PersistentVolumeClaim", "PersistentVolume")


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


class NodeMarks:
    """Marks on nodes tell a player that a scheduler has handled every node event.

    Before a decision that follows changes to nodes, the newest node gets an annotation, and the
    player waits until the scheduler has handled that update. Schedulers refresh a node on every
    update (for example its image counts), so a replay must make the same marks.
    """

    def __init__(self) -> None:
        self.made = 0
        self._nodes: dict[str, None] = {}
        """In order of creation."""
        self._is_due = False

    def note(self, step: Step) -> None:
        """Note a step that changed a node."""
        self._is_due = True
        if step.action == "create":
            self._nodes[step.name] = None
        elif step.action == "delete":
            del self._nodes[step.name]

    def is_due(self) -> bool:
        """Whether nodes have changed since the last call."""
        due, self._is_due = self._is_due, False
        return due

    def node(self) -> str:
        """The node to mark; empty if there is none."""
        return next(reversed(self._nodes), "")

    def next(self) -> Json:
        """A patch of the node that affects no decision."""
        self.made += 1
        return {"metadata": {"annotations": {"example.com/mark": str(self.made)}}}


class Player:
    """One sequence on one cluster."""

    binding_timeout_s: ClassVar[float]
    """Deadline for a pod whose victims are gone."""

    def __init__(
        self, client: RestClient, pods: Pods, volumes: Volumes, scenario: Sequence
    ) -> None:
        self._client = client
        self._pods = pods
        self._volumes = volumes
        self._claims = Claims(client)
        self._claims.learn(scenario.objects)
        self._marks = NodeMarks()
        self._started = 0
        self._numbers: dict[str, int] = {}
        """Pods of groups by UID, in order of creation."""
        self._unheard: dict[type[Record], None] = {}
        """Kinds changed since the last decision, apart from pods and marked nodes."""
        self.outcome = PlayResult()

    # -- what the scheduler has heard of -----------------------------------------------------------

    async def prepare_decision(self) -> None:
        """Act as controllers, and wait until the scheduler knows all changes."""
        if await self._claims.release():
            self._unheard[ResourceClaim] = None
        if self._marks.is_due():
            if node := self._marks.node():
                await self._client.patch(Node, node, "", merge_patch(self._marks.next()))
                await self.until_marks_handled(self._marks.made)
            else:
                self._unheard[Node] = None
        kinds, self._unheard = list(self._unheard), {}
        await self.until_heard(kinds)

    async def until_marks_handled(self, made: int) -> None:
        """Wait until the scheduler has handled so many marks of nodes."""

    async def until_heard(self, kinds: list[type[Record]]) -> None:
        """Wait until the scheduler knows the last changes to these kinds."""

    def check(self) -> None:
        """Raise `ControlPlaneError` if the scheduler has ended."""

    def last_words(self) -> str:
        return ""

    # -- steps -------------------------------------------------------------------------------------

    async def create(self, document: Json) -> Json:
        kind, metadata = kind_of_document(document), document["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        try:
            path = kind.collection_path(namespace)
            answer = await self._client.post_raw(path, msgspec.json.encode(document))
        except AlreadyExists:
            if kind.record is not Namespace:
                raise
            labels = {"env": None, "team": None, **(metadata.get("labels") or {})}
            await self._client.patch(kind, name, "", merge_patch({"metadata": {"labels": labels}}))
            return document
        made: Json = msgspec.json.decode(answer)
        if "status" in document and document["kind"] in _WRITES_STATUS_APART:
            change = merge_patch({"status": document["status"]})
            await self._client.patch(kind, name, namespace, change, subresource="status")
        return made

    async def perform(self, at: int, step: Step) -> None:
        if step.asks_for_decision:
            await self.prepare_decision()
        gone_before, bound_before = len(self._pods.deleted), len(self._volumes.bound)
        if not await self.carry_out(at, step):
            return
        if step.asks_for_decision:
            self.outcome.decisions[at] = await self._decision(step, gone_before, bound_before)
        elif step.kind == "Node":
            self._marks.note(step)
        elif step.kind != "Pod":
            self._unheard[kind_of_document(step.object).record] = None
        elif step.action == "create":
            if step.object["spec"].get("nodeName"):
                await self._start_running(step)
            await self._until(lambda: step.key in self._pods.current, f"pod {step.key} to appear")

    async def carry_out(self, at: int, step: Step) -> bool:
        """Make the change; returns whether the API server admitted it."""
        try:
            if step.action == "create":
                made = await self.create(step.object)
                self.outcome.admitted[at] = _bare(made)
                if step.kind == "Pod":
                    await self._claims.make_for(made)
            elif step.action == "patch":
                await self._patch(step)
            else:
                await self.delete(step)
        except NotFound:
            # Equal on both sides unless another difference exists: a victim, or never placed.
            self.outcome.refused[at] = "not found"
        except ApiError as error:
            self.outcome.refused[at] = str(error)
        return at not in self.outcome.refused

    async def _patch(self, step: Step) -> None:
        await self._client.patch(
            kind_of_document(step.object),
            step.name,
            step.namespace,
            strategic_merge_patch(step.patch) if step.is_strategic else merge_patch(step.patch),
            subresource=step.subresource,
        )

    async def delete(self, step: Step) -> None:
        await self._client.delete(kind_of_document(step.object), step.name, step.namespace, AT_ONCE)
        if step.kind == "Pod":
            await self._until(lambda: step.key not in self._pods.current, f"pod {step.key} to go")

    # -- decisions ---------------------------------------------------------------------------------

    async def _decision(self, step: Step, gone_before: int, bound_before: int) -> Decision:
        message, nominated = await self.first_answer(step)
        if nominated:
            await self._bound(step)
        pod = self._pods.current.get(step.key)
        node = pod.spec.node_name if pod is not None else ""
        devices: tuple[str, ...] = ()
        if pod is not None and node:
            devices = await self._claims.devices(pod)
            await self._start_running(step)
        else:
            await self.delete(step)
        victims = [key for key in self._pods.deleted[gone_before:] if key != step.key]
        return Decision(
            node,
            message,
            nominated,
            victims=tuple(sorted(victims)),
            volumes=tuple(sorted(self._volumes.bound[bound_before:])),
            devices=devices,
            # The number of attempts until a pod's victims are gone depends on timing.
            asked=() if nominated else self.asked_about(step.key),
        )

    def asked_about(self, pod: str) -> tuple[str, ...]:
        """Distinct questions to extenders about a pod, sorted."""
        del pod
        return ()

    async def _start_running(self, step: Step) -> None:
        self._started += 1
        change = strategic_merge_patch(running(self._started))
        await self._client.patch(Pod, step.name, step.namespace, change, subresource="status")

    async def first_answer(self, step: Step) -> tuple[str, str]:
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
        patience = Patience(self.binding_timeout_s)
        while not patience.is_over():
            pod = self._pods.current.get(step.key)
            if pod is None or pod.spec.node_name:
                return
            await self._pods.change(1.0)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        patience = Patience(DECISION_TIMEOUT_S)
        while not condition():
            self.check()
            if patience.is_over():
                raise ControlPlaneError(
                    f"waited {DECISION_TIMEOUT_S:.0f} s for {what}\n{self.last_words()}"
                )
            await self._pods.change(1.0)


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


def kind_of_document(document: Json) -> Kind[Any]:
    kind = find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        raise ControlPlaneError(f"unknown kind {document['apiVersion']} {document['kind']}")
    return kind
