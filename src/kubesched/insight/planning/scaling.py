"""`--replicas KIND/NAME=N`: scales an existing workload; Deployments are found by ReplicaSets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubesched.api import codec
from kubesched.api.core_v1 import Pod
from kubesched.api.names import key_of
from kubesched.insight.planning.deletion import pods_of, workload_named
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
