"""References between objects."""

from __future__ import annotations

from kubesched.api.meta import Record


class ObjectReference(Record):
    """A reference to any object; fields may be missing."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class TypedLocalObjectReference(Record):
    """An object of the same namespace, any kind."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
