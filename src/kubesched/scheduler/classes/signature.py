"""The class signature: equal for pods that every plugin of a profile treats equally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from kubesched.api.core_v1 import Pod, PodSchedulingGroup, PodSpec, Volume
from kubesched.base.sized_cache import SizedCache
from kubesched.framework.runtime.framework import Framework

_encode = msgspec.msgpack.Encoder().encode

MAX_SIGNATURE_BYTES = 16 * 1024
"""Pods with a longer signature, such as thousands of constraints, are rare or hostile: they share
no answers, because thousands of signatures are cached.
"""

SIGNATURES_BYTES_LIMIT = 1024 * 1024
"""Maximum bytes of signatures, and of shapes: about 4,000 of ordinary pods. A class with its
answers takes about twenty times its signature, most of it for the names in the pod.
"""

_SOME_GROUP = PodSchedulingGroup()
"""Members of groups do not share answers with single pods, which fail in another way."""


class Signature(NamedTuple):
    """Identifies pods that plugins must treat equally."""

    shape: bytes
    """What answers by row depend on: usually all but labels, owner, claims and group."""
    whole: bytes
    """The shape plus these."""


class Signatures:
    """Signatures by the identity of what they are made of: informers store equal parts once."""

    def __init__(self) -> None:
        self._known: SizedCache[tuple[Signature, object]] = SizedCache(SIGNATURES_BYTES_LIMIT)
        """With the parts, so that no other object gets their identity."""

    def of(self, framework: Framework, pod: Pod) -> Signature | None:
        """`class_signature`."""
        if framework.class_field_plugins or _counts_by_status(pod):
            return class_signature(framework, pod)
        meta, spec = pod.metadata, pod.spec
        labels, owners = meta.labels, meta.owner_references
        key = framework.profile_name, meta.namespace, id(spec), id(labels), id(owners)
        known = self._known.get(key)
        if known is not None:
            return known[0]
        signature = class_signature(framework, pod)
        if signature is not None:
            self._known.keep(key, len(signature.whole), (signature, (spec, labels, owners)))
        return signature


def class_signature(framework: Framework, pod: Pod) -> Signature | None:
    """Equal for pods that all plugins must treat equally; None if the pod cannot share answers."""
    if _counts_by_status(pod) or pod.spec.resource_claims:
        return None
    meta, owner = pod.metadata, None
    if meta.owner_references:
        controllers = (o for o in meta.owner_references if o.controller)
        owner = next(((o.api_version, o.kind, o.name) for o in controllers), None)
    extra = None
    if framework.class_field_plugins:
        extra = repr([plugin.class_fields(pod) for plugin in framework.class_field_plugins])
    spec, claims, group = pod.spec, None, None
    if spec.volumes and framework.ignores_names:
        spec, claims = _without_claim_names(spec, spec.volumes)
    if spec.scheduling_group is not None and framework.ignores_names:
        spec, group = replace(spec, scheduling_group=_SOME_GROUP), spec.scheduling_group
    shape = _encode((framework.profile_name, meta.namespace, spec, extra))
    whole = shape + _encode((meta.labels, owner, claims, group))
    if len(whole) > MAX_SIGNATURE_BYTES:
        return None
    return Signature(shape if framework.answers_by_spec else whole, whole)


def _counts_by_status(pod: Pod) -> bool:
    """True if requests depend on the status, as during a resize."""
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
    """The spec with empty claim names, and the names."""
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
