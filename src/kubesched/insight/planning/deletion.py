"""`--delete KIND/NAME`: controllers recreate a deleted pod; a workload is deleted with its pods."""

from __future__ import annotations

from collections.abc import Sequence

from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Pod
from kubesched.insight.planning.workload_kinds import KINDS, workload_kind
from kubesched.insight.state.planned_cluster import PlanError, PlannedCluster
from kubesched.insight.state.replacements import Replacements


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
    owners = {(kind, name)}
    if kind == "Deployment":
        owners = {
            ("ReplicaSet", replica_set.metadata.name)
            for replica_set in world.listers.of(ReplicaSet).list(namespace)
            for owner in replica_set.metadata.owner_references or ()
            if owner.kind == kind and owner.name == name
        }
    return [
        pod
        for pod in world.listers.of(Pod).list(namespace)
        if (owner := pod.metadata.controller()) is not None and (owner.kind, owner.name) in owners
    ]
