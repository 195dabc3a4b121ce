"""Accessors for the storage plugins' listers."""

from __future__ import annotations

from kubesched.api.meta import ApiObject
from kubesched.api.names import key_of
from kubesched.framework.handle import Handle, Listers


def listers_of(handle: Handle) -> Listers:
    """The listers, which are required once a pod names a claim."""
    assert handle.listers is not None, "a pod with claims needs listers"
    return handle.listers


def changed_key(old: ApiObject | None, new: ApiObject | None) -> str:
    """`namespace/name` of a changed object, or its name if it is cluster-scoped."""
    changed = new if new is not None else old
    assert changed is not None, "a change has a before or an after"
    return key_of(changed.metadata)
