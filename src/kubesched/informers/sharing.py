"""Equal parts of pods are kept once.

Pods of one ReplicaSet have equal containers, tolerations, affinity and labels. Decoded one by one, a pod takes 7.5 kB with what
the scheduler keeps beside it; with equal parts shared, 2.7 kB (`benchmarks/pod_memory.py`). Records are frozen, and lists and dictionaries in them are treated so.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, Volume

TOKEN_VOLUME: Final = "kube-api-access-"
"""The API server adds a volume of this name and five random letters to every pod. The letters are dropped: nothing reads them, and
with them no two pods were equal."""

_SPEC = (
    "volumes",
    "init_containers",
    "containers",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
)
_METADATA = ("labels", "annotations", "owner_references")
_STATUS = ("host_ips", "init_container_statuses", "container_statuses")

_encode = msgspec.msgpack.Encoder().encode
_replace = structs.force_setattr


PARTS_LIMIT: Final = 20_000
"""Distinct parts of one field that are remembered. Beyond that all are forgotten, which only ends the sharing with them."""


class Sharing:
    """Remembers one of each distinct part while pods come in."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parts: dict[str, dict[bytes, Any]] = {
            name: {} for name in (*_SPEC, *_METADATA, *_STATUS)
        }
        """By field, and in it by what the part is encoded as: of one type, equal encodings are equal values."""
        self._siblings: dict[str, Pod] = {}
        self._volumes: dict[bytes, Any] = {}
        self._conditions: dict[bytes, Any] = {}

    def share(self, pod: Pod) -> None:
        """Have a pod that was just decoded, and that no one else holds, share what it can with those seen before."""
        spec, metadata, status = pod.spec, pod.metadata, pod.status
        # Of volumes and conditions one may differ from pod to pod (a claim, a time), and the others recur.
        if spec.volumes is not None:
            _share_each(_with_plain_tokens(spec.volumes), self._volumes)
        sibling = self._sibling_of(pod)
        self._replace_parts(spec, sibling.spec, _SPEC)
        self._replace_parts(metadata, sibling.metadata, _METADATA)
        self._replace_parts(status, sibling.status, _STATUS)
        _share_each(status.conditions, self._conditions)
        texts = self._texts
        _replace(spec, "node_name", texts.setdefault(spec.node_name, spec.node_name))
        _replace(spec, "scheduler_name", texts.setdefault(spec.scheduler_name, spec.scheduler_name))
        _replace(metadata, "namespace", texts.setdefault(metadata.namespace, metadata.namespace))
        if len(texts) > PARTS_LIMIT:
            texts.clear()

    def shared(self, pod: Pod) -> Pod:
        """The same pod after `share`: for informers, which keep what they decode."""
        self.share(pod)
        return pod

    def _sibling_of(self, pod: Pod) -> Pod:
        """A pod of the same owner, whose parts are likely to be equal; the pod itself if it is the first."""
        owners = pod.metadata.owner_references
        if not owners:
            return pod
        siblings = self._siblings
        sibling = siblings.get(owners[0].uid)
        if sibling is None:
            if len(siblings) > PARTS_LIMIT:
                siblings.clear()
            sibling = siblings[owners[0].uid] = pod
        return sibling

    def _replace_parts(self, record: Any, sibling: Any, names: tuple[str, ...]) -> None:  # noqa: ANN401  # frozen records
        for name in names:
            part = getattr(record, name)
            if part is None:
                continue
            known = getattr(sibling, name)
            if known is part or known != part:  # comparing takes a fraction of the time of encoding
                parts = self._parts[name]
                known = parts.setdefault(_encode(part), part)
                if len(parts) > PARTS_LIMIT:
                    parts.clear()
            if known is not part:
                _replace(record, name, known)


def _with_plain_tokens(volumes: list[Volume]) -> list[Volume]:
    for at, volume in enumerate(volumes):
        if volume.projected is not None and volume.name.startswith(TOKEN_VOLUME):
            volumes[at] = structs.replace(volume, name=TOKEN_VOLUME)
    return volumes


def _share_each(parts: list[Any] | None, known: dict[bytes, Any]) -> None:
    if parts is not None:
        for at, part in enumerate(parts):
            parts[at] = known.setdefault(_encode(part), part)
        if len(known) > PARTS_LIMIT:
            known.clear()
