"""Equal parts of pods are kept once.

Pods of one ReplicaSet have equal containers, tolerations, affinity and labels. Decoded one by one, a pod takes 7.5 kB with what
the scheduler keeps beside it; with equal parts shared, 2.7 kB (`benchmarks/pod_memory.py`). Records are frozen, and lists and dictionaries in them are treated so.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import structs

from kubesched.api.core_v1 import Pod, PodSpec, PodStatus, Volume
from kubesched.api.meta import ObjectMeta

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
        self._siblings: dict[tuple[str, bool], Pod] = {}
        """The last pod of each owner, by whether it is bound: its status is then likely to be equal, too."""
        self._volumes: dict[bytes, Any] = {}
        self._conditions: dict[bytes, Any] = {}

    def share(self, pod: Pod) -> Pod:
        """Have a pod that was just decoded, and that no one else holds, share what it can with those seen before.

        Returns the pod itself, as informers want it of what trims their objects.
        """
        metadata = pod.metadata
        if pod.spec.volumes is not None:
            _drop_token_letters(pod.spec.volumes)
        sibling = self._sibling_of(pod)
        self._share_spec(pod, sibling.spec)
        self._share_status(pod, sibling.status)
        self._share_metadata(metadata, sibling.metadata)
        texts = self._texts
        _replace(metadata, "namespace", texts.setdefault(metadata.namespace, metadata.namespace))
        if len(texts) > PARTS_LIMIT:
            texts.clear()
        return pod

    def _share_spec(self, pod: Pod, known: PodSpec) -> None:
        """Share all but the name of the node, which most pods of one owner have in common, or part by part."""
        spec, texts = pod.spec, self._texts
        node_name = texts.setdefault(spec.node_name, spec.node_name)
        if spec is not known:
            is_there = node_name == known.node_name
            # In a copy: a pod that is played from a recording has its spec in common with other versions of it.
            there = spec if is_there else structs.replace(spec, node_name=known.node_name)
            if there == known:
                shared = known if is_there else structs.replace(known, node_name=node_name)
                _replace(pod, "spec", shared)
                return
        _replace(spec, "node_name", node_name)
        _replace(spec, "scheduler_name", texts.setdefault(spec.scheduler_name, spec.scheduler_name))
        # Of volumes one may differ from pod to pod (a claim), and the others recur.
        _share_each(spec.volumes, self._volumes)
        self._replace_parts(spec, known, _SPEC)

    def _share_metadata(self, metadata: ObjectMeta, known: ObjectMeta) -> None:
        """As `_replace_parts`, written out for the usual case: all of them are those of the sibling."""
        labels, owners, notes = known.labels, known.owner_references, known.annotations
        if (
            labels is not metadata.labels
            and labels == metadata.labels
            and owners == metadata.owner_references
            and notes == metadata.annotations
        ):
            _replace(metadata, "labels", labels)
            _replace(metadata, "owner_references", owners)
            _replace(metadata, "annotations", notes)
        else:
            self._replace_parts(metadata, known, _METADATA)

    def _share_status(self, pod: Pod, known: PodStatus) -> None:
        status = pod.status
        if status is not known and status == known:
            _replace(pod, "status", known)
            return
        self._replace_parts(status, known, _STATUS)
        # Of conditions one may differ from pod to pod (a time), and the others recur.
        _share_each(status.conditions, self._conditions)

    def _sibling_of(self, pod: Pod) -> Pod:
        """A pod of the same owner, whose parts are likely to be equal; the pod itself if it is the first."""
        owners = pod.metadata.owner_references
        if not owners:
            return pod
        siblings = self._siblings
        key = (owners[0].uid, bool(pod.spec.node_name))
        sibling = siblings.get(key)
        if sibling is None and len(siblings) > PARTS_LIMIT:
            siblings.clear()
        siblings[key] = pod
        return sibling or pod

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


def _drop_token_letters(volumes: list[Volume]) -> None:
    for at, volume in enumerate(volumes):
        if volume.projected is not None and volume.name.startswith(TOKEN_VOLUME):
            volumes[at] = structs.replace(volume, name=TOKEN_VOLUME)


def _share_each(parts: list[Any] | None, known: dict[bytes, Any]) -> None:
    if parts is not None:
        for at, part in enumerate(parts):
            parts[at] = known.setdefault(_encode(part), part)
        if len(known) > PARTS_LIMIT:
            known.clear()
