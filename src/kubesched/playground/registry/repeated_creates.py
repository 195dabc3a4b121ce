"""Fast path for creating the same object many times, e.g. the pods of a ReplicaSet.

Defaulting, admission and validation of a body give the same result while nothing that admission
reads changes. Only name and uid are generated anew; everything else is shared between the objects,
which saves memory as well as time.

The cache key holds everything that may differ between two creates of one body: the second
(timestamps), the writer, and the revision of every collection that the kind's admission reads
(`Strategy.admission_reads`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from kubesched.playground.apimachinery.bodies import check_types, to_stored
from kubesched.playground.apimachinery.catalog import ResourceInfo
from kubesched.playground.apimachinery.objects import timestamp
from kubesched.playground.apimachinery.serialization import decode_json
from kubesched.playground.registry.rest_storage import RestStorage, WriteOptions
from kubesched.playground.registry.steps import at_once
from kubesched.playground.storage.store import Entry

REMEMBERED_BODIES = 16
"""Number of cached bodies, i.e. of sets that can grow at the same time."""

_Key: TypeAlias = tuple[str, str, bytes, WriteOptions, str, tuple[int, ...]]


class RepeatedCreates:
    """Creates objects from encoded bodies, reusing the result of the last create of a body."""

    def __init__(self, registry: RestStorage) -> None:
        self._registry = registry
        self._firsts: OrderedDict[_Key, Entry] = OrderedDict()

    def create(
        self, resource: ResourceInfo, namespace: str, body: bytes, options: WriteOptions
    ) -> Entry:
        registry = self._registry
        reads = registry.strategy(resource).admission_reads
        if reads is None:
            return self._create(resource, namespace, body, options)
        revisions = tuple(registry.store.collection(name).changed_at for name in reads)
        second = timestamp(registry.clock.now())
        key = (resource.key, namespace, body, options, second, revisions)
        first = self._firsts.get(key)
        if first is not None:
            return registry.create_like(resource, first, options)
        created = self._create(resource, namespace, body, options)
        metadata = created.obj["metadata"]
        if metadata.get("generateName"):  # only generated names can repeat
            self._firsts[key] = created
            if len(self._firsts) > REMEMBERED_BODIES:
                self._firsts.popitem(last=False)
        return created

    def _create(
        self, resource: ResourceInfo, namespace: str, body: bytes, options: WriteOptions
    ) -> Entry:
        check_types(resource, body)
        obj = to_stored(resource, decode_json(body))
        own_namespace = obj["metadata"].get("namespace", "")
        return at_once(self._registry.create(resource, namespace or own_namespace, obj, options))
