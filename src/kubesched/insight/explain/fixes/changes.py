"""The changes that fixes consist of: how to apply them, describe them and run them with kubectl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Node, Pod, Taint
from kubesched.api.meta import Record
from kubesched.api.names import key_of
from kubesched.insight.explain.details import taint_text
from kubesched.insight.state.node_copies import fresh, named
from kubesched.playground.registry.patching.json_patch import apply_json_patch

Operation = dict[str, Any]
"""One operation of a JSON patch (RFC 6902)."""

CORDON_TAINT = "node.kubernetes.io/unschedulable"
ADD_TOLERATION = "AddToleration"


@dataclass(frozen=True, slots=True)
class ChangeBase:
    """Base of all changes."""

    kind: str
    """`AddToleration`, `LowerRequest`, `DeletePod`, ...; part of the published schema."""
    text: str
    """Readable description: `request cpu 9 instead of 14`."""
    cost: float
    """How much it disturbs; fixes are sorted by the sum of these."""

    @property
    def key(self) -> tuple[str, str]:
        """Equal for equal changes."""
        return self.kind, self.text

    @property
    def effects(self) -> Sequence[str]:
        """What else it does, or what stands in its way."""
        return ()


@dataclass(frozen=True, slots=True)
class PodEdit(ChangeBase):
    """An edit of the pod to be placed, as a JSON patch."""

    operations: tuple[str, ...]
    """The operations as JSON texts, relative to the pod."""
    is_allowed_in_place: bool = False
    """True if the API server accepts the change on an existing pod."""

    @property
    def patch(self) -> list[Operation]:
        return [json.loads(operation) for operation in self.operations]


def pod_edit(
    kind: str, text: str, cost: float, operations: Sequence[Operation], *, in_place: bool = False
) -> PodEdit:
    return PodEdit(
        kind, text, cost, tuple(json.dumps(operation) for operation in operations), in_place
    )


@dataclass(frozen=True, slots=True)
class RequestEdit(PodEdit):
    """Lowers the pod's request of a resource."""

    resource: str = ""


@dataclass(frozen=True, slots=True)
class SkewEdit(PodEdit):
    """Raises the maxSkew of a spread constraint."""

    index: int = 0
    topology_key: str = ""
    skew: int = 0


@dataclass(frozen=True, slots=True)
class GateRemoval(PodEdit):
    """Removes a scheduling gate from the pod itself, independent of its template."""

    gate: str = ""

    @property
    def effects(self) -> Sequence[str]:
        domain, slash, _ = self.gate.partition("/")
        owner = f"the controller of {domain}" if slash else "the controller or webhook that set it"
        name = self.gate
        return [f"the gate {name} is for {owner} to remove: by hand, what it waits for is skipped"]


@dataclass(frozen=True, slots=True)
class NodeEdit(ChangeBase):
    """A change of one node."""

    node_name: str
    remove_taint: Taint | None = None
    uncordon: bool = False
    label: tuple[str, str] | None = None

    def applied(self, node: Node) -> Node:
        taints, spec, metadata = node.spec.taints, node.spec, node.metadata
        if self.remove_taint is not None:
            gone = taint_text(self.remove_taint)
            taints = [taint for taint in taints or () if taint_text(taint) != gone]
        if self.uncordon:
            taints = [taint for taint in taints or () if taint.key != CORDON_TAINT]
            spec = structs.replace(spec, unschedulable=False)
        spec = structs.replace(spec, taints=taints)
        if self.label is not None:
            labels = {**(metadata.labels or {}), self.label[0]: self.label[1]}
            metadata = structs.replace(metadata, labels=labels)
        return structs.replace(node, spec=spec, metadata=metadata)

    @property
    def command(self) -> str:
        name = shlex.quote(self.node_name)
        if self.remove_taint is not None:
            taint = self.remove_taint
            value = f"={taint.value}" if taint.value else ""
            return f"kubectl taint node {name} {shlex.quote(f'{taint.key}{value}:{taint.effect}-')}"
        if self.label is not None:
            pair = shlex.quote(f"{self.label[0]}={self.label[1]}")
            return f"kubectl label node {name} --overwrite {pair}"
        return f"kubectl uncordon {name}"


@dataclass(frozen=True, slots=True)
class PodDeletion(ChangeBase):
    """Removes a pod from its node."""

    pod: Pod

    @property
    def command(self) -> str:
        return delete_command("pod", self.pod.metadata.namespace, self.pod.metadata.name)


