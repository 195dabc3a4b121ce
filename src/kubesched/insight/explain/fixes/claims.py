"""Changes of claims that undo a rejection: of volumes and of devices.

Whether the devices suffice afterwards is asked of the allocator; the search tries every change once
more with all filters.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Node, PersistentVolumeClaim, Pod
from kubesched.api.names import key_of
from kubesched.api.resource_v1 import MAX_ALLOCATION_RESULTS, DeviceClass, ResourceClaim
from kubesched.api.storage_v1 import StorageClass
from kubesched.framework.handle import Listers
from kubesched.framework.runtime import Framework
from kubesched.insight.explain.device_trials import DeviceTrials, requests_of
from kubesched.insight.explain.devices import claims_on, holders_of, users_of
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.fixes.changes import (
    AnyChange,
    ObjectChange,
    Operation,
    delete_command,
    pod_edit,
    replace_command,
)
from kubesched.insight.explain.volumes import OF_VOLUMES, nearest
from kubesched.insight.state.replacements import provisioned
from kubesched.playground.registry.patching.json_patch import apply_json_patch
from kubesched.plugins.dynamic_resources.manager import manager_of
from kubesched.plugins.dynamic_resources.plugin import STATE, DynamicResources
from kubesched.plugins.dynamic_resources.state import DRAState
from kubesched.plugins.helper.volumes.claims import (
    WAIT_FOR_FIRST_CONSUMER,
    claim_use,
    class_of_claim,
)

MOST_CLASSES: Final = 8
MOST_RELEASED: Final = 3
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


class ClaimChanges:
    """Finds changes of claims for one pod."""

    def __init__(self, framework: Framework, evaluation: Evaluation) -> None:
        self._framework = framework
        self._evaluation = evaluation
        self._pod = evaluation.pod.pod
        self._listers = framework.handle.listers
        self._by_row: dict[int, dict[str, list[AnyChange]]] = {}
        self._trials: DeviceTrials | None = None

    def changes(self, row: int, plugin: str) -> Mapping[str, Sequence[AnyChange]]:
        """Changes by claim; each undoes what its claim does to a rejection of the node."""
        found: dict[str, list[AnyChange]] = {}
        if self._listers is None:
            return found
        if plugin in OF_VOLUMES:
            for claim, change in _of_volumes(self._pod, self._listers):
                found.setdefault(claim, []).append(change)
        elif plugin == DynamicResources.name:
            if row not in self._by_row:
                changes = list(self._of_devices(row, self._listers))
                self._by_row[row] = {"": changes} if changes else {}
            return self._by_row[row]
        return found

    # -- devices -----------------------------------------------------------------------------------

    def _of_devices(self, row: int, listers: Listers) -> Iterator[AnyChange]:
        state: DRAState | None = self._evaluation.state.get(STATE)
        node = self._evaluation.table.nodes[row]
        if node is None or state is None or state.allocator is None:
            return
        trials = self._trials = self._trials or DeviceTrials(manager_of(self._framework.handle))
        claims = claims_on(self._framework, self._evaluation, state)(node)
        blocked = trials.blocked(node, claims)
        if blocked is None:
            return
        uid, at = blocked[-1].metadata.uid, len(requests_of(blocked[-1])) - 1
        claim = next(claim for claim in claims if claim.metadata.uid == uid)
        kinds: set[str] = set()
        devices = [pooled.device for pooled in trials.dra.pools.of(node).devices]
        taints = dict.fromkeys((t.key, t.effect) for one in devices for t in one.taints or ())
        owner = claim.metadata.controller()
        is_of_group = owner is not None and owner.kind == "PodGroup"  # which keeps it as it is
        edits = () if is_of_group else _device_edits(claim, at, listers, taints)
        for kind, text, cost, operation in edits:
            document: Any = msgspec.to_builtins(claim)
            edited = msgspec.convert(apply_json_patch(document, [operation]), ResourceClaim)
            others = [edited if other is claim else other for other in claims]
            if state.special is None and kind not in kinds and trials.finds(node, others):
                kinds.add(kind)
                yield ObjectChange(
                    kind,
                    f"{text} in claim {claim.metadata.name}",
                    cost,
                    f"ResourceClaim/{key_of(claim.metadata)}",
                    stored=(_anew(edited),),
                    deleted=(claim,),
                    commands=tuple(self._edit_commands(claim, operation)),
                    effects=("claims cannot be changed: they are made anew",),
                )
        yield from _releases(node, claims, trials, listers)

    def _edit_commands(self, claim: ResourceClaim, operation: Operation) -> Iterator[str]:
        """Replace the claim, or the template it was made from and then the pod."""
        pod, name = self._pod.metadata, claim.metadata.name
        statuses = self._pod.status.resource_claim_statuses or ()
        entries = {status.name for status in statuses if status.resource_claim_name == name}
        for entry in self._pod.spec.resource_claims or ():
            if entry.name in entries and entry.resource_claim_template_name:
                template = entry.resource_claim_template_name
                nested = {**operation, "path": f"/spec{operation['path']}"}
                yield replace_command("resourceclaimtemplate", pod.namespace, template, nested)
                restart = replace_command if pod.controller() is None else delete_command
                yield restart("pod", pod.namespace, pod.name)
                return
        yield replace_command("resourceclaim", pod.namespace, name, operation)


def _device_edits(
    claim: ResourceClaim, at: int, listers: Listers, taints: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, float, Operation]]:
    """Kind, text, cost and patch of each edit of a request; of a kind, the best comes first."""
    request, path = requests_of(claim)[at], f"/spec/devices/requests/{at}"
    asked: list[tuple[str, Any]] = [(f"{path}/exactly", request.exactly)]
    if request.first_available:
        subs = enumerate(request.first_available)
        asked = [(f"{path}/firstAvailable/{index}", sub) for index, sub in subs]
    classes = sorted(one.metadata.name for one in listers.of(DeviceClass).list())
    for place, one in asked:
        of = f"for request {request.name}"
        for count in range(min(one.count - 1, MAX_ALLOCATION_RESULTS), 0, -1):
            operation = {"op": "replace", "path": f"{place}/count", "value": count}
            yield "FewerDevices", f"{count} instead of {one.count} devices {of}", 2.5, operation
        for name in classes[:MOST_CLASSES]:
            if name != one.device_class_name:
                operation = {"op": "replace", "path": f"{place}/deviceClassName", "value": name}
                text = f"device class {name} instead of {one.device_class_name} {of}"
                yield "OtherDeviceClass", text, 3.0, operation
        for index, selector in enumerate(one.selectors or ()):
            text = f"without the selector {selector.cel and selector.cel.expression} {of}"
            operation = {"op": "remove", "path": f"{place}/selectors/{index}"}
            yield "DropDeviceSelector", text, 3.2, operation
        for key, effect in taints:
            tolerated = {"key": key, "operator": "Exists", "effect": effect}
            listed = [*msgspec.to_builtins(one.tolerations or []), tolerated]
            operation = {"op": "add", "path": f"{place}/tolerations", "value": listed}
            text = f"tolerate device taint {key}:{effect} {of}"
            yield "TolerateDeviceTaint", text, 3.4, operation
    for index, constraint in enumerate(claim.spec.devices.constraints or ()):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        operation = {"op": "remove", "path": f"/spec/devices/constraints/{index}"}
        yield "DropDeviceConstraint", f"without the constraint on {attribute}", 3.6, operation


def _releases(
    node: Node, claims: Sequence[ResourceClaim], trials: DeviceTrials, listers: Listers
) -> Iterator[AnyChange]:
    """The fewest claims whose release lets the node serve the pod."""
    by_device = holders_of(listers.of(ResourceClaim).list())
    here = [pooled.id for pooled in trials.dra.pools.of(node).devices if pooled.id in by_device]
    holders = {
        key_of(claim.metadata): claim
        for one in here
        for claim in by_device[one]
        if not users_of(claim, "podgroups")  # held as long as the group is there
    }
    chosen = list(holders.values())
    if not chosen or not trials.finds(node, claims, released=chosen):
        return
    for claim in list(chosen):
        rest = [other for other in chosen if other is not claim]
        if rest and trials.finds(node, claims, released=rest):
            chosen = rest
    if len(chosen) <= MOST_RELEASED:
        yield _release(chosen, listers)


def _release(claims: Sequence[ResourceClaim], listers: Listers) -> ObjectChange:
    """Delete the pods that use the claims, and claims that no pod uses."""
    users = dict.fromkeys(key for claim in claims for key in users_of(claim))
    found = [listers.of(Pod).get(*key.split("/")) for key in users]
    pods = [pod for pod in found if pod is not None]
    gone = [c for c in claims if c.metadata.controller() is not None or not users_of(c)]
    unused = [claim for claim in gone if not users_of(claim)]
    named = [*users, *(f"claim {key_of(claim.metadata)}" for claim in unused)]
    effects = [f"releases devices of claim {', '.join(c.metadata.name for c in claims)}"]
    for pod in pods:
        owner = pod.metadata.controller()
        if owner is not None:
            effects.append(f"its {owner.kind} creates {key_of(pod.metadata)} again")
    return ObjectChange(
        "ReleaseDevices",
        f"delete {', '.join(named)}, which hold{'s' * (len(named) == 1)} devices",
        5.0 + len(claims),
        f"ResourceClaim/{key_of(claims[0].metadata)}",
        stored=tuple(
            structs.replace(claim, status=type(claim.status)())
            for claim in claims
            if claim not in gone
        ),
        deleted=tuple(gone),
        leaving=tuple(pod for pod in pods if pod.spec.node_name),
        commands=(
            *(delete_command("pod", *key.split("/")) for key in users),
            *(
                delete_command("resourceclaim", c.metadata.namespace, c.metadata.name)
                for c in unused
            ),
        ),
        effects=tuple(effects),
    )


def _anew(claim: Any) -> Any:  # noqa: ANN401  # of either kind
    """The claim as another object of the same name."""
    meta = structs.replace(claim.metadata, uid=f"{claim.metadata.uid}/new", resource_version="")
    return structs.replace(claim, metadata=meta)


# -- volumes ---------------------------------------------------------------------------------------


def _of_volumes(pod: Pod, listers: Listers) -> Iterator[tuple[str, AnyChange]]:
    """Create a missing claim, use the one with the nearest name, or a storage class that exists."""
    namespace = pod.metadata.namespace
    claims = listers.of(PersistentVolumeClaim)
    classes: list[StorageClass] = list(listers.of(StorageClass).list())
    for at, volume in enumerate(pod.spec.volumes or ()):
        use = claim_use(pod, volume)
        if use is None or use.is_ephemeral:
            continue
        claim: PersistentVolumeClaim | None = claims.get(namespace, use.name)
        if claim is None:
            near = nearest(use.name, [one.metadata.name for one in claims.list(namespace)])
            path = f"/spec/volumes/{at}/persistentVolumeClaim/claimName"
            if near:
                text = f"use claim {near} instead of {use.name}"
                operation = {"op": "replace", "path": path, "value": near}
                yield use.name, pod_edit("UseClaim", text, 2.0, [operation])
            yield from ((use.name, _creation(namespace, use.name, one)) for one in _best(classes))
            continue
        name = class_of_claim(claim)
        if name and not claim.spec.volume_name and all(c.metadata.name != name for c in classes):
            near = nearest(name, [one.metadata.name for one in classes])
            for one in [c for c in classes if c.metadata.name == near] or _best(classes):
                yield use.name, _other_class(claim, name, one)


def _best(classes: Sequence[StorageClass]) -> list[StorageClass]:
    """The default class, or the only one."""
    marked = [c for c in classes if (c.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true"]
    return list(islice(marked or (classes if len(classes) == 1 else ()), 1))


def _creation(namespace: str, name: str, storage_class: StorageClass) -> ObjectChange:
    manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class.metadata.name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    claim = msgspec.convert(manifest, PersistentVolumeClaim)
    command = f"kubectl apply -f - <<< {shlex.quote(json.dumps(manifest))}"
    return ObjectChange(
        "CreateClaim",
        f"create claim {name} of class {storage_class.metadata.name}",
        2.5,
        f"PersistentVolumeClaim/{namespace}/{name}",
        stored=provisioned(claim, storage_class),
        commands=(command,),
        effects=("size and access mode are for you to choose", *_awaited(storage_class)),
    )


def _other_class(claim: PersistentVolumeClaim, name: str, by: StorageClass) -> ObjectChange:
    spec = structs.replace(claim.spec, storage_class_name=by.metadata.name)
    edited = _anew(structs.replace(claim, spec=spec))
    operation = {"op": "replace", "path": "/spec/storageClassName", "value": by.metadata.name}
    meta = claim.metadata
    return ObjectChange(
        "OtherStorageClass",
        f"storage class {by.metadata.name} instead of {name} in claim {meta.name}",
        2.2,
        f"PersistentVolumeClaim/{key_of(meta)}",
        stored=provisioned(edited, by),
        deleted=(claim,),
        commands=(replace_command("pvc", meta.namespace, meta.name, operation),),
        effects=("a claim's class cannot be changed: it is made anew", *_awaited(by)),
    )


def _awaited(storage_class: StorageClass) -> list[str]:
    if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        return []
    return [f"tried with the volume that {storage_class.provisioner} has to create"]
