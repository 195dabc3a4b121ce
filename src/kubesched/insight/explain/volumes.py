"""How each volume claim of a pod stands: missing, of an unknown class, waiting, or out of reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from kubesched.api import quantity
from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubesched.api.node_selectors import ParsedNodeSelector
from kubesched.api.storage_v1 import CSIStorageCapacity, StorageClass
from kubesched.framework.handle import Listers
from kubesched.framework.nodes.node_table import NodeTable
from kubesched.insight.explain.amounts import shown
from kubesched.insight.explain.details import requirement_text
from kubesched.insight.explain.evaluation import Evaluation
from kubesched.insight.explain.model import VolumeNeed
from kubesched.plugins.helper.volumes.claims import (
    NO_PROVISIONER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_uses,
    class_of_claim,
    class_of_volume,
    is_fully_bound,
    requested_storage,
    storage_capacity,
)

OF_VOLUMES = frozenset(
    {"VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits", "CSILimits"}
)


def volume_needs(evaluation: Evaluation, listers: Listers | None) -> list[VolumeNeed]:
    """The claims of a pod that a volume plugin rejects on some node."""
    if listers is None or not any(r.plugin in OF_VOLUMES for r in evaluation.rejections):
        return []
    pod = evaluation.pod.pod
    names = dict.fromkeys(use.name for use in claim_uses(pod))
    return [_need(pod, name, listers, evaluation.table) for name in names]


def _need(pod: Pod, name: str, listers: Listers, table: NodeTable) -> VolumeNeed:
    namespace = pod.metadata.namespace
    claims = listers.of(PersistentVolumeClaim)
    claim: PersistentVolumeClaim | None = claims.get(namespace, name)
    if claim is None:
        near = nearest(name, [one.metadata.name for one in claims.list(namespace)])
        elsewhere = [c.metadata.namespace for c in claims.list() if c.metadata.name == name]
        told = ["does not exist"]
        told += [f"namespace {namespace} has {near}"] if near else []
        told += [f"there is one in namespace {', '.join(elsewhere)}"] if elsewhere else []
        return VolumeNeed(claim=f"{namespace}/{name}", storage_class="", volume="", told=told)
    is_bound = is_fully_bound(claim)
    return VolumeNeed(
        claim=f"{namespace}/{name}",
        storage_class=class_of_claim(claim),
        volume=claim.spec.volume_name,
        told=list(_of_volume(claim, listers, table) if is_bound else _unbound(claim, listers)),
    )


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that is most like the given one; empty if none is."""
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), "")


def _of_volume(claim: PersistentVolumeClaim, listers: Listers, table: NodeTable) -> Iterator[str]:
    name = claim.spec.volume_name
    volume: PersistentVolume | None = listers.of(PersistentVolume).get("", name)
    if volume is None:
        yield f"is bound to volume {name}, which does not exist"
        return
    yield f"is bound to volume {name}"
    required = volume.spec.node_affinity and volume.spec.node_affinity.required
    if required:
        terms = [
            " and ".join(map(requirement_text, term.match_expressions or ()))
            for term in required.node_selector_terms or ()
        ]
        selector = ParsedNodeSelector(required)
        count = sum(node is not None and selector.matches_node(node) for node in table.nodes)
        yield f"only nodes with {' or '.join(terms)} reach it: {count} of {table.node_count}"
    zones = [f"{k}={v}" for k, v in (volume.metadata.labels or {}).items() if k.endswith("/zone")]
    if zones:
        yield f"it is labelled {', '.join(zones)}"


def _unbound(claim: PersistentVolumeClaim, listers: Listers) -> Iterator[str]:
    name = class_of_claim(claim)
    if claim.status.phase == "Lost":
        yield f"has lost its volume {claim.spec.volume_name}"
        return
    classes: list[StorageClass] = list(listers.of(StorageClass).list())
    found = next((one for one in classes if one.metadata.name == name), None)
    yield f"is not bound and wants {shown('memory', requested_storage(claim).value())}"
    if found is None and name:
        near = nearest(name, [one.metadata.name for one in classes])
        here = ", ".join(sorted(one.metadata.name for one in classes)) or "none"
        yield f"its storage class {name} does not exist"
        yield f"the nearest name is {near}" if near else f"classes here: {here}"
    elif found is not None and found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
        yield "it is bound when the pod has a node (WaitForFirstConsumer)"
        selected = (claim.metadata.annotations or {}).get(SELECTED_NODE)
        if selected:
            yield f"its volume is being created for node {selected}"
    elif found is not None:
        yield f"{found.provisioner} has to create its volume before the pod is tried (Immediate)"
    if found is None or found.provisioner == NO_PROVISIONER:
        free = [
            shown("memory", storage_capacity(volume).value())
            for volume in listers.of(PersistentVolume).list()
            if volume.spec.claim_ref is None and class_of_volume(volume) == name
        ]
        yield f"no driver creates volumes for it; free volumes: {', '.join(free) or 'none'}"
        return
    topologies = [
        f"{expression.key} in [{', '.join(expression.values or ())}]"
        for term in found.allowed_topologies or ()
        for expression in term.match_label_expressions or ()
    ]
    if topologies:
        yield f"the class allows only {' or '.join(topologies)}"
    capacities = [
        shown("memory", quantity.value(one.maximum_volume_size or one.capacity))
        for one in listers.of(CSIStorageCapacity).list()
        if one.storage_class_name == name and one.capacity is not None
    ]
    if capacities:
        yield f"storage that drivers report for the class: {', '.join(capacities)}"
