"""The write semantics of an API server for whole objects, over any store.

Checks revisions, limits status writes to the status, and delays deletion for finalizers. The
embedded server adds validation, defaulting and admission.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import structs, to_builtins

from kubesched.api import codec
from kubesched.api.meta import Condition, Record
from kubesched.base.errors import Conflict, NotFound

R = TypeVar("R", bound=Record)

_DELETED = "2026-01-01T00:00:00Z"


class StoredObjects(ABC):
    """The reads and writes of a `SchedulerClient` for kinds other than pods."""

    @abstractmethod
    def find(self, kind: type[R], namespace: str, name: str) -> R | None: ...

    @abstractmethod
    def store(self, obj: R) -> R:
        """Store a new or changed object; returns it with its new revision."""

    @abstractmethod
    def discard(self, obj: Record) -> None: ...

    @abstractmethod
    def new_suffix(self) -> str:
        """The suffix of a generated name."""

    async def get(self, kind: type[R], namespace: str, name: str) -> R:
        stored = self.find(kind, namespace, name)
        if stored is None:
            raise NotFound(f'{kind.__name__} "{name}" not found')
        return stored

    async def create(self, obj: R) -> R:
        record: Any = obj
        meta = record.metadata
        if not meta.name:
            meta = structs.replace(meta, name=meta.generate_name + self.new_suffix())
        meta = structs.replace(meta, uid=f"uid-{meta.name}")
        created: R = structs.replace(record, metadata=meta)
        return self.store(created)

    async def update(self, obj: R) -> R:
        stored, written = self._current(obj), _any(obj)
        if hasattr(stored, "status"):
            written = structs.replace(written, status=stored.status)
        if written.metadata.deletion_timestamp is not None and not written.metadata.finalizers:
            self.discard(written)
            result: R = written
            return result
        stored_as: R = self.store(written)
        return stored_as

    async def update_status(self, obj: R) -> R:
        written: R = structs.replace(self._current(obj), status=_any(obj).status)
        return self.store(written)

    async def patch_status(
        self, kind: type[R], namespace: str, name: str, patch: Mapping[str, Any]
    ) -> R:
        """Supports the scheduler's own patches: reservations of claims, conditions of groups."""
        stored: Any = await self.get(kind, namespace, name)
        if patch.get("metadata", {}).get("uid", stored.metadata.uid) != stored.metadata.uid:
            raise Conflict(f'{kind.__name__} "{name}" is another one by now')
        if "conditions" in patch["status"]:
            known = {each.type: each for each in stored.status.conditions or ()}
            for change in patch["status"]["conditions"]:
                old = known.get(change["type"])
                merged = ({} if old is None else to_builtins(old)) | change
                known[change["type"]] = codec.convert(merged, Condition)
            status = structs.replace(stored.status, conditions=list(known.values()))
            told: R = structs.replace(stored, status=status)
            return self.store(told)
        gone = {consumer["uid"] for consumer in patch["status"]["reservedFor"]}
        kept = [
            consumer for consumer in stored.status.reserved_for or () if consumer.uid not in gone
        ]
        status = structs.replace(stored.status, reserved_for=kept or None)
        written: R = structs.replace(stored, status=status)
        return self.store(written)

    async def delete(self, obj: Record) -> None:
        meta = _any(obj).metadata
        stored: Any = await self.get(type(obj), meta.namespace, meta.name)
        if not stored.metadata.finalizers:
            self.discard(stored)
        elif stored.metadata.deletion_timestamp is None:
            changed = structs.replace(stored.metadata, deletion_timestamp=_DELETED)
            self.store(structs.replace(stored, metadata=changed))

    def _current(self, obj: Record) -> Any:  # noqa: ANN401  # a record with metadata
        """The stored object, if the written one is based on it."""
        meta = _any(obj).metadata
        stored: Any = self.find(type(obj), meta.namespace, meta.name)
        if stored is None or stored.metadata.uid != meta.uid:
            raise NotFound(f'{type(obj).__name__} "{meta.name}" not found')
        if stored.metadata.resource_version != meta.resource_version:
            raise Conflict(
                f'Operation cannot be fulfilled on {type(obj).__name__} "{meta.name}": '
                "the object has been modified; please apply your changes to the latest version "
                "and try again"
            )
        return stored


def _any(obj: Record) -> Any:  # noqa: ANN401  # records of kinds have metadata, which the type does not say
    return obj
