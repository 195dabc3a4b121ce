"""Sequences: step-by-step changes to a cluster, and the scheduler's decision at each step.

A sequence starts on an empty cluster. Its `objects` are created first (namespaces, priority
classes, Services, volumes); then each step runs after the one before has finished. A step that
leaves a pod without a node and without gates requires a decision; the pod is *placed*, or reported
unschedulable and then deleted, so that no pod is retried later.

The player also acts as kubelet: a placed pod starts running one second after the pod before it, so
no two pods have the same age and preemption has no ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from kubesched.api.names import key_of_manifest

Json = dict[str, Any]

CONFIGURATION: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "parallelism": 1,
    "percentageOfNodesToScore": 100,
}
"""Makes kube-scheduler deterministic: no parallelism, and all nodes are evaluated."""

EPOCH = "2026-01-01T00:{minute:02}:{second:02}Z"
"""Start times of pods, by their number."""


def named(
    api_version: str, kind: str, name: str, namespace: str = "", labels: Json | None = None
) -> Json:
    """The beginning of an object."""
    metadata: Json = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for one pod."""

    node: str = ""
    """Its final node."""
    unschedulable: str = ""
    """The first message of its PodScheduled condition, if it was not placed at once."""
    nominated: str = ""
    """Its nominated node, if it had to wait for victims."""
    victims: tuple[str, ...] = ()
    """Its victims, sorted."""
    volumes: tuple[str, ...] = ()
    """Claims bound for it, each as `claim=volume`, sorted."""
    devices: tuple[str, ...] = ()
    """Devices of its claims, each as `claim request=driver/pool/device`, sorted."""
    asked: tuple[str, ...] = ()
    """Distinct questions to extenders up to the decision, sorted."""
    refused: str = ""
    """Why the API server rejected the step."""
    seen: Json = {}
    """In a sequence of pod groups: what was said about every pod and group during the step."""


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change to the cluster."""

    action: Literal["create", "patch", "delete"]
    object: Json
    """The whole object to create, or apiVersion, kind and metadata of an existing one."""
    patch: Json = {}
    """A merge patch, or a strategic one for a subresource of a pod."""
    subresource: str = ""
    compares_all: bool = False
    """In a sequence of pod groups: whether the whole cluster is compared after the step."""
    expect: Decision | None = None

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace", ""))

    @property
    def key(self) -> str:
        return key_of_manifest(self.object)

    @property
    def is_strategic(self) -> bool:
        return self.kind == "Pod" and bool(self.subresource)

    @property
    def asks_for_decision(self) -> bool:
        if self.compares_all:
            return True
        if self.kind != "Pod":
            return False
        if self.action == "create":
            spec = self.object["spec"]
            return not spec.get("schedulingGates") and not spec.get("nodeName")
        # A patch removes gates with an empty list.
        return self.action == "patch" and self.patch.get("spec", {}).get("schedulingGates") == []


class ExtenderPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an extender answers, with shares in percent. Its configuration is in the sequence's."""

    name: str
    salt: str
    """Seed of its hashes."""
    rejects: int = 0
    """Nodes that it rejects."""
    fails: int = 0
    """Pods for which it answers with an error, or with status 500."""
    fails_with_status: bool = False
    reverses: bool = False
    """Returns nodes in reverse order."""
    ranks: bool = False
    """Gives every node a distinct score."""
    ranks_not: int = 0
    """Pods for which it does not answer a prioritize request."""
    favours: int = 0
    """Range of scores in addition to ranks."""
    chooses_victims: bool = False
    keeps: int = 0
    """Nodes on which no pod may be evicted."""
    unbound: int = 0
    """Pods that it fails to bind, if it has the bind verb."""


class Sequence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Objects, then steps."""

    steps: list[Step]
    objects: list[Json] = []
    seed: str | int = ""
    configuration: Json = {}
    """A `KubeSchedulerConfiguration`; the default if empty."""
    extenders: list[ExtenderPolicy] = []
    """Policies of the configured extenders."""
    gates: dict[str, bool] = {}
    """Feature gates of a sequence of pod groups."""

    def decisions(self) -> Iterator[tuple[int, Step]]:
        return ((at, step) for at, step in enumerate(self.steps) if step.asks_for_decision)


class _Placed(msgspec.Struct, frozen=True):
    pod: Json
    expect: Decision


class SimpleSequence(msgspec.Struct, frozen=True):
    """The short form: all nodes, then all pods, nothing else."""

    nodes: list[Json]
    pods: list[_Placed]
    namespaces: list[str] = []
    seed: str | int = ""

    def as_sequence(self) -> Sequence:
        objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in self.namespaces
        ]
        steps = [
            Step("create", {"kind": "Node", "apiVersion": "v1", **node}) for node in self.nodes
        ]
        for placed in self.pods:
            pod = {"kind": "Pod", "apiVersion": "v1", **placed.pod}
            pod["metadata"] = {"namespace": "default", **pod["metadata"]}
            steps.append(Step("create", pod, expect=placed.expect))
        return Sequence(steps, objects, self.seed)


def start_time(number: int) -> str:
    """Start time of the `number`-th placed pod."""
    return EPOCH.format(minute=number // 60 % 60, second=number % 60)


def running(number: int) -> Json:
    """A kubelet's status for a started pod."""
    return {"status": {"phase": "Running", "startTime": start_time(number)}}


class GroupStep(msgspec.Struct, frozen=True):
    """One change, or a wait, and what is seen after it."""

    op: Literal["create", "patch", "delete", "advance"]
    expect: Json
    object: Json = {}
    kind: str = ""
    name: str = ""
    patch: Json = {}
    seconds: int = 0


class GroupSequence(msgspec.Struct, frozen=True):
    """A recorded sequence of changes to pod groups, and the feature gates that were set."""

    aims: str
    gates: dict[str, bool]
    steps: tuple[GroupStep, ...]
