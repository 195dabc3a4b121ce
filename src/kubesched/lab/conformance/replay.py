"""Our decisions for a sequence: the production scheduler in memory and in virtual time."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import (
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
)
from kubesched.api.kinds import find_kind
from kubesched.api.resource_v1 import ResourceClaim
from kubesched.base.errors import ConfigError
from kubesched.config.features import DEFAULT_GATES, FeatureGates
from kubesched.lab.conformance.marks import NodeMarks
from kubesched.lab.conformance.recordings import RecordingError
from kubesched.lab.conformance.replay_extenders import ReplayedExtenders
from kubesched.lab.conformance.sequences import (
    Decision,
    Json,
    Sequence,
    Step,
    running,
)
from kubesched.playground.apimachinery.schema.table import type_of_kind
from kubesched.playground.registry.patching.merge_patch import apply_merge_patch
from kubesched.playground.registry.patching.strategic import apply_strategic_patch
from kubesched.testing import Cluster
from kubesched.testing.claim_controller import (
    claim_statuses,
    devices_of,
    existing_claims,
    generated_claim,
    release_claims,
    template_entries,
)
from kubesched.testing.volume_controller import (
    bound_to,
    is_bound,
    made_for,
    meant_by,
    wants_volume,
)

CONFIGURATION: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "parallelism": 1,
    "percentageOfNodesToScore": 100,
}
"""Make kube-scheduler deterministic: no parallelism, and all nodes are evaluated."""

_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")

RETRIES = 12
"""Virtual seconds that a pod may wait for its victims."""


def replay(sequence: Sequence, gates: FeatureGates = DEFAULT_GATES) -> dict[int, Decision]:
    """Our decision at each step that requires one, by step number.

    Raises:
        RecordingError: an object is invalid, or a decision does not come.
    """
    try:
        return _replay(sequence, gates)
    except (msgspec.ValidationError, KeyError, ConfigError) as error:
        raise RecordingError(f"sequence {sequence.seed}: {error}") from error


def _replay(sequence: Sequence, gates: FeatureGates) -> dict[int, Decision]:
    decisions: dict[int, Decision] = {}
    configuration = json.dumps({**CONFIGURATION, **sequence.configuration})
    extenders = ReplayedExtenders(sequence.extenders)
    with Cluster(config=configuration, gates=gates, extender_transport=extenders) as world:
        extenders.world = world
        player = _Player(world, extenders)
        for manifest in sequence.objects:
            player.create(manifest)
        for at, step in enumerate(sequence.steps):
            if step.asks_for_decision:
                player.release_claims()
                player.mark_nodes()
            if step.expect is not None and step.expect.refused:
                continue  # rejected by the recorded API server
            player.perform(step)
            if step.asks_for_decision:
                decisions[at] = player.decision(step)
        world.settle()
    return decisions


class _Player:
    """Acts as API server and kubelet."""

    def __init__(self, world: Cluster, extenders: ReplayedExtenders) -> None:
        self._world = world
        self._extenders = extenders
        self._documents: dict[tuple[str, str, str], Json] = {}
        self._priorities: dict[str, Json] = {}
        self._made = 0
        self._started = 0
        self._bound: list[str] = []
        self._marks = NodeMarks()

    def mark_nodes(self) -> None:
        """Make the same marks as the recording player."""
        if self._marks.is_due() and (name := self._marks.node()):
            key = ("Node", "", name)
            self._replace(key, apply_merge_patch(self._documents[key], self._marks.next()))

    def perform(self, step: Step) -> None:
        key = (step.kind, step.namespace, step.name)
        if step.kind == "Node":
            self._marks.note(step)
        if step.action == "create":
            self.create(step.object)
        elif key not in self._documents:
            return  # deleted only here: reported where the difference began
        elif step.action == "patch":
            self._replace(key, _patched(self._documents[key], step))
        else:
            self._delete(key)

    def create(self, document: Json) -> None:
        metadata = document["metadata"]
        self._made += 1
        document = {**document, "metadata": {**metadata, "uid": f"uid-{self._made}"}}
        if document["kind"] == "Pod":
            document["spec"] = self._admitted(document["spec"])
            self._make_claims(document)
        elif document["kind"] == "PriorityClass":
            self._priorities[metadata["name"]] = document
        key = (document["kind"], metadata.get("namespace", ""), metadata["name"])
        self._documents[key] = document
        record = self._world.put(_record(document))
        if isinstance(record, Pod) and record.spec.node_name:
            self._start_running(key)

    # -- claims ------------------------------------------------------------------------------------

    def _make_claims(self, pod: Json) -> None:
        """Act as the claim controller for a new pod."""
        entries = template_entries(pod)
        if not entries:
            return
        namespace = pod["metadata"]["namespace"]
        for entry, name in entries:
            template = self._documents["ResourceClaimTemplate", namespace, name]
            self.create(generated_claim(pod, entry, template))
        pod["status"] = {**pod.get("status", {}), **claim_statuses(pod)}

    def release_claims(self) -> None:
        """Release reservations of finished or deleted pods."""
        alive = {pod.metadata.uid for pod in self._world.objects(Pod)}
        release_claims(self._world, self._world.objects(ResourceClaim), alive.__contains__)

    def _devices(self, step: Step) -> tuple[str, ...]:
        held = existing_claims(self._world, self._world.pod(step.name, step.namespace))
        return tuple(sorted(line for claim in held for line in devices_of(claim)))

    # -- pods --------------------------------------------------------------------------------------

    def _admitted(self, spec: Json) -> Json:
        spec = {"schedulerName": "default-scheduler", **spec}
        priority = self._priorities.get(spec.get("priorityClassName", ""))
        if priority is not None:
            spec["priority"] = priority["value"]
            spec["preemptionPolicy"] = priority.get("preemptionPolicy", "PreemptLowerPriority")
        return spec

    def _replace(self, key: tuple[str, str, str], document: Json) -> None:
        self._documents[key] = document
        record = _record(document)
        if not isinstance(record, Pod):
            self._world.put(record)
            return
        current = self._world.find(Pod, *key[1:])
        if current is None:
            return  # already finished
        if record.status.phase in ("Succeeded", "Failed"):
            self._world.delete(current)  # finished pods are not watched
            return
        # Keep the scheduler's writes.
        spec = structs.replace(record.spec, node_name=current.spec.node_name)
        told = {condition.type: condition for condition in current.status.conditions or ()}
        told |= {condition.type: condition for condition in record.status.conditions or ()}
        status = structs.replace(
            record.status,
            conditions=list(told.values()) or None,
            nominated_node_name=current.status.nominated_node_name,
            extended_resource_claim_status=current.status.extended_resource_claim_status,
        )
        self._world.put(structs.replace(record, spec=spec, status=status))

    def _delete(self, key: tuple[str, str, str]) -> None:
        self._world.delete(_record(self._documents.pop(key)))

    def decision(self, step: Step) -> Decision:
        """Wait for the decision; delete a pod that was not placed, start one that was."""
        world, gone_before = self._world, len(self._world.client.deleted)
        self._bound = []
        key = (step.kind, step.namespace, step.name)
        self._first_answer(step)
        verdict = world.condition(step.name, step.namespace)
        message = verdict[1] if verdict is not None else ""
        nominated = world.pod(step.name, step.namespace).status.nominated_node_name
        if nominated:
            self._victims_gone(step)
        node = world.pod(step.name, step.namespace).spec.node_name
        devices = self._devices(step) if node else ()
        if node:
            self._start_running(key, node)
        else:
            self._delete(key)
        victims = sorted(world.client.deleted[gone_before:])
        if not message:
            nominated = ""  # set while it was being bound
        return Decision(
            node,
            message,
            nominated,
            tuple(victims),
            tuple(sorted(self._bound)),
            devices,
            asked=() if nominated else tuple(sorted(self._extenders.asked_about(step.key))),
        )

    def _start_running(self, key: tuple[str, str, str], node: str = "") -> None:
        self._started += 1
        change = running(self._started)
        if node:
            change["metadata"] = {"labels": self._topology(node)}
        self._replace(key, apply_merge_patch(self._documents[key], change))

    def _topology(self, node: str) -> Json:
        """The node labels that an API server copies to a pod on binding."""
        labels = self._documents["Node", "", node]["metadata"].get("labels") or {}
        return {name: labels[name] for name in _TOPOLOGY_LABELS if name in labels}

    def _first_answer(self, step: Step) -> None:
        """Run the scheduler and the volume controller until the pod is placed or rejected."""
        while True:
            self._world.settle(until=lambda: self._has_answer(step))
            if self._has_answer(step):
                return
            if not self._answer_about_volumes():
                raise RecordingError(f"no decision about pod {step.key}")

    def _has_answer(self, step: Step) -> bool:
        pod = self._world.pod(step.name, step.namespace)
        verdict = self._world.condition(step.name, step.namespace)
        return bool(pod.spec.node_name) or (verdict is not None and verdict[0] != "SchedulingGated")

    def _answer_about_volumes(self) -> bool:
        """Act as volume controller and provisioner; returns whether there was work."""
        before = self._world.changes
        claims = self._world.listers.of(PersistentVolumeClaim)
        volumes = self._world.listers.of(PersistentVolume)
        for claim in claims.list():
            if wants_volume(claim):
                made = msgspec.convert(made_for(claim), PersistentVolume)
                if volumes.get("", made.metadata.name) is None:
                    self._world.put(made)
        for volume in volumes.list():
            namespace, _, name = meant_by(volume).partition("/")
            claim = claims.get(namespace, name)
            if claim is not None and not is_bound(claim):
                self._bound.append(f"{name}={volume.metadata.name}")
                change = bound_to(volume.metadata.name)
                document = apply_merge_patch(msgspec.to_builtins(claim), change)
                self._world.put(msgspec.convert(document, PersistentVolumeClaim))
        return self._world.changes != before

    def _victims_gone(self, step: Step) -> None:
        for _ in range(RETRIES):
            self._world.settle()
            if self._world.pod(step.name, step.namespace).spec.node_name:
                return
            self._answer_about_volumes()
            self._world.advance(1.0)


def _patched(document: Json, step: Step) -> Json:
    if not step.is_strategic:
        merged: Json = apply_merge_patch(document, step.patch)
        return merged
    kind = type_of_kind("", step.kind)
    assert kind is not None, "only built-in kinds are patched so"
    return apply_strategic_patch(kind, document, step.patch)


def _record(document: Json) -> Any:  # noqa: ANN401  # of whichever kind
    kind = find_kind(document["apiVersion"], document["kind"])
    if kind is None:
        raise RecordingError(f"unknown kind {document['apiVersion']} {document['kind']}")
    return msgspec.convert(document, kind.record)
