"""How one object names another."""

from __future__ import annotations

from kubesched.api.meta import Record


class ObjectReference(Record):
    """Any object, by as much of its identity as the writer knew."""

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
