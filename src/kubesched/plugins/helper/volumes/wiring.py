"""Access to the handle for storage plugins."""

from __future__ import annotations

from kubesched.framework.handle import Handle, Listers


def listers_of(handle: Handle) -> Listers:
    """The listers, which are required as soon as a pod names a claim."""
    assert handle.listers is not None, "a pod with claims needs listers"
    return handle.listers
