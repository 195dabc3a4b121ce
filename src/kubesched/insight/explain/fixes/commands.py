"""kubectl commands that apply a fix."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import TypeGuard

from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Pod
from kubesched.framework.handle import Listers
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    ClaimExclusion,
    GateRemoval,
    NodeEdit,
    Operation,
    PodDeletion,
    PodEdit,
    patch_of,
)

_WITH_TEMPLATE = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"}
)


def commands_for(pod: Pod, changes: Sequence[AnyChange], listers: Listers | None) -> list[str]:
    """The commands in execution order; node additions, claims and plugins have none."""
    edits = [change for change in changes if is_to_be_made(change)]
    gates = [change for change in changes if isinstance(change, GateRemoval)]
    others = [change.command for change in changes if isinstance(change, NodeEdit | PodDeletion)]
    if edits:
        others.append(_edit_command(pod, edits, listers))
    if gates:
        others.append(_patch_command(pod, patch_of(gates)))
    return others


def is_to_be_made(change: AnyChange) -> TypeGuard[PodEdit]:
    """Whether a change is an edit of the pod's spec that also applies to its template."""
    return isinstance(change, PodEdit) and not isinstance(change, ClaimExclusion | GateRemoval)


def _edit_command(pod: Pod, edits: Sequence[PodEdit], listers: Listers | None) -> str:
    operations = patch_of(edits)
    namespace = shlex.quote(pod.metadata.namespace)
    owner = template_owner(pod, listers)
    if owner is not None:
        kind, name = owner
        prefixed = [
            {**operation, "path": f"/spec/template{operation['path']}"} for operation in operations
        ]
        return (
            f"kubectl patch {kind.lower()} {shlex.quote(name)} -n {namespace} --type=json "
            f"-p {_quoted(prefixed)}"
        )
    if all(edit.is_allowed_in_place for edit in edits):
        return _patch_command(pod, operations)
    name = shlex.quote(pod.metadata.name)
    return (
        f"kubectl get pod {name} -n {namespace} -o json | kubectl patch --local -f - --type=json "
        f"-p {_quoted(operations)} -o json | kubectl replace --force -f -"
    )


def _patch_command(pod: Pod, operations: Sequence[Operation]) -> str:
    name, namespace = shlex.quote(pod.metadata.name), shlex.quote(pod.metadata.namespace)
    return f"kubectl patch pod {name} -n {namespace} --type=json -p {_quoted(operations)}"


def template_owner(pod: Pod, listers: Listers | None) -> tuple[str, str] | None:
    """Kind and name of the object from whose template the pod was created."""
    owner = pod.metadata.controller()
    if owner is None or owner.kind not in _WITH_TEMPLATE:
        return None
    if owner.kind == "ReplicaSet" and listers is not None:
        replica_set: ReplicaSet | None = listers.of(ReplicaSet).get(
            pod.metadata.namespace, owner.name
        )
        above = replica_set.metadata.controller() if replica_set is not None else None
        if above is not None and above.kind == "Deployment":
            return above.kind, above.name
    return owner.kind, owner.name


def _quoted(operations: Sequence[Operation]) -> str:
    return shlex.quote(json.dumps(operations, separators=(",", ":")))
