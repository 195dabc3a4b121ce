"""API records for plugins: Kubernetes objects as frozen records, and quantities.

Part of the stable API, like `kubesched.framework`. Field names are the API's in snake case; an
absent list or map is None. Amounts of resources are kept as sent; `parse_quantity` interprets them.
"""

from kubesched.api.apps_v1 import ReplicaSet, StatefulSet
from kubesched.api.core_v1 import (
    Container,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodSpec,
    PodStatus,
    ReplicationController,
    Service,
    Taint,
    Toleration,
)
from kubesched.api.meta import CustomObject, LabelSelector, ObjectMeta, OwnerReference
from kubesched.api.policy_v1 import PodDisruptionBudget
from kubesched.api.quantity import Quantity
from kubesched.api.quantity import parse as parse_quantity
from kubesched.api.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from kubesched.api.scheduling_v1 import PriorityClass
from kubesched.api.storage_v1 import CSINode, StorageClass

__all__ = [
    "CSINode",
    "Container",
    "CustomObject",
    "DeviceClass",
    "LabelSelector",
    "Namespace",
    "Node",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodSpec",
    "PodStatus",
    "PriorityClass",
    "Quantity",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceSlice",
    "Service",
    "StatefulSet",
    "StorageClass",
    "Taint",
    "Toleration",
    "parse_quantity",
]
