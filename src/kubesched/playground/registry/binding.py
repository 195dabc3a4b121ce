"""Binds a pod to a node."""

from __future__ import annotations

from kubesched.playground.apimachinery.failures import conflict, not_found, other_uid
from kubesched.playground.apimachinery.objects import JsonObject, timestamp
from kubesched.playground.registry.rest_storage import RestStorage

TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Node labels that are copied to the pod."""


def bind(
    registry: RestStorage,
    namespace: str,
    name: str,
    node_name: str,
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    dry_run: bool = False,
) -> None:
    """Set `spec.nodeName`; refused if the pod is bound, gated, terminating or has another uid."""
    pods = registry.catalog.get("pods")
    old = registry.get(pods, namespace, name)
    pod = old.obj
    metadata, spec = pod["metadata"], pod["spec"]
    if uid and uid != metadata["uid"]:
        raise other_uid(pods, name, uid, metadata["uid"])
    if resource_version and resource_version != str(old.revision):
        why = (
            f"Precondition failed: ResourceVersion in precondition: {resource_version},"
            f" ResourceVersion in object meta: {old.revision}"
        )
        raise conflict(pods, name, why)
    if metadata.get("deletionTimestamp") is not None:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise conflict(pods, name, why, "binding")
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict(pods, name, why, "binding")
    if spec.get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
        raise conflict(pods, name, why, "binding")
    if registry.store.get("nodes", "", node_name) is None:
        raise not_found(registry.catalog.get("nodes"), node_name)
    if dry_run:
        return
    now = timestamp(registry.clock.now())
    registry.modify(
        pods, old, lambda pod: _bound(registry, pod, node_name, now, annotations, labels)
    )


def add_topology_labels(registry: RestStorage, metadata: JsonObject, node_name: str) -> None:
    """Set the pod's zone and region labels to those of its node, if the node exists."""
    node = registry.store.get("nodes", "", node_name)
    labels = node.obj["metadata"].get("labels") if node is not None else None
    topology = {key: labels[key] for key in TOPOLOGY_LABELS if key in labels} if labels else {}
    if topology:
        metadata["labels"] = {**(metadata.get("labels") or {}), **topology}


def _bound(
    registry: RestStorage,
    pod: JsonObject,
    node_name: str,
    now: str,
    annotations: dict[str, str] | None,
    labels: dict[str, str] | None,
) -> JsonObject:
    metadata = dict(pod["metadata"])
    for field, added in (("annotations", annotations), ("labels", labels)):
        if added:
            metadata[field] = {**(metadata.get(field) or {}), **added}
    add_topology_labels(registry, metadata, node_name)
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    status["conditions"] = [
        *(
            condition
            for condition in status.get("conditions") or ()
            if condition.get("type") != "PodScheduled"
        ),
        {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        },
    ]
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "nodeName": node_name},
        "status": status,
    }
