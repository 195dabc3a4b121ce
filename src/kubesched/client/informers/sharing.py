"""Keeps equal parts of pods once.

Pods of one ReplicaSet have equal containers, tolerations, affinity and labels. Decoded separately,
a pod takes 7.6 kB with the scheduler's derived data; with equal parts shared, 2.1 kB
(`benchmarks/pod_memory.py`). Records are frozen, and their lists and dictionaries are treated as
frozen.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, Volume
from kubesched.api.meta import Record
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
_UNBOUND, _BOUND = ("spec", "status"), ("bound spec", "bound status")

BYTES_LIMIT: Final = 1024 * 1024
"""Limit per field, in encoded bytes: some 5,000 lists of containers, or names of 90,000 nodes.
Beyond that all parts are forgotten and no longer shared. Parts are kept after their pods have gone:
with 20,000 parts per field a process grew by 20 MB in a quarter of an hour of churn.
"""

_encode = msgspec.msgpack.Encoder().encode
_metadata_parts = attrgetter(*_METADATA)


class Sharing:
    """Remembers each distinct part while pods arrive."""

    def __init__(self) -> None:
        self._known: dict[str, SizedCache[Any]] = {}
        """By field, then by encoding: for one type, equal encodings are equal values."""
        self._last: dict[str, tuple[object, Record]] = {}
        """The last result of `_alike` by name, with the parts it was found for."""

    def share(self, pod: Pod) -> Pod:
        """Let a newly decoded pod with no other owner share its parts with earlier pods.

        Returns the pod itself, as informers require of a transform.
        """
        spec, status, metadata = pod.spec, pod.status, pod.metadata
        if spec.volumes is not None:
            _drop_token_letters(spec.volumes)
        # Pods that appear and pods that were bound arrive in turn.
        spec_kind, status_kind = _BOUND if spec.node_name else _UNBOUND
        parts = (spec.node_name, spec)  # compared by node first, in which bound pods differ
        structs.force_setattr(pod, "spec", self._alike(spec_kind, spec, parts, _SPEC))
        structs.force_setattr(pod, "status", self._alike(status_kind, status, status, _STATUS))
        known = self._alike("metadata", metadata, _metadata_parts(metadata), _METADATA)
        if known is not metadata:
            for name in _METADATA:
                structs.force_setattr(metadata, name, getattr(known, name))
        return pod

    def _alike(self, name: str, record: Record, parts: object, fields: tuple[str, ...]) -> Record:
        """A known record with equal parts, or this one with its fields shared."""
        # Pods of one owner often arrive in a row, and comparing takes half the time of encoding.
        last = self._last.get(name)
        if last is not None and last[0] == parts:
            return last[1]
        known: Record = self._shared(name, parts, record)
        if known is record:
            for field in fields:
                part = getattr(record, field)
                if part:
                    if field in _LISTS_OF_PARTS:
                        part[:] = [self._shared(f"{field}[]", item, item) for item in part]
                    structs.force_setattr(record, field, self._shared(field, part, part))
        self._last[name] = parts, known
        return known

    def _shared(self, name: str, part: object, value: Any) -> Any:  # noqa: ANN401  # records, or lists or maps of them
        """The first value with an equal part."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = SizedCache(BYTES_LIMIT)
        encoded = _encode(part)
        first = known.get(encoded)
        if first is None:
            known.keep(encoded, len(encoded), value)
            return value
        return first


def _drop_token_letters(volumes: list[Volume]) -> None:
    for at, volume in enumerate(volumes):
        if volume.projected is not None and volume.name.startswith(TOKEN_VOLUME):
            volumes[at] = structs.replace(volume, name=TOKEN_VOLUME)
