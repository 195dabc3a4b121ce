"""Shortest ways to say what matters about claims, volumes, classes and CSI objects."""

import msgspec

from kubesched.api.core_v1 import PersistentVolume, PersistentVolumeClaim
from kubesched.api.names import key_of
from kubesched.api.storage_v1 import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    StorageClass,
    VolumeAttachment,
)
from kubesched.client.informers.lister import Lister
from kubesched.client.informers.store import Store
from kubesched.testing import make_pod

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"


def expression(key, *values, operator="In"):
    return {"key": key, "operator": operator, "values": list(values)}


def affinity(*terms):
    """Node affinity of a volume: each term is a list of expressions."""
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}}


def on_node(name):
    return affinity([expression(HOSTNAME, name)])


def in_zone(*zones):
    return affinity([expression(ZONE, *zones)])


def claim_json(
    name,
    namespace="default",
    *,
    storage_class="wait",
    volume="",
    bound=None,
    size="1Gi",
    modes=("ReadWriteOnce",),
    annotations=(),
    version="1",
    uid=None,
    owner=None,
    phase="",
    deleting=False,
    **spec,
):
    """A claim; bound to a volume unless said otherwise when it names one.

    `owner` is a pod that controls it.
    """
    bound = bool(volume) if bound is None else bound
    json = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}" if uid is None else uid,
            "resourceVersion": version,
            "annotations": {**dict(annotations), **({BIND_COMPLETED: "yes"} if bound else {})},
        },
        "spec": {"accessModes": list(modes), "volumeName": volume, **spec},
        "status": {"phase": phase or ("Bound" if bound else "Pending")},
    }
    if size is not None:
        json["spec"]["resources"] = {"requests": {"storage": size}}
    if storage_class is not None:
        json["spec"]["storageClassName"] = storage_class
    if owner is not None:
        json["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}
        ]
    if deleting:
        json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return json


def claim(name, namespace="default", **fields):
    return msgspec.convert(claim_json(name, namespace, **fields), PersistentVolumeClaim)


def volume_json(
    name,
    *,
    storage_class="wait",
    size="1Gi",
    modes=("ReadWriteOnce",),
    reach=None,
    reserved=None,
    phase="Available",
    labels=(),
    annotations=(),
    version="1",
    deleting=False,
    **spec,
):
    """A volume; `reach` is its node affinity, `reserved` (name, uid) the claim it names."""
    json = {
        "metadata": {
            "name": name,
            "resourceVersion": version,
            "labels": dict(labels),
            "annotations": dict(annotations),
        },
        "spec": {
            "capacity": {} if size is None else {"storage": size},
            "accessModes": list(modes),
            "storageClassName": storage_class,
            **spec,
        },
        "status": {"phase": phase},
    }
    if reach is not None:
        json["spec"]["nodeAffinity"] = reach
    if reserved is not None:
        who, uid = reserved
        json["spec"]["claimRef"] = {"name": who, "namespace": "default", "uid": uid}
    if deleting:
        json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return json


def volume(name, **fields):
    return msgspec.convert(volume_json(name, **fields), PersistentVolume)


def csi(driver="csi.example.com", handle="h"):
    return {"driver": driver, "volumeHandle": handle}


def storage_class_json(
    name="wait", mode="WaitForFirstConsumer", provisioner="csi.example.com", **more
):
    json = {"metadata": {"name": name}, "provisioner": provisioner, **more}
    if mode is not None:
        json["volumeBindingMode"] = mode
    return json


def storage_class(name="wait", mode="WaitForFirstConsumer", **fields):
    return msgspec.convert(storage_class_json(name, mode, **fields), StorageClass)


def topology(**labels):
    """One term of allowedTopologies; keys with underscores stand for
    `topology.kubernetes.io/...`.
    """
    return {
        "matchLabelExpressions": [
            {"key": f"topology.kubernetes.io/{key}", "values": list(values)}
            for key, values in labels.items()
        ]
    }


def csi_node_json(name, limits=(), migrated=(), drivers=()):
    """`limits` maps driver names to counts, None for a driver without one."""
    entries = [
        {"name": driver, "nodeID": name}
        | ({} if count is None else {"allocatable": {"count": count}})
        for driver, count in dict(limits).items()
    ]
    entries.extend({"name": driver, "nodeID": name} for driver in drivers)
    json = {"metadata": {"name": name, "annotations": {}}, "spec": {"drivers": entries}}
    if migrated:
        json["metadata"]["annotations"][MIGRATED] = ",".join(migrated)
    return json


def csi_node(name, limits=(), migrated=(), drivers=()):
    return msgspec.convert(csi_node_json(name, limits, migrated, drivers), CSINode)


def csi_driver(name="csi.example.com", **spec):
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, CSIDriver)


def capacity_json(name, storage_class="wait", segment=None, **amounts):
    """`segment` is a dictionary of labels, a whole selector, or None for unreachable."""
    json = {
        "metadata": {"name": name, "namespace": "storage"},
        "storageClassName": storage_class,
        **amounts,
    }
    if segment is not None:
        is_selector = "matchLabels" in segment or "matchExpressions" in segment
        json["nodeTopology"] = segment if is_selector else {"matchLabels": segment}
    return json


def capacity(name, storage_class="wait", segment=None, **amounts):
    return msgspec.convert(
        capacity_json(name, storage_class, segment, **amounts), CSIStorageCapacity
    )


def attachment_json(name, node, volume_name, attacher="csi.example.com"):
    source = {} if volume_name is None else {"persistentVolumeName": volume_name}
    return {
        "metadata": {"name": name},
        "spec": {"attacher": attacher, "nodeName": node, "source": source},
    }


def attachment(name, node, volume_name, attacher="csi.example.com"):
    return msgspec.convert(attachment_json(name, node, volume_name, attacher), VolumeAttachment)


def pod_with(*volumes, name="p", namespace="default", uid=None):
    """A pod with volumes given as JSON sources; a plain string is a claim's name."""
    builder = make_pod(name, namespace)
    if uid is not None:
        builder.uid(uid)
    sources = [
        {"persistentVolumeClaim": {"claimName": item}} if isinstance(item, str) else item
        for item in volumes
    ]
    return builder.spec(volumes=[{"name": f"v{at}", **source} for at, source in enumerate(sources)])


EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}


class Built:
    """A record where a builder is expected."""

    def __init__(self, record):
        self._record = record

    def build(self):
        return self._record


class MemoryListers:
    """Production listers over stores that a test fills itself."""

    def __init__(self, *objects):
        self._stores = {}
        self._listers = {}
        for obj in objects:
            self.put(obj)

    def of(self, kind):
        if kind not in self._listers:
            self._stores[kind] = Store()
            self._listers[kind] = Lister(self._stores[kind])
        return self._listers[kind]

    def put(self, obj):
        self.of(type(obj))
        self._stores[type(obj)].put(key_of(obj.metadata), obj)

    def remove(self, obj):
        self.of(type(obj))
        self._stores[type(obj)].remove(key_of(obj.metadata))
