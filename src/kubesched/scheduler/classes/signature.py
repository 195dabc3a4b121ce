"""The class signature: equal for pods that every plugin of a profile treats alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kubesched.api.core_v1 import Pod, PodSpec, Volume
from kubesched.api.meta import OwnerReference
from kubesched.framework.runtime.framework import Framework

_encode = msgspec.msgpack.Encoder().encode

MAX_SIGNATURE_BYTES = 16 * 1024
"""Thousands of signatures are kept. A pod with a longer one, such as one with thousands of
constraints, is rare or hostile: it shares no answers.
"""

SIGNED_LIMIT = 1000
"""Specs whose signature is kept."""


class Signature(NamedTuple):
    """What identifies the pods that plugins must treat alike."""

    shape: bytes
    """What answers by row depend on: mostly all but labels, owner and names of claims."""
    whole: bytes
    """With these."""


def class_signature(framework: Framework, pod: Pod) -> Signature | None:
    """Equal for pods that every plugin of the profile must treat alike; None when the pod cannot share answers."""
    if _counts_by_status(pod) or pod.spec.resource_claims:
        return None
    meta, owner = pod.metadata, None
    if meta.owner_references:
        controllers = (o for o in meta.owner_references if o.controller)
        owner = next(((o.api_version, o.kind, o.name) for o in controllers), None)
    extra = None
    if framework.class_field_plugins:
        extra = repr([plugin.class_fields(pod) for plugin in framework.class_field_plugins])
    spec, claims = pod.spec, None
    if spec.volumes and framework.answers_by_spec:
        spec, claims = _without_claim_names(spec, spec.volumes)
    shape = _encode((framework.profile_name, meta.namespace, spec, extra))
    whole = shape + _encode((meta.labels, owner, claims))
    if len(whole) > MAX_SIGNATURE_BYTES:
        return None
    return Signature(shape if framework.answers_by_spec else whole, whole)


class _Signed(NamedTuple):
    """What a signature was made of.

    Held on to, so that no other part gets the identity of one of these.
    """

    spec: PodSpec
    labels: dict[str, str] | None
    owners: list[OwnerReference] | None
    namespace: str
    signature: Signature


class Signatures:
    """Signatures of one framework's pods, kept for pods that consist of the very same parts.

    Informers share equal parts of pods of one owner (`informers.sharing`), so that the next pod of
    a ReplicaSet need not be encoded.
    """

    __slots__ = ("_framework", "_kept")

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._kept: dict[int, _Signed] = {}
        """By the identity of the spec."""

    def of(self, pod: Pod) -> Signature | None:
        """`class_signature`."""
        spec, meta = pod.spec, pod.metadata
        if not meta.owner_references or self._framework.class_field_plugins:
            return class_signature(self._framework, pod)
        kept = self._kept.get(id(spec))
        if (
            kept is not None
            and kept.labels is meta.labels
            and kept.owners is meta.owner_references
            and kept.namespace == meta.namespace
            and not _counts_by_status(pod)
        ):
            return kept.signature
        signature = class_signature(self._framework, pod)
        if signature is not None:
            if len(self._kept) >= SIGNED_LIMIT:
                self._kept.clear()
            labels, owners = meta.labels, meta.owner_references
            self._kept[id(spec)] = _Signed(spec, labels, owners, meta.namespace, signature)
        return signature


def _counts_by_status(pod: Pod) -> bool:
    """Whether requests depend on the status, as those of a pod being resized do."""
    status = pod.status
    return bool(
        status.container_statuses
        or status.init_container_statuses
        or status.resources
        or status.allocated_resources
    )


def _without_claim_names(
    spec: PodSpec, volumes: Sequence[Volume]
) -> tuple[PodSpec, list[str] | None]:
    """The spec with empty names of claims, and the names."""
    sources = [volume.persistent_volume_claim for volume in volumes]
    names = [source.claim_name for source in sources if source is not None]
    if not names:
        return spec, None
    nameless = [
        volume
        if source is None
        else replace(volume, persistent_volume_claim=replace(source, claim_name=""))
        for volume, source in zip(volumes, sources, strict=True)
    ]
    return replace(spec, volumes=nameless), names
