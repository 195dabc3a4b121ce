"""Keeps equal parts of pods once.

Pods of one ReplicaSet have equal containers, tolerations, affinity and labels. Decoded separately,
a pod takes 7.6 kB with the scheduler's derived data; with equal parts shared, 2.1 kB
(`benchmarks/pod_memory.py`). Records are frozen, and their lists and dictionaries are treated as
frozen.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, Volume
from kubesched.base.sized_cache import SizedCache

TOKEN_VOLUME: Final = "kube-api-access-"
"""The API server adds a volume of this name and five random letters to every pod. The letters are
dropped: nothing reads them, and with them no two pods are equal.
"""

_LISTS_OF_PARTS = frozenset(("volumes", "conditions"))
"""In these lists one item may differ from pod to pod (a claim, a time) while the others recur."""
_SPEC = (
    "volumes",
    "init_containers",
    "containers",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "scheduler_name",
    "node_name",
)
_METADATA = ("labels", "annotations", "owner_references", "namespace")
_STATUS = ("conditions", "host_ips", "init_container_statuses", "container_statuses")

BYTES_LIMIT: Final = 1024 * 1024
"""Of the parts remembered per field, encoded: some 5,000 lists of containers, or names of 90,000
nodes. Beyond that all are forgotten and no longer shared. What is remembered stays when its pods
have gone: with 20,000 parts per field a process grew by 20 MB in a quarter of an hour of churn.
"""

_encode = msgspec.msgpack.Encoder().encode


class Sharing:
    """Remembers each distinct part while pods arrive."""

    def __init__(self) -> None:
        self._known: dict[str, SizedCache[Any]] = {}
        """By field, then by encoding: for one type, equal encodings are equal values."""

    def share(self, pod: Pod) -> Pod:
        """Let a newly decoded pod with no other owner share its parts with earlier pods.

        Returns the pod itself, as informers require of a transform.
        """
        if pod.spec.volumes is not None:
            _drop_token_letters(pod.spec.volumes)
        self._share_fields(pod.spec, _SPEC)
        self._share_fields(pod.status, _STATUS)
        self._share_fields(pod.metadata, _METADATA)
        structs.force_setattr(pod, "spec", self._shared("spec", pod.spec))
        structs.force_setattr(pod, "status", self._shared("status", pod.status))
        return pod

    def _share_fields(self, record: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401  # records
        for name in names:
            part = getattr(record, name)
            if part:
                if name in _LISTS_OF_PARTS:
                    part[:] = [self._shared(f"{name}[]", item) for item in part]
                structs.force_setattr(record, name, self._shared(name, part))

    def _shared(self, name: str, part: Any) -> Any:  # noqa: ANN401  # records, or lists or maps of them
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = SizedCache(BYTES_LIMIT)
        encoded = _encode(part)
        first = known.get(encoded)
        if first is None:
            known.keep(encoded, len(encoded), part)
            return part
        return first


def _drop_token_letters(volumes: list[Volume]) -> None:
    for at, volume in enumerate(volumes):
        if volume.projected is not None and volume.name.startswith(TOKEN_VOLUME):
            volumes[at] = structs.replace(volume, name=TOKEN_VOLUME)
