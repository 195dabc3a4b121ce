"""kubectl commands that apply a fix."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from kubesched.api.apps_v1 import ReplicaSet
from kubesched.api.core_v1 import Pod
from kubesched.framework.handle import Listers
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    GateRemoval,
    NodeEdit,
    ObjectChange,
    Operation,
    PodDeletion,
    PodEdit,
    delete_command,
    on_template,
    patch_of,
    quoted_patch,
    replace_command,
)

_WITH_TEMPLATE = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Job"}
)
_KEEPS_PODS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
"""Kinds that leave pending pods as they are when their template changes."""
_OF_JOB = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels that the API server gives to a Job's template."""


def commands_for(pod: Pod, changes: Sequence[AnyChange], listers: Listers | None) -> list[str]:
    """The commands in execution order; node additions and plugins have none."""
    edits = [change for change in changes if is_to_be_made(change)]
    gates = [change for change in changes if isinstance(change, GateRemoval)]
    others = [change.command for change in changes if isinstance(change, NodeEdit | PodDeletion)]
    for change in changes:
        if isinstance(change, ObjectChange):
            others += change.commands
    if edits and (made := _edit_commands(pod, edits, listers)):
        # A new claim's command deletes the pod, and so do these.
        again = delete_command("pod", pod.metadata.namespace, pod.metadata.name)
        others = [command for command in others if command != again] + made
    if gates:
        others.append(_patch_command(pod, patch_of(gates)))
    return others


def is_to_be_made(change: AnyChange) -> TypeGuard[PodEdit]:
    """Whether a change is an edit of the pod's spec that also applies to its template."""
    return isinstance(change, PodEdit) and not isinstance(change, GateRemoval)


def _edit_commands(pod: Pod, edits: Sequence[PodEdit], listers: Listers | None) -> list[str]:
    namespace = shlex.quote(pod.metadata.namespace)
    owner = template_owner(pod, listers)
    if owner is None:
        if pod.metadata.controller() is not None:
            return []  # of a kind whose template is not known
        if all(edit.is_allowed_in_place for edit in edits):
            return [_patch_command(pod, patch_of(edits))]
        meta = pod.metadata
        return [replace_command("pod", meta.namespace, meta.name, *patch_of(edits))]
    kind, name = owner
    prefixed = on_template(pod, edits)
    if kind == "Job":
        edits_of_job = [*prefixed, *_without_job_labels(pod)]
        return [replace_command("job", pod.metadata.namespace, name, *edits_of_job)]
    patch = (
        f"kubectl patch {kind.lower()} {shlex.quote(name)} -n {namespace} --type=json "
        f"-p {quoted_patch(prefixed)}"
    )
    pods = listers.of(Pod).list(pod.metadata.namespace) if listers is not None else [pod]
    members = [member for member in members_of(pod, pods) if not member.spec.node_name]
    pending = " ".join(shlex.quote(member.metadata.name) for member in members)
    return [patch, *([f"kubectl delete pod -n {namespace} {pending}"] * (kind in _KEEPS_PODS))]


def _without_job_labels(pod: Pod) -> list[Operation]:
    """Selector and labels that name the old Job; the API server sets those of the new one."""
    labels = [label for label in _OF_JOB if label in (pod.metadata.labels or {})]
    paths = [
        "/spec/selector",
        *(f"/spec/template/metadata/labels/{label.replace('/', '~1')}" for label in labels),
    ]
    return [{"op": "remove", "path": path} for path in paths]


def members_of(pod: Pod, pods: Iterable[Pod]) -> list[Pod]:
    """The pods of the pod's controller; a pod without one is its own workload."""
    owner = pod.metadata.controller()
    if owner is None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        return [p for p in pods if (p.metadata.name, p.metadata.namespace) == (name, namespace)]
    return [
        other
        for other in pods
        if (theirs := other.metadata.controller()) is not None and theirs.uid == owner.uid
    ]


def _patch_command(pod: Pod, operations: Sequence[Operation]) -> str:
    name, namespace = shlex.quote(pod.metadata.name), shlex.quote(pod.metadata.namespace)
    return f"kubectl patch pod {name} -n {namespace} --type=json -p {quoted_patch(operations)}"


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
        hashed = f"-{(pod.metadata.labels or {}).get('pod-template-hash')}"
        if replica_set is None and owner.name.endswith(hashed):  # as Deployments name them
            return "Deployment", owner.name.removesuffix(hashed)
        if above is not None and above.kind == "Deployment":
            return above.kind, above.name
    return owner.kind, owner.name
