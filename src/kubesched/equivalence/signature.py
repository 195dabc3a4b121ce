"""The class signature: equal for pods that every plugin of a profile treats alike."""

from __future__ import annotations

import msgspec

from kubesched.api.core_v1 import Pod
from kubesched.framework.runtime.framework import Framework

_encode = msgspec.msgpack.Encoder().encode

MAX_SIGNATURE_BYTES = 16 * 1024
"""Thousands of signatures are kept. A pod with a longer one, such as one with thousands of constraints, is rare or hostile:
it shares no answers."""


def class_signature(framework: Framework, pod: Pod) -> bytes | None:
    """Equal for pods that every plugin of the profile must treat alike; None when the pod cannot share answers."""
    status = pod.status
    if (
        status.container_statuses
        or status.init_container_statuses
        or status.resources
        or status.allocated_resources
    ):
        return None  # the requests of a pod being resized depend on its status
    if pod.spec.resource_claims:
        return None
    meta = pod.metadata
    owner = next(
        ((o.api_version, o.kind, o.name) for o in meta.owner_references or () if o.controller), None
    )
    extra = [plugin.class_fields(pod) for plugin in framework.class_field_plugins]
    signature = _encode(
        (
            framework.profile_name,
            meta.namespace,
            meta.labels,
            owner,
            pod.spec,
            repr(extra) if extra else None,
        )
    )
    return signature if len(signature) <= MAX_SIGNATURE_BYTES else None


def shape_signature(framework: Framework, pod: Pod, class_key: bytes) -> bytes:
    """Equal for pods that every plugin of NODE or ROW scope must treat alike."""
    if framework.reads_pod_labels:
        return class_key
    extra = [plugin.class_fields(pod) for plugin in framework.class_field_plugins]
    parts = (framework.profile_name, pod.metadata.namespace, pod.spec, repr(extra) if extra else "")
    return _encode(parts)