@dataclass(frozen=True, slots=True)
class NodeAddition(ChangeBase):
    """New nodes with the shape of an existing one, empty but for its daemons."""

    node: Node
    like: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class ObjectChange(ChangeBase):
    """Creates, replaces or deletes objects other than nodes and the pod: claims, for one."""

    object: str
    """`kind/namespace/name` of the object that the change is about."""
    stored: tuple[Record, ...] = ()
    """Objects as they are afterwards, new or replaced."""
    deleted: tuple[Record, ...] = ()
    leaving: tuple[Pod, ...] = ()
    """Placed pods that are deleted with it."""
    commands: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()


def delete_command(kind: str, namespace: str, name: str) -> str:
    return f"kubectl delete {kind} {shlex.quote(name)} -n {shlex.quote(namespace)}"


def replace_command(kind: str, namespace: str, name: str, *operations: Operation) -> str:
    """Deletes an object and creates it again as edited, for kinds that cannot be changed."""
    patch = quoted_patch(operations)
    edit = f"kubectl patch --local -f - --type=json -p {patch} -o json | " if operations else ""
    get = f"kubectl get {kind} {shlex.quote(name)} -n {shlex.quote(namespace)} -o json"
    return f"{get} | {edit}kubectl replace --force -f -"


def on_template(pod: Pod, edits: Sequence[PodEdit]) -> list[Operation]:
    """The patch for the template that the pod was made from.

    A template may lack requests, which the pod got from limits or a LimitRange: all are written.
    """
    after: Any = msgspec.to_builtins(edited(pod, edits))
    made: dict[str, Operation] = {}
    for operation in patch_of(edits):
        path, _, _ = operation["path"].rpartition("/")
        if path.endswith(("/resources/requests", "/resources/limits")):
            value = after
            for word in path.split("/")[1:]:
                value = value[int(word) if isinstance(value, list) else word]
            operation = {"op": "add", "path": path, "value": value}
        made[operation["path"]] = {**operation, "path": f"/spec/template{operation['path']}"}
    return list(made.values())


def quoted_patch(operations: Sequence[Operation]) -> str:
    return shlex.quote(json.dumps(operations, separators=(",", ":")))


AnyChange = PodEdit | NodeEdit | PodDeletion | NodeAddition | ObjectChange


def deletion(pod: Pod, violates_budget: bool) -> PodDeletion:
    priority = pod.spec.priority or 0
    cost = 5.0 + (2.0 if violates_budget else 0.0) + max(min(priority, 10**9), 0) / 10**9
    return PodDeletion("DeletePod", f"delete {key_of(pod.metadata)}", cost, pod)


def addition(node: Node, count: int = 1) -> NodeAddition:
    """Nodes like the given one: same size, labels and taints, not cordoned."""
    like = node.metadata.name
    nodes = "a node" if count == 1 else f"{count} nodes"
    made = named(fresh(node), f"{like}-new-1")
    cost = 3.9 + 0.1 * (count - 1)
    return NodeAddition("AddNode", f"add {nodes} like {like}", cost, made, like, count)


def edited(pod: Pod, edits: Sequence[PodEdit]) -> Pod:
    """The pod after all edits.

    Edits touch different fields, except in lists: later indices are edited first.
    """
    document: Any = msgspec.to_builtins(pod)
    return msgspec.convert(apply_json_patch(document, patch_of(edits)), Pod)


def patch_of(edits: Sequence[PodEdit]) -> list[Operation]:
    """One JSON patch for all edits."""
    adding = [edit.patch[0] for edit in edits if edit.kind == ADD_TOLERATION]
    operations = [
        operation for edit in edits if edit.kind != ADD_TOLERATION for operation in edit.patch
    ]
    if adding:  # each writes the whole list with one more item at its end
        listed = [*adding[0]["value"][:-1], *(operation["value"][-1] for operation in adding)]
        operations.append({**adding[0], "value": listed})
    return _in_safe_order(operations)


def _in_safe_order(operations: list[Operation]) -> list[Operation]:
    """Removals last, inner ones and higher list indices first: none shifts or ends a later path."""

    def place(operation: Operation) -> tuple[bool, int, list[tuple[int, str]]]:
        words = operation["path"].split("/")
        keys = [(-int(word), "") if word.isdigit() else (0, word) for word in words]
        return operation["op"] == "remove", -len(words), keys

    return sorted(operations, key=place)
