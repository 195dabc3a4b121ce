"""Changes of workloads that exist: scaled, with other requests, or deleted.

Deployments are found by their ReplicaSets. Controllers recreate a deleted pod, and replace pods one
by one when requests change; a workload is deleted with its pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from kubesched.api import codec, quantity
from kubesched.api.core_v1 import Pod
from kubesched.api.core_v1.pod import ResourceRequirements
from kubesched.api.names import key_of
from kubesched.insight.explain.workloads import find_workload
from kubesched.insight.planning.workload_kinds import KINDS, workload_kind
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import Replacements
from kubesched.playground.controllers.pods import deletion_order

SCALABLE = ("Deployment", "ReplicaSet", "StatefulSet")


@dataclass(frozen=True, slots=True)
class Scale:
    """The desired number of pods of an existing workload."""

    workload: str
    """`KIND/NAME` or `KIND/NAMESPACE/NAME`."""
    replicas: int

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Raises ValueError."""
        workload, sign, count = text.rpartition("=")
        if not sign or not count.isdecimal() or "/" not in workload:
            raise ValueError(f"{text!r}: expected N, or KIND/NAME=N for a workload that exists")
        return cls(workload, int(count))


def surplus_pods(
    world: PlannedCluster, replacements: Replacements, wanted: Sequence[Scale], namespace: str
) -> list[Pod]:
    """Add missing pods; returns surplus pods, chosen as the controller would.

    Raises:
        PlanError: the workload does not exist, or its pods cannot be predicted.
    """
    surplus: list[Pod] = []
    for scale in wanted:
        kind, where, name = workload_named(scale.workload, namespace, "--replicas")
        if kind not in SCALABLE:
            raise PlanError(f"--replicas: a {kind} cannot be scaled, only {', '.join(SCALABLE)}")
        pods = pods_of(world, kind, where, name)
        if not pods:
            raise PlanError(
                f'--replicas: there is no pod of {kind} "{where}/{name}" '
                "that others could be made like; "
                "give its file with -f"
            )
        missing = scale.replicas - len(pods)
        if missing < 0:
            surplus += _too_many(world, kind, pods, -missing)
        else:
            _add(replacements, kind, pods, missing)
    return surplus


def _add(replacements: Replacements, kind: str, pods: Sequence[Pod], count: int) -> None:
    model = max(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", key_of(pod.metadata)))
    for number in range(count):
        name = None
        if kind == "StatefulSet":
            base = model.metadata.name.rpartition("-")[0]
            name = f"{base}-{1 + max(map(_ordinal, pods)) + number}"
        replacements.add_like(model, name)


def _too_many(world: PlannedCluster, kind: str, pods: Sequence[Pod], count: int) -> list[Pod]:
    if kind == "StatefulSet":
        return sorted(pods, key=_ordinal, reverse=True)[:count]
    by_uid = {pod.metadata.uid: pod for pod in pods}
    plain = [codec.to_json(pod) for pod in pods]
    order = deletion_order(plain, plain, world.clock.now())
    return [by_uid[manifest["metadata"]["uid"]] for manifest in order[:count]]


def _ordinal(pod: Pod) -> int:
    last = pod.metadata.name.rpartition("-")[2]
    return int(last) if last.isdecimal() else -1


def pods_to_renew(
    world: PlannedCluster,
    replacements: Replacements,
    wanted: Mapping[str, Mapping[str, str]],
    namespace: str,
) -> list[Pod]:
    """The pods of the workloads, pending ones first; replacements get the new requests.

    Raises:
        PlanError: the workload does not exist, or a quantity is invalid.
    """
    renewed: list[Pod] = []
    for workload, requests in wanted.items():
        for resource, amount in requests.items():
            try:
                quantity.parse(amount)
            except ValueError as error:
                raise PlanError(f"requests: {workload}: {resource}: {error}") from None
        pods = pods_of(world, *workload_named(workload, namespace, "requests"))
        if not pods:
            raise PlanError(f"requests: there is no pod of {workload}")
        owners = {owner.uid for pod in pods if (owner := pod.metadata.controller()) is not None}
        replacements.edits |= dict.fromkeys(owners, partial(_with_requests, requests))
        renewed += sorted(pods, key=lambda pod: bool(pod.spec.node_name))
    return renewed


def _with_requests(requests: Mapping[str, str], pod: Pod) -> Pod:
    """The pod with these requests of its first container."""
    containers = list(pod.spec.containers or ())
    old = containers[0].resources or ResourceRequirements()
    resources = structs.replace(old, requests={**(old.requests or {}), **requests})
    containers[0] = structs.replace(containers[0], resources=resources)
    return structs.replace(pod, spec=structs.replace(pod.spec, containers=containers))


def doomed_pods(
    world: PlannedCluster, replacements: Replacements, wanted: Sequence[str], namespace: str
) -> list[Pod]:
    """The pods to delete; controllers among the named workloads are retired.

    Raises:
        PlanError: a text names no kind, or an object that does not exist.
    """
    doomed: dict[str, Pod] = {}
    for text in wanted:
        kind, where, name = workload_named(text, namespace, "--delete")
        pod = world.find(Pod, where, name) if kind == "Pod" else None
        pods = [pod] if pod is not None else pods_of(world, kind, where, name)
        if not pods:
            of = "pod" if kind == "Pod" else f"pod of {kind}"
            raise PlanError(f'--delete: there is no {of} "{where}/{name}"')
        for doomed_pod in pods:
            doomed[doomed_pod.metadata.uid] = doomed_pod
            owner = doomed_pod.metadata.controller()
            if kind != "Pod" and owner is not None:
                replacements.retired.add(owner.uid)
    return list(doomed.values())


def workload_named(text: str, namespace: str, option: str) -> tuple[str, str, str]:
    """Kind, namespace and name in an option's text.

    Raises:
        PlanError: the text names no kind.
    """
    parts = text.split("/")
    kind = workload_kind(parts[0])
    if kind is None or len(parts) not in (2, 3) or not all(parts):
        raise PlanError(
            f"{option}: {text!r}: expected KIND/NAME or KIND/NAMESPACE/NAME, "
            f"with one of {', '.join(KINDS)}"
        )
    return kind, parts[1] if len(parts) == 3 else namespace, parts[-1]


def pods_of(world: PlannedCluster, kind: str, namespace: str, name: str) -> list[Pod]:
    """The pods that a workload controls, directly or through its ReplicaSets."""
    return find_workload(world.objects, kind, namespace, name).pods
