"""scheduling.k8s.io/v1: priorities of pods."""

from __future__ import annotations

from kubesched.api.meta import ObjectMeta, Record, constant


class PriorityClass(Record):
    """A name for a priority."""

    kind: str = constant("PriorityClass")
    api_version: str = constant("scheduling.k8s.io/v1")
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
